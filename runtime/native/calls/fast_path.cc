// The extension module opwright_runtime._lib.fast_path: what eager calls of generated classes
// run before TensorFlow's fast path, and the call of that path. It has the stable ABI of
// Python 3.10, and is given the addresses of TensorFlow's functions. So one file is for every
// Python and every TensorFlow. What each function does: _binding/fast_path.py.
#define Py_LIMITED_API 0x030a0000
#include <Python.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>

namespace opwright::calls {
namespace {

// What `set_up` was given; it keeps references to the objects. The GIL guards it.
struct Bindings {
  PyObject* (*execute)(PyObject* arguments);
  void* (*handle)(const PyObject* tensor);
  int64_t (*elements)(void* handle, void* status);
  int (*rank)(void* handle, void* status);
  int64_t (*size)(void* handle, int axis, void* status);
  void* status;
  PyObject* contexts;
  PyObject* current;  // The keys of `contexts`.
  PyObject* mode;
  PyObject* graphs;
  PyObject* stack;  // The name of an attribute.
  PyObject* tensor_class;
};
Bindings bound;

PyObject* Bool(bool value) { return PyBool_FromLong(value ? 1 : 0); }

bool IsOf(PyObject* value, PyObject* exact_class) {
  return reinterpret_cast<PyObject*>(Py_TYPE(value)) == exact_class;
}

bool IsTensor(PyObject* value) { return IsOf(value, bound.tensor_class); }

bool IsList(PyObject* value) {
  return PyList_CheckExact(value) != 0 || PyTuple_CheckExact(value) != 0;
}

int64_t Elements(PyObject* tensor) {
  return bound.elements(bound.handle(tensor), bound.status);
}

// The first argument of each function below is the function of Python that it stands for. It
// calls that function for the values that it does not know.

PyObject* Call(PyObject* function, PyObject* value) {
  return PyObject_CallFunctionObjArgs(function, value, nullptr);
}

// 1 if the thread executes eagerly and builds no graph, else 0; -1 with an error.
int IsEager() {
  PyObject* mode = PyDict_GetItemWithError(bound.contexts, bound.mode);
  if (mode == nullptr) return PyErr_Occurred() != nullptr ? -1 : 0;
  const int is_eager = PyObject_IsTrue(mode);
  if (is_eager != 1) return is_eager;
  PyObject* stack = PyObject_GetAttr(bound.graphs, bound.stack);
  if (stack == nullptr) return -1;
  const Py_ssize_t size = PyObject_Size(stack);
  Py_DECREF(stack);
  return size < 0 ? -1 : size == 0;
}

PyObject* BoolOrError(int found) { return found < 0 ? nullptr : Bool(found == 1); }

PyObject* IsEagerFor(PyObject* /*function*/, PyObject* const* values, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!IsTensor(values[i])) return Bool(false);
  }
  return BoolOrError(IsEager());
}

PyObject* CanBroadcast(PyObject* /*function*/, PyObject* const* values, Py_ssize_t count) {
  int64_t product = 1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!IsTensor(values[i])) return Bool(false);
    const int64_t elements = Elements(values[i]);
    if (elements <= 0 || __builtin_mul_overflow(product, elements, &product))
      return Bool(false);
  }
  return BoolOrError(IsEager());
}

PyObject* AllTensors(PyObject* /*function*/, PyObject* values) {
  if (!IsList(values)) return Bool(false);
  const bool is_list = PyList_CheckExact(values) != 0;
  const Py_ssize_t count = is_list ? PyList_Size(values) : PyTuple_Size(values);
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (!IsTensor(is_list ? PyList_GetItem(values, i) : PyTuple_GetItem(values, i))) {
      return Bool(false);
    }
  }
  return Bool(true);
}

PyObject* TensorsOf(PyObject* function, PyObject* values) {
  if (!IsList(values)) return Call(function, values);
  Py_INCREF(values);
  return values;
}

PyObject* ElementsOf(PyObject* function, PyObject* value) {
  const int64_t elements = IsTensor(value) ? Elements(value) : -1;
  return elements < 0 ? Call(function, value) : PyLong_FromLongLong(elements);
}

PyObject* RankOf(PyObject* function, PyObject* value) {
  const int rank = IsTensor(value) ? bound.rank(bound.handle(value), bound.status) : -1;
  return rank < 0 ? Call(function, value) : PyLong_FromLong(rank);
}

PyObject* SizesOf(PyObject* function, PyObject* value) {
  void* handle = IsTensor(value) ? bound.handle(value) : nullptr;
  const int rank = handle == nullptr ? -1 : bound.rank(handle, bound.status);
  if (rank < 0) return Call(function, value);
  PyObject* sizes = PyTuple_New(rank);
  for (int axis = 0; sizes != nullptr && axis < rank; ++axis) {
    PyObject* size = PyLong_FromLongLong(bound.size(handle, axis, bound.status));
    if (size == nullptr || PyTuple_SetItem(sizes, axis, size) != 0) Py_CLEAR(sizes);
  }
  return sizes;
}

