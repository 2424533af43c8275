// Tensors as libraries hand them to each other: DLPack's structs, as they are in all of its
// versions whose capsules are named "dltensor".
#pragma once

#include <cstdint>

namespace opwright {

constexpr int32_t kDlpackCpu = 1;
enum class DlpackKind : uint8_t { kInt = 0, kFloat = 2 };

struct DlpackTensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t rank;
  DlpackKind kind;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;  // In elements; null: rows after each other.
  uint64_t byte_offset;
};

struct DlpackManaged {
  DlpackTensor tensor;
  void* owner;
  void (*release)(DlpackManaged* self);
};

// Of a vector on the CPU: its elements, after each other.
inline bool IsVector(const DlpackTensor& tensor, DlpackKind kind, int bits) {
  return tensor.device_type == kDlpackCpu && tensor.rank == 1 && tensor.kind == kind &&
         tensor.bits == bits && tensor.lanes == 1 &&
         (!tensor.strides || tensor.strides[0] == 1 || tensor.shape[0] <= 1);
}

inline const void* DataOf(const DlpackTensor& tensor) {
  return static_cast<const char*>(tensor.data) + tensor.byte_offset;
}

}  // namespace opwright
