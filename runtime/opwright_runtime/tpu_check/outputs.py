"""The outputs of a program whose sizes values decide, and the bounds that XLA sets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._internals import compiler_ir
from opwright_runtime.tpu_check.findings import Output

# A concrete function, of whose type TensorFlow states nothing.
_Function: TypeAlias = Any

# The results in the first line of a module in HLO's text, `)->(f32[8], s64[<=8,1])`.
_RESULTS = re.compile(r"entry_computation_layout=\{.*\)->(.*)\}")
_SHAPE = re.compile(r"\w+\[([^]]*)\]")


def of_values(concrete: _Function, specs: list[tf.TensorSpec]) -> tuple[Output, ...]:
    """The outputs of unknown size of a function that XLA compiles."""
    unknown = [not one.shape.is_fully_defined() for one in concrete.outputs]
    if not any(unknown):
        return ()
    try:
        generate = compiler_ir.from_concrete_function(concrete, specs)
        hlo = generate(stage="hlo")
    except (ValueError, tf.errors.OpError, NotImplementedError):
        return ()
    found = _RESULTS.search(hlo.partition("\n")[0])
    bounds = _SHAPE.findall(found[1]) if found else []
    # New values of variables come after the outputs.
    rows = zip(_names(concrete), concrete.outputs, bounds, strict=False)
    return tuple(
        Output(name, tensor.dtype.name, tuple(_bounds(bound)))
        for name, tensor, bound in rows
        if "<=" in bound
    )


def _bounds(sizes: str) -> Iterator[int]:
    for size in filter(None, sizes.split(",")):
        yield int(size.removeprefix("<="))


def _names(concrete: _Function) -> list[str]:
    """The keys of the results if they are in a dict, or else their numbers."""
    results = concrete.structured_outputs
    known = {}
    if isinstance(results, dict):
        known = {id(one): str(key) for key, one in results.items()}
    return [known.get(id(one), str(i)) for i, one in enumerate(concrete.outputs)]
