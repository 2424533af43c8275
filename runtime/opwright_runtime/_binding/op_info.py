"""The OpDef of an op in the installed TensorFlow, as frozen Python values."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._binding import attrs
from opwright_runtime._binding.attrs import AttrInfo
from opwright_runtime._internals import op_def_registry

T = TypeVar("T")


@dataclass(frozen=True)
class ArgInfo:
    """An input or an output.

    One of `dtype`, `type_attr` and `type_list_attr` is set. `count` is the name of the
    attr with the length of a list whose tensors have one dtype. `truncated` is the
    dtype to which kernels truncate the input's integers, if it is narrower than the
    input's dtype.
    """

    name: str
    python_name: str
    dtype: tf.DType | None
    type_attr: str | None
    type_list_attr: str | None
    count: str | None
    is_ref: bool
    is_list: bool
    truncated: tf.DType | None = None


@dataclass(frozen=True)
class Deprecation:
    """GraphDefs of `version` and later refuse the op."""

    version: int
    explanation: str


@dataclass(frozen=True)
class OpInfo:
    """An op's inputs, outputs and attrs, in the OpDef's order."""

    name: str
    inputs: tuple[ArgInfo, ...]
    outputs: tuple[ArgInfo, ...]
    attrs: tuple[AttrInfo, ...]
    stateful: bool
    commutative: bool
    aggregate: bool
    distributed: bool
    allows_uninitialized_input: bool
    deprecated: Deprecation | None
    native: tuple[str, ...] = ()
    """Devices that opwright's own library has kernels for."""
    shapes: Mapping[str, str] = field(default_factory=dict, hash=False)
    """Shapes by the OpDef's argument names, as `opwright_notation` evaluates them."""
    requires: tuple[str, ...] = ()
    """Conditions of calls, as `opwright_notation.conditions` reads them."""
    absent: Mapping[str, AttrInfo] = field(default_factory=dict, hash=False)
    """Attrs that the class has and this TensorFlow, which is older or newer, lacks."""

    @cached_property
    def required(self) -> tuple[AttrInfo, ...]:
        """Attrs that are arguments of `create`. Only dtypes may have a default."""
        return tuple(
            attr
            for attr in self.attrs
            if not attr.inferred and (attr.default is None or attr.kind == "type")
        )

    @cached_property
    def options(self) -> tuple[AttrInfo, ...]:
        """Attrs that are fields of `Options`."""
        return tuple(
            attr
            for attr in self.attrs
            if not attr.inferred and attr.default is not None and attr.kind != "type"
        )

    @cached_property
    def attr(self) -> Mapping[str, AttrInfo]:
        """The attrs by name."""
        return {attr.name: attr for attr in self.attrs}

    @cached_property
    def attr_in_python(self) -> Mapping[str, AttrInfo]:
        """The attrs by their Python names, with those that this TensorFlow lacks."""
        attrs = (*self.attrs, *self.absent.values())
        return {attr.python_name: attr for attr in attrs}

    @cached_property
    def has_ref(self) -> bool:
        """Whether an input or output is a ref. Refs exist in graphs only."""
        return any(arg.is_ref for arg in (*self.inputs, *self.outputs))

    @cached_property
    def has_list_input(self) -> bool:
        """Whether an input is a list."""
        return any(arg.is_list for arg in self.inputs)

    @cached_property
    def has_list_output(self) -> bool:
        """Whether an output is a list."""
        return any(arg.is_list for arg in self.outputs)

    @cached_property
    def proto(self) -> Any:
        """The `OpDef` proto."""
        return op_def_registry.get(self.name)


def refused_attr(
    info: OpInfo,
    attr: AttrInfo,
    value: object,
    refused: attrs.BadValueError,
    cause: Exception | None = None,
) -> errors.OpError:
    """The error for a value that an attr of an op may not have."""
    return errors.bad_argument(
        errors.OpOptionError if attr in info.options else errors.OpAttrError,
        info.name,
        attr.python_name,
        value,
        refused.allowed,
        cause,
    )


def grouped(
    args: Sequence[ArgInfo], flat: Sequence[T], length: Callable[[ArgInfo], int]
) -> Iterator[T | list[T]]:
    """`flat` tensors by argument: a tensor for each, or a list for a list argument."""
    start = 0
    for arg in args:
        if arg.is_list:
            end = start + length(arg)
            yield list(flat[start:end])
            start = end
        else:
            yield flat[start]
            start += 1


def length_in(operation: tf.Operation, arg: ArgInfo) -> int:
    """The number of tensors that the list `arg` has in an operation of a graph."""
    if arg.count is not None:
        return int(operation.get_attr(arg.count))
    return len(operation.get_attr(arg.type_list_attr))


