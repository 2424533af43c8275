// Kernels for XLA of ops that move a window over images.
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "tensorflow/core/util/padding.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/windows.h"

namespace opwright::xla_ops {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::Padding;

// Reads an attr with a number for each dimension, of which the batch has 1.
absl::Status ReadMoves(OpKernelConstruction* context, const char* name, size_t rank,
                       std::vector<int64_t>* moves) {
  TF_RETURN_IF_ERROR(context->GetAttr(name, moves));
  if (moves->size() < rank) {
    return Invalid(name, StrCat("must have ", rank, " numbers, has ", moves->size()));
  }
  if (moves->front() != 1) return absl::UnimplementedError(StrCat(name, ": must start with 1"));
  for (const int64_t move : *moves) {
    if (move < 1) return Invalid(name, StrCat("must be at least 1, has ", move));
  }
  return absl::OkStatus();
}

// Computes how a window moves along `size` elements, as TensorFlow does. `name` is the argument
// that the error names.
absl::Status MovesAlong(const std::string& name, Moves* moves, Padding padding) {
  const Checked span = Checked(moves->window - 1) * Checked(moves->rate) + Checked(1);
  if (!span.AtMost(INT32_MAX)) {
    return Invalid(name, StrCat("a window of ", moves->window, " elements, ", moves->rate,
                                " apart, is too large"));
  }
  const int64_t room = moves->size + moves->stride - span.value();
  if (padding == Padding::VALID) {
    moves->before = 0;
    moves->made = room / moves->stride;
    if (moves->made >= 0) return absl::OkStatus();
    return Invalid(name, StrCat("a window that spans ", span.value(),
                                " elements does not fit in ", moves->size));
  }
  moves->made = (moves->size + moves->stride - 1) / moves->stride;
  const int64_t missing = (moves->made - 1) * moves->stride + span.value() - moves->size;
  moves->before = missing > 0 ? missing / 2 : 0;
  return absl::OkStatus();
}

class WindowKernel : public XlaKernel {
 public:
  explicit WindowKernel(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, ReadMoves(context, "strides", 4, &strides_));
    OP_REQUIRES_OK(context, context->GetAttr("padding", &padding_));
  }

 protected:
  // The window of the size `sizes` over the images of input 0. `name` is its argument.
  absl::Status WindowOver(const XlaCall& call, const std::string& name,
                          const std::array<int64_t, 2>& sizes,
                          const std::array<int64_t, 2>& rates, Window* window) const {
    const Sizes& images = call.shape(0);
    window->rows = {images[1], sizes[0], strides_[1], rates[0], 0, 0};
    window->columns = {images[2], sizes[1], strides_[2], rates[1], 0, 0};
    TF_RETURN_IF_ERROR(MovesAlong(name, &window->rows, padding_));
    TF_RETURN_IF_ERROR(MovesAlong(name, &window->columns, padding_));
    TF_RETURN_IF_ERROR(call.CheckSize(name, MadeBy(call, *window)));
    TF_RETURN_IF_ERROR(call.CheckSize(name, {sizes[0], sizes[1], images[3]}));
    const auto passed = [](const Moves& moves) {
      return moves.window == 0 || moves.made == 0 ? moves.size : moves.Passed();
    };
    return call.CheckSize(
        name, {images[0], passed(window->rows), passed(window->columns), images[3]});
  }
  static Sizes MadeBy(const XlaCall& call, const Window& window) {
    return {call.shape(0)[0], window.rows.made, window.columns.made, call.shape(0)[3]};
  }

  std::vector<int64_t> strides_;

 private:
  Padding padding_ = Padding::VALID;
};

