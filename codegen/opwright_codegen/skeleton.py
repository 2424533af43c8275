"""Reads from the templates which names generated code itself uses, for all ops.

It converts templates to Python without jinja2. Every command needs the names, but few
render a template, so they should not have to import jinja2.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

TEMPLATES: Final = Path(__file__).parent / "templates"

#: It replaces every value that a template inserts, also as a part of a name.
_VALUE: Final = "_"
#: The replacements that convert a template to Python. A condition keeps only its first
#: branch, a loop its body, and a macro becomes the parameters of a function.
_STEPS: Final = (
    (r"\{% *(?:elif|else)\b.*?(?=\{% *end)", ""),
    (r"\{% *macro .*?%\}", f"def {_VALUE}("),
    (r"\{% *endmacro *%\}", "): ..."),
    (r"\{%.*?%\}", ""),
    (r"\{\{.*?\}\}", _VALUE),
)


@dataclass(frozen=True)
class Names:
    """Names that a template itself uses, by their scope.

    `module`: imported names, names defined at the top level, and builtins. `members`:
    members of the top-level classes. `parameters`, `locals`: names in functions.
    """

    module: frozenset[str]
    members: frozenset[str]
    parameters: frozenset[str]
    locals: frozenset[str]


def names(*templates: str) -> Names:
    """The names in templates that form one file together."""
    texts = ((TEMPLATES / template).read_text("utf-8") for template in templates)
    tree = ast.parse("\n".join(map(_python, texts)))
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    members = _own(name for cls in classes for name in _defined(cls.body))
    parameters = _own(
        name for function in functions for name in _parameters(function.args)
    )
    variables = _own(name for function in functions for name in _stored(function))
    top = _own((*_defined(tree.body), *_imported(tree)))
    module = top | (_own(_loaded(tree)) - members - parameters - variables)
    return Names(module, members, parameters, variables)


def _python(template: str) -> str:
    for pattern, replacement in _STEPS:
        template = re.sub(pattern, replacement, template, flags=re.DOTALL)
    return template


def _own(found: Iterable[str]) -> frozenset[str]:
    """`found` without `*`, private names, and names that contain a value."""
    return frozenset(n for n in found if n.isidentifier() and not n.startswith("_"))


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            yield node.name
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                yield from (n.id for n in ast.walk(target) if isinstance(n, ast.Name))


def _parameters(arguments: ast.arguments) -> Iterator[str]:
    yield from (node.arg for node in ast.walk(arguments) if isinstance(node, ast.arg))


def _stored(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.ExceptHandler) and node.name is not None:
            yield node.name


def _loaded(tree: ast.Module) -> Iterator[str]:
    yield from (
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    )


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (alias.asname or alias.name for alias in node.names)
