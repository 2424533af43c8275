"""What a conversion was called with, and the inputs that it is checked on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opwright_runtime.convert import numbers, signatures
from opwright_runtime.convert.errors import ConvertError
from opwright_runtime.convert.numbers import Run, Values
from opwright_runtime.convert.sources import Tensors


def _silent(step: str) -> None:
    pass


@dataclass(frozen=True)
class Request:
    """The arguments that all conversions share.

    Attributes:
        signature: the one to convert; None for the default.
        shapes: TensorSpecs of a function, or shapes of inputs.
        samples: inputs for the check; None to draw them.
        check: whether to compare the result with the source.
        tolerance: the largest difference; None for that of the format.
        dropout_off: whether to switch off dropout in training nodes.
        overwrite: whether an existing target is replaced.
        tensors: inputs and outputs of a graph.
        notify: called before each step with a short text.
    """

    signature: str | None = None
    shapes: Mapping[str, Any] = field(default_factory=dict)
    samples: Mapping[str, Any] | None = None
    check: bool = True
    tolerance: float | None = None
    dropout_off: bool = False
    overwrite: bool = False
    tensors: Tensors = field(default_factory=Tensors)
    notify: Callable[[str], None] = _silent


def calls_for(
    loaded: Any,
    name: str | None,
    request: Request,
    run: Run,
    shapes: Mapping[str, Any] | None = None,
) -> Sequence[Values]:
    """The inputs of calls that differ in numbers, and in sizes where they may."""
    function = signatures.choose(loaded, name)
    specs = {
        key: type(spec)((shapes or {}).get(key, spec.shape), spec.dtype, key)
        for key, spec in signatures.specs(function).items()
    }
    if request.samples is not None:
        if missing := specs.keys() - request.samples.keys():
            raise ConvertError(f"samples lack the inputs {', '.join(sorted(missing))}")
        return _of_samples({key: request.samples[key] for key in specs}, run)
    limits = {}
    if any(spec.dtype.is_integer for spec in specs.values()):
        limits = signatures.integer_limits(signatures.flatten(loaded, name))
    return numbers.draw(specs, limits, run)


def _of_samples(samples: Values, run: Run) -> list[Values]:
    """The samples, and a call with other data, if the source accepts it."""
    given = {key: np.asarray(value) for key, value in samples.items()}
    other = {
        key: np.flip(value, 0) if value.ndim else value for key, value in given.items()
    }
    try:
        run(other)
    except Exception:
        # Its lengths may not fit, for instance. The comparison runs the samples.
        return [given]
    return [given, other]
