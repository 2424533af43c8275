"""The notation of shapes: its parser, and its evaluation.

The generator and the runtime share this package, and the module `tensorflow_log`. It
imports the standard library only.

- `syntax`: reads the notation as an expression in Python.
- `functions`: the functions and operators of expressions: their parameters, results,
  meaning and spelling in C++.
- `evaluation`: evaluates an expression for the facts of a call.
- `sizes`: the types of the values of expressions.
- `tensorflow_log`: hides TensorFlow's log while a command starts.
"""
