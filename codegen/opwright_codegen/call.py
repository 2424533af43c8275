"""The arguments that `create` and the function of an op pass to the runtime."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from opwright_codegen import literals, naming
from opwright_codegen.model import Arg, Attr, Op, Role
from opwright_codegen.requirements import Requirements
from opwright_codegen.types import (
    AS_BOOL,
    AS_DTYPE,
    BOUNDS,
    CONVERTERS,
    DTYPE,
    DTYPES,
    MESSAGE_CONVERTER,
    WHOLE,
    DTypeName,
)


def assigned(outputs: Sequence[str]) -> str:
    """The targets to which the result of a fast-path call is assigned.

    It is empty without outputs.
    """
    targets = [f"op.{output}" for output in outputs]
    if not targets:
        return ""
    return targets[0] if len(targets) == 1 else f"({', '.join(targets)})"


def operands(op: Op) -> tuple[str, ...]:
    return tuple(naming.argument(arg.name) for arg in op.inputs)


def fast_path_attrs(op: Op, *, by_function: bool) -> Iterator[str]:
    """The names and values of attrs, as arguments of TensorFlow's fast path."""
    for attr in op.given:
        yield literals.quoted(attr.name)
        yield _value(op, attr, by_function=by_function, converted=True)


def converters(op: Op) -> Iterator[str]:
    """The runtime's names that the result of `fast_path_attrs` uses."""
    for convert in filter(None, map(_converter, op.given)):
        yield convert
        if convert == AS_DTYPE:
            yield DTYPE


def fast_path_condition(op: Op, required: Requirements, *, by_function: bool) -> str:
    """The condition for a fast path.

    If it is true, the op runs at once, the fast path truncates no number, and
    TensorFlow gets no argument that ends the process.
    """
    conditions = ["is_eager()", *_integers_conditions(op, by_function=by_function)]
    if required.condition:
        conditions.append(f"_holds({', '.join(_given(op, required, by_function))})")
    if required.of_tensors:
        conditions = [f"({required.of_tensors} or {' and '.join(conditions)})"]
    if not by_function:
        conditions.insert(0, "scope.eager")
    return " and ".join(conditions)


def _given(op: Op, required: Requirements, by_function: bool) -> Iterator[str]:
    """The arguments of `_holds`."""
    for one in required.parameters:
        if isinstance(one, Attr):
            yield _value(op, one, by_function=by_function)
        else:
            yield naming.argument(one.name)


def _integers_conditions(op: Op, *, by_function: bool) -> Iterator[str]:
    """The conditions for a fast path that truncates no number.

    Tensors are recognized by their types, without a call, and so is one integer whose
    dtype is known. For other arguments a function of the runtime checks the values:
    tensors are the usual case, and more code between their checks and the call makes
    the call slower.
    """
    for dtype, args in _narrowed(op):
        yield _fits(dtype, args)
    for attr in op.given:
        limited = dict(op.truncated).get(attr.name)
        # `Options` checked its fields when it was created, so `create` need not.
        if limited and (by_function or op.role(attr) is not Role.OPTION):
            yield _within(limited, naming.argument(attr.name))


def _within(dtype: DTypeName, name: str) -> str:
    low, high = BOUNDS[dtype]
    return f"{low} <= {name} <= {high}"


def narrowing(op: Op) -> Iterator[str]:
    """The runtime's names that `_integers_conditions` uses."""
    for dtype, args in _narrowed(op):
        yield from (DTYPES[dtype],) if dtype else ()
        yield _check(dtype, args)
        yield from {"all_tensors" if arg.is_list else "EagerTensor" for arg in args}


