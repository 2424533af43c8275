// What the extension module calls of TensorFlow, and the objects of Python that it knows.
#ifndef OPWRIGHT_CALLS_BINDINGS_H_
#define OPWRIGHT_CALLS_BINDINGS_H_

// The stable ABI of Python 3.10, so that one file is for every Python.
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include <cstdint>

namespace opwright::calls {

// Functions of TensorFlow. Pointers to its types are those to void: no header of TensorFlow is
// read, so one file is for every TensorFlow.
struct Functions {
  PyObject* (*execute)(PyObject* arguments);
  void* (*handle)(const PyObject* tensor);
  int64_t (*elements)(void* handle, void* status);
  int (*rank)(void* handle, void* status);
  int64_t (*size)(void* handle, int axis, void* status);
  void* (*resolve)(void* handle, void* status);
  int (*data_type)(const void* tensor);
  size_t (*byte_size)(const void* tensor);
  void* (*data)(const void* tensor);
  void (*delete_tensor)(void* tensor);
  void* (*new_status)();
  void (*delete_status)(void* status);
};

struct Objects {
  PyObject* contexts;
  PyObject* current;  // The keys of `contexts`.
  PyObject* mode;
  PyObject* graphs;
  PyObject* stack;  // The name of an attribute.
  PyObject* tensor_class;
};

// What `set_up` was given; it keeps references to the objects.
struct Bindings {
  Functions tf;
  Objects python;
};
extern Bindings bound;

// Lets other threads have the GIL. A function of TensorFlow may wait for the op that makes a
// tensor, and that op may need the GIL.
class WithoutGil {
 public:
  WithoutGil() : thread_(PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() { PyEval_RestoreThread(thread_); }

 private:
  PyThreadState* thread_;
};

// The TF_Status of calls of this thread. What it says is not read.
inline void* Status() {
  struct Owned {
    void* status = bound.tf.new_status();
    ~Owned() { bound.tf.delete_status(status); }
  };
  thread_local const Owned owned;
  return owned.status;
}

inline bool IsOf(PyObject* value, PyObject* exact_class) {
  return reinterpret_cast<PyObject*>(Py_TYPE(value)) == exact_class;
}

inline bool IsTensor(PyObject* value) { return IsOf(value, bound.python.tensor_class); }

inline bool IsList(PyObject* value) {
  return PyList_CheckExact(value) != 0 || PyTuple_CheckExact(value) != 0;
}

inline Py_ssize_t SizeOfList(PyObject* list) {
  return PyList_CheckExact(list) != 0 ? PyList_Size(list) : PyTuple_Size(list);
}

// A borrowed reference.
inline PyObject* ItemOfList(PyObject* list, Py_ssize_t i) {
  return PyList_CheckExact(list) != 0 ? PyList_GetItem(list, i) : PyTuple_GetItem(list, i);
}

// These are negative if TensorFlow does not know them.
inline int64_t Elements(PyObject* tensor) {
  void* handle = bound.tf.handle(tensor);
  const WithoutGil without_gil;
  return bound.tf.elements(handle, Status());
}

inline int Rank(PyObject* tensor) {
  void* handle = bound.tf.handle(tensor);
  const WithoutGil without_gil;
  return bound.tf.rank(handle, Status());
}

inline PyObject* Bool(bool value) { return PyBool_FromLong(value ? 1 : 0); }

inline PyObject* Call(PyObject* function, PyObject* value) {
  return PyObject_CallFunctionObjArgs(function, value, nullptr);
}

}  // namespace opwright::calls

#endif  // OPWRIGHT_CALLS_BINDINGS_H_
