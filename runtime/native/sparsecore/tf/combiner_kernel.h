// What the lookup with a custom combiner and its backward passes share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/text.h"
#include "base/tf/device_context.h"
#include "base/tf/status.h"
#include "embedding/optimizers.h"
#include "sparsecore/tf/csr_kernel.h"
#include "sparsecore/tf/function_attr.h"
#include "sparsecore/tf/kernel.h"
#include "sparsecore/valency.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {

class CombinerKernel : public CsrKernelOn<AsyncKernel> {
 public:
  explicit CombinerKernel(tensorflow::OpKernelConstruction* context)
      : CsrKernelOn(context),
        max_valency_(IntAttr(context, "max_valency")),
        num_weights_(IntAttr(context, "num_weights")) {}

 protected:
  // Reads triples whose samples are those of SeparatePositions.
  absl::Status ReadPositions(tensorflow::OpKernelContext* context, const char* samples_from,
                             int64_t samples, int64_t table_rows, Triples* triples,
                             int32_t* valencies) const {
    const tensorflow::Tensor *pointers, *sample_ids, *token_ids, *positions, *gains;
    TF_RETURN_IF_ERROR(context->input("row_pointers", &pointers));
    TF_RETURN_IF_ERROR(context->input("sorted_sample_ids", &sample_ids));
    TF_RETURN_IF_ERROR(context->input("sorted_token_ids", &token_ids));
    TF_RETURN_IF_ERROR(context->input("sorted_pos_ids", &positions));
    TF_RETURN_IF_ERROR(context->input("sorted_gains", &gains));
    TF_RETURN_IF_ERROR(
        CheckShape("sorted_pos_ids", *positions, sample_ids->shape(), "sorted_sample_ids"));
    const int64_t least = cores() * RowPointerStride(cores());
    if (pointers->NumElements() < least) {
      return Invalid("row_pointers",
                     StrCat("must have at least ", least, " elements, for ", cores(),
                            " SparseCores, has the shape ", pointers->shape().DebugString()));
    }
    // These ops have no minibatches.
    tensorflow::Tensor one(tensorflow::DT_INT32, tensorflow::TensorShape({}));
    one.flat<int32_t>()(0) = 1;
    CsrView csr{};
    csr.positions = Ints(*positions);
    DeviceContext exec(context);
    TF_RETURN_IF_ERROR(Read({*pointers, *sample_ids, *token_ids, *gains, one, ""}, samples_from,
                            samples, table_rows, csr, triples, exec));
    return ToAbsl(SeparatePositions(samples, max_valency_, triples, valencies));
  }

  // Sets the shape of the rows of all samples, [samples, max_valency, width].
  absl::Status VectorsShape(int64_t samples, int64_t width,
                            tensorflow::TensorShape* shape) const {
    if (samples < 0 || !(Checked(samples) * max_valency_).AtMost(kMaxInt32)) {
      return Invalid("max_valency",
                     StrCat("times the number of samples must be below 2^31, is ", max_valency_,
                            " times ", samples));
    }
    return tensorflow::TensorShape::BuildTensorShape({samples, max_valency_, width}, shape);
  }

  // Adds the weights of the input `name` to the arguments of a function, once for each sample.
  // Without weights, functions do not take them.
  absl::Status AddWeights(tensorflow::OpKernelContext* context, const char* name,
                          int64_t samples, FunctionAttr::Results* arguments) const {
    if (num_weights_ == 0) return absl::OkStatus();
    const tensorflow::Tensor* weights;
    TF_RETURN_IF_ERROR(ReadWeights(context, name, &weights));
    tensorflow::TensorShape shape;
    TF_RETURN_IF_ERROR(
        tensorflow::TensorShape::BuildTensorShape({samples, num_weights_}, &shape));
    tensorflow::Tensor all;
    TF_RETURN_IF_ERROR(context->allocate_temp(tensorflow::DT_FLOAT, shape, &all));
    float* to = Floats(&all);
    for (int64_t i = 0; i < samples; ++i) {
      to = std::copy_n(Floats(*weights), num_weights_, to);
    }
    arguments->push_back(std::move(all));
    return absl::OkStatus();
  }

