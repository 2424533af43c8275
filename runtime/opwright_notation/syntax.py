"""Reads the notation of shapes: jaxtyping's strings, with attrs and conditions.

    m k if not transpose_a else k m     (m, k) if not transpose_a else (k, m)
    broadcast(x, y) m n                 (*broadcast(x, y), m, n)
    scalar | n                          either((), (n,))
    remove(x, axis) where len(x) >= 1   where((*remove(x, axis),), len(x) >= 1)
    scalar of *v                        of((), (*v,))

The left column is the notation, which `opdefs/WRITING.md` describes. It is read as the
Python expression on the right. Classes of ops contain that expression.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import TypeGuard

from opwright_notation.functions import FUNCTIONS, Kind

_WORDS = ("scalar", "if", "else", "where", "of", "|")
#: Names that cannot be names of sizes.
RESERVED = frozenset(
    {*FUNCTIONS, *_WORDS, "i", "_", "either", "not", "and", "or", "in"}
)


class ShapeError(ValueError):
    """A mistake in a shape, and its place: an offset in the text."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def read(text: str) -> ast.expr:
    """The expression of a shape; `col_offset` of its parts is an offset in `text`.

    Raises:
        ShapeError: `text` is not in the notation.
    """
    return _Parser(text).shape()


@cache
def parsed(expression: str) -> ast.expr:
    """The syntax tree of an expression that `ast.unparse` wrote."""
    return ast.parse(expression, mode="eval").body


def is_call(node: ast.expr, name: str) -> TypeGuard[ast.Call]:
    """Whether `node` calls the function or form `name`."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == name
    )


def rows_in(node: ast.expr) -> Iterator[ast.expr]:
    """The rows of a shape, for all values of its conditions."""
    if is_call(node, "where"):
        yield from rows_in(node.args[0])
    elif is_call(node, "of") or is_call(node, "either"):
        for each in node.args:
            yield from rows_in(each)
    elif isinstance(node, ast.IfExp):
        yield from rows_in(node.body)
        yield from rows_in(node.orelse)
    else:
        yield node


def names_in(node: ast.expr) -> list[str]:
    """The names in an expression, except those of functions."""
    return list(dict.fromkeys(each.id for each in named_parts(node)))


def named_parts(node: ast.expr) -> list[ast.Name]:
    """The parts of an expression that are names, except those of functions."""
    parts = list(ast.walk(node))
    called = {id(each.func) for each in parts if isinstance(each, ast.Call)}
    return [
        each for each in parts if isinstance(each, ast.Name) and id(each) not in called
    ]


def names_itself(name: str, shape: ast.expr | None) -> bool:
    """Whether `name` occurs in the shape of the input `name` itself.

    If so, it stands for a size or row. Otherwise it stands for the input's values.
    """
    return shape is not None and any(name in names_in(row) for row in rows_in(shape))


class _Parser:
    """A parser of one shape. Its methods have grammar rules as their docstrings."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.words = list(_split(text))
        self.position = 0

    def shape(self) -> ast.expr:
        """choice ["of" choice] ["where" condition]"""
        result = self.choice()
        if self.taken("of"):
            result = _form("of", self.offset(), result, self.choice())
        if self.taken("where"):
            result = _form("where", self.offset(), result, self.condition())
        if self.position < len(self.words):
            word, offset = self.words[self.position]
            raise ShapeError(offset, f"{word!r} stands where the shape should end")
        return result

    def choice(self) -> ast.expr:
        """option {"|" option}"""
        options = [self.option()]
        while self.taken("|"):
            options.append(self.option())
        return options[0] if len(options) == 1 else _form("either", 0, *options)

    def option(self) -> ast.expr:
        """sizes ["if" condition "else" option]"""
        result = self.sizes()
        if not self.taken("if"):
            return result
        at = self.offset()
        condition = self.condition()
        if not self.taken("else"):
            raise ShapeError(at, "'if' wants an 'else', with the shape otherwise")
        return ast.IfExp(condition, result, self.option())

    def sizes(self) -> ast.expr:
        """ "scalar" | size {size}"""
        if self.taken("scalar"):
            return ast.Tuple([], ast.Load())
        sizes: list[ast.expr] = []
        while self.position < len(self.words):
            word, offset = self.words[self.position]
            if word in _WORDS:
                break
            self.position += 1
            sizes.append(self.size(word, offset))
        if not sizes:
            word, offset = (
                self.words[self.position]
                if self.position < len(self.words)
                else ("the end", len(self.text))
            )
            message = f"no sizes before {word!r}; of no dimension is 'scalar'"
            raise ShapeError(offset, message)
        return ast.Tuple(sizes, ast.Load())

    def size(self, word: str, offset: int) -> ast.expr:
        """One size; or a row of sizes, with a star or as the result of a function."""
        if word.startswith("*"):
            return ast.Starred(_expression(word[1:], offset + 1), ast.Load())
        node = _expression(word, offset)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            function = FUNCTIONS.get(node.func.id)
            if function is not None and function.gives is Kind.ROW:
                return ast.Starred(node, ast.Load())
        return node

    def condition(self) -> ast.expr:
        """The words up to the next word that ends a condition."""
        start = self.position
        while self.position < len(self.words) and self.words[self.position][0] not in (
            "else",
            "where",
            "of",
        ):
            self.position += 1
        if self.position == start:
            raise ShapeError(self.offset(), "a condition must follow")
        first = self.words[start][1]
        last, offset = self.words[self.position - 1]
        return _expression(self.text[first : offset + len(last)], first)

    def taken(self, word: str) -> bool:
        """Consumes the next word if it is `word`; returns whether it did."""
        is_next = self.position < len(self.words) and (
            self.words[self.position][0] == word
        )
        self.position += is_next
        return is_next

    def offset(self) -> int:
        """The offset of the word that was consumed last."""
        return self.words[self.position - 1][1]


def _form(name: str, offset: int, *parts: ast.expr) -> ast.Call:
    function = ast.Name(name, ast.Load())
    return ast.Call(function, list(parts), [], lineno=1, col_offset=offset)


def _expression(text: str, offset: int) -> ast.expr:
    """Parses a Python expression that begins at `offset` of the shape."""
    flat = text.replace("\n", " ")
    try:
        node = ast.parse(flat, mode="eval").body
    except SyntaxError as error:
        at = offset + max((error.offset or 1) - 1, 0)
        raise ShapeError(at, f"{flat!r} is no expression: {error.msg}") from None
    for part in ast.walk(node):
        if isinstance(part, ast.expr):
            part.col_offset += offset
    return node


def _split(text: str) -> Iterator[tuple[str, int]]:
    """The words of a shape with their offsets. Text in brackets belongs to one word."""
    depth, start, quote = 0, None, ""
    for offset, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
            start = offset if start is None else start
        elif char.isspace() and depth == 0:
            if start is not None:
                yield text[start:offset], start
            start = None
        else:
            depth += (char in "([") - (char in ")]")
            if depth < 0:
                raise ShapeError(offset, f"{char!r} closes nothing")
            start = offset if start is None else start
    if depth or quote:
        raise ShapeError(start or 0, "a bracket or quote is not closed")
    if start is not None:
        yield text[start:], start
