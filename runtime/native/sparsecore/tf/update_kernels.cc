// Ops that run the backward pass of a lookup, and ops that update single rows.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/execution_context.h"
#include "base/text.h"
#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/cpu/rows.h"
#include "embedding/optimizers.h"
#include "sparsecore/tf/combiner_kernel.h"
#include "sparsecore/tf/csr_kernel.h"
#include "sparsecore/tf/kernel.h"
#include "sparsecore/update.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {
namespace {

using embedding::Hyper;
using embedding::kMaxHyper;
using embedding::Number;
using embedding::Optimizer;
using embedding::Range;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// The names that the ops use for the slots and hyperparameters of an optimizer, in the order of
// OptimizerTraits. A hyperparameter is an attr or an input. A null name means that the ops do
// not have it.
struct ArgNames {
  Optimizer optimizer;
  const char* slots[2];
  const char* hyper[kMaxHyper];
};
constexpr ArgNames kGradientNames[] = {
    {Optimizer::kSgd, {}, {}},
    {Optimizer::kAdagrad, {"accumulator"}, {}},
    {Optimizer::kAdagradMomentum,
     {"accumulator", "momenta"},
     {"beta1", "use_nesterov", "exponent", "beta2", "epsilon"}},
    {Optimizer::kAdam,
     {"momenta", "velocity"},
     {"beta1", "beta2", "epsilon", nullptr, "use_sum_inside_sqrt"}},
    {Optimizer::kFtrl,
     {"accumulator", "linear"},
     {"l1_regularization_strength", "l2_regularization_strength", "learning_rate_power", "beta",
      "multiply_linear_by_learning_rate"}},
};
constexpr ArgNames kRowNames[] = {
    {Optimizer::kSgd, {}, {}},
    {Optimizer::kAdagrad, {"accumulator"}, {}},
    {Optimizer::kAdagradMomentum,
     {"accumulator", "momentum"},
     {"beta_1", "use_nesterov", "exponent", "beta_2", "epsilon"}},
    {Optimizer::kAdam,
     {"momentum", "velocity"},
     {"beta_1", "beta_2", "epsilon", nullptr, "use_sum_inside_sqrt"}},
    {Optimizer::kFtrl,
     {"accumulator", "linear"},
     {"l1_regularization_strength", "l2_regularization_strength", "learning_rate_power", "beta",
      "multiply_linear_by_learning_rate"}},
};

// Updates a table and its slots. They are updated in place if no other tensor shares their
// buffers.
class TableUpdate {
 public:
  TableUpdate(OpKernelConstruction* context, const ArgNames& names) : names_(names) {
    for (int i = 0; i < kMaxHyper; ++i) {
      const char* const name = names.hyper[i];
      if (!name || !context->HasAttr(name)) continue;
      bool flag;
      if (context->GetAttr(name, &flag).ok()) {
        attrs_.values[i] = flag;
      } else {
        OP_REQUIRES_OK(context, context->GetAttr(name, &attrs_.values[i]));
        OP_REQUIRES_OK(context, CheckHyper(i, attrs_.values[i]));
      }
      is_attr_[i] = true;
    }
    if (!context->HasAttr("clip_weight_min")) return;
    float (&clip)[2] = attrs_.clip_weight;
    OP_REQUIRES_OK(context, context->GetAttr("clip_weight_min", &clip[0]));
    OP_REQUIRES_OK(context, context->GetAttr("clip_weight_max", &clip[1]));
    OP_REQUIRES(context, Hyper::AreLimits(clip),
                Invalid("clip_weight_min",
                        "must not be above clip_weight_max, and finite numbers must lie "
                        "between; they are " +
                            Number(clip[0]) + " and " + Number(clip[1])));
  }

  // Applies the optimizer. The input `gradients` is [samples of the triples, width].
  absl::Status Apply(OpKernelContext* context, const Triples& triples,
                     const char* gradients_name) const {
    const Tensor* gradients;
    TF_RETURN_IF_ERROR(context->input(gradients_name, &gradients));
    DeviceContext exec(context);
    TF_RETURN_IF_ERROR(CheckFinite(gradients_name, *gradients, exec));
    return Apply(context, triples, Floats(*gradients), gradients->dim_size(1), exec);
  }

