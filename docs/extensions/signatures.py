"""Signatures of generated code, as Sphinx's Python domain takes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import TypeGuard


def function(module: ast.Module, name: str) -> str:
    """The signature of a function, without its overloads."""
    return _signature(_last(module, name))


def method(module: ast.Module, *path: str) -> str:
    """The signature of a method: its classes' names, then its own."""
    node: ast.Module | ast.ClassDef = module
    for name in path[:-1]:
        node = next(inner for inner in _classes(node) if inner.name == name)
    return _signature(_last(node, path[-1]))


def _classes(node: ast.Module | ast.ClassDef) -> Iterator[ast.ClassDef]:
    return (inner for inner in node.body if isinstance(inner, ast.ClassDef))


def _last(node: ast.Module | ast.ClassDef, name: str) -> ast.FunctionDef:
    def is_it(inner: ast.stmt) -> TypeGuard[ast.FunctionDef]:
        return isinstance(inner, ast.FunctionDef) and inner.name == name

    return list(filter(is_it, node.body))[-1]


def _signature(node: ast.FunctionDef) -> str:
    """`(a: opwright.Operand[U]) -> opwright.Output[U]`."""
    arguments = node.args
    # What catches wrong arguments to explain them is no argument.
    arguments.kwarg = None
    if arguments.vararg is not None and arguments.vararg.arg == "_surplus":
        arguments.vararg = None
    arguments.args = [one for one in arguments.args if one.arg != "self"]
    shown = ast.unparse(_Qualified().visit(arguments))
    if node.returns is None or node.name == "__init__":
        return f"({shown})"
    return f"({shown}) -> {ast.unparse(_Qualified().visit(node.returns))}"


class _Qualified(ast.NodeTransformer):
    """Writes types as references find them, and defaults of Options as values."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.parse(_homes().get(node.id, node.id), mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "default":
            return self.visit(node.args[0])  # type: ignore[no-any-return]
        return self.generic_visit(node)


@cache
def _homes() -> dict[str, str]:
    """The types of signatures, by their names, and where the page of types has them."""
    from opwright_runtime import api, types

    homes = {name: f"opwright_runtime.types.{name}" for name in types.__all__}
    return homes | {name: f"opwright.{name}" for name in api.__all__}
