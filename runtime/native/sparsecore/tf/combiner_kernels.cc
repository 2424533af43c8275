// The op that looks up rows and combines them by a function, and the backward pass whose
// optimizer is a function.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/text.h"
#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/spec.h"
#include "sparsecore/lookup.h"
#include "sparsecore/stable_sort.h"
#include "sparsecore/tf/combiner_kernel.h"
#include "sparsecore/tf/quantization.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class CombinerOp : public CombinerKernel {
 public:
  explicit CombinerOp(OpKernelConstruction* context)
      : CombinerKernel(context),
        samples_(IntAttr(context, "input_size")),
        combiner_(context, "combiner_computation") {
    OP_REQUIRES_OK(context, ReadQuantization(context, &quantization_));
  }

 protected:
  absl::Status Start(OpKernelContext* context, const DoneCallback& done) override {
    const Tensor* table;
    TF_RETURN_IF_ERROR(context->input("embedding_table", &table));
    TF_RETURN_IF_ERROR(CheckTable(*table));
    const int64_t width = table->dim_size(1);
    TensorShape shape, activations_shape;
    TF_RETURN_IF_ERROR(VectorsShape(samples_, width, &shape));
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape({samples_, width}, &activations_shape));
    Tensor *valencies, *vectors;
    TF_RETURN_IF_ERROR(NewVector(context, 1, samples_, &valencies));
    TF_RETURN_IF_ERROR(context->allocate_output(2, shape, &vectors));
    Triples triples;
    TF_RETURN_IF_ERROR(ReadPositions(context, "input_size", samples_, table->dim_size(0),
                                     &triples, Ints(valencies)));
    DeviceContext exec(context);
    SumRows(triples, Floats(*table), width, quantization_, samples_ * max_valency(),
            Floats(vectors), exec);
    FunctionAttr::Results arguments = {*valencies, *vectors};
    TF_RETURN_IF_ERROR(AddWeights(context, "weights", samples_, &arguments));
    return combiner_.Call(
        context, arguments, 1, false,
        [=](const absl::Status& status, FunctionAttr::Results& results) {
          RunStep(context, done, [&] {
            TF_RETURN_IF_ERROR(status);
            TF_RETURN_IF_ERROR(combiner_.CheckResult(results[0], activations_shape));
            context->set_output(0, results[0]);
            done();
            return absl::OkStatus();
          });
        });
  }

 private:
  const int64_t samples_;
  const FunctionAttr combiner_;
  embedding::Quantization quantization_;
};

// The optimizer is a function of one row of the tables. It takes the gradient of the row, the
// rows and the hyperparameters, all as [1, width], and returns the rows.
class FunctionGradientOp : public CombinerGradientKernel {
 public:
  explicit FunctionGradientOp(OpKernelConstruction* context)
      : CombinerGradientKernel(context), optimizer_(context, "optimizer_custom_computation") {}

 protected:
  absl::Status FindTable(OpKernelContext* context, const Tensor** table) const override {
    OpInputList tables;
    TF_RETURN_IF_ERROR(context->input_list("tables", &tables));
    for (int i = 0; i < tables.size(); ++i) {
      const std::string name = StrCat("tables[", i, "]");
      TF_RETURN_IF_ERROR(CheckTable(tables[i], name.c_str()));
      TF_RETURN_IF_ERROR(CheckShape(name, tables[i], tables[0].shape(), "tables[0]"));
    }
    *table = &context->input(First("tables"));
    return absl::OkStatus();
  }