  // Applies the optimizer. The gradients of the triples' samples are finite.
  absl::Status Apply(OpKernelContext* context, const Triples& triples, const float* gradients,
                     int64_t width, ExecutionContext& exec) const {
    Hyper hyper = attrs_;
    TF_RETURN_IF_ERROR(ReadHyper(context, &hyper));
    std::vector<std::string> names = {"embedding_table"};
    for (const char* const slot : names_.slots) {
      if (slot) names.push_back(slot);
    }
    std::vector<float*> tables;
    TF_RETURN_IF_ERROR(ForwardTables(context, names, exec, &tables));
    const auto wrong =
        UpdateRows(triples, gradients, width, names_.optimizer, hyper, tables.data(), exec);
    if (!wrong) return absl::OkStatus();
    return Invalid(
        names[static_cast<size_t>(wrong->table)],
        StrCat("must be ", Words(wrong->range), " in rows that are updated, row ", wrong->row,
               ", column ", wrong->column, " is ", Number(wrong->value)));
  }

 private:
  // Adds the hyperparameters that are inputs to the hyperparameters that are attrs.
  absl::Status ReadHyper(OpKernelContext* context, Hyper* hyper) const {
    TF_RETURN_IF_ERROR(ReadScalar(context, "learning_rate", &hyper->learning_rate));
    for (int i = 0; i < kMaxHyper; ++i) {
      if (!names_.hyper[i] || is_attr_[i]) continue;
      TF_RETURN_IF_ERROR(ReadScalar(context, names_.hyper[i], &hyper->values[i]));
      TF_RETURN_IF_ERROR(CheckHyper(i, hyper->values[i]));
    }
    const std::string wrong = WrongRate(names_.optimizer, *hyper);
    return wrong.empty() ? absl::OkStatus() : Invalid("learning_rate", wrong);
  }

  // Allocates the outputs for the table and the slots. An output reuses the buffer of its input
  // if possible, or is a copy.
  static absl::Status ForwardTables(OpKernelContext* context,
                                    const std::vector<std::string>& names,
                                    ExecutionContext& exec, std::vector<float*>* tables) {
    const Tensor* table;
    TF_RETURN_IF_ERROR(context->input(names[0], &table));
    // The shape is copied, because forwarding may release the input.
    const TensorShape shape = table->shape();
    for (const std::string& name : names) {
      const Tensor* tensor;
      TF_RETURN_IF_ERROR(context->input(name, &tensor));
      TF_RETURN_IF_ERROR(CheckShape(name, *tensor, shape, "embedding_table"));
    }
    for (const std::string& name : names) {
      const Tensor* from;
      TF_RETURN_IF_ERROR(context->input(name, &from));
      const float* const source = Floats(*from);
      Tensor* to;
      TF_RETURN_IF_ERROR(
          context->forward_input_or_allocate_output({name}, "updated_" + name, shape, &to));
      if (Floats(to) != source) Copy(source, shape.num_elements(), Floats(to), exec);
      tables->push_back(Floats(to));
    }
    return absl::OkStatus();
  }

  static absl::Status ReadScalar(OpKernelContext* context, const char* name, float* value) {
    const Tensor* tensor;
    TF_RETURN_IF_ERROR(context->input(name, &tensor));
    TF_RETURN_IF_ERROR(CheckRank(name, *tensor, 0));
    *value = tensor->scalar<float>()();
    return absl::OkStatus();
  }

  absl::Status CheckHyper(int i, float value) const {
    const Range range = embedding::TraitsOf(names_.optimizer).hyper[i].range;
    if (Within(range, value)) return absl::OkStatus();
    return Invalid(names_.hyper[i], "must be " + Words(range) + ", is " + Number(value));
  }

  static void Copy(const float* from, int64_t count, float* to, ExecutionContext& exec) {
    constexpr int64_t kBlock = 1 << 18;
    exec.For((count + kBlock - 1) / kBlock, [&](int64_t i) {
      std::copy_n(from + i * kBlock, std::min(kBlock, count - i * kBlock), to + i * kBlock);
    });
  }

  const ArgNames& names_;
  Hyper attrs_;
  bool is_attr_[kMaxHyper] = {};
};

template <Optimizer kOptimizer>
class GradientOp : public CsrKernel {
 public:
  explicit GradientOp(OpKernelConstruction* context)
      : CsrKernel(context), update_(context, kGradientNames[static_cast<int>(kOptimizer)]) {
    static_assert(kGradientNames[static_cast<int>(kOptimizer)].optimizer == kOptimizer);
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    const Tensor *table, *gradients;
    TF_RETURN_IF_ERROR(context->input("embedding_table", &table));
    TF_RETURN_IF_ERROR(context->input("activation_gradients", &gradients));
    TF_RETURN_IF_ERROR(CheckTable(*table));
    TF_RETURN_IF_ERROR(CheckRank("activation_gradients", *gradients, 2));
    if (gradients->dim_size(1) != table->dim_size(1)) {
      return Invalid(
          "activation_gradients",
          StrCat("must be as wide as embedding_table, which has ", table->dim_size(1),
                 " columns, has the shape ", gradients->shape().DebugString()));
    }
    Triples triples;
    TF_RETURN_IF_ERROR(Read(context, "activation_gradients", gradients->dim_size(0),
                            table->dim_size(0), &triples));
    return update_.Apply(context, triples, "activation_gradients");
  }