// What Dilation2D and its gradients have in common.
class DilationKernel : public WindowKernel {
 public:
  explicit DilationKernel(OpKernelConstruction* context) : WindowKernel(context) {
    OP_REQUIRES_OK(context, ReadMoves(context, "rates", 4, &rates_));
    OP_REQUIRES(context, strides_.size() == 4 && strides_[3] == 1,
                absl::UnimplementedError("strides: must have 4 numbers and end with 1"));
    OP_REQUIRES(context, rates_.size() == 4 && rates_[3] == 1,
                absl::UnimplementedError("rates: must have 4 numbers and end with 1"));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, 4));
    TF_RETURN_IF_ERROR(call->WantRank(1, 3));
    const Sizes& filter = call->shape(1);
    TF_RETURN_IF_ERROR(call->WantShape(1, {filter[0], filter[1], call->shape(0)[3]}));
    Window window;
    TF_RETURN_IF_ERROR(WindowOver(*call, call->NameOf(1), {filter[0], filter[1]},
                                  {rates_[1], rates_[2]}, &window));
    if (call->num_inputs() > 2) TF_RETURN_IF_ERROR(call->WantShape(2, MadeBy(*call, window)));
    const Best best = LargestSums(call->input(0), call->input(1), window);
    call->Set(0, Result(*call, best, window));
    return absl::OkStatus();
  }
  virtual xla::XlaOp Result(const XlaCall& call, const Best& best,
                            const Window& window) const = 0;

 private:
  std::vector<int64_t> rates_;
};

class Dilation2DOp : public DilationKernel {
 public:
  using DilationKernel::DilationKernel;

 protected:
  xla::XlaOp Result(const XlaCall&, const Best& best, const Window&) const override {
    return best.values;
  }
};

class Dilation2DBackpropInputOp : public DilationKernel {
 public:
  using DilationKernel::DilationKernel;

 protected:
  xla::XlaOp Result(const XlaCall& call, const Best& best,
                    const Window& window) const override {
    return GradientOfImages(best.places, call.input(2), window);
  }
};

class Dilation2DBackpropFilterOp : public DilationKernel {
 public:
  using DilationKernel::DilationKernel;

 protected:
  xla::XlaOp Result(const XlaCall& call, const Best& best,
                    const Window& window) const override {
    return GradientOfFilter(best.places, call.input(2), window);
  }
};

// What both ops of maxima with their places have in common.
class PoolKernel : public WindowKernel {
 public:
  explicit PoolKernel(OpKernelConstruction* context) : WindowKernel(context) {
    OP_REQUIRES_OK(context, ReadMoves(context, "ksize", 4, &sizes_));
    OP_REQUIRES(context, sizes_.size() == 4 && strides_.size() == 4,
                Invalid("ksize", "it and strides must have 4 numbers"));
    OP_REQUIRES_OK(context, context->GetAttr("include_batch_in_index", &of_batch_));
  }

 protected:
  absl::Status PoolWindow(const XlaCall& call, Window* window) const {
    TF_RETURN_IF_ERROR(call.WantRank(0, 4));
    if (sizes_[3] > 1 && (sizes_[1] > 1 || sizes_[2] > 1 || strides_[3] != sizes_[3] ||
                          call.shape(0)[3] % sizes_[3] != 0)) {
      return absl::UnimplementedError(
          "ksize: a window over channels must have one row and column, its size as stride, "
          "and divide the channels");
    }
    return WindowOver(call, "ksize", {sizes_[1], sizes_[2]}, {1, 1}, window);
  }
  bool of_batch() const { return of_batch_; }
  bool over_channels() const { return sizes_[3] > 1; }

 private:
  std::vector<int64_t> sizes_;
  bool of_batch_ = false;
};

class MaxPoolWithArgmaxOp : public PoolKernel {
 public:
  using PoolKernel::PoolKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    Window window;
    TF_RETURN_IF_ERROR(PoolWindow(*call, &window));
    if (call->count(0) == 0) return call->Refuse(0, "must not be empty");
    const Best made = LargestElements(call->input(0), window, of_batch(),
                                      call->context()->output_xla_type(1));
    call->Set(0, made.values);
    call->Set(1, made.places);
    return absl::OkStatus();
  }
};

class MaxPoolGradWithArgmaxOp : public PoolKernel {
 public:
  using PoolKernel::PoolKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    Window window;
    TF_RETURN_IF_ERROR(PoolWindow(*call, &window));
    if (over_channels()) {
      return absl::UnimplementedError("ksize: must be 1 for channels with XLA");
    }
    TF_RETURN_IF_ERROR(call->WantShape(1, MadeBy(*call, window)));
    TF_RETURN_IF_ERROR(call->WantShape(2, MadeBy(*call, window)));
    call->Set(0, AddAtPlaces(call->input(1), call->input(2), call->shape(0), of_batch()));
    return absl::OkStatus();
  }
};

