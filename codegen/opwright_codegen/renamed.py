"""Finds arguments that have another name in a new version of an op."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence

from opwright_codegen import prose
from opwright_codegen.model import Arg, Attr, Op
from opwright_notation import conditions, syntax


def find(written: Op, facts: Op) -> dict[str, str]:
    """The old names of arguments, with their new names.

    An attr was renamed if exactly one removed and one new attr have its properties. An
    input or output was renamed if the new one has the same place and type.
    """
    # An option that a newer TensorFlow dropped was not renamed.
    names = {attr.name for attr in facts.attrs}
    there = [a for a in written.attrs if a.name in names or a.dropped_in is None]
    found = dict(_attrs(there, facts.attrs))
    found |= dict(_args(written.inputs, facts.inputs, found))
    return found | dict(_args(written.outputs, facts.outputs, found))


def apply(op: Op, names: Mapping[str, str]) -> Op:
    """`op` with renamed arguments, also in shapes and in texts written by hand.

    Texts that came from the library's OpDef are not changed, because the import renews
    them.
    """
    if not names:
        return op
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    quoted = re.compile(rf"`({'|'.join(map(re.escape, names))})`")
    shapes = [arg.shape for arg in op.args() if arg.shape is not None]
    words = {word for shape in shapes for word in re.findall(r"\w+", shape)}
    clash = not words.isdisjoint(names.values())

    def shape(text: str | None) -> str | None:
        if text is None or clash:
            return text
        return pattern.sub(lambda found: names[found[0]], text)

    def condition(text: str) -> str:
        node = conditions.read(text)
        for each in syntax.named_parts(node):
            each.id = names.get(each.id, each.id)
        return ast.unparse(node)

    def said(text: str | None) -> str | None:
        if text is None or prose.digest(text) in op.imported_text:
            return text
        return quoted.sub(lambda found: f"`{names[found[1]]}`", text)

    def arg(old: Arg) -> Arg:
        return dataclasses.replace(
            old,
            name=names.get(old.name, old.name),
            shape=shape(old.shape),
            doc=said(old.doc),
        )

    def attr(old: Attr) -> Attr:
        name = names.get(old.name, old.name)
        return dataclasses.replace(old, name=name, doc=said(old.doc))

    return dataclasses.replace(
        op,
        inputs=tuple(map(arg, op.inputs)),
        outputs=tuple(map(arg, op.outputs)),
        attrs=tuple(map(attr, op.attrs)),
        summary=said(op.summary),
        description=said(op.description),
        check_with=tuple((names.get(name, name), v) for name, v in op.check_with),
        truncated=tuple((names.get(name, name), d) for name, d in op.truncated),
        requires=tuple(condition(text) for text in op.requires),
    )


def _attrs(old: Sequence[Attr], new: Sequence[Attr]) -> Iterator[tuple[str, str]]:
    gone = _without(old, new)
    come = _without(new, old)
    for was in gone:
        same = [attr for attr in come if _is(attr) == _is(was)]
        if len(same) == 1 and sum(_is(attr) == _is(was) for attr in gone) == 1:
            yield was.name, same[0].name


def _is(attr: Attr) -> object:
    return attr.kind, attr.default, attr.allowed, attr.minimum


def _args(
    old: Sequence[Arg], new: Sequence[Arg], attrs: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    if len(old) != len(new):
        return
    names = {arg.name for arg in old} & {arg.name for arg in new}
    for was, now in zip(old, new, strict=True):
        used = tuple(attrs.get(name, name) for name in was.attrs_used)
        same = (was.dtype, used, was.is_ref) == (now.dtype, now.attrs_used, now.is_ref)
        if same and not {was.name, now.name} & names:
            yield was.name, now.name


def _without(some: Sequence[Attr], others: Sequence[Attr]) -> list[Attr]:
    names = {attr.name for attr in others}
    return [attr for attr in some if attr.name not in names]