 private:
  const TableUpdate update_;
};

template <Optimizer kOptimizer>
class CombinerGradientOp : public CombinerGradientKernel {
 public:
  explicit CombinerGradientOp(OpKernelConstruction* context)
      : CombinerGradientKernel(context),
        update_(context, kGradientNames[static_cast<int>(kOptimizer)]) {}

 protected:
  absl::Status FindTable(OpKernelContext* context, const Tensor** table) const override {
    TF_RETURN_IF_ERROR(context->input("embedding_table", table));
    return CheckTable(**table);
  }

  absl::Status UpdateTables(OpKernelContext* context, const DoneCallback& done,
                            const std::shared_ptr<Backward>& backward) const override {
    DeviceContext exec(context);
    TF_RETURN_IF_ERROR(update_.Apply(context, backward->triples, Floats(backward->gradients),
                                     backward->gradients.dim_size(2), exec));
    done();
    return absl::OkStatus();
  }

 private:
  const TableUpdate update_;
};

template <Optimizer kOptimizer>
class RowsOp : public Kernel {
 public:
  explicit RowsOp(OpKernelConstruction* context)
      : Kernel(context),
        update_(context, kRowNames[static_cast<int>(kOptimizer)]),
        width_(IntAttr(context, "feature_width")) {
    static_assert(kRowNames[static_cast<int>(kOptimizer)].optimizer == kOptimizer);
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    const Tensor *table, *indices, *gradient;
    TF_RETURN_IF_ERROR(context->input("embedding_table", &table));
    TF_RETURN_IF_ERROR(context->input("indices", &indices));
    TF_RETURN_IF_ERROR(context->input("gradient", &gradient));
    TF_RETURN_IF_ERROR(CheckRank("embedding_table", *table, 2));
    if (table->dim_size(1) != width_) {
      return Invalid("embedding_table",
                     StrCat("must have feature_width columns, which is ", width_,
                            ", has the shape ", table->shape().DebugString()));
    }
    TF_RETURN_IF_ERROR(CheckRank("indices", *indices, 1));
    const int64_t count = indices->dim_size(0);
    TF_RETURN_IF_ERROR(CheckRank("gradient", *gradient, 2));
    if (gradient->dim_size(0) != count || gradient->dim_size(1) != width_) {
      return Invalid("gradient", StrCat("must have the shape [", count, ",", width_,
                                        "], as indices and feature_width say, has ",
                                        gradient->shape().DebugString()));
    }
    Triples triples;
    DeviceContext exec(context);
    TF_RETURN_IF_ERROR(
        ToAbsl(RowsToTriples(Ints(*indices), count, table->dim_size(0), &triples, exec)));
    return update_.Apply(context, triples, "gradient");
  }

 private:
  const TableUpdate update_;
  const int64_t width_;
};

#define REGISTER_UPDATES(NAME)                                                                \
  OPWRIGHT_REGISTER_CPU("XlaSparseDenseMatmulCustomCombinerOnTcGradWith" #NAME "AndCsrInput", \
                        CombinerGradientOp<Optimizer::k##NAME>);                              \
  OPWRIGHT_REGISTER_CPU("XlaSparseDenseMatmulGradWith" #NAME "AndCsrInput",                   \
                        GradientOp<Optimizer::k##NAME>);                                      \
  OPWRIGHT_REGISTER_CPU("XlaSparseDenseMatmulGradWith" #NAME "AndStaticBufferSize",           \
                        GradientOp<Optimizer::k##NAME>);                                      \
  OPWRIGHT_REGISTER_CPU("XlaSparseCore" #NAME, RowsOp<Optimizer::k##NAME>)
REGISTER_UPDATES(Sgd);
REGISTER_UPDATES(Adagrad);
REGISTER_UPDATES(AdagradMomentum);
REGISTER_UPDATES(Adam);
REGISTER_UPDATES(Ftrl);
#undef REGISTER_UPDATES

}  // namespace
}  // namespace opwright::sparsecore
