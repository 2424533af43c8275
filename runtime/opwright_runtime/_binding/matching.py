"""Finds the tensors of a call that do not have the shapes of its op.

`opwright_notation` evaluates the shapes of an op. This module binds their sizes to the
sizes of tensors, and compares tensors with sizes that are bound.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from opwright_notation.evaluation import Evaluation, Facts, Tensor
from opwright_notation.sizes import MisfitError, Size
from opwright_notation.syntax import names_in, parsed

#: The required size of a tensor: an expression, or the size itself.
Wanted: TypeAlias = "ast.expr | Size"


class MismatchError(MisfitError):
    """The rank of a tensor, or its size at `axis`, does not fit.

    Args:
        tensor: the tensor that does not fit.
        axis: the axis whose size does not fit. None: the rank does not fit.
        allowed: the size or the rank that the tensor may have.
        why: the end of the error's sentence, if it has more to say than `allowed`.
    """

    def __init__(
        self, tensor: Tensor, axis: int | None, allowed: str, why: str | None = None
    ) -> None:
        why = f", not {allowed}" if why is None else why
        super().__init__(f"{tensor.label} has {tensor.words(axis)}{why}")
        self.tensor = tensor
        self.axis = axis
        self.allowed = allowed


def match(expected: Mapping[str, str], tensors: Sequence[Tensor], facts: Facts) -> None:
    """Binds `facts.sizes` to the sizes of tensors.

    Args:
        expected: the expression of a shape for each argument.
        tensors: the tensors whose rank is known.
        facts: the attrs and values of the call.

    Raises:
        MismatchError: a tensor does not fit.
        MisfitError: each tensor fits by itself, but not all of them together.
    """
    wanted = [
        (tensor, parsed(expected[tensor.arg]))
        for tensor in tensors
        if tensor.arg in expected
    ]
    before = -1
    while before != (before := _bound(facts.sizes)):
        for tensor, node in wanted:
            _Matching(facts, tensor.index).match(node, tensor)
    for tensor, node in wanted:
        _Matching(facts, tensor.index).hold(node)


def _bound(sizes: Mapping[str, object]) -> int:
    return sum(len(v) if isinstance(v, dict) else 1 for v in sizes.values())


class _Matching(Evaluation):
    """Binds sizes to the sizes of tensors."""

    def match(self, node: ast.expr, tensor: Tensor) -> None:
        """Binds the sizes in `node` to those of `tensor`."""
        fitting: list[Facts] = []
        refused: list[MisfitError] = []
        for option in self.options(node):
            trial = _Matching(self.facts.copy(), self.index)
            try:
                trial.match_row(option, tensor)
                fitting.append(trial.facts)
            except MisfitError as error:
                refused.append(error)
        if not fitting:
            raise _none_fits(tensor, refused)
        # If several forms fit, none of them binds a size.
        if len(fitting) == 1:
            self.facts.sizes = fitting[0].sizes
            self.facts.origins = fitting[0].origins

    def match_row(self, node: ast.Tuple, tensor: Tensor) -> None:
        items = [self.item(element) for element in node.elts]
        opens = items.count(None)
        sure = sum(len(item) for item in items if item is not None)
        rank = len(tensor.sizes)
        if not (sure or opens) and _is_one_element(tensor):
            # Most kernels use it as a scalar.
            return
        if rank < sure or (not opens and rank != sure):
            raise self.wrong_rank(node, tensor, sure, bool(opens))
        if opens > 1:
            return
        at = 0
        for element, item in zip(node.elts, items, strict=True):
            if item is not None:
                for place, one in enumerate(item):
                    self.bind(one, tensor, at, element, place)
                    at += 1
                continue
            length = rank - sure
            if isinstance(element, ast.Starred):
                self.bind_row(element.value, tensor, at, length)
            at += length

    def wrong_rank(
        self, node: ast.Tuple, tensor: Tensor, rank: int, is_least: bool
    ) -> MismatchError:
        allowed = f"{rank} or more" if is_least else str(rank)
        rows = [each.value for each in node.elts if isinstance(each, ast.Starred)]
        is_whole = len(node.elts) == 1 and rows and not is_least
        if is_whole and (origin := self.origin(rows[0])):
            other, _ = origin
            if other is not tensor and len(other.sizes) == rank:
                return MismatchError(
                    tensor, None, allowed, f"; {other.label} has {rank}"
                )
        sources = self.sources(*rows)
        if sources:
            return MismatchError(tensor, None, allowed, _following(allowed, sources))
        if not rank:
            return MismatchError(tensor, None, allowed, "; it must be a scalar")
        return MismatchError(tensor, None, allowed)

    def item(self, element: ast.expr) -> Sequence[Wanted] | None:
        """The expressions or sizes of a part of a row; None for any number of sizes."""
        if isinstance(element, ast.Starred):
            return self.row(element.value)
        if isinstance(element, ast.Constant) and element.value is ...:
            return None
        return [element]

    def bind_row(self, node: ast.expr, tensor: Tensor, start: int, length: int) -> None:
        """Binds an unknown row to the sizes from `start` on."""
        key = self.key(node)
        if key is not None:
            self.set(key, tensor.sizes[start : start + length], tensor, start)

    def key(self, node: ast.expr) -> tuple[str, int | None] | None:
        """The key of the binding of `n`, or of `n[i]`.

        `n[i]` has a value for each tensor of a list input, at position `i`.
        """
        index = None
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.slice, ast.Name)
            and node.slice.id == "i"
        ):
            node, index = node.value, self.index
        if isinstance(node, ast.Name) and self.is_symbol(node.id):
            return node.id, index
        return None

    def set(
        self, key: tuple[str, int | None], found: object, tensor: Tensor, at: int
    ) -> None:
        name, index = key
        if index is None:
            self.facts.sizes[name] = found
        else:
            several = self.facts.sizes.setdefault(name, {})
            assert isinstance(several, dict)
            several[index] = found
        self.facts.origins[key] = tensor, at

    def is_symbol(self, name: str) -> bool:
        facts = self.facts
        known = name in facts.attrs or name in facts.values
        return not known and name not in ("_", "i")

    def bind(
        self, wanted: Wanted, tensor: Tensor, at: int, element: ast.expr, place: int
    ) -> None:
        """Binds `wanted` at axis `at`, the `place`th axis of `element`."""
        size = tensor.sizes[at]
        if size is None or wanted is None:
            return
        if isinstance(wanted, int):
            if wanted != size:
                assert isinstance(element, ast.Starred)
                raise self.wrong_size(tensor, at, wanted, element.value, place)
            return
        known = self.dimension(wanted)
        if known is not None:
            if known != size:
                raise self.wrong_size(tensor, at, known, wanted, 0)
        elif key := self.key(wanted):
            self.set(key, size, tensor, at)
        elif not isinstance(wanted, ast.Name):
            self.solve(wanted, tensor, at, size)

    def solve(self, node: ast.expr, tensor: Tensor, at: int, size: int) -> None:
        """Binds the one unknown size of `2*n+1`."""
        names = [
            each
            for each in names_in(node)
            if self.is_symbol(each) and each not in self.facts.sizes
        ]
        if len(names) != 1 or any(isinstance(n, ast.Subscript) for n in ast.walk(node)):
            return
        (name,) = names
        points = []
        for value in (0, 1, 2):
            trial = self.facts.copy()
            trial.sizes[name] = value
            try:
                points.append(_Matching(trial, self.index).size(node))
            except MisfitError:
                return
        if None in points:
            return
        zero, one, two = points
        assert zero is not None and one is not None and two is not None
        step = one - zero
        if step == 0 or two - one != step:
            return
        value, rest = divmod(size - zero, step)
        if rest:
            allowed = f"a multiple of {abs(step)}"
            allowed += f" and {zero % abs(step)}" if zero % step else ""
            raise MismatchError(tensor, at, allowed)
        if value < 0:
            raise MismatchError(
                tensor, at, f"{zero} or {'more' if step > 0 else 'less'}"
            )
        self.set((name, None), value, tensor, at)

    # The methods below explain why a size is required.

    def wrong_size(
        self, tensor: Tensor, at: int, known: int, node: ast.expr, place: int
    ) -> MismatchError:
        """Why a size must be `known`: the `place`th size of `node`."""
        allowed = str(known)
        if origin := self.origin(node):
            other, start = origin
            if other.sizes[start + place] == known:
                words = other.words(start + place)
                name = f" ({node.id})" if isinstance(node, ast.Name) else ""
                return MismatchError(
                    tensor, at, allowed, f", {other.label} has {words}{name}"
                )
        sources = self.sources(node)
        if sources:
            return MismatchError(tensor, at, allowed, _following(allowed, sources))
        return MismatchError(tensor, at, allowed)

    def origin(self, node: ast.expr) -> tuple[Tensor, int] | None:
        """The tensor and axis that bind `n` or `n[i]`."""
        key = self.key(node)
        return None if key is None else self.facts.origins.get(key)

    def sources(self, *nodes: ast.expr) -> list[str]:
        """The arguments that decide the values of expressions."""
        facts = self.facts
        found = []
        for name in (name for node in nodes for name in names_in(node)):
            if name in facts.attrs or name in facts.values:
                found.append(facts.labels.get(name, name))
                continue
            for (other, _), (tensor, _) in facts.origins.items():
                if other == name:
                    found.append(tensor.label)
        return list(dict.fromkeys(found))


def _following(allowed: str, sources: Sequence[str]) -> str:
    *others, last = sources[:_FEW_SOURCES]
    listed = f"{', '.join(others)} and {last}" if others else last
    verb = "follows" if allowed == "1" else "follow"
    return f", not the {allowed} that {verb} from {listed}"


# An error names at most this many arguments. More would not help the reader.
_FEW_SOURCES = 3


def _none_fits(tensor: Tensor, refused: Sequence[MisfitError]) -> MisfitError:
    """The error if no form of a shape fits: that of the form which fits best."""
    if len(refused) == 1:
        return refused[0]
    mismatches = [each for each in refused if isinstance(each, MismatchError)]
    if len(mismatches) == len(refused):
        furthest = max(-1 if each.axis is None else each.axis for each in mismatches)
        if furthest < 0:
            ranks = dict.fromkeys(each.allowed for each in mismatches)
            return MismatchError(tensor, None, " or ".join(ranks))
        nearest = [each for each in mismatches if each.axis == furthest]
        if len(nearest) == 1:
            return nearest[0]
    return MisfitError(f"{tensor.label} fits no form of its shape")


def _is_one_element(tensor: Tensor) -> bool:
    return all(size in (1, None) for size in tensor.sizes)
