"""The calls in an op's file: what `create` and the function hand on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opwright_codegen import docs, naming
from opwright_codegen.model import Attr, Op, Role
from opwright_codegen.types import (
    AS_DTYPE,
    CONVERTERS,
    DTYPE,
    FLAGS,
    MESSAGE_CONVERTER,
)


def assigned(outputs: Sequence[str]) -> str:
    """What the result of an execution is assigned to; empty without outputs."""
    targets = [f"op.{output}" for output in outputs]
    if not targets:
        return ""
    return targets[0] if len(targets) == 1 else f"({', '.join(targets)})"


def operands(op: Op) -> tuple[str, ...]:
    return tuple(naming.argument(arg.name) for arg in op.inputs)


def sent(op: Op, *, by_function: bool) -> Iterator[str]:
    """Names and values of attrs, as TensorFlow's fast path and its tape take them."""
    for attr in op.given:
        yield docs.quoted(attr.name)
        yield _value(op, attr, by_function=by_function, converted=True)


def converters(op: Op) -> Iterator[str]:
    """What `sent` names of the runtime."""
    for convert in filter(None, map(_converter, op.given)):
        yield convert
        if convert == AS_DTYPE:
            yield DTYPE


def kept(op: Op, *, by_function: bool) -> str:
    """A dict of the attrs, for where the fast path does not serve."""
    items = (
        f"{docs.quoted(attr.name)}: {_value(op, attr, by_function=by_function)}"
        for attr in op.given
    )
    return f"{{{', '.join(items)}}}"


def _value(op: Op, attr: Attr, *, by_function: bool, converted: bool = False) -> str:
    """Where an attr's value is found.

    `create` takes the options in one object, which were converted as that was made.
    """
    name = naming.argument(attr.name)
    if op.role(attr) is Role.OPTION and not by_function:
        return f"opts.{name}"
    convert = _converter(attr) if converted else None
    if convert is None:
        return name
    # What nearly every call gives is known on sight: calls take longer than all else
    # that the binding adds. A default is asked for first.
    if convert == FLAGS:
        if attr.default:
            return f"{name} is True or {name} is not False and {convert}[{name}]"
        return f"{name} is not False and ({name} is True or {convert}[{name}])"
    if convert == AS_DTYPE:
        return f"{name} if type({name}) is {DTYPE} else {convert}({name})"
    if attr.message is not None:
        return f"{convert}({name}, {docs.quoted(attr.message)})"
    return f"{convert}({name})"


def _converter(attr: Attr) -> str | None:
    """What an argument passes through on its way to TensorFlow."""
    if attr.message is not None:
        return MESSAGE_CONVERTER
    return FLAGS if attr.kind == "bool" else CONVERTERS.get(attr.kind)


def tuple_of(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
