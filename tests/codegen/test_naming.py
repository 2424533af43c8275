"""Names that generated code uses itself are kept from arguments, outputs and ops."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from opwright_codegen import load, naming
from opwright_codegen.model import Op
from opwright_runtime.gencode import Op as RuntimeOp
from opwright_runtime.gencode import OpInputs, OpOptions
from support.workplace import ROOT

#: Every branch of the templates is taken by one of these.
GOLDEN = ROOT / "tests/golden"
OPDEFS = load.find(GOLDEN / "opdefs")


def generated(op: Op) -> ast.Module:
    path = GOLDEN / "expected/odd_ops" / op.group.replace(".", "/")
    text = (path / f"{naming.module_name(op.name)}.py").read_text("utf-8")
    return ast.parse(text)


def own(op: Op) -> Iterator[str]:
    """Names that a file has from its op."""
    cls = naming.class_name(op.name)
    yield from (cls, f"{cls}Inputs", f"{cls}Outputs", naming.function_name(op.name))
    yield from (naming.argument(part.name) for part in (*op.inputs, *op.attrs))
    yield from (naming.output(arg.name, only=op.is_tensor) for arg in op.outputs)
    yield from (naming.field(arg.name) for arg in op.outputs)
    yield from (f"with_{naming.argument(attr.name)}" for attr in op.options)
    yield from (naming.type_variable(attr.name) for attr in op.attrs)
    yield from naming.function_variables(op).values()


def names(tree: ast.AST) -> Iterator[str]:
    """Names that a file binds or looks up."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name


def members(tree: ast.Module) -> Iterator[str]:
    """Names that the classes of a file define."""
    for cls in tree.body:
        for node in cls.body if isinstance(cls, ast.ClassDef) else ():
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                yield node.name
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                yield from names(
                    node.targets[0] if isinstance(node, ast.Assign) else node.target
                )


@pytest.mark.parametrize("path", OPDEFS, ids=load.op_name_of)
def test_naming_of_names_used_in_a_file_reserves_them(path: Path) -> None:
    op, problems = load.load_text(path.read_bytes(), path)
    assert op is not None, problems
    tree = generated(op)
    public = {name for name in names(tree) if not name.startswith("_")} - set(own(op))
    defined = {name for name in members(tree) if not name.startswith("_")} - set(
        own(op)
    )
    assert {"OpInputs", "scope", "execute", "str"} <= public and "create" in defined
    assert {name for name in public - defined if naming.argument(name) == name} == set()
    assert {name for name in defined if naming.output(name) == name} == set()


@pytest.mark.parametrize(
    ("cls", "listed", "spell"),
    [
        (RuntimeOp, naming.OP_MEMBERS, naming.output),
        (OpInputs, naming.INPUTS_MEMBERS, naming.argument),
        (OpOptions, naming.OPTIONS_MEMBERS, naming.argument),
    ],
)
def test_naming_of_base_class_members_reserves_them(
    cls: type, listed: frozenset[str], spell: Callable[[str], str]
) -> None:
    defined = {
        name for name in (*dir(cls), *cls.__annotations__) if not name.startswith("_")
    }
    assert {name for name in defined if spell(name) == name} == set()
    assert listed - defined == set()


@pytest.mark.parametrize(
    "name",
    ["types", "dispatch", "numpy", "stack", "eager", "category", "bound", "dict"],
)
def test_naming_of_mentioned_names_stays_free(name: str) -> None:
    """Attributes, modules on the way and keywords collide with no argument."""
    assert naming.argument(name) == name
    assert naming.output(name) == name


def test_naming_of_caught_error_reserves_argument_only() -> None:
    """Python unbinds it at the end of the clause; an output is an attribute."""
    assert naming.argument("error") == "error_"
    assert naming.output("error") == "error"