def read_op_info(
    name: str,
    python_names: Mapping[str, str],
    messages: Mapping[str, str],
    native: tuple[str, ...],
    shapes: Mapping[str, str],
    truncated: Mapping[str, str],
    requires: tuple[str, ...],
    since: Mapping[str, str],
    dropped_in: Mapping[str, str],
    defaults: Mapping[str, object],
) -> OpInfo:
    """The registry's description of the op `name`.

    Args:
        name: OP_NAME.
        python_names: the Python names that differ from the OpDef's names. The keys are
            the OpDef's names.
        messages: full names of the messages that string attrs serialize, by attr.
        native: the devices for which opwright's own library has kernels.
        shapes: shapes of arguments, as expressions of `opwright_notation`.
        truncated: by name of an input or attr, the dtype to which kernels truncate it.
        requires: conditions of calls, as expressions of `opwright_notation`.
        since: versions of TensorFlow that added the op, an attr, or `attr=value`.
        dropped_in: the first versions of TensorFlow without the op, or without an attr.
        defaults: defaults of optional attrs, by their Python names.

    Raises:
        OpUnknownError: the registry does not have the op.
    """
    op_def = op_def_registry.get(name)
    if op_def is None:
        raise _unknown(name, since, dropped_in)
    truncated_to = {name: tf.as_dtype(dtype) for name, dtype in truncated.items()}

    def arg(proto: Any) -> ArgInfo:
        python_name = python_names.get(proto.name, proto.name)
        return _arg(proto, python_name, truncated_to.get(proto.name))

    inputs = tuple(map(arg, op_def.input_arg))
    inferred = {
        name
        for input in inputs
        for name in (input.type_attr, input.type_list_attr, input.count)
        if name is not None
    }
    newer: dict[str, dict[str, str]] = {}
    for what, version in since.items():
        attr_name, _, value = what.partition("=")
        newer.setdefault(attr_name, {})[value] = version
    deprecation = op_def.deprecation
    return OpInfo(
        name=op_def.name,
        inputs=inputs,
        outputs=tuple(map(arg, op_def.output_arg)),
        attrs=tuple(
            AttrInfo(
                name=attr.name,
                python_name=python_names.get(attr.name, attr.name),
                kind=attr.type,
                default=(
                    attrs.read(attr.type, attr.default_value)
                    if attr.HasField("default_value")
                    else None
                ),
                allowed=(
                    attrs.read_allowed(attr.allowed_values)
                    if attr.HasField("allowed_values")
                    else None
                ),
                minimum=attr.minimum if attr.has_minimum else None,
                inferred=attr.name in inferred,
                message=messages.get(attr.name),
                newer=newer.get(attr.name, {}),
                truncated=truncated_to.get(attr.name),
            )
            for attr in op_def.attr
        ),
        stateful=op_def.is_stateful,
        commutative=op_def.is_commutative,
        aggregate=op_def.is_aggregate,
        distributed=op_def.is_distributed_communication,
        allows_uninitialized_input=op_def.allows_uninitialized_input,
        deprecated=(
            Deprecation(deprecation.version, deprecation.explanation)
            if op_def.HasField("deprecation")
            else None
        ),
        native=native,
        shapes=shapes,
        requires=requires,
        absent=_absent(
            python_names, since, dropped_in, defaults, {a.name for a in op_def.attr}
        ),
    )


def _unknown(
    name: str, since: Mapping[str, str], dropped_in: Mapping[str, str]
) -> Exception:
    absent = _why_absent(name, since, dropped_in)
    if absent is None:
        why = (
            "if a custom-op library has it, load that first with tf.load_op_library, "
            "or pass --load to opwright-codegen generate"
        )
    else:
        why = f"TensorFlow {absent}"
        if _is_dropped(name, since, dropped_in):
            why += ": use another op, or an older TensorFlow"
    return errors.make(
        errors.OpUnknownError,
        name,
        f"TensorFlow {tf.__version__} has no op {name}: {why}",
    )


def _why_absent(
    name: str, since: Mapping[str, str], dropped_in: Mapping[str, str]
) -> str | None:
    """Which version added or dropped an op or attr that this TensorFlow lacks.

    None if neither is known.
    """
    if _is_dropped(name, since, dropped_in):
        return f"{dropped_in[name]} dropped it"
    return f"{since[name]} brought it" if name in since else None


def _is_dropped(
    name: str, since: Mapping[str, str], dropped_in: Mapping[str, str]
) -> bool:
    """Whether this TensorFlow is too new, and not too old, for what it lacks."""
    is_older = name in since and _minor(tf.__version__) < _minor(since[name])
    return name in dropped_in and not is_older


def _minor(version: str) -> tuple[int, ...]:
    """The first two numbers of a version, such as 2.22.0-rc0."""
    return tuple(int(part) for part in version.split(".")[:2])


def _arg(proto: Any, python_name: str, truncated: tf.DType | None) -> ArgInfo:
    return ArgInfo(
        name=proto.name,
        python_name=python_name,
        dtype=tf.as_dtype(proto.type).base_dtype if proto.type else None,
        type_attr=proto.type_attr or None,
        type_list_attr=proto.type_list_attr or None,
        count=proto.number_attr or None,
        is_ref=proto.is_ref,
        is_list=bool(proto.number_attr or proto.type_list_attr),
        truncated=truncated,
    )


def _absent(
    python_names: Mapping[str, str],
    since: Mapping[str, str],
    dropped_in: Mapping[str, str],
    defaults: Mapping[str, object],
    present: Collection[str],
) -> Mapping[str, AttrInfo]:
    """Attrs of the class that are not `present`. Each has a default."""
    found = {}
    for name in (*since, *dropped_in):
        python_name = python_names.get(name, name)
        if name not in present and python_name in defaults:
            found[name] = AttrInfo(
                name=name,
                python_name=python_name,
                kind="absent",
                default=defaults[python_name],
                allowed=None,
                minimum=None,
                inferred=False,
                why_absent=_why_absent(name, since, dropped_in),
            )
    return found
