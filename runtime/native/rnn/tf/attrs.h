// The attrs of the CudnnRNN ops, and the mapping from TensorFlow's element types to the types
// of base/.
#pragma once

#include <string>

#include "absl/strings/str_cat.h"
#include "base/float16.h"
#include "base/text.h"
#include "base/tf/status.h"
#include "rnn/spec.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/env_var.h"

namespace opwright::rnn {

template <class T>
struct CoreOf {
  using Type = T;
};
template <>
struct CoreOf<Eigen::half> {
  using Type = Half;
};
template <>
struct CoreOf<Eigen::bfloat16> {
  using Type = BFloat16;
};
template <class T>
using Core = typename CoreOf<T>::Type;

inline Cell CellOf(const std::string& rnn_mode) {
  return rnn_mode == "rnn_relu"   ? Cell::kRelu
         : rnn_mode == "rnn_tanh" ? Cell::kTanh
         : rnn_mode == "gru"      ? Cell::kGru
                                  : Cell::kLstm;
}

// The attrs that configure the layers.
class RnnAttrs {
 public:
  explicit RnnAttrs(tensorflow::OpKernelConstruction* context) {
    std::string mode, input_mode, direction;
    OP_REQUIRES_OK(context, context->GetAttr("rnn_mode", &mode));
    OP_REQUIRES_OK(context, context->GetAttr("input_mode", &input_mode));
    OP_REQUIRES_OK(context, context->GetAttr("direction", &direction));
    OP_REQUIRES_OK(context, context->GetAttr("dropout", &dropout_));
    int64_t seed, seed2;
    OP_REQUIRES_OK(context, context->GetAttr("seed", &seed));
    OP_REQUIRES_OK(context, context->GetAttr("seed2", &seed2));
    if (context->HasAttr("num_proj")) {
      OP_REQUIRES_OK(context, context->GetAttr("num_proj", &projection_));
    }
    cell_ = CellOf(mode);
    skip_input_ = input_mode == "skip_input";
    auto_select_ = input_mode == "auto_select";
    bidirectional_ = direction == "bidirectional";
    seed_ = (static_cast<uint64_t>(seed) << 32) | (static_cast<uint64_t>(seed2) & 0xffffffffu);
    OP_REQUIRES(context, dropout_ >= 0 && dropout_ <= 1,
                Invalid("dropout", absl::StrCat("must lie between 0 and 1, is ", dropout_)));
    OP_REQUIRES(context, projection_ >= 0,
                Invalid("num_proj", StrCat("must not be negative, is ", projection_)));
    OP_REQUIRES_OK(context, tensorflow::ReadBoolFromEnvVar("TF_CUDNN_RESET_RND_GEN_STATE",
                                                           false, &resets_dropout_));
  }

  Cell cell() const { return cell_; }
  int64_t projection() const { return projection_; }
  int64_t dirs() const { return bidirectional_ ? 2 : 1; }
  float dropout() const { return dropout_; }
  uint64_t seed() const { return seed_; }
  // Returns whether every call draws the dropout masks of the first call. The environment
  // variable TF_CUDNN_RESET_RND_GEN_STATE sets this, also for TensorFlow's GPU kernels.
  bool resets_dropout() const { return resets_dropout_; }

  StackSpec MakeStack(int64_t layers, int64_t units, int64_t input_size) const {
    StackSpec stack;
    stack.cell = cell_;
    stack.skip_input = skip_input_ || (auto_select_ && input_size == units);
    stack.bidirectional = bidirectional_;
    stack.layers = layers;
    stack.units = units;
    stack.input_size = input_size;
    stack.projection = projection_;
    return stack;
  }

 private:
  Cell cell_ = Cell::kLstm;
  bool skip_input_ = false, auto_select_ = false, bidirectional_ = false;
  int64_t projection_ = 0;
  float dropout_ = 0;
  uint64_t seed_ = 0;
  bool resets_dropout_ = false;
};

}  // namespace opwright::rnn
