// The ops that look up rows.
#include <cstdint>
#include <string>
#include <type_traits>

#include "base/text.h"
#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/spec.h"
#include "sparsecore/csr.h"
#include "sparsecore/lookup.h"
#include "sparsecore/tf/csr_kernel.h"
#include "sparsecore/tf/kernel.h"
#include "sparsecore/tf/quantization.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {
namespace {

using embedding::Quantization;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

template <class T>
class LookupOp : public CsrKernel {
 public:
  explicit LookupOp(OpKernelConstruction* context)
      : CsrKernel(context), samples_(IntAttr(context, "input_size")) {
    OP_REQUIRES_OK(context, ReadQuantization(context, &quantization_));
    OP_REQUIRES(context, (std::is_same_v<T, float>) || !quantization_.enabled,
                Invalid("quantization_config_num_buckets",
                        StrCat("must be 0 for tables of int32, is ", quantization_.buckets)));
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    const Tensor& table = context->input(4);
    TF_RETURN_IF_ERROR(CheckTable(table));
    Triples triples;
    TF_RETURN_IF_ERROR(Read(context, "input_size", samples_, table.dim_size(0), &triples));
    const int64_t width = table.dim_size(1);
    TensorShape shape;
    TF_RETURN_IF_ERROR(TensorShape::BuildTensorShape({samples_, width}, &shape));
    Tensor* activations;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &activations));
    const T* const from = table.flat<T>().data();
    T* const to = activations->flat<T>().data();
    DeviceContext exec(context);
    if constexpr (std::is_same_v<T, float>) {
      SumRows(triples, from, width, quantization_, samples_, to, exec);
      return absl::OkStatus();
    } else {
      return ToAbsl(SumRows(triples, from, width, samples_, to, exec));
    }
  }

 private:
  const int64_t samples_;
  Quantization quantization_;
};

#define REGISTER_LOOKUP(T)                                                         \
  OPWRIGHT_REGISTER_KERNEL("XlaSparseDenseMatmulWithCsrInput",                     \
                           .Device(tensorflow::DEVICE_CPU).TypeConstraint<T>("T"), \
                           LookupOp<T>)
REGISTER_LOOKUP(float);
REGISTER_LOOKUP(int32_t);
OPWRIGHT_REGISTER_CPU("XlaSparseDenseMatmulWithStaticBufferSize", LookupOp<float>);
#undef REGISTER_LOOKUP

}  // namespace
}  // namespace opwright::sparsecore
