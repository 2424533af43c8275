"""Compares two sets of ops: what was added, removed, changed, and what breaks callers.

A change breaks callers if code or a graph that was written for the old op can fail with
the new one. These changes break callers:

- an op, input, output or attr was removed, or has another place, type or name;
- an attr is now required, or can be passed only by keyword;
- a value that was allowed is refused;
- a default was changed, because that changes results without an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from opwright_codegen import literals
from opwright_codegen.model import Arg, Attr, Op, Role


@dataclass(frozen=True)
class Change:
    op: str
    #: "added", "removed" or "changed".
    kind: str
    what: str
    breaks: bool


def compare(old: Iterable[Op], new: Iterable[Op]) -> list[Change]:
    """All changes from `old` to `new`, sorted by the op's name."""
    before = {op.name: op for op in old}
    after = {op.name: op for op in new}
    changes: list[Change] = []
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            changes.append(Change(name, "removed", "the op", True))
        elif name not in before:
            changes.append(Change(name, "added", "the op", False))
        else:
            changes += _op(before[name], after[name])
    return changes


def _op(old: Op, new: Op) -> Iterator[Change]:
    def changed(what: str, breaks: bool) -> Change:
        return Change(old.name, "changed", what, breaks)

    yield from _args(old, "input", old.inputs, new.inputs)
    yield from _args(old, "output", old.outputs, new.outputs)
    yield from _attrs(old, new)
    for flag in (
        "is_stateful",
        "is_commutative",
        "is_aggregate",
        "allows_uninitialized_input",
        "is_distributed_communication",
    ):
        if getattr(old, flag) != getattr(new, flag):
            text = f"{flag}: {getattr(old, flag)} -> {getattr(new, flag)}"
            yield changed(text, False)
    was, now = _removed_in(old), _removed_in(new)
    if was != now:
        text = f"deprecation: {_version(was)} -> {_version(now)}"
        yield changed(text, now is not None)


def _removed_in(op: Op) -> int | None:
    return None if op.deprecation is None else op.deprecation.version


def _version(version: int | None) -> str:
    return "none" if version is None else f"GraphDef version {version}"


def _args(
    op: Op, kind: str, old: Sequence[Arg], new: Sequence[Arg]
) -> Iterator[Change]:
    names = [arg.name for arg in new]
    before = {arg.name: arg for arg in old}
    for arg in old:
        if arg.name not in names:
            yield Change(op.name, "removed", f"{kind} {arg.name}", True)
    for place, arg in enumerate(new):
        if arg.name not in before:
            # A new last output does not affect code that refers to outputs by name. But
            # an op can be used as a tensor only if it has a single output.
            single = len(old) == 1 and not old[0].is_list
            breaks = kind == "input" or place < len(old) or single
            yield Change(op.name, "added", f"{kind} {arg.name}", breaks)
            continue
        was = before[arg.name]
        if _signature(was) != _signature(arg):
            text = f"{kind} {arg.name}: {_signature(was)} -> {_signature(arg)}"
            yield Change(op.name, "changed", text, True)
        if was.full_type != arg.full_type:
            yield Change(op.name, "changed", f"full type of {kind} {arg.name}", False)
    kept = [arg.name for arg in old if arg.name in names]
    if kept != [name for name in names if name in before]:
        yield Change(op.name, "changed", f"order of the {kind}s", True)


def _signature(arg: Arg) -> str:
    if arg.type_list_attr is not None:
        return arg.type_list_attr
    text = str(arg.dtype or arg.type_attr)
    text = f"{arg.count} * {text}" if arg.count is not None else text
    return f"ref({text})" if arg.is_ref else text


def _attrs(old: Op, new: Op) -> Iterator[Change]:
    before = {attr.name: attr for attr in old.attrs}
    after = {attr.name: attr for attr in new.attrs}
    for name in before:
        if name not in after:
            yield Change(old.name, "removed", f"attr {name}", name not in old.inferred)
    for name, attr in after.items():
        if name in before:
            yield from _attr(old.name, before[name], attr, name in new.inferred)
            continue
        needed = new.role(attr) is Role.ARGUMENT
        text = f"attr {name}" + (", which must be given" if needed else "")
        yield Change(old.name, "added", text, needed)
    was, now = (
        [
            attr.name
            for attr in op.arguments
            if before.keys() & after.keys() >= {attr.name}
        ]
        for op in (old, new)
    )
    if sorted(was) == sorted(now) and was != now:
        yield Change(old.name, "changed", "order of the attrs that must be given", True)


def _attr(op: str, old: Attr, new: Attr, inferred: bool) -> Iterator[Change]:
    if old.kind != new.kind:
        text = f"attr {old.name}: {old.kind} -> {new.kind}"
        yield Change(op, "changed", text, True)
        return
    # The defaults are compared in tuples, because nan is not equal to itself, while
    # tuples with the same nan object are equal.
    if (old.default,) != (new.default,):
        was, now = (
            "none" if attr.default is None else literals.value(attr.default)
            for attr in (old, new)
        )
        # If an attr gets a default, it changes from a positional argument to a keyword.
        text = f"default of {old.name}: {was} -> {now}"
        yield Change(op, "changed", text, not inferred)
    if old.minimum != new.minimum:
        raised = new.minimum is not None and (
            old.minimum is None or new.minimum > old.minimum
        )
        text = f"minimum of {old.name}: {_none(old.minimum)} -> {_none(new.minimum)}"
        yield Change(op, "changed", text, raised)
    if old.allowed != new.allowed:
        gone = _missing(old.allowed, new.allowed)
        come = _missing(new.allowed, old.allowed)
        if gone or (new.allowed is not None and old.allowed is None):
            text = ", ".join(gone) if gone else "all but those listed"
            yield Change(op, "changed", f"{old.name} no longer allows {text}", True)
        if come or (old.allowed is not None and new.allowed is None):
            text = ", ".join(come) if come else "any value"
            yield Change(op, "changed", f"{old.name} now allows {text}", False)


def _missing(some: tuple[str, ...] | None, other: tuple[str, ...] | None) -> list[str]:
    if some is None or other is None:
        return []
    return [value for value in some if value not in other]


def _none(value: int | None) -> str:
    return "none" if value is None else str(value)
