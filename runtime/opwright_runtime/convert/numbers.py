"""Draws inputs, and compares the outputs of two models."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from opwright_runtime.convert.errors import ConvertError
from opwright_runtime.convert.outcome import Comparison

Values: TypeAlias = dict[str, Any]
Run: TypeAlias = Callable[[Values], Values]

# The sizes of unknown dimensions in each call: batch, time, others.
_SIZES = ((3, 7, 4), (3, 7, 4), (2, 5, 4))
# The shapes to try for a tensor of a rank: with the batch first, with time first, or
# with one size for all dimensions.
_LAYOUTS: tuple[Callable[[int, tuple[int, int, int]], tuple[int, ...]], ...] = (
    lambda rank, sizes: sizes,
    lambda rank, sizes: sizes if rank == 1 else (sizes[1], sizes[0], sizes[2]),
    lambda rank, sizes: (sizes[0],),
)
_INTEGERS = 2
# Integers are up to these of the sizes of sequences and states, the largest one first.
_PLACES = (0, 1, -1)
# The most numbers of an input that are drawn.
_LARGEST = 1 << 27
# What to do about a difference that has no known cause.
REPORT = "Report this with the model"
# The tolerance for numbers of 16 bits.
_NARROW = 2e-2


def draw(
    specs: Mapping[str, tf.TensorSpec], limits: Mapping[str, int], run: Run
) -> list[Values]:
    """Inputs for three calls. The same arguments give the same inputs.

    Args:
        specs: the inputs by name.
        limits: integers of an input lie below its limit.
        run: the model. The inputs have the first layout with which it runs. If it runs
            with none, floats are 0 and 1: it may use them as indices. Integers may be
            the lengths of sequences: they have the largest limit that it takes.
    """
    calls: list[Values] = []
    numbers = range(len(_SIZES))
    counted = any(spec.dtype.is_integer for spec in specs.values())
    places = _PLACES if counted else _PLACES[:1]
    for whole, layout, place in itertools.product((False, True), _LAYOUTS, places):
        calls = [
            _call(specs, limits, layout, number, whole, place) for number in numbers
        ]
        try:
            for call in calls:
                run(call)
        except Exception:
            # The last layout is used even so, and the comparison reports the error.
            continue
        break
    return calls


def _call(
    specs: Mapping[str, tf.TensorSpec],
    limits: Mapping[str, int],
    layout: Callable[[int, tuple[int, int, int]], tuple[int, ...]],
    number: int,
    whole: bool,
    place: int,
) -> Values:
    rng = np.random.default_rng(number)
    shapes = {}
    for name, spec in specs.items():
        if spec.shape.rank is None:
            raise ConvertError(
                f"input {spec.name!r} has no known rank; pass samples, or "
                "check=False (--no-check)"
            )
        shapes[name] = _sized(spec, layout(spec.shape.rank, _SIZES[number]))
        _check_sizes(spec, shapes[name])
    # The number of steps is one of them.
    sizes = {
        size
        for name, shape in shapes.items()
        if specs[name].dtype.is_floating and len(shape) == 3
        for size in shape[:2]
    }
    ordered = sorted(sizes or {_INTEGERS}, reverse=True)
    limit = 1 + ordered[min(place, len(ordered) - 1)]
    return {
        name: _drawn(rng, specs[name], shapes[name], limits.get(name, limit), whole)
        for name in sorted(specs)
    }


def _sized(spec: tf.TensorSpec, sizes: Sequence[int]) -> list[int]:
    return [
        sizes[min(axis, len(sizes) - 1)] if size is None else size
        for axis, size in enumerate(spec.shape.as_list())
    ]


def _check_sizes(spec: tf.TensorSpec, shape: Sequence[int]) -> None:
    """Refuses an input of which no array is drawn.

    Raises:
        ConvertError: a size is negative, or the array is large.
    """
    if min(shape, default=0) < 0:
        raise ConvertError(
            f"input {spec.name!r} has the shape {spec.shape}, and sizes are at least "
            "0; save the model again"
        )
    if math.prod(shape) > _LARGEST:
        raise ConvertError(
            f"input {spec.name!r} has the shape {spec.shape}, and at most {_LARGEST:,} "
            "numbers are drawn; pass samples, or check=False (--no-check)"
        )


def _drawn(
    rng: np.random.Generator,
    spec: tf.TensorSpec,
    shape: list[int],
    limit: int,
    whole: bool,
) -> Any:
    dtype = spec.dtype
    if dtype.is_floating:
        values = rng.integers(0, 2, shape) if whole else rng.standard_normal(shape)
        return tf.cast(values, dtype).numpy()
    if dtype == tf.bool:
        return _padded(rng, np.ones(shape, bool))
    if dtype.is_integer:
        low = 1 if len(shape) > 1 and limit > 1 else 0
        values = rng.integers(low, max(limit, 1), shape).astype(dtype.as_numpy_dtype)
        return _padded(rng, values)
    raise ConvertError(
        f"no values are drawn for input {spec.name!r} of dtype {dtype.name}; pass "
        "samples, or check=False (--no-check)"
    )


def _padded(rng: np.random.Generator, values: Any) -> Any:
    """Sequences that end with zeros: Keras refuses other masks on a GPU."""
    if values.ndim < 2:
        return values
    steps = values.shape[1]
    lengths = rng.integers(1, steps + 1, [len(values), 1]) if steps else 0
    shown = np.arange(steps) < lengths
    return np.where(
        shown.reshape(shown.shape + (1,) * (values.ndim - 2)), values, 0
    ).astype(values.dtype)


def tolerance(dtypes: Iterable[str], of_format: float) -> float:
    """The tolerance for a model with nodes of these dtypes.

    Numbers of 16 bits are rounded at other places than in the source.
    """
    narrow = not {"float16", "bfloat16"}.isdisjoint(dtypes)
    return max(of_format, _NARROW) if narrow else of_format


def compare(
    source: Run,
    result: Run,
    calls: Sequence[Values],
    tolerance: float,
    what: str,
    remedy: str = REPORT,
) -> Comparison:
    """Runs two models on the same inputs, one call after the other.

    A result that keeps state from call to call differs in the second one.

    Args:
        source: the reference model.
        result: the model to check.
        calls: the inputs of each call. The first call is made again after the second.
        tolerance: the largest difference that is accepted, for values up to 1.
        what: the name of the result, for messages.
        remedy: what to do if the outputs differ, other than to accept it.

    Raises:
        ConvertError: a model fails, or the outputs differ.
    """
    worst = scale = 0.0
    times: list[list[float]] = [[], []]
    for inputs in [*calls[:2], calls[0], *calls[2:]]:
        wanted = _called(source, inputs, "the source", times[0])
        found = _called(result, inputs, what, times[1])
        for name in sorted(wanted):
            if name not in found:
                raise ConvertError(f"{what} has no output {name!r}")
            difference, size = _difference(wanted[name], found[name])
            worst, scale = max(worst, difference), max(scale, size)
    done = (1000 * min(each) for each in times)
    numbers = Comparison(worst, tolerance, scale, len(calls) + 1, *done)
    if not worst <= numbers.allowed:
        raise ConvertError(
            f"{what} differs from the source by up to {worst:.2g} (largest value "
            f"{scale:.2g}), which is more than {numbers.allowed:.2g}; nothing was "
            f"written. {remedy}, or pass a larger tolerance"
        )
    return numbers


def _called(run: Run, inputs: Values, what: str, times: list[float]) -> Values:
    begin = time.perf_counter()
    try:
        outputs = run(inputs)
    except ConvertError:
        raise
    except Exception as error:
        # Runtimes raise errors of their own.
        shapes = {name: list(np.shape(value)) for name, value in inputs.items()}
        raise ConvertError(
            f"{what} fails on inputs of the shapes {shapes}: {error}; pass shapes= "
            "(--shape) or samples that the source accepts, or check=False (--no-check)"
        ) from error
    times.append(time.perf_counter() - begin)
    return outputs


def _difference(wanted: Any, found: Any) -> tuple[float, float]:
    a, b = np.asarray(wanted), np.asarray(found)
    if a.shape != b.shape:
        return np.inf, 0.0
    if a.dtype.kind not in "fiubV" and not tf.as_dtype(a.dtype).is_floating:
        return (0.0 if (a == b).all() else np.inf), 0.0
    a, b = (np.asarray(one, np.float64) for one in (a, b))
    if (np.isfinite(a) != np.isfinite(b)).any():
        return np.inf, 0.0
    finite = np.isfinite(a)
    gap = np.abs(a[finite] - b[finite]).max(initial=0.0)
    return float(gap), float(np.abs(a[finite]).max(initial=0.0))
