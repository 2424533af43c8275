// OpwrightShards returns how many shards a multi-device iterator has. Its handle does not say
// it, and MultiDeviceIteratorGetNextFromShard reads beyond the shards that there are.
#include <cstdint>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/tf/register.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace opwright::checks {
namespace {

using tensorflow::ResourceBase;
using tensorflow::ResourceHandle;

REGISTER_OP("OpwrightShards")
    .Input("iterator: resource")
    .Output("shards: int64")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* context) {
      context->set_output(0, context->Scalar());
      return absl::OkStatus();
    });

class ShardsOp : public tensorflow::OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& handle = context->input(0);
    OP_REQUIRES(context, handle.NumElements() == 1,
                absl::InvalidArgumentError(
                    absl::StrCat("iterator must have 1 element, has ", handle.NumElements())));
    const ResourceHandle& only = handle.flat<ResourceHandle>()(0);
    ResourceBase* found = nullptr;
    if (only.IsRefCounting()) {
      // LookupResource would compare its type with ResourceBase.
      found = only.resource().get();
      found->Ref();
    } else {
      OP_REQUIRES_OK(context, tensorflow::LookupResource(context, only, &found));
    }
    const tensorflow::core::ScopedUnref unref(found);
    // The class is private to a kernel of TensorFlow. This is its only public member.
    constexpr absl::string_view kBefore = "MultiDeviceIterator for ";
    constexpr absl::string_view kAfter = " devices";
    const std::string text = found->DebugString();
    absl::string_view number = text;
    int64_t shards;
    OP_REQUIRES(context,
                absl::ConsumePrefix(&number, kBefore) && absl::ConsumeSuffix(&number, kAfter) &&
                    absl::SimpleAtoi(number, &shards),
                absl::InvalidArgumentError("the resource is no multi-device iterator"));
    tensorflow::Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(0, {}, &output));
    output->flat<int64_t>()(0) = shards;
  }
};

OPWRIGHT_REGISTER_CPU("OpwrightShards", ShardsOp);

}  // namespace
}  // namespace opwright::checks
