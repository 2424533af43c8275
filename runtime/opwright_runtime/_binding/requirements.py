"""Refuses a call that does not meet the conditions of its op, before it is made.

Arguments that do not meet them can end the process. Calls on the fast path are checked
by generated code. This module checks all others, and says which argument is at fault.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import tensorflow as tf

from opwright_notation.conditions import (
    CROSSES,
    EAGER,
    JOINT,
    OF_EQUATIONS,
    OF_HANDLES,
    OF_LISTS,
    PROPERTIES,
    RUNS,
    THREADS,
    Condition,
    bounded,
    conjuncts,
    parsed,
)
from opwright_notation.evaluation import Facts
from opwright_notation.refusals import Refusal, refusal
from opwright_notation.sizes import MisfitError
from opwright_runtime import errors
from opwright_runtime._binding import attrs as attr_values
from opwright_runtime._binding import (
    convert,
    crossing,
    equations,
    files,
    handles,
    memory,
    numerics,
    properties,
    resources,
    texts,
    threads,
    variants,
    xla_messages,
)
from opwright_runtime._binding.fast_path import EagerTensor
from opwright_runtime._binding.op_info import OpInfo, refused_attr
from opwright_runtime._internals import context, handle_data

#: The axes that an array of NumPy has at most, in any version.
_NUMPY_AXES = 32
_FUNCTIONS: dict[str, Callable[..., object]] = {
    "rank": properties.rank_of,
    "elements": properties.elements_of,
    "shape": properties.sizes_of,
    "handles": properties.elements_of,
    "value": properties.value_of,
    "contents": properties.contents_of,
    "last": properties.last_of,
    "least": properties.least_of,
    "most": properties.most_of,
    "finite": properties.all_finite,
    "rising": properties.is_rising,
    "permutation": properties.is_permutation,
    "nan_free": properties.is_nan_free,
    "named": texts.are_named,
    "slices": texts.are_slices,
    "drawable": texts.are_drawable,
    "uncut": texts.are_uncut,
    "stackable": texts.are_stackable,
    "batched": properties.is_batched,
    "distinct": properties.are_distinct,
    "spans": properties.are_spans,
    "dtype": properties.dtype_of,
    "held": resources.held_of,
    "matrix": resources.matrix_of,
    "holds": resources.held_by,
    "table": resources.is_table,
    "invertible": numerics.is_invertible,
    "removable": handles.is_removable,
    "shards": resources.shards_of,
}

_JOINT: dict[str, Callable[..., object]] = {
    "steps": properties.steps_of,
    "padded": properties.padded_of,
    "banded": properties.banded_of,
    "terms": numerics.terms_of,
    "nested": numerics.are_nested,
    "pairs": resources.are_pairs,
    "single": resources.is_single,
    "importable": resources.are_importable,
    "joins": variants.are_joined,
    "filled": variants.is_filled,
    "divides": resources.is_divided,
    "convolves": properties.is_convolved,
    "subscripts": equations.are_subscripts,
    "contracts": xla_messages.is_contracted,
    "precise": xla_messages.is_precise,
    "labels": xla_messages.are_labeled,
    "writable": files.is_writable,
    "einsum": equations.einsum_in,
    "batches": equations.batches_in,
    "indexed": equations.indexed_in,
    "reduced": equations.reduced_in,
    CROSSES: crossing.crosses_of,
}


def check(
    info: OpInfo,
    tensors: Sequence[Any],
    attrs: Mapping[str, Any],
    *,
    eager: bool,
    checked: bool = False,
) -> None:
    """Checks a call whose inputs are converted.

    Args:
        info: the op.
        tensors: its inputs by argument; a list input is a list of tensors.
        attrs: its attrs by name, without those that follow from inputs.
        eager: whether the op runs at once. In a graph, what is unknown passes.
        checked: whether the graph checks its ops. This machine's memory limits results
            in eager calls and in such graphs: another graph may run elsewhere.

    Raises:
        OpError: a condition does not hold.
    """
    condition = None
    for text in info.requires:
        if _is_bounded(text, info, tensors):
            continue
        if condition is None:
            condition = _condition(info, tensors, attrs, eager, checked)
        for part in conjuncts(parsed(text)):
            for index in condition.positions(part):
                at = condition.at(index)
                try:
                    holds = at.holds(part) is not False
                except MisfitError as misfit:
                    _check_attrs(info, attrs, eager)
                    raise _without_value(info, part, misfit) from None
                if not holds:
                    _check_attrs(info, attrs, eager)
                    raise _refused(info, attrs, refusal(part, at, _labels(info)), eager)


def _is_bounded(text: str, info: OpInfo, tensors: Sequence[Any]) -> bool:
    """Whether the numbers of elements show that a condition holds."""
    found = _bounded(text)
    if found is None:
        return False
    names, bound = found
    product = 1
    for arg, one in zip(info.inputs, tensors, strict=True):
        if arg.name in names:
            elements = None if arg.is_list else _property("elements", one, ())
            if not isinstance(elements, int):
                return False
            product *= elements
    return 0 < product < bound


@cache
def _bounded(text: str) -> tuple[list[str], int] | None:
    return bounded(parsed(text))


def _check_attrs(info: OpInfo, attrs: Mapping[str, object], eager: bool) -> None:
    """Refuses attrs that are not allowed, which may be why a condition does not hold.

    Raises:
        OpError: an attr has a value below its minimum, or one that is not allowed.
    """
    for name, value in attrs.items():
        attr = info.attr.get(name)
        if attr is None or attr.inferred:
            continue
        try:
            attr_values.checked(attr, value)
        except attr_values.BadValueError as refused:
            words = f"{attr.python_name} is {value!r}"
            cause = tf.errors.InvalidArgumentError(None, None, words) if eager else None
            raise refused_attr(info, attr, value, refused, cause) from None


def _condition(
    info: OpInfo,
    tensors: Sequence[Any],
    attrs: Mapping[str, Any],
    eager: bool,
    checked: bool,
) -> Condition:
    has_limit = eager or checked
    given = {arg.name: one for arg, one in zip(info.inputs, tensors, strict=True)}
    lists = {arg.name: arg.is_list for arg in info.inputs}
    lengths = {name: len(given[name]) if lists[name] else None for name in given}

    def property_of(
        name: str, argument: str, index: int | None, more: tuple[object, ...]
    ) -> object:
        if name == THREADS:
            return threads.can_start(more[0]) if has_limit else None
        if name in JOINT:
            names = map(str, (argument, *more))
            return _joint(name, [given.get(one, attrs.get(one)) for one in names])
        value = given[argument]
        return _property(name, value if index is None else value[index], more)

    def shortage(dtype: object, sizes: tuple[int, ...]) -> str | None:
        return _shortage(dtype, sizes) if has_limit else None

    # A graph without checks may be for another program to run.
    when = {EAGER: eager, RUNS: has_limit or None}
    known = Facts(facts(info, tensors, attrs) | when)
    return Condition(known, None, lengths, property_of, shortage)


def facts(
    info: OpInfo, tensors: Sequence[Any], attrs: Mapping[str, Any]
) -> dict[str, object]:
    """The attrs in the form that conditions use."""
    found: dict[str, object] = {
        name: dtype.name for name, dtype in convert.dtypes(info, tensors).items()
    }
    for arg, value in zip(info.inputs, tensors, strict=True):
        if arg.count is not None:
            found[arg.count] = len(value)
        elif arg.type_list_attr is not None:
            found[arg.type_list_attr] = tuple(one.dtype.name for one in value)
    for attr in (*info.attrs, *info.absent.values()):
        if attr.name not in found:
            found[attr.name] = _plain(attr, attrs.get(attr.name, attr.default))
    return found


def _plain(attr: attr_values.AttrInfo, value: Any) -> object:
    """An attr's value as conditions use it; None if it is unknown.

    A function is the numbers of its results and of its parameters.
    """
    if attr.kind == "func":
        return _counts(value)
    if attr.kind == "list(func)" and isinstance(value, (list, tuple)):
        return tuple(map(_counts, value))
    if value is None or attr.why_absent is not None:
        return value
    return attr_values.plain(attr.kind, value)


def _counts(function: Any) -> tuple[int, int] | None:
    """How many results and parameters a function has; None if it is not known."""
    try:
        return properties.results_of(function), properties.parameters_of(function)
    except TypeError:
        pass
    name = getattr(function, "name", function)
    name = name.encode() if isinstance(name, str) else name
    if not isinstance(name, bytes) or not context.context().has_function(name):
        return None
    signature = context.context().get_function_def(name).signature
    return len(signature.output_arg), len(signature.input_arg)


def _property(name: str, tensor: Any, more: tuple[object, ...]) -> object:
    """A property of a tensor; None if it is not known."""
    if type(tensor) is not EagerTensor:
        return static(name, tensor, more)
    known = PROPERTIES.get(name)
    if known is not None and known.of_values and tensor.ndim > _NUMPY_AXES:
        tensor = tf.reshape(tensor, [-1])
    try:
        return _FUNCTIONS[name](tensor, *more)
    except Exception:
        # It is of another dtype, or has not one element. TensorFlow refuses that.
        return None


def _joint(name: str, arguments: Sequence[Any]) -> object:
    """A property of several tensors; None if it is not known."""
    if name in OF_EQUATIONS:
        return of_list(name, *arguments)
    tensors = arguments[: JOINT[name][0]]
    try:
        if name in OF_LISTS:
            return _JOINT[name](*arguments)
        if name == "importable" and type(tensors[0]) is not EagerTensor:
            return handles.is_importable(*tensors)
        if any(type(one) is not EagerTensor for one in tensors):
            if name not in OF_HANDLES:
                return None
            rest = arguments[len(tensors) :]
            return handles.known(_JOINT[name], [*tensors], [*rest])
        return _JOINT[name](*arguments)
    except Exception:
        return None


def of_list(name: str, tensors: Sequence[Any], *more: Any) -> object:
    """A property of the shapes of a list of tensors; None if it is not known."""
    rows: tuple[Any, ...] = tuple(_property("shape", one, ()) for one in tensors)
    # For the shape of a result, the numbers of axes are enough.
    if None in rows or (name != "einsum" and any(None in row for row in rows)):
        return None
    try:
        return _JOINT[name](rows, *more)
    except Exception:
        return None


def static(name: str, tensor: Any, more: tuple[object, ...]) -> object:
    """A property that a tensor of a graph has in every run; None if it is unknown."""
    if name == "holds":
        return handles.held_by(tensor)
    if name == "held":
        return resources.held_shape_in(handle_data(tensor))
    if name == "dtype":
        return tensor.dtype.name
    if name == "table":
        return handles.is_table(tensor, *map(str, more))
    if name == "shards":
        return handles.shards_of(tensor)
    if name == "removable":
        return handles.is_removable_in_graph(tensor)
    shape = tensor.shape
    if name == "rank":
        return shape.rank
    if name == "elements":
        return shape.num_elements()
    if name == "shape":
        return None if shape.rank is None else tuple(shape.as_list())
    elements = shape.num_elements()
    if elements is None or elements > properties.MOST_CONTENTS:
        return None
    value = tf.get_static_value(tensor)
    if value is None:
        return None
    try:
        return _FUNCTIONS[name](value, *more)
    except Exception:
        return None


def _shortage(dtype: object, sizes: tuple[int, ...]) -> str | None:
    """Why there is no memory for a tensor; None if there is."""
    needed = properties.bytes_of(dtype, sizes)
    if needed <= memory.SMALL:
        return None
    limit = memory.limit()
    if needed <= limit:
        return None
    return (
        f"its result takes {memory.text(needed)}, and {memory.text(limit)} of memory "
        f"are free; {memory.VARIABLE} sets another limit"
    )


def _labels(info: OpInfo) -> dict[str, str]:
    labels = {arg.name: arg.python_name for arg in info.inputs}
    attrs = (*info.attrs, *info.absent.values())
    return labels | {attr.name: attr.python_name for attr in attrs}


def _without_value(info: OpInfo, node: ast.expr, misfit: MisfitError) -> errors.OpError:
    return errors.make(
        errors.OpInputError,
        info.name,
        f"{info.name}: {ast.unparse(node)} must hold, but {misfit}",
        cause=tf.errors.InvalidArgumentError(None, None, str(misfit)),
    )


def _refused(
    info: OpInfo, attrs: Mapping[str, Any], found: Refusal, eager: bool
) -> errors.OpError:
    message = f"{info.name}: {found}"
    if not found.argument:
        cause: Exception = tf.errors.ResourceExhaustedError(None, None, message)
        return errors.make(errors.OpMemoryError, info.name, message, cause=cause)
    family: type[errors.OpError] = errors.OpInputError
    attr = info.attr.get(found.argument) or info.absent.get(found.argument)
    if attr is not None and not attr.inferred:
        is_option = attr in info.options
        family = errors.OpOptionError if is_option else errors.OpAttrError
    cause = tf.errors.InvalidArgumentError(None, None, message)
    return errors.make(
        family,
        info.name,
        message,
        argument=found.label or None,
        given=found.given,
        allowed=found.must,
        cause=cause if eager else None,
    )
