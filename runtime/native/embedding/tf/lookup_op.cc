// OpwrightEmbeddingLookup is a lookup that is not part of a step, of ids in one tensor.
// TensorFlow's two ops enqueue and receive batches, and belong to a step. This op is for
// programs that only read tables: for serving, evaluation and inspection.
#include <utility>
#include <vector>

#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/tf/lookup_args.h"
#include "embedding/tf/packed_lookup.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace opwright::embedding {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

absl::Status InferShapes(InferenceContext* context) {
  for (int i = 0; i < context->num_inputs(); ++i) {
    ShapeHandle vector;
    TF_RETURN_IF_ERROR(context->WithRank(context->input(i), 1, &vector));
  }
  context->set_output(0, context->UnknownShapeOfRank(2));
  return absl::OkStatus();
}

REGISTER_OP("OpwrightEmbeddingLookup")
    // Ids of the bags, one bag after another. Bags are ordered by feature.
    .Input("ids: Tids")
    // [features * samples + 1], or [0] if each bag has one id.
    .Input("row_splits: Tsplits")
    .Input("weights: float")       // One weight for each id, or [0] if all weights are 1.
    .Output("activations: float")  // [samples, sum of the features' dimensions]
    .Attr("Tids: {int32, int64}")
    .Attr("Tsplits: {int32, int64}")
    // One combiner for each table, or none if all are sums.
    .Attr("combiners: list(string) = []")
    .SetIsStateful()
    .SetShapeFn(InferShapes);

class LookupOp : public OpKernel {
 public:
  explicit LookupOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, ReadCombiners(context, &combiners_));
  }

  void Compute(OpKernelContext* context) override {
    for (int i = 0; i < context->num_inputs(); ++i) {
      OP_REQUIRES(context, context->input(i).dims() == 1,
                  Invalid(i == 0   ? "ids"
                          : i == 1 ? "row_splits"
                                   : "weights",
                          "must be of rank 1, has the shape " +
                              context->input(i).shape().DebugString()));
    }
    PackedBags bags;
    bags.ids = IntsOf(context->input(0));
    bags.row_splits = IntsOf(context->input(1));
    const Tensor& weights = context->input(2);
    if (weights.NumElements() != 0) bags.weights = weights.flat<float>().data();
    bags.combiners = combiners_;
    DeviceContext exec(context);
    OP_REQUIRES_OK(context, LookUpPacked(std::move(bags), weights.NumElements(), &exec,
                                         [context](const TensorShape& shape, float** data) {
                                           Tensor* activations;
                                           TF_RETURN_IF_ERROR(context->allocate_output(
                                               0, shape, &activations));
                                           *data = activations->flat<float>().data();
                                           return absl::OkStatus();
                                         }));
  }

 private:
  std::vector<Combiner> combiners_;
};

OPWRIGHT_REGISTER_CPU("OpwrightEmbeddingLookup", LookupOp);

}  // namespace
}  // namespace opwright::embedding
