// Functions of conditions that read the contents of a tensor.
#ifndef OPWRIGHT_CALLS_CONTENTS_H_
#define OPWRIGHT_CALLS_CONTENTS_H_

#include "calls/bindings.h"

namespace opwright::calls {

// Each function does what the function of Python does that it is given first, and calls that
// for what is no short tensor of numbers.
PyObject* ValueOf(PyObject* function, PyObject* value);
PyObject* ContentsOf(PyObject* function, PyObject* value);
PyObject* LastOf(PyObject* function, PyObject* value);
PyObject* LeastOf(PyObject* function, PyObject* value);
PyObject* MostOf(PyObject* function, PyObject* value);
PyObject* AllFinite(PyObject* function, PyObject* value);
PyObject* IsNanFree(PyObject* function, PyObject* value);

}  // namespace opwright::calls

#endif  // OPWRIGHT_CALLS_CONTENTS_H_
