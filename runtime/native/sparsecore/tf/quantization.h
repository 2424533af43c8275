// The quantization that lookups apply to rows.
#pragma once

#include "base/text.h"
#include "base/tf/status.h"
#include "embedding/optimizers.h"
#include "embedding/spec.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {

inline absl::Status ReadQuantization(tensorflow::OpKernelConstruction* context,
                                     embedding::Quantization* quantization) {
  float& low = quantization->lower;
  float& high = quantization->upper;
  TF_RETURN_IF_ERROR(context->GetAttr("quantization_config_low", &low));
  TF_RETURN_IF_ERROR(context->GetAttr("quantization_config_high", &high));
  TF_RETURN_IF_ERROR(
      context->GetAttr("quantization_config_num_buckets", &quantization->buckets));
  quantization->enabled = quantization->buckets != 0;
  if (!quantization->enabled) return absl::OkStatus();
  if (quantization->buckets < 2) {
    return Invalid("quantization_config_num_buckets",
                   StrCat("must be 0 or at least 2, is ", quantization->buckets));
  }
  if (quantization->good()) return absl::OkStatus();
  return Invalid("quantization_config_low",
                 "must be finite and below quantization_config_high, as far as float32 can "
                 "say; they are " +
                     embedding::Number(low) + " and " + embedding::Number(high));
}

}  // namespace opwright::sparsecore