  absl::Status UpdateTables(OpKernelContext* context, const DoneCallback& done,
                            const std::shared_ptr<Backward>& backward) const override {
    auto loop = std::make_shared<Loop>();
    loop->backward = backward;
    loop->width = backward->gradients.dim_size(2);
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape({1, loop->width}, &loop->row_shape));
    TF_RETURN_IF_ERROR(ReadHyperparameters(context, loop.get()));
    DeviceContext exec(context);
    loop->groups = GroupByKey(backward->triples.rows, exec);
    TF_RETURN_IF_ERROR(ForwardTables(context, loop.get()));
    UpdateRows(context, done, loop);
    return absl::OkStatus();
  }

 private:
  struct Loop {
    std::shared_ptr<Backward> backward;
    int64_t width;
    TensorShape row_shape;
    FunctionAttr::Results hyperparameters;
    Groups groups;  // The triples of each row.
    std::vector<float*> tables;
    int64_t group = 0;  // The row that the function updates.
    absl::Status status;
    FunctionAttr::Results results;
  };

  // The index of the first tensor of an input.
  int First(const char* name) const {
    int first = 0, end;
    // It fails only if the op has no such input.
    static_cast<void>(InputRange(name, &first, &end));
    return first;
  }

  // Makes a row of each hyperparameter.
  static absl::Status ReadHyperparameters(OpKernelContext* context, Loop* loop) {
    OpInputList numbers;
    TF_RETURN_IF_ERROR(context->input_list("hyperparameters", &numbers));
    for (int i = 0; i < numbers.size(); ++i) {
      TF_RETURN_IF_ERROR(CheckRank(StrCat("hyperparameters[", i, "]").c_str(), numbers[i], 0));
      loop->hyperparameters.emplace_back();
      TF_RETURN_IF_ERROR(NewRow(context, *loop, &loop->hyperparameters.back()));
      std::fill_n(Floats(&loop->hyperparameters.back()), loop->width, Floats(numbers[i])[0]);
    }
    return absl::OkStatus();
  }

  // Allocates the outputs. An output reuses the buffer of its input if possible, or is a copy.
  absl::Status ForwardTables(OpKernelContext* context, Loop* loop) const {
    const int first = First("tables");
    for (int i = 0; i + 1 < context->num_outputs(); ++i) {
      const float* const from = Floats(context->input(first + i));
      const TensorShape shape = context->input(first + i).shape();
      Tensor* to;
      TF_RETURN_IF_ERROR(context->forward_input_or_allocate_output({first + i}, i, shape, &to));
      if (Floats(to) != from) std::copy_n(from, shape.num_elements(), Floats(to));
      loop->tables.push_back(Floats(to));
    }
    return absl::OkStatus();
  }

  static absl::Status NewRow(OpKernelContext* context, const Loop& loop, Tensor* row) {
    return context->allocate_temp(tensorflow::DT_FLOAT, loop.row_shape, row);
  }

  // Updates row after row. A call that returns at once does not start the next one itself,
  // because many calls would need a deep stack.
  void UpdateRows(OpKernelContext* context, const DoneCallback& done,
                  const std::shared_ptr<Loop>& loop) const {
    RunStep(context, done, [&]() -> absl::Status {
      for (; loop->group < loop->groups.size(); ++loop->group) {
        if (loop->status.ok() && loop->results.empty()) {
          FunctionAttr::Results arguments;
          TF_RETURN_IF_ERROR(Arguments(context, *loop, &arguments));
          auto met = std::make_shared<std::atomic<bool>>(false);
          TF_RETURN_IF_ERROR(
              optimizer_.Call(context, arguments, loop->tables.size(), false,
                              [=](const absl::Status& status, FunctionAttr::Results& results) {
                                loop->status = status;
                                loop->results.swap(results);
                                if (met->exchange(true)) UpdateRows(context, done, loop);
                              }));
          // The second one to arrive here or there goes on.
          if (!met->exchange(true)) return absl::OkStatus();
        }
        TF_RETURN_IF_ERROR(loop->status);
        TF_RETURN_IF_ERROR(Write(loop.get()));
      }
      done();
      return absl::OkStatus();
    });
  }

  static int64_t Begin(const Loop& loop, int64_t group) {
    return At(loop.groups.begins, group);
  }
  static int64_t RowOf(const Loop& loop) { return At(loop.groups.keys, loop.group); }

  static absl::Status Arguments(OpKernelContext* context, const Loop& loop,
                                FunctionAttr::Results* arguments) {
    arguments->emplace_back();
    TF_RETURN_IF_ERROR(NewRow(context, loop, &arguments->back()));
    std::vector<double> sums(static_cast<size_t>(loop.width));
    for (int64_t i = Begin(loop, loop.group); i < Begin(loop, loop.group + 1); ++i) {
      const int64_t at = At(loop.backward->triples.samples, At(loop.groups.order, i));
      const float* from = Floats(loop.backward->gradients) + at * loop.width;
      for (double& sum : sums) sum += *from++;
    }
    std::copy(sums.begin(), sums.end(), Floats(&arguments->back()));
    for (const float* const table : loop.tables) {
      arguments->emplace_back();
      TF_RETURN_IF_ERROR(NewRow(context, loop, &arguments->back()));
      std::copy_n(table + RowOf(loop) * loop.width, loop.width, Floats(&arguments->back()));
    }
    arguments->insert(arguments->end(), loop.hyperparameters.begin(),
                      loop.hyperparameters.end());
    return absl::OkStatus();
  }

  // Writes the rows that the function has returned to the tables.
  absl::Status Write(Loop* loop) const {
    for (const Tensor& row : loop->results) {
      TF_RETURN_IF_ERROR(optimizer_.CheckResult(row, loop->row_shape));
    }
    for (size_t i = 0; i < loop->results.size(); ++i) {
      std::copy_n(Floats(loop->results[i]), loop->width,
                  loop->tables[i] + RowOf(*loop) * loop->width);
    }
    loop->results.clear();
    return absl::OkStatus();
  }

  const FunctionAttr optimizer_;
};

OPWRIGHT_REGISTER_CPU("XlaSparseDenseMatmulCustomCombinerOnTcWithCsrInput", CombinerOp);
OPWRIGHT_REGISTER_CPU("XlaSparseDenseMatmulCustomCombinerOnTcGradWithCsrInput",
                      FunctionGradientOp);

}  // namespace
}  // namespace opwright::sparsecore