  absl::Status ReadWeights(tensorflow::OpKernelContext* context, const char* name,
                           const tensorflow::Tensor** weights) const {
    TF_RETURN_IF_ERROR(context->input(name, weights));
    if ((*weights)->dims() == 1 && (*weights)->dim_size(0) == num_weights_) {
      return absl::OkStatus();
    }
    return Invalid(name,
                   StrCat("must have the shape [", num_weights_, "], as num_weights says, has ",
                          (*weights)->shape().DebugString()));
  }

  int64_t max_valency() const { return max_valency_; }
  int64_t num_weights() const { return num_weights_; }

 private:
  const int64_t max_valency_, num_weights_;
};

// Differentiates a custom combiner, and updates its weights. A derived class updates the
// tables.
class CombinerGradientKernel : public CombinerKernel {
 public:
  explicit CombinerGradientKernel(tensorflow::OpKernelConstruction* context)
      : CombinerKernel(context),
        table_vjp_(context, "combiner_table_vjp_computation"),
        weights_vjp_(context, "combiner_weights_vjp_computation") {}

 protected:
  // What the steps of a call pass on.
  struct Backward {
    FunctionAttr::Results arguments;
    Triples triples;
    // [samples, max_valency, width]. Those of triples are finite.
    tensorflow::Tensor gradients;
  };

  // Sets the table whose rows the triples request.
  virtual absl::Status FindTable(tensorflow::OpKernelContext* context,
                                 const tensorflow::Tensor** table) const = 0;
  // Is the last step.
  virtual absl::Status UpdateTables(tensorflow::OpKernelContext* context,
                                    const DoneCallback& done,
                                    const std::shared_ptr<Backward>& backward) const = 0;

  absl::Status Start(tensorflow::OpKernelContext* context, const DoneCallback& done) override {
    auto backward = std::make_shared<Backward>();
    TF_RETURN_IF_ERROR(ReadInputs(context, backward.get()));
    return table_vjp_.Call(context, backward->arguments, 1, false,
                           [=](const absl::Status& status, FunctionAttr::Results& results) {
                             RunStep(context, done, [&] {
                               TF_RETURN_IF_ERROR(status);
                               backward->gradients = results[0];
                               TF_RETURN_IF_ERROR(CheckGradients(*backward));
                               return UpdateWeights(context, done, backward);
                             });
                           });
  }

 private:
  absl::Status ReadInputs(tensorflow::OpKernelContext* context, Backward* backward) const {
    const tensorflow::Tensor *table, *gradients, *valencies, *vectors;
    TF_RETURN_IF_ERROR(FindTable(context, &table));
    TF_RETURN_IF_ERROR(context->input("activation_gradients", &gradients));
    TF_RETURN_IF_ERROR(context->input("preserved_valencies", &valencies));
    TF_RETURN_IF_ERROR(context->input("preserved_vectors", &vectors));
    TF_RETURN_IF_ERROR(CheckRank("activation_gradients", *gradients, 2));
    const int64_t samples = gradients->dim_size(0), width = gradients->dim_size(1);
    if (width != table->dim_size(1)) {
      return Invalid("activation_gradients",
                     StrCat("must be as wide as the table, which has ", table->dim_size(1),
                            " columns, has the shape ", gradients->shape().DebugString()));
    }
    if (valencies->dims() != 1 || valencies->dim_size(0) != samples) {
      return Invalid("preserved_valencies",
                     StrCat("must have the shape [", samples,
                            "], as activation_gradients has samples, has ",
                            valencies->shape().DebugString()));
    }
    tensorflow::TensorShape shape;
    TF_RETURN_IF_ERROR(VectorsShape(samples, width, &shape));
    if (vectors->shape() != shape) {
      return Invalid("preserved_vectors", "must have the shape " + shape.DebugString() +
                                              ", of samples, max_valency and columns, has " +
                                              vectors->shape().DebugString());
    }
    std::vector<int32_t> counts(static_cast<size_t>(samples));
    TF_RETURN_IF_ERROR(ReadPositions(context, "activation_gradients", samples,
                                     table->dim_size(0), &backward->triples, counts.data()));
    backward->arguments = {*valencies, *vectors};
    TF_RETURN_IF_ERROR(AddWeights(context, "preserved_weights", samples, &backward->arguments));
    backward->arguments.push_back(*gradients);
    DeviceContext exec(context);
    return CheckFinite("activation_gradients", *gradients, exec);
  }

