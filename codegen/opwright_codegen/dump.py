"""Writes opdefs from models. The YAML is readable, and equal for equal models."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from opwright_codegen import form, prose
from opwright_codegen.model import (
    Arg,
    Attr,
    FullType,
    FuncValue,
    Op,
    Role,
    ShapeValue,
    TensorValue,
    is_later,
)
from opwright_codegen.nodes import value_of

_WIDTH = 88


def dump(op: Op) -> str:
    """`op` as YAML."""
    lines = [f"op: {_inline(op.name)}", f"group: {_inline(op.group)}"]
    lines += _prose("summary", op.summary)
    lines += _prose("description", op.description)
    lines += _prose("example", op.example)
    if op.check_with:
        lines.append("check_with:")
        lines += [f"  {name}: {_inline(_plain(v))}" for name, v in op.check_with]
    lines += _prose("unchecked", op.unchecked)
    if op.truncated:
        table = {name: str(dtype) for name, dtype in op.truncated}
        lines.append(f"truncated: {_inline(table)}")
    if op.requires:
        lines.append("requires:")
        lines += [f"  - {_inline(text)}" for text in op.requires]
    if op.gradient_of is not None:
        lines.append(f"gradient_of: {_inline(op.gradient_of)}")
    if op.kernels:
        lines.append(f"kernels: {_inline(dict(op.kernels))}")
    lines += _prose("tpu_only", op.tpu_only)
    facts = list(_facts(op))
    if facts:
        lines += ["", form.LINE, *facts]
    return "\n".join(lines) + "\n"


def _facts(op: Op) -> Iterator[str]:
    """The imported part of an opdef, with what is written by hand about its items."""
    for key, flag in (
        ("stateful", op.is_stateful),
        ("commutative", op.is_commutative),
        ("aggregate", op.is_aggregate),
        ("allows_uninitialized_input", op.allows_uninitialized_input),
        ("distributed_communication", op.is_distributed_communication),
    ):
        if flag:
            yield f"{key}: true"
    if op.gradient is not None:
        yield f"gradient: {op.gradient}"
    if op.deprecation is not None:
        table: dict[str, Any] = {
            "version": op.deprecation.version,
            "explanation": op.deprecation.explanation,
        }
        if op.deprecation.replacement is not None:
            table["replacement"] = op.deprecation.replacement
        yield f"deprecated: {_inline(table)}"
    if op.since is not None:
        yield f"since: {_inline(op.since)}"
    if op.dropped_in is not None:
        yield f"dropped_in: {_inline(op.dropped_in)}"
    yield from _section("inputs", [_arg(arg) for arg in op.inputs])
    yield from _section("outputs", [_arg(arg) for arg in op.outputs])
    attrs = [attr for attr in op.attrs if op.role(attr) is not Role.OPTION]
    yield from _section("attrs", [_attr(attr) for attr in attrs])
    yield from _section("options", [_attr(attr) for attr in op.options])
    if (*attrs, *op.options) != op.attrs:
        yield from _row("attr_order", [attr.name for attr in op.attrs])
    if op.imported_text:
        yield from _row("imported_text", list(op.imported_text))


def with_facts(written: Op, facts: Op, version: str | None = None) -> Op:
    """`facts` with all that only `written` has.

    Only `written` has what was written by hand, the versions that added and dropped
    parts, options that were dropped, and facts from registries. A single TensorFlow
    does not contain these versions. If `facts` are of TensorFlow `version`, options of
    later versions stay too. `facts` may have texts of a library's OpDefs. These replace
    earlier imported texts that were not edited.
    """
    kept: list[str] = []

    def text(old: str | None, new: str | None) -> str | None:
        if old is None:
            # A text that was imported before was removed by hand, and is not added
            # again.
            return None if new and prose.digest(new) in written.imported_text else new
        if prose.digest(old) not in written.imported_text:
            return old
        if new is None:
            kept.append(prose.digest(old))
        return old if new is None else new

    def args(old: tuple[Arg, ...], new: tuple[Arg, ...]) -> tuple[Arg, ...]:
        by_name = {arg.name: arg for arg in old}
        return tuple(
            (
                dataclasses.replace(
                    arg,
                    doc=text(by_name[arg.name].doc, arg.doc),
                    shape=by_name[arg.name].shape,
                )
                if arg.name in by_name
                else arg
            )
            for arg in new
        )

    attrs = {attr.name: attr for attr in written.attrs}

    def attr(new: Attr) -> Attr:
        old = attrs.get(new.name)
        if old is None:
            return new
        return dataclasses.replace(
            new,
            doc=text(old.doc, new.doc),
            message=old.message if new.kind == old.kind else None,
            since=old.since,
            dropped_in=old.dropped_in,
            allowed_since=tuple(
                (value, version)
                for value, version in old.allowed_since
                if value in (new.allowed or ())
            ),
        )

    deprecation = facts.deprecation
    if deprecation is not None and written.deprecation is not None:
        deprecation = dataclasses.replace(
            deprecation, replacement=written.deprecation.replacement
        )
    renewed = dataclasses.replace(
        facts,
        group=written.group,
        inputs=args(written.inputs, facts.inputs),
        outputs=args(written.outputs, facts.outputs),
        attrs=_with_absent(written.attrs, map(attr, facts.attrs), version),
        deprecation=deprecation,
        since=written.since,
        dropped_in=written.dropped_in,
        gradient=written.gradient,
        summary=text(written.summary, facts.summary),
        description=text(written.description, facts.description),
        example=written.example,
        check_with=written.check_with,
        unchecked=written.unchecked,
        truncated=written.truncated,
        requires=written.requires,
        gradient_of=written.gradient_of,
        kernels=written.kernels,
        tpu_only=written.tpu_only,
        source=written.source,
    )
    known = dict.fromkeys((*facts.imported_text, *kept))
    return dataclasses.replace(renewed, imported_text=tuple(known))


def _with_absent(
    written: tuple[Attr, ...], facts: Iterable[Attr], version: str | None
) -> tuple[Attr, ...]:
    """`facts` with the options of `written` that only other versions have.

    These are in the same place among the others.
    """
    fresh = [*facts]
    names = [attr.name for attr in fresh]
    place = 0
    for attr in written:
        if attr.name in names:
            place = names.index(attr.name) + 1
        elif attr.dropped_in is not None or is_later(attr.since, version):
            fresh.insert(place, attr)
            names.insert(place, attr.name)
            place += 1
    return tuple(fresh)


def _inline(value: Any, readable: bool = True) -> str:
    text = str(
        yaml.safe_dump(
            value,
            default_flow_style=True,
            sort_keys=False,
            width=math.inf,
            allow_unicode=readable,
        )
    )
    if readable and len(text.splitlines()) > 1 + text.endswith("\n...\n"):
        # The text has characters that YAML readers would treat as line breaks.
        return _inline(value, readable=False)
    return text.removesuffix("\n").removesuffix("\n...")


def _prose(key: str, text: str | None, indent: str = "") -> list[str]:
    """The lines of a text: on the line of its key if it fits, otherwise as a block."""
    if text is None:
        return []
    start = f"{indent}{key}: "
    if "\n" not in text and len(start) + len(text) <= _WIDTH:
        line = f"{start}{_inline(text)}"
        if len(line) <= _WIDTH:
            return [line]
    if "\n" in text:
        # Otherwise the spaces of a formula in the first line would count as the block's
        # indentation.
        indented = "2" if text.startswith(" ") else ""
        style = f"|{indented}" if text.endswith("\n") else f"|{indented}-"
        rows = text.removesuffix("\n").split("\n")
    else:
        style = ">-"
        rows = textwrap.wrap(
            text,
            _WIDTH - len(indent) - 2,
            break_long_words=False,
            break_on_hyphens=False,
        )
    block = [f"{key}: {style}", *(f"  {row}" if row else "" for row in rows)]
    # A text that a block would change, for example because of spaces, is quoted.
    if value_of("\n".join([*block, ""])) == text:
        return [f"{indent}{row}" if row else "" for row in block]
    return [f"{start}{_inline(text)}"]


def _row(key: str, names: list[str]) -> list[str]:
    """The lines of a list of names. A long list is wrapped."""
    return textwrap.wrap(
        f"{key}: {_inline(names)}",
        _WIDTH,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _section(key: str, entries: list[dict[str, Any]]) -> list[str]:
    lines = [f"{key}:"] if entries else []
    for entry in entries:
        if not {"doc", "shape"} & set(entry):
            lines.append(f"  - {_inline(entry)}")
            continue
        first = True
        for name, value in entry.items():
            if name in ("doc", "shape"):
                rows = _prose(name, value, "    ")
            else:
                rows = [f"    {name}: {_inline(value)}"]
            if first:
                rows[0] = "  - " + rows[0][4:]
                first = False
            lines += rows
    return lines


def _arg(arg: Arg) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": arg.name}
    if arg.type_list_attr is not None:
        entry["types"] = arg.type_list_attr
    else:
        entry["type"] = str(arg.dtype or arg.type_attr)
    if arg.count is not None:
        entry["count"] = arg.count
    if arg.is_ref:
        entry["ref"] = True
    if arg.full_type is not None:
        entry["full_type"] = _full_type(arg.full_type)
    if arg.shape is not None:
        entry["shape"] = arg.shape
    if arg.doc is not None:
        entry["doc"] = arg.doc
    return entry


def _full_type(full_type: FullType) -> dict[str, Any]:
    entry: dict[str, Any] = {"type_id": full_type.type_id}
    if full_type.s is not None:
        entry["s"] = full_type.s
    if full_type.args:
        entry["args"] = [_full_type(arg) for arg in full_type.args]
    return entry


def _attr(attr: Attr) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": attr.name, "type": str(attr.kind)}
    if attr.default is not None:
        entry["default"] = _plain(attr.default)
    if attr.allowed is not None:
        entry["allowed"] = [str(value) for value in attr.allowed]
    if attr.minimum is not None:
        entry["minimum"] = attr.minimum
    if attr.since is not None:
        entry["since"] = attr.since
    if attr.allowed_since:
        entry["allowed_since"] = {
            str(value): version for value, version in attr.allowed_since
        }
    if attr.dropped_in is not None:
        entry["dropped_in"] = attr.dropped_in
    if attr.message is not None:
        entry["message"] = attr.message
    if attr.doc is not None:
        entry["doc"] = attr.doc
    return entry


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, ShapeValue):
        if value.dims is None:
            return "unknown"
        names = value.names or [""] * len(value.dims)
        return [
            {"size": size, "name": name} if name else size
            for size, name in zip(value.dims, names, strict=True)
        ]
    if isinstance(value, TensorValue):
        entry: dict[str, Any] = {
            "dtype": str(value.dtype),
            "shape": list(value.shape),
            "values": _plain(value.values),
        }
        if value.is_filled:
            entry["filled"] = True
        if value.packed:
            entry["packed"] = True
        return entry
    if isinstance(value, FuncValue):
        if not value.attrs:
            return value.name
        attrs = [
            {"name": attr.name, "type": str(attr.kind), "value": _plain(attr.value)}
            for attr in value.attrs
        ]
        return {"name": value.name, "attrs": attrs}
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, complex):
        return [value.real, value.imag]
    return value
