"""Writes the conditions of a call so that they take less time.

What several conditions need is computed once. Ranks of several inputs are compared
together. The result stays the same: a call passes if all conditions hold, and an error
in one of them is a reason to look closer.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Final

from opwright_codegen.helpers import HAVE_RANKS

#: A function of the runtime that compares so many inputs takes less time than others.
_SEVERAL: Final = 3
#: What replaces the functions of an input's elements where its contents are known.
_OF_CONTENTS: Final = {
    "last_of": "{}[-1]",
    "most_of": "most_of({})",
    "least_of": "least_of({})",
}
_CONTENTS: Final = "contents_of"


def computed(parts: Sequence[ast.expr]) -> list[ast.expr]:
    """Conditions of the same meaning, which have to be evaluated in their order."""
    found = _with_ranks([*map(deepcopy, parts)])
    found = _from_contents(found)
    return _without_repetition(found)


def called(node: ast.expr) -> Iterator[str]:
    """The functions that an expression calls."""
    for each in ast.walk(node):
        if isinstance(each, ast.Call) and isinstance(each.func, ast.Name):
            yield each.func.id


def _with_ranks(parts: list[ast.expr]) -> list[ast.expr]:
    """`rank_of(x) == 4` of several inputs, compared together."""
    ranks: dict[int, tuple[ast.expr, ast.expr]] = {}
    for index, part in enumerate(parts):
        match part:
            case ast.Compare(
                left=ast.Call(func=ast.Name(id="rank_of"), args=[ast.Name() as one]),
                ops=[ast.Eq()],
                comparators=[ast.Constant() as rank],
            ):
                ranks[index] = rank, one
    if len(ranks) < _SEVERAL:
        return parts
    wanted = ast.Tuple([rank for rank, _ in ranks.values()], ast.Load())
    values = [one for _, one in ranks.values()]
    return _joined(parts, {min(ranks): _call(HAVE_RANKS, wanted, *values)}, ranks)


def _joined(
    parts: Sequence[ast.expr], made: dict[int, ast.expr], replaced: Iterable[int]
) -> list[ast.expr]:
    """`parts` with some in place of others."""
    gone = set(replaced) - made.keys()
    return [
        made.get(index, part) for index, part in enumerate(parts) if index not in gone
    ]


def _call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(ast.Name(name, ast.Load()), list(arguments), [])


def _from_contents(parts: list[ast.expr]) -> list[ast.expr]:
    """Parts in which `last_of(x)` is `contents_of(x)[-1]` if they need the contents."""
    certain = [call for part in parts for call, surely in _evaluated(part) if surely]
    known = {ast.dump(call.args[0]) for call in certain if _name(call) == _CONTENTS}

    class Replaced(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            self.generic_visit(node)
            form = _OF_CONTENTS.get(_name(node))
            if form is None or ast.dump(node.args[0]) not in known:
                return node
            contents = ast.unparse(_call(_CONTENTS, *node.args))
            return ast.parse(form.format(contents), mode="eval").body

    return [Replaced().visit(part) for part in parts]


def _without_repetition(parts: list[ast.expr]) -> list[ast.expr]:
    """Parts that give a name to what they need again."""
    number = Counter(
        ast.dump(call)
        for part in parts
        for call, _ in _evaluated(part)
        if _is_property(call)
    )
    names: dict[str, str] = {}
    named: dict[int, str] = {}
    for part in parts:
        for call, surely in _evaluated(part):
            text = ast.dump(call)
            if number[text] > 1 and surely and text not in names:
                names[text] = _name_of(call)
                named[id(call)] = names[text]

    known: set[str] = set()

    class Named(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.expr:
            text = ast.dump(node)
            if text in known:
                return ast.Name(names[text], ast.Load())
            if id(node) in named:
                known.add(text)
                return ast.NamedExpr(ast.Name(names[text], ast.Store()), node)
            self.generic_visit(node)
            return node

    named_parts = Named()
    return [named_parts.visit(part) for part in parts]


def _is_property(call: ast.Call) -> bool:
    """Whether a call is a property of arguments of the op."""
    return _name(call).endswith("_of") and all(
        isinstance(each, ast.Name) and not each.id.startswith("_") for each in call.args
    )


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _name_of(call: ast.Call) -> str:
    return f"_{'_'.join([_name(call), *map(ast.unparse, call.args)])}"


def _evaluated(part: ast.expr) -> Iterator[tuple[ast.Call, bool]]:
    """The calls in a condition, in their order, and whether each is always made."""
    if isinstance(part, ast.Compare):
        # If a comparison of a chain fails, no condition behind it is evaluated.
        for side in (part.left, *part.comparators):
            yield from _calls(side, True)
    else:
        yield from _calls(part, True)


def _calls(node: ast.AST, surely: bool) -> Iterator[tuple[ast.Call, bool]]:
    match node:
        case ast.BoolOp(values=[first, *others]):
            yield from _calls(first, surely)
            for each in others:
                yield from _calls(each, False)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield from _calls(test, surely)
            yield from _calls(body, False)
            yield from _calls(orelse, False)
        case ast.Compare(left=left, comparators=[second, *others]):
            yield from _calls(left, surely)
            yield from _calls(second, surely)
            for each in others:
                yield from _calls(each, False)
        case ast.GeneratorExp():
            for child in ast.iter_child_nodes(node):
                yield from _calls(child, False)
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _calls(child, surely)
            if isinstance(node, ast.Call):
                yield node, surely
