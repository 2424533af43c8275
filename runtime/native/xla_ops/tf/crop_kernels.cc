// Kernels for XLA of CropAndResize and its gradients.
#include <cstdint>
#include <string>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/crops.h"

namespace opwright::xla_ops {
namespace {

using tensorflow::OpKernelConstruction;

class CropKernel : public XlaKernel {
 public:
  explicit CropKernel(OpKernelConstruction* context) : XlaKernel(context) {
    std::string method;
    OP_REQUIRES_OK(context, context->GetAttr("method", &method));
    nearest_ = method == "nearest";
  }

 protected:
  // Checks the boxes, which are input i, and the images that they are in.
  absl::Status CheckBoxes(const XlaCall& call, int i) const {
    TF_RETURN_IF_ERROR(call.WantRank(i, 2));
    TF_RETURN_IF_ERROR(call.WantRank(i + 1, 1));
    const int64_t boxes = call.shape(i + 1)[0];
    if (boxes == 0 && call.count(i) == 0) return absl::OkStatus();
    return call.WantShape(i, {boxes, 4});
  }
  // Checks the sizes in input i of images, or of crops.
  absl::Status CheckHeightAndWidth(const XlaCall& call, int i, const Sizes& sizes) const {
    if (sizes[0] > 0 && sizes[1] > 0) return absl::OkStatus();
    return call.Refuse(
        i, StrCat("must have a height and a width above 0, has ", sizes[0], " and ", sizes[1]));
  }
  Crops CropsOf(const XlaCall& call, const Sizes& image, int boxes, int64_t rows,
                int64_t columns) const {
    return {image, call.input(boxes), call.input(boxes + 1), rows, columns, nearest_};
  }

 private:
  bool nearest_ = false;
};

class CropAndResizeOp : public CropKernel {
 public:
  explicit CropAndResizeOp(OpKernelConstruction* context) : CropKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("extrapolation_value", &outside_));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, 4));
    const Sizes& image = call->shape(0);
    TF_RETURN_IF_ERROR(CheckHeightAndWidth(*call, 0, {image[1], image[2]}));
    TF_RETURN_IF_ERROR(CheckBoxes(*call, 1));
    TF_RETURN_IF_ERROR(call->WantShape(3, {2}));
    Sizes size;
    TF_RETURN_IF_ERROR(call->Known(3, &size));
    TF_RETURN_IF_ERROR(CheckHeightAndWidth(*call, 3, size));
    const Sizes made = {call->shape(2)[0], size[0], size[1], image[3]};
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(3), made));
    if (made[0] == 0 || made[3] == 0) {
      call->Set(0, Zeros(call->builder(), xla::F32, made));
      return absl::OkStatus();
    }
    if (image[0] == 0) return call->Refuse(0, "must have at least one image for boxes");
    const Crops crops = CropsOf(*call, image, 1, size[0], size[1]);
    call->Set(0, CropAndResize(crops, call->input(0), outside_));
    return absl::OkStatus();
  }

 private:
  float outside_ = 0;
};

class CropAndResizeGradImageOp : public CropKernel {
 public:
  using CropKernel::CropKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, 4));
    const Sizes& grads = call->shape(0);
    TF_RETURN_IF_ERROR(CheckHeightAndWidth(*call, 0, {grads[1], grads[2]}));
    TF_RETURN_IF_ERROR(CheckBoxes(*call, 1));
    TF_RETURN_IF_ERROR(call->WantShape(3, {4}));
    Sizes image;
    TF_RETURN_IF_ERROR(call->Known(3, &image));
    TF_RETURN_IF_ERROR(CheckHeightAndWidth(*call, 3, {image[1], image[2]}));
    TF_RETURN_IF_ERROR(call->CheckSize(call->NameOf(3), image));
    TF_RETURN_IF_ERROR(call->WantShape(0, {call->shape(2)[0], grads[1], grads[2], image[3]}));
    const xla::PrimitiveType type = call->context()->output_xla_type(0);
    if (call->count(0) == 0 || image[0] == 0) {
      call->Set(0, Zeros(call->builder(), type, image));
      return absl::OkStatus();
    }
    const Crops crops = CropsOf(*call, image, 1, grads[1], grads[2]);
    call->Set(0, CropGradientOfImage(crops, call->input(0), type));
    return absl::OkStatus();
  }
};

class CropAndResizeGradBoxesOp : public CropKernel {
 public:
  using CropKernel::CropKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, 4));
    TF_RETURN_IF_ERROR(call->WantRank(1, 4));
    const Sizes &grads = call->shape(0), &image = call->shape(1);
    TF_RETURN_IF_ERROR(CheckHeightAndWidth(*call, 0, {grads[1], grads[2]}));
    TF_RETURN_IF_ERROR(CheckHeightAndWidth(*call, 1, {image[1], image[2]}));
    TF_RETURN_IF_ERROR(CheckBoxes(*call, 2));
    const int64_t boxes = call->shape(3)[0];
    TF_RETURN_IF_ERROR(call->WantShape(0, {boxes, grads[1], grads[2], image[3]}));
    if (call->count(0) == 0) {
      call->Set(0, Zeros(call->builder(), xla::F32, {boxes, 4}));
      return absl::OkStatus();
    }
    if (image[0] == 0) return call->Refuse(1, "must have at least one image for boxes");
    const Crops crops = CropsOf(*call, image, 2, grads[1], grads[2]);
    call->Set(0, CropGradientOfBoxes(crops, call->input(0), call->input(1)));
    return absl::OkStatus();
  }
};

constexpr tensorflow::DataType kGradients[] = {tensorflow::DT_HALF, tensorflow::DT_FLOAT,
                                               tensorflow::DT_DOUBLE};

OPWRIGHT_REGISTER_XLA("CropAndResize", .TypeConstraint("T", kImages), CropAndResizeOp);
OPWRIGHT_REGISTER_XLA("CropAndResizeGradImage", .TypeConstraint("T", kGradients),
                      CropAndResizeGradImageOp);
OPWRIGHT_REGISTER_XLA("CropAndResizeGradBoxes", .TypeConstraint("T", kImages),
                      CropAndResizeGradBoxesOp);

const bool kCropConstantsRegistered =
    RegisterXlaConstants({"CropAndResize"}, {"crop_size"}) &&
    RegisterXlaConstants({"CropAndResizeGradImage"}, {"image_size"});

}  // namespace
}  // namespace opwright::xla_ops
