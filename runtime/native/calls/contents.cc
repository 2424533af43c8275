#include "calls/contents.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace opwright::calls {
namespace {

// NumPy takes less time for longer ones, and contents of longer ones are no tuples.
constexpr int64_t kMostElements = 1024;

// Values of TF_DataType.
enum DataType {
  kFloat = 1,
  kDouble = 2,
  kInt32 = 3,
  kUint8 = 4,
  kInt16 = 5,
  kInt8 = 6,
  kInt64 = 9,
  kUint16 = 17,
  kUint32 = 22,
  kUint64 = 23,
};

// A TF_Tensor with the contents of a tensor; none if they cannot be had.
class Resolved {
 public:
  explicit Resolved(PyObject* value) {
    void* handle = bound.tf.handle(value);
    const WithoutGil without_gil;
    tensor_ = bound.tf.resolve(handle, Status());
  }
  Resolved(const Resolved&) = delete;
  Resolved& operator=(const Resolved&) = delete;
  ~Resolved() {
    if (tensor_ != nullptr) bound.tf.delete_tensor(tensor_);
  }
  void* get() const { return tensor_; }

 private:
  void* tensor_;
};

template <typename T>
class Numbers {
 public:
  explicit Numbers(void* tensor)
      : data_(static_cast<const char*>(bound.tf.data(tensor))),
        count_(static_cast<int64_t>(bound.tf.byte_size(tensor) / sizeof(T))) {}
  int64_t count() const { return count_; }
  // They may not be aligned.
  T operator[](int64_t i) const {
    T number;
    std::memcpy(&number, data_ + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return number;
  }

 private:
  const char* data_;
  int64_t count_;
};

template <typename T>
PyObject* Number(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return PyFloat_FromDouble(static_cast<double>(value));
  } else if constexpr (std::is_unsigned_v<T>) {
    return PyLong_FromUnsignedLongLong(value);
  } else {
    return PyLong_FromLongLong(value);
  }
}

template <typename Reader>
PyObject* ReadAs(void* tensor, const Reader& read) {
  switch (bound.tf.data_type(tensor)) {
    case kFloat: return read(Numbers<float>(tensor));
    case kDouble: return read(Numbers<double>(tensor));
    case kInt8: return read(Numbers<int8_t>(tensor));
    case kInt16: return read(Numbers<int16_t>(tensor));
    case kInt32: return read(Numbers<int32_t>(tensor));
    case kInt64: return read(Numbers<int64_t>(tensor));
    case kUint8: return read(Numbers<uint8_t>(tensor));
    case kUint16: return read(Numbers<uint16_t>(tensor));
    case kUint32: return read(Numbers<uint32_t>(tensor));
    case kUint64: return read(Numbers<uint64_t>(tensor));
    default: return nullptr;
  }
}

// What `read` returns for the numbers of a short tensor. It may leave a case to `function`: it
// returns nullptr then, without an error.
template <typename Reader>
PyObject* Read(PyObject* function, PyObject* value, const Reader& read) {
  if (IsTensor(value)) {
    const int64_t elements = Elements(value);
    if (elements >= 0 && elements <= kMostElements) {
      const Resolved tensor(value);
      PyObject* result = tensor.get() == nullptr ? nullptr : ReadAs(tensor.get(), read);
      if (result != nullptr || PyErr_Occurred() != nullptr) return result;
    }
  }
  return Call(function, value);
}

// The integer of a list that comes first; nullptr, maybe with an error, if the list has none or
// not only integers.
template <typename Order>
PyObject* ExtremeOfList(PyObject* list, const Order& comes_first) {
  PyObject* found = nullptr;  // It is borrowed.
  long long first = 0;
  for (Py_ssize_t i = 0; i < SizeOfList(list); ++i) {
    PyObject* item = ItemOfList(list, i);
    if (PyLong_CheckExact(item) == 0) return nullptr;
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(item, &overflow);
    if (overflow != 0 || PyErr_Occurred() != nullptr) return nullptr;
    if (found != nullptr && !comes_first(number, first)) continue;
    found = item;
    first = number;
  }
  Py_XINCREF(found);
  return found;
}

// The element that comes first by `comes_first`: nan if there is one, `empty` if there is none.
template <typename Order>
PyObject* Extreme(PyObject* function, PyObject* value, double empty, const Order& comes_first) {
  if (IsList(value)) {
    PyObject* found = ExtremeOfList(value, comes_first);
    if (found != nullptr || PyErr_Occurred() != nullptr) return found;
  }
  return Read(function, value, [&](const auto& numbers) {
    if (numbers.count() == 0) return PyFloat_FromDouble(empty);
    auto found = numbers[0];
    for (int64_t i = 1; i < numbers.count(); ++i) {
      const auto number = numbers[i];
      if (number != number || comes_first(number, found)) found = number;
    }
    return Number(found);
  });
}

// Whether `holds` for each number; integers are finite.
template <typename Test>
PyObject* All(PyObject* function, PyObject* value, const Test& holds) {
  return Read(function, value, [&](const auto& numbers) {
    bool all = true;
    for (int64_t i = 0; i < numbers.count(); ++i) all = all && holds(numbers[i]);
    return Bool(all);
  });
}

}  // namespace

PyObject* ValueOf(PyObject* function, PyObject* value) {
  return Read(function, value, [](const auto& numbers) -> PyObject* {
    return numbers.count() == 1 ? Number(numbers[0]) : nullptr;
  });
}

PyObject* ContentsOf(PyObject* function, PyObject* value) {
  return Read(function, value, [](const auto& numbers) -> PyObject* {
    if constexpr (std::is_floating_point_v<decltype(numbers[0])>) return nullptr;
    PyObject* contents = PyTuple_New(static_cast<Py_ssize_t>(numbers.count()));
    for (int64_t i = 0; contents != nullptr && i < numbers.count(); ++i) {
      PyObject* number = Number(numbers[i]);
      if (number == nullptr ||
          PyTuple_SetItem(contents, static_cast<Py_ssize_t>(i), number) != 0) {
        Py_CLEAR(contents);
      }
    }
    return contents;
  });
}

PyObject* LastOf(PyObject* function, PyObject* value) {
  return Read(function, value, [](const auto& numbers) {
    const int64_t count = numbers.count();
    return count == 0 ? PyLong_FromLong(-1) : Number(numbers[count - 1]);
  });
}

PyObject* LeastOf(PyObject* function, PyObject* value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return Extreme(function, value, kInfinity, [](auto a, auto b) { return a < b; });
}

PyObject* MostOf(PyObject* function, PyObject* value) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return Extreme(function, value, -kInfinity, [](auto a, auto b) { return a > b; });
}

PyObject* AllFinite(PyObject* function, PyObject* value) {
  return All(function, value,
             [](auto number) { return std::isfinite(static_cast<double>(number)); });
}

PyObject* IsNanFree(PyObject* function, PyObject* value) {
  return All(function, value,
             [](auto number) { return !std::isnan(static_cast<double>(number)); });
}

}  // namespace opwright::calls
