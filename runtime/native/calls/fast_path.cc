// The extension module opwright_runtime._lib.fast_path: what eager calls of generated classes
// run before TensorFlow's fast path, and the call of that path. It has the stable ABI of
// Python 3.10, and is given the addresses of TensorFlow's functions. So one file is for every
// Python and every TensorFlow. What each function does: _binding/fast_path.py.
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>

#include "calls/bindings.h"
#include "calls/contents.h"

namespace opwright::calls {

Bindings bound;

namespace {

// The first argument of each function below is the function of Python that it stands for. It
// calls that function for the values that it does not know.

// A tuple of `first`, unless it is null, and values.
PyObject* Pack(PyObject* first, PyObject* const* values, Py_ssize_t count) {
  const Py_ssize_t before = first == nullptr ? 0 : 1;
  PyObject* packed = PyTuple_New(before + count);
  if (packed == nullptr) return nullptr;
  if (first != nullptr) {
    Py_INCREF(first);
    PyTuple_SetItem(packed, 0, first);
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    Py_INCREF(values[i]);
    PyTuple_SetItem(packed, before + i, values[i]);
  }
  return packed;
}

PyObject* CallAll(PyObject* function, PyObject* const* values, Py_ssize_t count) {
  PyObject* arguments = Pack(nullptr, values, count);
  PyObject* result = arguments == nullptr ? nullptr : PyObject_CallObject(function, arguments);
  Py_XDECREF(arguments);
  return result;
}

// 1 if the thread executes eagerly and builds no graph, else 0; -1 with an error.
int IsEager() {
  PyObject* mode = PyDict_GetItemWithError(bound.python.contexts, bound.python.mode);
  if (mode == nullptr) return PyErr_Occurred() != nullptr ? -1 : 0;
  const int is_eager = PyObject_IsTrue(mode);
  if (is_eager != 1) return is_eager;
  PyObject* stack = PyObject_GetAttr(bound.python.graphs, bound.python.stack);
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
  for (Py_ssize_t i = 0; i < SizeOfList(values); ++i) {
    if (!IsTensor(ItemOfList(values, i))) return Bool(false);
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
  const int rank = IsTensor(value) ? Rank(value) : -1;
  return rank < 0 ? Call(function, value) : PyLong_FromLong(rank);
}

PyObject* SizesOf(PyObject* function, PyObject* value) {
  constexpr int kMostAxes = 254;
  const int rank = IsTensor(value) ? Rank(value) : -1;
  if (rank < 0 || rank > kMostAxes) return Call(function, value);
  int64_t sizes[kMostAxes];
  {
    void* handle = bound.tf.handle(value);
    const WithoutGil without_gil;
    for (int axis = 0; axis < rank; ++axis) sizes[axis] = bound.tf.size(handle, axis, Status());
  }
  PyObject* result = PyTuple_New(rank);
  for (int axis = 0; result != nullptr && axis < rank; ++axis) {
    PyObject* size = PyLong_FromLongLong(sizes[axis]);
    if (size == nullptr || PyTuple_SetItem(result, axis, size) != 0) Py_CLEAR(result);
  }
  return result;
}

// Its values are a tuple of ranks, and tensors.
PyObject* HaveRanks(PyObject* function, PyObject* const* values, Py_ssize_t count) {
  if (count == 0 || PyTuple_CheckExact(values[0]) == 0) return CallAll(function, values, count);
  bool all = PyTuple_Size(values[0]) == count - 1;
  for (Py_ssize_t i = 1; i < count; ++i) {
    const int rank = IsTensor(values[i]) ? Rank(values[i]) : -1;
    if (rank < 0) return CallAll(function, values, count);
    all = all && PyLong_AsLong(PyTuple_GetItem(values[0], i - 1)) == rank;
  }
  return PyErr_Occurred() != nullptr ? nullptr : Bool(all);
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
  PyObject* context = PyDict_GetItemWithError(bound.python.contexts, bound.python.current);
  if (context == nullptr) {
    if (PyErr_Occurred() == nullptr) PyErr_SetObject(PyExc_KeyError, bound.python.current);
    return nullptr;
  }
  PyObject* arguments = Pack(context, values, count);
  if (arguments == nullptr) return nullptr;
  PyObject* result = nullptr;
  try {
    result = bound.tf.execute(arguments);
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
    {"have_ranks", Method(HaveRanks), METH_FASTCALL, nullptr},
    {"value_of", ValueOf, METH_O, nullptr},
    {"contents_of", ContentsOf, METH_O, nullptr},
    {"last_of", LastOf, METH_O, nullptr},
    {"least_of", LeastOf, METH_O, nullptr},
    {"most_of", MostOf, METH_O, nullptr},
    {"all_finite", AllFinite, METH_O, nullptr},
    {"is_nan_free", IsNanFree, METH_O, nullptr},
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
bool Point(Function** to, PyObject* address) {
  *to = reinterpret_cast<Function*>(PyLong_AsVoidPtr(address));
  return PyErr_Occurred() == nullptr;
}

// set_up(addresses, contexts, current, mode, graphs, stack, tensor_class): the addresses of the
// functions of TensorFlow, in their order in `Functions`, and objects.
PyObject* SetUp(PyObject* /*module*/, PyObject* arguments) {
  PyObject* list = nullptr;
  Objects objects{};
  if (!PyArg_ParseTuple(arguments, "O!O!OOOOO", &PyTuple_Type, &list, &PyDict_Type,
                        &objects.contexts, &objects.current, &objects.mode, &objects.graphs,
                        &objects.stack, &objects.tensor_class)) {
    return nullptr;
  }
  constexpr Py_ssize_t kFunctions = 12;
  static_assert(sizeof(Functions) == kFunctions * sizeof(void*));
  if (PyTuple_Size(list) != kFunctions) {
    return PyErr_Format(PyExc_ValueError, "%zd addresses are needed", kFunctions);
  }
  Functions tf{};
  Py_ssize_t next = 0;
  const auto address = [&] { return PyTuple_GetItem(list, next++); };
  if (!Point(&tf.execute, address()) || !Point(&tf.handle, address()) ||
      !Point(&tf.elements, address()) || !Point(&tf.rank, address()) ||
      !Point(&tf.size, address()) || !Point(&tf.resolve, address()) ||
      !Point(&tf.data_type, address()) || !Point(&tf.byte_size, address()) ||
      !Point(&tf.data, address()) || !Point(&tf.delete_tensor, address()) ||
      !Point(&tf.new_status, address()) || !Point(&tf.delete_status, address())) {
    return nullptr;
  }
  for (PyObject* kept : {objects.contexts, objects.current, objects.mode, objects.graphs,
                         objects.stack, objects.tensor_class}) {
    Py_INCREF(kept);
  }
  bound = {tf, objects};
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
