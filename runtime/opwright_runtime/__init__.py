"""The hand-written half of opwright: the runtime of the generated classes of ops.

The public names are the exports of `opwright`, and `__all__` of these modules:

- `api`: the exports of `opwright` that are not packages of ops. Parts of them lie in
  `errors`, `rnn` and `types`.
- `cli`: the command line `opwright`.
- `embedding`: the exports of `opwright.tpu` that are not ops.
- `kernels`: the kernels that are registered.
- `native`: the library of native kernels.
- `tpu_check`: checks whether a program compiles for TPUs.

Only generated code imports `gencode`. Modules that begin with an underscore may change
at any time, and so may the modules of a public package.
"""

__version__ = "0.1.0"
