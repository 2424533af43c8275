"""The notation of shapes: how it is read, and what it means.

The generator and the runtime share it. It imports the standard library only.

- `syntax`: reads the notation as an expression in Python.
- `functions`: the functions and operators of expressions: what they take, what they
  give, what they mean, and how they are spelled in C++.
- `evaluation`: evaluates an expression for the facts of a call.
- `sizes`: what an expression is evaluated to.
"""