def _fits(dtype: DTypeName | None, args: Sequence[Arg]) -> str:
    names = [naming.argument(arg.name) for arg in args]
    kinds = [f"type({naming.argument(a.name)}) is " for a in args if not a.is_list]
    tensors = [f"{''.join(kinds)}EagerTensor"] if kinds else []
    tensors += [f"all_tensors({naming.argument(a.name)})" for a in args if a.is_list]
    known = [" and ".join(tensors)]
    if len(args) == 1 and not args[0].is_list and dtype in BOUNDS:
        known.append(f"type({names[0]}) is int and {_within(dtype, names[0])}")
    cls = DTYPES[dtype] if dtype else "None"
    known.append(f"{_check(dtype, args)}({', '.join((cls, *names))})")
    return f"({' or '.join(known)})"


def _check(dtype: DTypeName | None, args: Sequence[Arg]) -> str:
    """The runtime's function that checks values.

    It depends on whether an input is checked alone, or with others of the same dtype.
    """
    first, *others = args
    if len(others) == 1 and not any(arg.is_list for arg in args):
        return "fit_pair"
    follows = others or (first.is_list and first.type_attr is not None)
    return "fit_together" if follows or dtype is None else "fits"


def _narrowed(op: Op) -> Iterator[tuple[DTypeName | None, Sequence[Arg]]]:
    """The inputs that TensorFlow converts to a dtype of integers or bool.

    Inputs that share a dtype are yielded together. With them comes the dtype that they
    get if none of them is a tensor. None means that they get the dtype that TensorFlow
    infers from the first input, which is then not truncated. An input that kernels
    truncate is yielded alone, with the dtype to which they truncate it.
    """
    truncated = dict(op.truncated)
    shared: dict[str, list[Arg]] = {}
    for arg in op.inputs:
        if arg.name in truncated:
            yield truncated[arg.name], (arg,)
        if arg.type_attr is not None and not arg.is_ref:
            shared.setdefault(arg.type_attr, []).append(arg)
        elif arg.name in truncated:
            continue
        elif arg.dtype in WHOLE and not arg.is_ref:
            yield arg.dtype, (arg,)
    for name, args in shared.items():
        attr = op.attr(name)
        default = attr.default
        is_one = len(args) == 1 and not args[0].is_list
        if is_one and default not in WHOLE:
            continue
        has_bounds = is_one or BOUNDS.keys() >= {*(attr.allowed or DTYPES)}
        if has_bounds and all(arg.name in truncated for arg in args):
            continue
        if attr.allowed is None or WHOLE.intersection(attr.allowed):
            yield cast("DTypeName | None", default), args


def fallback_attrs(op: Op, *, by_function: bool) -> str:
    """The source of a dict of attrs, for calls that the fast path does not run."""
    items = (
        f"{literals.quoted(attr.name)}: {_value(op, attr, by_function=by_function)}"
        for attr in op.given
    )
    return f"{{{', '.join(items)}}}"


def _value(op: Op, attr: Attr, *, by_function: bool, converted: bool = False) -> str:
    """The expression for an attr's value.

    In `create`, options are fields of one object, which converted them when it was
    created.
    """
    name = naming.argument(attr.name)
    if op.role(attr) is Role.OPTION and not by_function:
        return f"opts.{name}"
    convert = _converter(attr) if converted else None
    if convert is None:
        return name
    # The expression tests the usual values first, and the default before others. A call
    # of the converter would take longer than the rest of opwright's code for a call.
    if convert == AS_BOOL:
        if attr.default:
            return f"{name} is True or {name} is not False and {convert}({name})"
        return f"{name} is not False and ({name} is True or {convert}({name}))"
    if convert == AS_DTYPE:
        return f"{name} if type({name}) is {DTYPE} else {convert}({name})"
    if attr.message is not None:
        return f"{convert}({name}, {literals.quoted(attr.message)})"
    return f"{convert}({name})"


def _converter(attr: Attr) -> str | None:
    """The function that converts an attr's value for TensorFlow; None if none does."""
    if attr.message is not None:
        return MESSAGE_CONVERTER
    return AS_BOOL if attr.kind == "bool" else CONVERTERS.get(attr.kind)


def tuple_of(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
