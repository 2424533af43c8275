// DLPack's structs, with which libraries exchange tensors without a copy, and functions that
// read them.
#pragma once

#include "dlpack/dlpack.h"

namespace opwright {

// Returns whether the tensor is a contiguous vector on the CPU with the given element type.
inline bool IsVector(const DLTensor& tensor, DLDataTypeCode code, int bits) {
  return tensor.device.device_type == kDLCPU && tensor.ndim == 1 && tensor.dtype.code == code &&
         tensor.dtype.bits == bits && tensor.dtype.lanes == 1 &&
         (!tensor.strides || tensor.strides[0] == 1 || tensor.shape[0] <= 1);
}

inline const void* DataOf(const DLTensor& tensor) {
  return static_cast<const char*>(tensor.data) + tensor.byte_offset;
}

}  // namespace opwright
