"""`inspect.signature`, which editors and `help` show, says what the source says."""

from __future__ import annotations

import ast
import inspect
import pickle
import pydoc
import sys
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

import opwright
from opwright.linalg import mat_mul
from opwright_runtime._binding.signatures import SourceSignature
from support.grouped import check_each, every_op_by_group


def last(nodes: list[ast.stmt], name: str) -> ast.FunctionDef:
    """The definition of a function; those before it are its overloads."""
    found = [n for n in nodes if isinstance(n, ast.FunctionDef) and n.name == name]
    return found[-1]


def stated(node: ast.FunctionDef, names: dict[str, Any]) -> inspect.Signature:
    """The signature in a definition, but for the arguments that it refuses."""
    node.decorator_list = []
    node.args.kwarg = None
    if node.args.vararg is not None and node.args.vararg.arg == "_surplus":
        node.args.vararg = None
    module = ast.Module([node], type_ignores=[])
    found: dict[str, Any] = {}
    # Compiled as this file is, with annotations that stay text.
    exec(compile(module, "<stated>", "exec"), names, found)
    return inspect.signature(found[node.name])


def check_signatures(name: str) -> None:
    cls = opwright.op_class(name)
    module = sys.modules[cls.__module__]
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8")).body
    (body,) = (n.body for n in tree if getattr(n, "name", None) == cls.__name__)
    function = module.__all__[-1]
    for nodes, made in ((tree, getattr(module, function)), (body, cls.create)):
        shown = inspect.signature(made)
        # As text: an array, which some have as a default, has no truth value.
        assert str(shown) == str(stated(last(nodes, made.__name__), vars(module)))
        required = {arg.python_name for arg in cls.op_def.inputs}
        assert all(shown.parameters[one].default is shown.empty for one in required)


@pytest.mark.rotating
@every_op_by_group()
def test_signature_of_every_function_equals_its_source(names: list[str]) -> None:
    check_each(names, check_signatures)


def test_signature_of_a_wrapper_is_that_of_the_function() -> None:
    @wraps(mat_mul)
    def wrapper(*arguments: Any, **keywords: Any) -> Any:
        return mat_mul(*arguments, **keywords)

    assert str(inspect.signature(wrapper)).startswith("(a: 'Operand[U]', b: ")
    assert inspect.signature(wrapper) == inspect.signature(mat_mul)


def test_help_of_a_function_shows_required_arguments_without_default() -> None:
    text = pydoc.plain(pydoc.render_doc(mat_mul))
    assert "mat_mul(a: 'Operand[U]', b: 'SameOperand[U]', *, transpose_a: " in text
    assert "_unknown" not in text


def plain(a: int, *, b: bool = False) -> int:
    return a + b


def test_signature_survives_pickling_before_it_is_read() -> None:
    signature = SourceSignature.of(plain)
    assert pickle.loads(pickle.dumps(signature)) == inspect.signature(plain)