PyObject* New(PyObject* function, PyObject* cls) {
  if (PyType_Check(cls) == 0) return Call(function, cls);
  return PyType_GenericNew(reinterpret_cast<PyTypeObject*>(cls), nullptr, nullptr);
}

// It stands for a method of `cls`.
PyObject* Merge(PyObject* cls, PyObject* values) {
  if (PyTuple_CheckExact(values) != 0 && PyTuple_Size(values) == 1) {
    PyObject* value = PyTuple_GetItem(values, 0);
    if (IsOf(value, cls)) {
      Py_INCREF(value);
      return value;
    }
  }
  return PyObject_CallMethod(cls, "merge", "(O)", values);
}

PyObject* Execute(PyObject* /*function*/, PyObject* const* values, Py_ssize_t count) {
  PyObject* context = PyDict_GetItemWithError(bound.contexts, bound.current);
  if (context == nullptr) {
    if (PyErr_Occurred() == nullptr) PyErr_SetObject(PyExc_KeyError, bound.current);
    return nullptr;
  }
  PyObject* arguments = PyTuple_New(count + 1);
  if (arguments == nullptr) return nullptr;
  Py_INCREF(context);
  PyTuple_SetItem(arguments, 0, context);
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_INCREF(values[i]);
    PyTuple_SetItem(arguments, i + 1, values[i]);
  }
  PyObject* result = nullptr;
  try {
    result = bound.execute(arguments);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  Py_DECREF(arguments);
  if (result == nullptr && PyErr_Occurred() == nullptr) {
    PyErr_SetString(PyExc_SystemError,
                    "TensorFlow's fast path returned no result and no error");
  }
  return result;
}

template <typename Function>
PyCFunction Method(Function* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef functions[] = {
    {"is_eager", Method(IsEagerFor), METH_FASTCALL, nullptr},
    {"can_broadcast", Method(CanBroadcast), METH_FASTCALL, nullptr},
    {"all_tensors", AllTensors, METH_O, nullptr},
    {"tensors_of", TensorsOf, METH_O, nullptr},
    {"elements_of", ElementsOf, METH_O, nullptr},
    {"rank_of", RankOf, METH_O, nullptr},
    {"sizes_of", SizesOf, METH_O, nullptr},
    {"new", New, METH_O, nullptr},
    {"merge", Merge, METH_O, nullptr},
    {"execute", Method(Execute), METH_FASTCALL, nullptr},
};

// native(name, function, module): the function of this name, which stands for `function`.
// `module` is its `__module__`, which AutoGraph reads.
PyObject* Native(PyObject* /*extension*/, PyObject* arguments) {
  const char* name = nullptr;
  PyObject* function = nullptr;
  PyObject* module = nullptr;
  if (!PyArg_ParseTuple(arguments, "sOO", &name, &function, &module)) return nullptr;
  for (PyMethodDef& each : functions) {
    if (std::strcmp(each.ml_name, name) == 0) return PyCFunction_NewEx(&each, function, module);
  }
  return PyErr_Format(PyExc_KeyError, "%s", name);
}

template <typename Function>
void Point(Function** to, unsigned long long address) {
  *to = reinterpret_cast<Function*>(static_cast<uintptr_t>(address));
}

// set_up(execute, handle, elements, rank, size, status, contexts, current, mode, graphs, stack,
// tensor_class): the addresses of functions and of a TF_Status, and objects.
PyObject* SetUp(PyObject* /*module*/, PyObject* arguments) {
  unsigned long long execute = 0, handle = 0, elements = 0, rank = 0, size = 0, status = 0;
  Bindings given{};
  if (!PyArg_ParseTuple(arguments, "KKKKKKO!OOOOO", &execute, &handle, &elements, &rank, &size,
                        &status, &PyDict_Type, &given.contexts, &given.current, &given.mode,
                        &given.graphs, &given.stack, &given.tensor_class)) {
    return nullptr;
  }
  Point(&given.execute, execute);
  Point(&given.handle, handle);
  Point(&given.elements, elements);
  Point(&given.rank, rank);
  Point(&given.size, size);
  given.status = reinterpret_cast<void*>(static_cast<uintptr_t>(status));
  for (PyObject* kept : {given.contexts, given.current, given.mode, given.graphs, given.stack,
                         given.tensor_class}) {
    Py_INCREF(kept);
  }
  bound = given;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"set_up", SetUp, METH_VARARGS, nullptr},
    {"native", Native, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "fast_path",
                          nullptr,
                          -1,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace opwright::calls

PyMODINIT_FUNC PyInit_fast_path() { return PyModule_Create(&opwright::calls::definition); }
