"""The hand-written half of opwright: what its generated classes of ops stand on."""

from opwright_runtime import native

# Before any op runs: a graph that is loaded later finds the kernels registered.
native.load_if_present()
