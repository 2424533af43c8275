// In the place of LLVM's, which a header of TensorFlow 2.19 includes and its wheel lacks. Only
// descriptors for GPUs have these as members, and nothing here makes or reads one.
#pragma once

#include "absl/types/span.h"

namespace llvm {
template <class T>
using ArrayRef = absl::Span<const T>;
}  // namespace llvm
