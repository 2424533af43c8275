// Kernels for XLA of ops that resize images.
#include <cstdint>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/resize.h"

namespace opwright::xla_ops {
namespace {

using tensorflow::OpKernelConstruction;

class ResizeKernel : public XlaKernel {
 public:
  explicit ResizeKernel(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("align_corners", &align_corners_));
  }

 protected:
  Resizing ResizingOf(int64_t from, int64_t to) const {
    const bool between = align_corners_ && from > 1 && to > 1;
    const float scale = between ? static_cast<float>(from - 1) / static_cast<float>(to - 1)
                                : static_cast<float>(from) / static_cast<float>(to);
    return {from, to, scale};
  }
  // Checks the height and width of images, which are input i.
  absl::Status CheckImages(const XlaCall& call, int i) const {
    TF_RETURN_IF_ERROR(call.WantRank(i, 4));
    for (const int64_t size : {call.shape(i)[1], call.shape(i)[2]}) {
      if (size > 0 && size < INT32_MAX) continue;
      return call.Refuse(i, StrCat("must have a height and a width above 0 and below 2^31 - 1, "
                                   "has the shape ",
                                   Text(call.shape(i))));
    }
    return absl::OkStatus();
  }
  // Reads the new size, and checks a call of an op that resizes.
  absl::Status ReadResizings(const XlaCall& call, Resizing* rows, Resizing* columns) const {
    TF_RETURN_IF_ERROR(CheckImages(call, 0));
    const Sizes& images = call.shape(0);
    if (images[3] == 0) return call.Refuse(0, "must have at least one channel");
    TF_RETURN_IF_ERROR(call.WantShape(1, {2}));
    Sizes size;
    TF_RETURN_IF_ERROR(call.Known(1, &size));
    for (const int64_t one : size) {
      if (one <= 0) return call.Refuse(1, StrCat("must be above 0, has ", one));
    }
    *rows = ResizingOf(images[1], size[0]);
    *columns = ResizingOf(images[2], size[1]);
    return call.CheckSize(call.NameOf(1), {images[0], size[0], size[1], images[3]});
  }
  bool align_corners() const { return align_corners_; }

 private:
  bool align_corners_ = false;
};

class ResizeAreaOp : public ResizeKernel {
 public:
  using ResizeKernel::ResizeKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    Resizing rows, columns;
    TF_RETURN_IF_ERROR(ReadResizings(*call, &rows, &columns));
    const Sizes& images = call->shape(0);
    TF_RETURN_IF_ERROR(call->CheckSize(
        call->NameOf(1), {images[0], images[1], columns.to, MostCovered(columns), images[3]}));
    TF_RETURN_IF_ERROR(call->CheckSize(
        call->NameOf(1), {images[0], rows.to, MostCovered(rows), columns.to, images[3]}));
    call->Set(0, ResizeArea(call->input(0), rows, columns));
    return absl::OkStatus();
  }
};

class CubicKernel : public ResizeKernel {
 public:
  explicit CubicKernel(OpKernelConstruction* context) : ResizeKernel(context) {
    bool half;
    OP_REQUIRES_OK(context, context->GetAttr("half_pixel_centers", &half));
    OP_REQUIRES(context, !half || !align_corners(),
                Invalid("align_corners", "must be False if half_pixel_centers is True"));
    centers_ = half ? Centers::kHalf : Centers::kCorner;
  }

 protected:
  Centers centers() const { return centers_; }
  // Checks the largest tensors of a program for images of `shape`.
  absl::Status CheckShares(const XlaCall& call, int i, const Sizes& shape, const Resizing& rows,
                           const Resizing& columns) const {
    TF_RETURN_IF_ERROR(
        call.CheckSize(call.NameOf(i), {shape[0], rows.to, 4, columns.from, shape[3]}));
    return call.CheckSize(call.NameOf(i), {shape[0], rows.to, columns.to, 4, shape[3]});
  }

 private:
  Centers centers_ = Centers::kCorner;
};

class ResizeBicubicOp : public CubicKernel {
 public:
  using CubicKernel::CubicKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    Resizing rows, columns;
    TF_RETURN_IF_ERROR(ReadResizings(*call, &rows, &columns));
    const Sizes& images = call->shape(0);
    TF_RETURN_IF_ERROR(CheckShares(*call, 1, images, rows, columns));
    call->Set(0, ResizeCubic(call->input(0), rows, columns, centers()));
    return absl::OkStatus();
  }
};

class ResizeBicubicGradOp : public CubicKernel {
 public:
  using CubicKernel::CubicKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(CheckImages(*call, 0));
    TF_RETURN_IF_ERROR(CheckImages(*call, 1));
    const Sizes &grads = call->shape(0), &images = call->shape(1);
    const Resizing rows = ResizingOf(images[1], grads[1]);
    const Resizing columns = ResizingOf(images[2], grads[2]);
    TF_RETURN_IF_ERROR(CheckShares(*call, 0, grads, rows, columns));
    TF_RETURN_IF_ERROR(
        call->CheckSize(call->NameOf(1), {grads[0], images[1], grads[2], 4, grads[3]}));
    TF_RETURN_IF_ERROR(
        call->CheckSize(call->NameOf(1), {grads[0], images[1], images[2], grads[3]}));
    call->Set(0, ResizeCubicGradient(call->input(0), rows, columns, centers(), call->type(1)));
    return absl::OkStatus();
  }
};

constexpr tensorflow::DataType kWide[] = {tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE};

OPWRIGHT_REGISTER_XLA("ResizeArea", .TypeConstraint("T", kResized), ResizeAreaOp);
OPWRIGHT_REGISTER_XLA("ResizeBicubic", .TypeConstraint("T", kResized), ResizeBicubicOp);
OPWRIGHT_REGISTER_XLA("ResizeBicubicGrad", .TypeConstraint("T", kWide), ResizeBicubicGradOp);

const bool kResizeConstantsRegistered =
    RegisterXlaConstants({"ResizeArea", "ResizeBicubic"}, {"size"});

}  // namespace
}  // namespace opwright::xla_ops
