// See ArrayRef.h.
#pragma once

#include <vector>

namespace llvm {
template <class T>
using SmallVector = std::vector<T>;
}  // namespace llvm
