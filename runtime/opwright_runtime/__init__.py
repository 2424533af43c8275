"""The hand-written half of opwright: what its generated classes of ops stand on.

Public is what `opwright` exports, and what these modules list in `__all__`:

- `api`: what `opwright` exports beside its packages of ops; `errors`, `rnn` and `types`
  have parts of it.
- `cli`: the command line `opwright`.
- `embedding`: what `opwright.tpu` exports beside its ops.
- `kernels`, `native`, `tpu_check`: kernels that are registered, the library of native
  kernels, the check whether a program compiles for TPUs.

`gencode` is for generated code alone. Modules that begin with an underscore, and those
within a public package, may change at any time.
"""

__version__ = "0.1.0"
