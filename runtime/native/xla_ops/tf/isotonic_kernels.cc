// Kernels for XLA of IsotonicRegression.
#include <cstdint>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/isotonic.h"

namespace opwright::xla_ops {
namespace {

class IsotonicRegressionOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    const Sizes& shape = call->shape(0);
    const int64_t size = shape.empty() ? 1 : shape.back();
    const int64_t rows = size == 0 ? 0 : call->count(0) / size;
    if (size >= INT32_MAX || rows >= INT32_MAX) {
      return call->Refuse(0, StrCat("must have less than 2^31 - 1 rows and columns, has ", rows,
                                    " and ", size));
    }
    const xla::XlaOp given = xla::ConvertElementType(xla::Reshape(call->input(0), {rows, size}),
                                                     call->context()->output_xla_type(0));
    const Isotonic made = IsotonicRegression(given);
    call->Set(0, xla::Reshape(made.fit, shape));
    call->Set(1, xla::Reshape(made.segments, shape));
    return absl::OkStatus();
  }
};

// TensorFlow's CPU kernels take these pairs of dtypes.
#define OPWRIGHT_REGISTER_ISOTONIC(IN, OUT)                                        \
  OPWRIGHT_REGISTER_XLA("IsotonicRegression",                                      \
                        .TypeConstraint("T", tensorflow::DT_##IN)                  \
                            .TypeConstraint("output_dtype", tensorflow::DT_##OUT), \
                        IsotonicRegressionOp)

OPWRIGHT_REGISTER_ISOTONIC(HALF, HALF);
OPWRIGHT_REGISTER_ISOTONIC(BFLOAT16, BFLOAT16);
OPWRIGHT_REGISTER_ISOTONIC(FLOAT, FLOAT);
OPWRIGHT_REGISTER_ISOTONIC(DOUBLE, DOUBLE);
OPWRIGHT_REGISTER_ISOTONIC(INT8, FLOAT);
OPWRIGHT_REGISTER_ISOTONIC(INT16, FLOAT);
OPWRIGHT_REGISTER_ISOTONIC(INT32, DOUBLE);
OPWRIGHT_REGISTER_ISOTONIC(INT64, DOUBLE);

#undef OPWRIGHT_REGISTER_ISOTONIC

}  // namespace
}  // namespace opwright::xla_ops
