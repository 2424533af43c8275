"""Programs that type checkers accept have the types that they assert; uses of `Any`."""

from __future__ import annotations

import ast
import importlib.util
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest
import tensorflow as tf
import typing_extensions

from opwright import Output
from support.places import ROOT

PROGRAMS = Path(__file__).parent / "typing"

#: Uses of `Any`, and comments that silence a checker. Neither number may grow. If one
#: falls, lower it here.
CEILINGS = {
    # Two named tuples have the field `count`, as those of `tf.raw_ops` have. Tuples
    # have a method of that name.
    "generated": (0, 2),
    # 33 uses declare the parts of TensorFlow that `_internals` uses. Most ignores are
    # of classes that derive from one of TensorFlow's, which is `Any` to type checkers.
    # `narrowing`, `tpu_embedding` and the two `keras_layers` handle values of callers,
    # and objects of TensorFlow and Keras, that have no types. So does `convert`, with
    # graphs, messages, and objects of tf2onnx and LiteRT.
    "runtime": (638, 34),
    "codegen": (82, 1),
}


def functions(path: Path) -> list[Any]:
    """The functions of a program that take no arguments."""
    return [
        pytest.param(path, one.name, id=f"{path.stem}-{one.name}")
        for one in ast.parse(path.read_text()).body
        if isinstance(one, ast.FunctionDef) and not one.args.args
    ]


def has_type(value: Any, expected: Any) -> bool:
    """Whether `value` has the type that `assert_type` expects."""
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Annotated:
        return isinstance(value, tf.Tensor) and value.dtype == arguments[1].dtype
    if origin is Literal:
        return value in arguments
    if origin is type:
        return isinstance(value, type) and issubclass(value, arguments[0])
    if origin is list:
        return isinstance(value, list) and all(has_type(v, arguments[0]) for v in value)
    if origin is None:
        return isinstance(value, expected)
    if hasattr(value, "as_output") and value.as_output().dtype != arguments[0].dtype:
        return False
    return isinstance(value, origin)


def assert_type(value: Any, expected: Any) -> Any:
    assert has_type(value, expected), f"typed {expected}, but is {value!r}"
    return value


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("program", "function"),
    [
        one
        for program in sorted(PROGRAMS.glob("accepted/*.py"))
        for one in functions(program)
    ],
)
def test_accepted_program_values_have_the_asserted_types(
    program: Path, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spelled = classmethod(lambda cls, dtype: Annotated[tf.Tensor, dtype])
    monkeypatch.setattr(Output, "__class_getitem__", spelled)
    monkeypatch.setattr(typing_extensions, "assert_type", assert_type)
    getattr(load(program), function)()


def sources(package: str) -> Iterator[Path]:
    for pattern in ("*.py", "*.pyi"):
        yield from (ROOT / package).rglob(pattern)


def uses_of_any(source: str) -> int:
    if "Any" not in source:
        return 0
    tree = ast.parse(source)
    imported = any(
        isinstance(node, ast.ImportFrom)
        and node.module in ("typing", "typing_extensions")
        and any(name.name == "Any" for name in node.names)
        for node in ast.walk(tree)
    )
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return sum(node.id == "Any" for node in names) if imported else 0


def comments(source: str) -> Iterator[tokenize.TokenInfo]:
    """The comments of a source in which one may be for a checker."""
    if re.search(r"#\s*(\w+\s*:|noqa)", source):
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT:
                yield token


@pytest.mark.typing  # It reads every source.
@pytest.mark.parametrize("package", CEILINGS)
def test_typing_ceilings_match_counts_of_any_and_ignores(package: str) -> None:
    anys = ignores = 0
    whole_files = []
    for path in sources(package):
        source = path.read_text()
        anys += uses_of_any(source)
        for comment in comments(source):
            alone = comment.line.lstrip().startswith("#")
            if re.match(r"#\s*(mypy|ruff|flake8)\s*:", comment.string) or (
                alone and re.match(r"#\s*(type|pyright)\s*:", comment.string)
            ):
                whole_files.append(f"{path.relative_to(ROOT)}: {comment.string}")
            elif re.search(r"#\s*((type|pyright)\s*:\s*ignore|noqa)", comment.string):
                ignores += 1
    assert not whole_files, "\n".join(whole_files)
    counts, most = (anys, ignores), CEILINGS[package]
    said = f"{package}: {anys} uses of Any and {ignores} ignores, where CEILINGS has"
    assert anys <= most[0] and ignores <= most[1], f"{said} at most {most}"
    assert counts == most, f"{said} still {most}: lower it"