// Extracts patches of images, or of volumes.
template <size_t kSpatial>
class ExtractPatchesOp : public XlaKernel {
 public:
  explicit ExtractPatchesOp(OpKernelConstruction* context) : XlaKernel(context) {
    OP_REQUIRES_OK(context, ReadMoves(context, "ksizes", kRank, &sizes_));
    OP_REQUIRES_OK(context, ReadMoves(context, "strides", kRank, &strides_));
    if constexpr (kHasRates) {
      OP_REQUIRES_OK(context, ReadMoves(context, "rates", kRank, &rates_));
    } else {
      rates_.assign(kRank, 1);
    }
    for (const auto* moves : {&sizes_, &strides_, &rates_}) {
      OP_REQUIRES(
          context, (*moves)[kRank - 1] == 1,
          absl::UnimplementedError(StrCat("ksizes: it, strides", kHasRates ? " and rates" : "",
                                          " must be 1 for channels")));
    }
    OP_REQUIRES_OK(context, context->GetAttr("padding", &padding_));
  }

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(0, kRank));
    const Sizes& shape = call->shape(0);
    std::vector<Moves> moves;
    Sizes made = {shape.front()}, spread = {shape.front()}, patch;
    for (size_t i = 1; i <= kSpatial; ++i) {
      moves.push_back({shape[i], sizes_[i], strides_[i], rates_[i], 0, 0});
      Moves& along = moves.back();
      TF_RETURN_IF_ERROR(MovesAlong("ksizes", &along, padding_));
      if (kSpatial == 3 && padding_ == Padding::SAME) {
        // Where strides pass over elements, TensorFlow's kernel centers the windows, unlike
        // those of images.
        along.before = ((along.made - 1) * along.stride + along.window - along.size) / 2;
      }
      made.push_back(along.made);
      spread.insert(spread.end(), {along.made, sizes_[i]});
      patch.push_back(sizes_[i]);
    }
    spread.push_back(shape.back());
    patch.push_back(shape.back());
    TF_RETURN_IF_ERROR(call->CheckSize("ksizes", patch));
    TF_RETURN_IF_ERROR(call->CheckSize("ksizes", spread));
    if (Product(spread) == 0) {
      made.push_back(Product(patch));
      call->Set(0, Zeros(call->builder(), call->type(0), made));
      return absl::OkStatus();
    }
    call->Set(0, Patches(call->input(0), moves));
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kRank = kSpatial + 2;
  static constexpr bool kHasRates = kSpatial == 2;

  std::vector<int64_t> sizes_, strides_, rates_;
  Padding padding_ = Padding::VALID;
};

OPWRIGHT_REGISTER_XLA("Dilation2D", .TypeConstraint("T", kReal), Dilation2DOp);
OPWRIGHT_REGISTER_XLA("Dilation2DBackpropInput", .TypeConstraint("T", kReal),
                      Dilation2DBackpropInputOp);
OPWRIGHT_REGISTER_XLA("Dilation2DBackpropFilter", .TypeConstraint("T", kReal),
                      Dilation2DBackpropFilterOp);
OPWRIGHT_REGISTER_XLA("MaxPoolWithArgmax",
                      .TypeConstraint("T", kReal).TypeConstraint("Targmax", kIndices),
                      MaxPoolWithArgmaxOp);
OPWRIGHT_REGISTER_XLA(
    "MaxPoolGradWithArgmax",
    .TypeConstraint("T", kReal).TypeConstraint("Targmax", tensorflow::DT_INT64),
    MaxPoolGradWithArgmaxOp);
// TensorFlow's own kernel has floats and int32.
OPWRIGHT_REGISTER_XLA("ExtractImagePatches", .TypeConstraint("T", kNumeric),
                      ExtractPatchesOp<2>);
OPWRIGHT_REGISTER_XLA("ExtractVolumePatches", .TypeConstraint("T", kReal), ExtractPatchesOp<3>);

}  // namespace
}  // namespace opwright::xla_ops