  // The positions beyond a sample's ids may have any gradient, because no row gets it.
  absl::Status CheckGradients(const Backward& backward) const {
    TF_RETURN_IF_ERROR(
        table_vjp_.CheckResult(backward.gradients, backward.arguments[1].shape()));
    const int64_t width = backward.gradients.dim_size(2);
    for (const int32_t at : backward.triples.samples) {
      const float* const values = Floats(backward.gradients) + at * width;
      for (int64_t k = 0; k < width; ++k) {
        if (std::isfinite(values[k])) continue;
        return Invalid(table_vjp_.name(),
                       StrCat("the function must return finite gradients, that of sample ",
                              at / max_valency(), ", position ", at % max_valency(),
                              ", column ", k, " is ", embedding::Number(values[k])));
      }
    }
    return absl::OkStatus();
  }

  absl::Status UpdateWeights(tensorflow::OpKernelContext* context, const DoneCallback& done,
                             const std::shared_ptr<Backward>& backward) const {
    tensorflow::Tensor* updated;
    tensorflow::TensorShape shape;
    TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape({num_weights()}, &shape));
    TF_RETURN_IF_ERROR(context->allocate_output("updated_weights", shape, &updated));
    if (num_weights() == 0) return UpdateTables(context, done, backward);
    const tensorflow::Tensor *weights, *rate;
    TF_RETURN_IF_ERROR(ReadWeights(context, "weights", &weights));
    TF_RETURN_IF_ERROR(context->input("combiner_weights_learning_rate", &rate));
    TF_RETURN_IF_ERROR(CheckRank("combiner_weights_learning_rate", *rate, 0));
    return weights_vjp_.Call(
        context, backward->arguments, 1, true,
        [=](const absl::Status& status, FunctionAttr::Results& results) {
          RunStep(context, done, [&] {
            TF_RETURN_IF_ERROR(status);
            TF_RETURN_IF_ERROR(MoveWeights(*weights, rate->flat<float>()(0), results, *backward,
                                           Floats(updated)));
            return UpdateTables(context, done, backward);
          });
        });
  }

  // Moves the weights against the sum of their gradients. A combiner that does not use its
  // weights has a function without results. Its updated weights are zeros, as on a TPU.
  absl::Status MoveWeights(const tensorflow::Tensor& weights, float rate,
                           const FunctionAttr::Results& results, const Backward& backward,
                           float* updated) const {
    std::fill_n(updated, num_weights(), 0.0f);
    if (results.empty()) return absl::OkStatus();
    TF_RETURN_IF_ERROR(weights_vjp_.CheckResult(results[0], backward.arguments[2].shape()));
    std::vector<double> sums(static_cast<size_t>(num_weights()));
    const float* from = Floats(results[0]);
    for (int64_t i = 0; i < results[0].dim_size(0); ++i) {
      for (double& sum : sums) sum += *from++;
    }
    for (int64_t k = 0; k < num_weights(); ++k) {
      const double sum = sums[static_cast<size_t>(k)];
      const float weight = Floats(weights)[k];
      updated[k] = static_cast<float>(weight - double{rate} * sum);
      if (std::isfinite(updated[k])) continue;
      return Invalid(
          "weights",
          StrCat("their update must be finite; number ", k, " is ", embedding::Number(weight),
                 ", the sum of its gradients is ", embedding::Number(static_cast<float>(sum)),
                 ", combiner_weights_learning_rate is ", embedding::Number(rate)));
    }
    return absl::OkStatus();
  }

  const FunctionAttr table_vjp_, weights_vjp_;
};

}  // namespace opwright::sparsecore
