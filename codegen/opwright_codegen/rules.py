"""Checks rules that concern several parts of an op."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

import yaml

from opwright_codegen import naming, requirements, shapes
from opwright_codegen.model import Arg, Attr, Op, Role, is_later
from opwright_codegen.nodes import Mapping, Reader, did_you_mean, repr_short
from opwright_codegen.types import BOUNDS, DTYPES, dtype_meant

#: Inputs, outputs or attrs, each with its YAML mapping, which has places for problems.
Args: TypeAlias = Sequence[tuple[Mapping, Arg]]
Attrs: TypeAlias = Sequence[tuple[Mapping, Attr]]

#: Why an attr is not an option, by its role.
_NO_OPTION: Final = {
    Role.INFERRED: "is inferred from an input",
    Role.ARGUMENT: "has no default, so that callers must give it",
    Role.KEYWORD: "is a dtype, which is an argument even with a default",
}


def check_default(reader: Reader, table: Mapping, attr: Attr) -> None:
    if attr.default is None:
        return
    values = attr.default if isinstance(attr.default, tuple) else (attr.default,)
    for value in values if attr.allowed is not None else ():
        if value not in (attr.allowed or ()):
            reader.problem(
                table.at("default"),
                f"default of {attr.name!r} is {repr_short(str(value))}, which is not"
                f" allowed; allowed: {', '.join(map(repr_short, attr.allowed or ()))}",
            )
    if attr.minimum is None:
        return
    # Some lists of TensorFlow have an empty default although their minimum is greater.
    # The empty list then means that no value was passed.
    if attr.kind.is_list and 0 < len(values) < attr.minimum:
        reader.problem(
            table.at("default"),
            f"default of {attr.name!r} has {len(values)} values,"
            f" fewer than its minimum {attr.minimum}",
        )
    least = attr.default
    if attr.kind == "int" and isinstance(least, int) and least < attr.minimum:
        reader.problem(
            table.at("default"),
            f"default of {attr.name!r} is {least},"
            f" below its minimum {attr.minimum}",
        )


def check_unique(reader: Reader, inputs: Args, outputs: Args, attrs: Attrs) -> None:
    seen: dict[str, str] = {}
    sections: tuple[tuple[str, Args | Attrs], ...] = (
        ("input", inputs),
        ("output", outputs),
        ("attr", attrs),
    )
    for kind, entries in sections:
        for table, item in entries:
            if item.name in seen:
                reader.problem(
                    table.at("name"),
                    f"{kind} {item.name!r} has the name of an {seen[item.name]};"
                    " names of inputs, outputs and attrs are unique",
                )
            seen.setdefault(item.name, kind)


def check_references(reader: Reader, op: Op, args: Args) -> None:
    kinds = {attr.name: attr.kind for attr in op.attrs}
    for table, arg in args:
        for used, wanted, key in (
            (arg.type_attr, "type", "type"),
            (arg.count, "int", "count"),
            (arg.type_list_attr, "list(type)", "types"),
        ):
            if used is None or kinds.get(used) == wanted:
                continue
            what = f"{key!r} of {arg.name!r} is"
            if used in kinds:
                message = (
                    f"{what} the attr {used!r}, which is of kind {kinds[used]};"
                    f" it must be of kind {wanted}"
                )
            else:
                dtypes = DTYPES if key == "type" else ()
                dtype = "neither a dtype nor" if key == "type" else "not"
                meant = dtype_meant(used) if dtypes else None
                hint = did_you_mean(used, [*kinds, *dtypes], meant)
                message = (
                    f"{what} {repr_short(used)}, which is {dtype} an attr of kind"
                    f" {wanted} here{hint}"
                )
            reader.problem(table.at(key), message)


def check_sections(reader: Reader, op: Op, attrs: Attrs, options: Attrs) -> None:
    for table, attr in attrs:
        if op.role(attr) is Role.OPTION:
            reader.problem(
                table.node,
                f"{attr.name!r} has a default and is not inferred from an input:"
                " it belongs under 'options'",
            )
    for table, attr in options:
        reason = _NO_OPTION.get(op.role(attr))
        if reason is not None:
            reader.problem(
                table.node, f"{attr.name!r} {reason}: it belongs under 'attrs'"
            )


def check_versions(reader: Reader, op: Op, top: Mapping, attrs: Attrs) -> None:
    """Checks that each part was dropped after it was added, and can be left out."""
    parts: list[tuple[Mapping, Op | Attr]] = [(top, op), *attrs]
    for table, part in parts:
        dropped = part.dropped_in
        if dropped is None:
            continue
        since = part.since or op.since
        if since is not None and not is_later(dropped, since):
            reader.problem(
                table.at("dropped_in"),
                f"'dropped_in' of {part.name!r} is {dropped}, the first version"
                f" without it; it must be later than 'since', {since}",
            )
        if isinstance(part, Attr) and op.role(part) is not Role.OPTION:
            reader.problem(
                table.at("dropped_in"),
                f"{part.name!r} takes no 'dropped_in', which only options do: a newer"
                " TensorFlow has no such attr, and calls must be able to leave it out",
            )


def ordered(
    reader: Reader, node: yaml.Node, order: tuple[str, ...] | None, attrs: list[Attr]
) -> tuple[Attr, ...]:
    if order is None:
        return tuple(attrs)
    names = [attr.name for attr in attrs]
    if sorted(order) != sorted(names):
        odd = sorted(set(order) ^ set(names)) or _repeated(order)
        reader.problem(
            node,
            "'attr_order' must name every attr and option once; check"
            f" {', '.join(map(repr_short, odd))}",
        )
        return tuple(attrs)
    return tuple(sorted(attrs, key=lambda attr: order.index(attr.name)))


def check_names(reader: Reader, op: Op, top: Mapping, args: Args, attrs: Attrs) -> None:
    """Checks for clashes of names in Python, and names in shapes and `check_with`."""
    places = {attr.name: table for table, attr in attrs}
    places |= {arg.name: table for table, arg in reversed(args)}
    for subject, clash in naming.clashes(op):
        reader.problem(places.get(subject, top).at("name"), clash)
    for misread in shapes.read(op)[1]:
        node = places[misread.arg].at("shape")
        what = f"'shape' of {misread.arg!r}: {misread.message}"
        reader.problem_within(node, misread.offset, what)
    for name, _ in op.check_with:
        if name not in places:
            hint = did_you_mean(name, places)
            what = f"'check_with' names {name!r}, no input or attr{hint}"
            reader.problem(top.at("check_with"), what)


def check_truncated(reader: Reader, op: Op, node: yaml.Node) -> None:
    inputs = {arg.name: arg for arg in op.inputs}
    ints = {attr.name for attr in op.given if attr.kind == "int"}
    for name, dtype in op.truncated:
        what = f"'truncated' names {name!r},"
        if name not in inputs and name not in ints:
            hint = did_you_mean(name, [*inputs, *ints])
            reader.problem(node, f"{what} no input or int that callers give{hint}")
        elif name in inputs and (inputs[name].is_list or inputs[name].is_ref):
            reader.problem(node, f"{what} which is a list or a reference")
        if dtype not in BOUNDS:
            reader.problem(node, f"{what} with {dtype}; give {' or '.join(BOUNDS)}")


def check_requires(reader: Reader, op: Op, node: yaml.Node) -> None:
    if isinstance(node, yaml.SequenceNode) and not node.value and not op.requires:
        reader.problem(node, "'requires' is empty; leave the key out instead")
    for misread in requirements.read(op):
        assert isinstance(node, yaml.SequenceNode)
        place = node.value[misread.index]
        reader.problem_within(place, misread.offset, f"'requires': {misread.message}")


def _repeated(names: Iterable[str]) -> list[str]:
    listed = list(names)
    return sorted({name for name in listed if listed.count(name) > 1})
