// OpwrightSparseCoreIds checks the ids of a feature and narrows them to int32. Without it, an
// id beyond int32 would be cut, and an id beyond its table would be a row of another table or
// of the padding.
#include <cstdint>
#include <string>

#include "base/text.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "sparsecore/tf/kernel.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {
namespace {

REGISTER_OP("OpwrightSparseCoreIds")
    .Input("ids: T")
    .Output("rows: int32")
    .Attr("T: {int32, int64}")
    .Attr("table_rows: int >= 1")
    // For messages: the path of the feature and the name of its table.
    .Attr("feature: string")
    .Attr("table: string")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

template <class T>
class IdsOp : public Kernel {
 public:
  explicit IdsOp(tensorflow::OpKernelConstruction* context)
      : Kernel(context), rows_(IntAttr(context, "table_rows")) {
    OP_REQUIRES_OK(context, context->GetAttr("feature", &feature_));
    OP_REQUIRES_OK(context, context->GetAttr("table", &table_));
    OP_REQUIRES(context, rows_ >= 1 && rows_ <= kMaxInt32,
                Invalid("table_rows",
                        StrCat("must be at least 1 and at most ", kMaxInt32, ", is ", rows_)));
  }

 protected:
  absl::Status Run(tensorflow::OpKernelContext* context) override {
    const tensorflow::Tensor& ids = context->input(0);
    tensorflow::Tensor* rows;
    TF_RETURN_IF_ERROR(context->allocate_output(0, ids.shape(), &rows));
    const T* const from = ids.flat<T>().data();
    int32_t* const to = Ints(rows);
    bool good = true;
    for (int64_t i = 0; i < ids.NumElements(); ++i) {
      const auto id = static_cast<int64_t>(from[i]);
      // A negative number is a very large one without a sign.
      good &= static_cast<uint64_t>(id) < static_cast<uint64_t>(rows_);
      to[i] = static_cast<int32_t>(id);
    }
    return good ? absl::OkStatus() : Wrong(from, ids.NumElements());
  }

 private:
  absl::Status Wrong(const T* ids, int64_t count) const {
    int64_t i = 0;
    while (i + 1 < count && ids[i] >= 0 && static_cast<int64_t>(ids[i]) < rows_) ++i;
    return Invalid(feature_, StrCat("ids must be at least 0 and below the ", rows_,
                                    " rows of table ", table_, "; the one at position ", i,
                                    " is ", static_cast<int64_t>(ids[i])));
  }

  const int64_t rows_;
  std::string feature_, table_;
};

OPWRIGHT_REGISTER_KERNEL("OpwrightSparseCoreIds",
                         .Device(tensorflow::DEVICE_CPU).TypeConstraint<int32_t>("T"),
                         IdsOp<int32_t>);
OPWRIGHT_REGISTER_KERNEL("OpwrightSparseCoreIds",
                         .Device(tensorflow::DEVICE_CPU).TypeConstraint<int64_t>("T"),
                         IdsOp<int64_t>);

}  // namespace
}  // namespace opwright::sparsecore
