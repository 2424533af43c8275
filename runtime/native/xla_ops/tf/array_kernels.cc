// Kernels for XLA of ops that rearrange or select elements.
#include <cstdint>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/arrays.h"

namespace opwright::xla_ops {
namespace {

using tensorflow::OpKernelConstruction;

class UnravelIndexOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(1, 1));
    if (call->rank(0) > 1) return call->Refuse(0, "must be a scalar or a vector");
    for (const int i : {0, 1}) {
      if (call->count(i) == 0) return call->Refuse(i, "must not be empty");
    }
    const xla::XlaOp made =
        UnravelIndex(call->input(0), call->input(1), call->shape(1)[0], call->shape(0));
    call->Set(0, made);
    return absl::OkStatus();
  }
};

class NthElementOp : public XlaKernel {
 public:
  explicit NthElementOp(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("reverse", &reverse_));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(1, 0));
    if (call->rank(0) < 1) return call->Refuse(0, "must have at least one dimension");
    if (call->shape(0).back() == 0)
      return call->Refuse(0, "must have a last dimension above 0");
    call->Set(0, NthElement(call->input(0), call->input(1), reverse_, call->shape(0)));
    return absl::OkStatus();
  }

 private:
  bool reverse_ = false;
};

class InTopKOp : public XlaKernel {
 public:
  explicit InTopKOp(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("k", &k_));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, 2));
    const Sizes& shape = call->shape(0);
    TF_RETURN_IF_ERROR(call->WantShape(1, {shape[0]}));
    call->Set(0, InTopK(call->input(0), call->input(1), k_, shape[0], shape[1]));
    return absl::OkStatus();
  }

 private:
  int64_t k_ = 0;
};

OPWRIGHT_REGISTER_XLA("UnravelIndex", .TypeConstraint("Tidx", kIndices), UnravelIndexOp);
OPWRIGHT_REGISTER_XLA("NthElement", .TypeConstraint("T", kReal), NthElementOp);
OPWRIGHT_REGISTER_XLA("InTopK", .TypeConstraint("T", kIndices), InTopKOp);

}  // namespace
}  // namespace opwright::xla_ops
