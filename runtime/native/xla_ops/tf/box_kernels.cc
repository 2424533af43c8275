// Kernels for XLA of ops that pick boxes by score.
#include <algorithm>
#include <cstdint>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/boxes.h"

namespace opwright::xla_ops {
namespace {

using tensorflow::OpKernelConstruction;

xla::XlaOp Float(const XlaCall& call, int i) {
  return xla::ConvertElementType(call.input(i), xla::F32);
}

class NonMaxSuppressionV5Op : public XlaKernel {
 public:
  explicit NonMaxSuppressionV5Op(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("pad_to_max_output_size", &padded_));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    // Unimplemented: with automatic clustering TensorFlow then runs it without XLA.
    if (!padded_) {
      return absl::UnimplementedError(
          "pad_to_max_output_size: must be True with XLA, is False: the scores would decide "
          "the size of the result");
    }
    TF_RETURN_IF_ERROR(call->WantRank(0, 2));
    const int64_t boxes = call->shape(0)[0];
    TF_RETURN_IF_ERROR(call->WantShape(0, {boxes, 4}));
    TF_RETURN_IF_ERROR(call->WantShape(1, {boxes}));
    int64_t most;
    TF_RETURN_IF_ERROR(call->KnownSize(2, 0, &most));
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(2), {most}));
    for (const int i : {3, 4, 5}) TF_RETURN_IF_ERROR(call->WantRank(i, 0));
    Boxes given;
    for (int64_t i = 0; i < 4; ++i) {
      given.corners.push_back(xla::Reshape(Column(Float(*call, 0), i), {1, boxes}));
    }
    given.scores = xla::Reshape(Float(*call, 1), {1, boxes});
    const int64_t taken = std::min(most, boxes);
    const Picked made =
        PickBoxes(given, {Float(*call, 3), Float(*call, 4), Float(*call, 5)}, taken);
    const auto padded = [&](xla::XlaOp x, xla::PrimitiveType type) {
      const xla::XlaOp row = xla::ConvertElementType(xla::Reshape(x, {taken}), type);
      return xla::PadInDim(row, xla::Zero(call->builder(), type), 0, 0, most - taken);
    };
    call->Set(0, padded(made.indices, xla::S32));
    call->Set(1, padded(made.scores, call->type(1)));
    call->Set(2, xla::Reshape(made.counts, {}));
    return absl::OkStatus();
  }

 private:
  bool padded_ = false;
};

class CombinedNonMaxSuppressionOp : public XlaKernel {
 public:
  explicit CombinedNonMaxSuppressionOp(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("pad_per_class", &pad_per_class_));
    OP_REQUIRES_OK(context, context->GetAttr("clip_boxes", &clip_));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, 4));
    TF_RETURN_IF_ERROR(call->WantRank(1, 3));
    const Sizes& boxes = call->shape(0);
    const int64_t classes = call->shape(1)[2];
    TF_RETURN_IF_ERROR(call->WantShape(1, {boxes[0], boxes[1], classes}));
    TF_RETURN_IF_ERROR(
        call->WantShape(0, {boxes[0], boxes[1], boxes[2] == 1 ? 1 : classes, 4}));
    Combination spec = {0, 0, clip_};
    TF_RETURN_IF_ERROR(call->KnownSize(2, 1, &spec.most_of_class));
    TF_RETURN_IF_ERROR(call->KnownSize(3, 1, &spec.most));
    for (const int i : {4, 5}) TF_RETURN_IF_ERROR(call->WantRank(i, 0));
    const int64_t of_class = std::min(spec.most_of_class, boxes[1]);
    if (of_class > 0 && classes > INT32_MAX / of_class) {
      return call->Refuse(2, StrCat("is too large for ", classes, " classes"));
    }
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(0), {boxes[0], boxes[1], classes}));
    if (pad_per_class_ && classes <= spec.most / spec.most_of_class) {
      spec.most = spec.most_of_class * classes;
    }
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(3), {boxes[0], spec.most, 4}));
    const Thresholds thresholds = {call->input(4), call->input(5),
                                   xla::Zero(call->builder(), xla::F32)};
    const Combined made = CombineClasses(call->input(0), call->input(1), thresholds, spec);
    call->Set(0, made.boxes);
    call->Set(1, made.scores);
    call->Set(2, made.classes);
    call->Set(3, made.counts);
    return absl::OkStatus();
  }

 private:
  bool pad_per_class_ = false;
  bool clip_ = true;
};

constexpr tensorflow::DataType kBoxTypes[] = {tensorflow::DT_HALF, tensorflow::DT_FLOAT};

OPWRIGHT_REGISTER_XLA("NonMaxSuppressionV5", .TypeConstraint("T", kBoxTypes),
                      NonMaxSuppressionV5Op);
OPWRIGHT_REGISTER_XLA("CombinedNonMaxSuppression", , CombinedNonMaxSuppressionOp);

const bool kBoxConstantsRegistered =
    RegisterXlaConstants({"NonMaxSuppressionV5"}, {"max_output_size"}) &&
    RegisterXlaConstants({"CombinedNonMaxSuppression"},
                         {"max_output_size_per_class", "max_total_size"});

}  // namespace
}  // namespace opwright::xla_ops
