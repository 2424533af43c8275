"""Opdefs spoiled and invented at random: problems or Python, never a traceback.

OPWRIGHT_FUZZ sets how many examples each test tries.
"""

from __future__ import annotations

import copy
import dataclasses
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, seed, settings
from hypothesis import strategies as st

from opwright_codegen import dump, emit, load, naming
from opwright_codegen.format import format_source
from opwright_codegen.model import (
    Arg,
    Attr,
    Deprecation,
    FuncValue,
    Op,
    ShapeValue,
    TensorValue,
)
from opwright_codegen.problems import Problem
from opwright_codegen.types import BOUNDS, DTYPES, KINDS, AttrKind, DTypeName
from support import tiers
from support.places import OPDEFS

pytestmark = pytest.mark.partial

Test = TypeVar("Test", bound=Callable[..., None])
DRAWN = int(os.environ.get("OPWRIGHT_FUZZ") or (100 if tiers.FULL else 10))


def fuzz(test: Test) -> Test:
    """Draws other examples at each commit, and the same ones in each run of it."""
    return _drawing(DRAWN, test)


def fuzz_more(test: Test) -> Test:
    """For what takes milliseconds."""
    return _drawing(20 * DRAWN, test)


def _drawing(examples: int, test: Test) -> Test:
    chosen = settings(
        max_examples=examples,
        deadline=None,
        derandomize=DRAWN <= 1000,
        suppress_health_check=list(HealthCheck),
    )
    drawn = chosen(test)
    return seed(tiers.part())(drawn) if DRAWN <= 1000 else drawn


@cache
def paths() -> list[Path]:
    return load.find(OPDEFS)


@cache
def names() -> frozenset[str]:
    return frozenset(map(load.op_name_of, paths()))


def check(content: bytes, path: Path) -> Op | None:
    """Loads. A wrong opdef must give a clear error, a right one must generate."""
    op, problems = load.load_text(content, path, names())
    assert (op is None) == bool(problems)
    lines = content.count(b"\n") + content.count(b"\r") + 2
    for problem in problems:
        assert isinstance(problem, Problem)
        assert 1 <= problem.line <= lines and problem.column >= 1
        assert problem.message.isprintable(), problem
    if op is not None:
        assert load.load_text(dump.dump(op).encode(), path) == (op, [])
    return op


def import_generated(op: Op) -> ModuleType:
    """Runs the file of `op`, as importing it does."""
    source = format_source(emit.op_source(op))
    module = ModuleType("fuzzed")
    exec(compile(source, f"{op.name}.py", "exec"), module.__dict__)
    cls = getattr(module, naming.class_name(op.name))
    function = getattr(module, naming.function_name(op.name))
    assert op.name == cls.OP_NAME
    assert callable(cls.create) and callable(function)
    tuples = [f"{cls.__name__}Outputs"] if len(op.outputs) > 1 else []
    assert module.__all__ == [cls.__name__, *tuples, function.__name__]
    for field in (naming.output(arg.name, only=op.is_tensor) for arg in op.outputs):
        assert field in cls.__slots__
    for attr in op.options:
        field = naming.argument(attr.name)
        assert hasattr(cls.Options, f"with_{field}")
        if attr.kind in ("int", "float", "bool", "string"):
            assert getattr(module.DEFAULTS, field) == attr.default
    return module


# Text.

TRAPS = [
    "no",
    "on",
    "yes",
    "~",
    "null",
    ".nan",
    ".inf",
    "-.INF",
    "1_000",
    "0o17",
    "017",
    "0x1F",
    "1:30",
    "1e5",
    "1.e+5",
    "2001-01-01",
    "=",
    "<<",
    "&a",
    "*a",
    "!!int ''",
    "!!float ''",
    "!!bool x",
    "!!timestamp x",
    "!!binary x",
    "!!set {a}",
    "!<x>",
    "!",
    "%YAML 9.9\n---\n",
    "---\n",
    "...\n",
    "\t",
    "\r",
    "\x00",
    "\x85",
    "\ufeff",
    "\u2028",
    "[",
    "]",
    "{",
    "}",
    "- ",
    "? ",
    ": ",
    "#",
    "|",
    ">-",
    "'",
    '"',
    '"\\ud800"',
    "\\",
    "9" * 30,
    "-" * 50,
    "unknown",
    "int",
    "list(type)",
    "type",
    "float",
    "op",
    "T",
]
pieces = st.one_of(st.sampled_from(TRAPS), st.text(max_size=8))


@st.composite
def spoiled_texts(draw: st.DrawFn) -> tuple[bytes, Path]:
    path = draw(st.sampled_from(paths()))
    text = path.read_text("utf-8")
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        insert = draw(st.one_of(pieces, st.just(text[start:end] * 2)))
        text = text[:start] + insert + text[end:]
    return text.encode("utf-8", "surrogatepass"), path


@pytest.mark.rotating
@fuzz_more
@given(spoiled_texts())
def test_spoiled_text_is_told(spoiled: tuple[bytes, Path]) -> None:
    check(*spoiled)


@fuzz_more
@given(st.binary(max_size=200), st.sampled_from(["", "op: A\ngroup: nn\n"]))
def test_load_text_of_any_bytes_reports_problems(content: bytes, start: str) -> None:
    check(start.encode() + content, Path("nn/A.yaml"))


# Nodes.

values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**65), 2**65),
        st.floats(),
        st.sampled_from(TRAPS),
        st.text(max_size=5),
        st.dates(),
        st.binary(max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=6,
)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) below `node`."""
    found: list[tuple[Any, Any]] = []
    entries = (
        node.items()
        if isinstance(node, dict)
        else enumerate(node) if isinstance(node, list) else ()
    )
    for key, value in entries:
        found.append((node, key))
        found += places(value)
    return found


@st.composite
def spoiled_nodes(draw: st.DrawFn) -> tuple[bytes, Path]:
    path = draw(st.sampled_from(paths()))
    root = yaml.load(path.read_bytes(), Loader=yaml.CSafeLoader)
    for _ in range(draw(st.integers(1, 3))):
        container, key = draw(st.sampled_from(places(root)))
        _, other = draw(st.sampled_from(places(root)))
        action = draw(st.sampled_from(["set", "delete", "copy", "rename", "double"]))
        if action == "set":
            container[key] = draw(values)
        elif action == "delete":
            del container[key]
        elif action == "copy":
            container[key] = copy.deepcopy(draw(st.sampled_from(places(root)))[0])
        elif action == "rename" and isinstance(container, dict):
            container[other] = container.pop(key)
        elif action == "double" and isinstance(container, list):
            container.append(copy.deepcopy(container[key]))
        if not places(root):
            break
    text = yaml.dump(root, Dumper=yaml.CSafeDumper, allow_unicode=True)
    return text.encode("utf-8", "surrogatepass"), path


@pytest.mark.rotating
@fuzz_more
@given(spoiled_nodes())
def test_spoiled_nodes_are_told(spoiled: tuple[bytes, Path]) -> None:
    check(*spoiled)


# Ops that are valid.

ODD_NAMES = [
    "a",
    "x",
    "in",
    "lambda",
    "def",
    "is",
    "class",
    "async",
    "match",
    "type",
    "print",
    "op",
    "ops",
    "scope",
    "name",
    "self",
    "cls",
    "options",
    "opts",
    "np",
    "fast_path_error",
    "lazy_package",
    "declare_package",
    "int",
    "list",
    "str",
    "bytes",
    "dict",
    "tuple",
    "object",
    "property",
    "context",
    "default",
    "execute",
    "graphs",
    "create",
    "inputs",
    "outputs",
    "kernels",
    "env",
    "as_dict",
    "explicit",
    "merge",
    "rebuild",
    "op_def",
    "as_output",
    "op_class",
    "attribute_names",
    "with_x",
    "values",
    "input_h2",
    "a_" * 20,
    "scope_",
    "t",
    "u",
]
ODD_ATTRS = [
    *ODD_NAMES,
    "T",
    "U",
    "V",
    "UU",
    "Tidx",
    "DstT",
    "N",
    "None",
    "True",
    "Self",
    "Literal",
    "Op",
    "Output",
    "Operand",
    "DType",
    "TInt32",
    "Options",
    "Inputs",
    "OP_NAME",
    "Generic",
    "DEFAULTS",
    "CURRENT",
    "Scope",
    "Sequence",
    "Any",
    "T_out",
    "dtype",
    "d_type",
    "output",
]
anything = st.characters(codec="utf-8", exclude_categories=["Cs"])
texts = st.one_of(
    st.sampled_from(
        [
            "",
            '"',
            "'",
            "\\",
            '"""',
            "a\nb",
            "\\N",
            "{x}",
            "{{ x }}",
            "%s",
            "\t",
            "é",
            "no",
        ]
    ),
    st.text(anything, max_size=20),
)
prose = st.one_of(
    st.none(),
    st.text(anything, max_size=200),
    st.lists(st.sampled_from([*TRAPS, "word", "\n", " "]), max_size=60).map("".join),
    st.lists(st.sampled_from(["word", "\n", " ", "- ", '"""']), max_size=60).map(
        "".join
    ),
).filter(lambda text: text is None or bool(text.strip()))
dtypes = st.sampled_from(sorted(DTYPES)).map(DTypeName)
singles = st.floats(width=32, allow_nan=False).map(lambda value: float(f"{value:.6g}"))


def scalar(kind: str) -> st.SearchStrategy[Any]:
    options: dict[str, Callable[[], st.SearchStrategy[Any]]] = {
        "int": lambda: st.integers(-(2**63), 2**63 - 1),
        "float": lambda: singles.filter(lambda value: abs(value) < 3e38),
        "bool": st.booleans,
        "string": lambda: texts,
        "type": lambda: dtypes,
        "shape": lambda: st.one_of(
            st.just(ShapeValue(None)),
            st.lists(st.integers(-1, 9), max_size=3).map(
                lambda dims: ShapeValue(tuple(dims))
            ),
        ),
        "tensor": lambda: st.sampled_from(
            [
                TensorValue(DTypeName("float"), (), (1.5,)),
                TensorValue(DTypeName("string"), (2,), ("a", '"')),
                TensorValue(DTypeName("bool"), (1, 1), (True,)),
                TensorValue(DTypeName("uint8"), (0,), ()),
            ]
        ),
        "func": lambda: st.sampled_from(["f", "", "no"]).map(FuncValue),
    }
    return options[kind]()


@st.composite
def attrs(draw: st.DrawFn, name: str) -> Attr:
    kind = AttrKind(draw(st.sampled_from(KINDS)))
    one = scalar(kind.element)
    allowed = None
    if kind.element in ("string", "type") and draw(st.booleans()):
        allowed = tuple(draw(st.lists(one, min_size=1, max_size=4, unique=True)))
        one = st.sampled_from(allowed)
    value = st.lists(one, max_size=3).map(tuple) if kind.is_list else one
    default = draw(st.one_of(st.none(), value))
    minimum = draw(st.integers(0, 1)) if kind.is_list else None
    if kind == "int" and draw(st.booleans()):
        minimum = default if default is not None else 0
    return Attr(name, kind, default, allowed, minimum, draw(prose))


@st.composite
def args(draw: st.DrawFn, name: str, known: list[Attr]) -> Arg:
    def among(kind: str) -> list[str]:
        return [attr.name for attr in known if attr.kind == kind]

    arg = Arg(
        name,
        is_ref=draw(st.booleans()),
        doc=draw(prose),
        shape=draw(st.sampled_from(SHAPES)),
    )
    if among("list(type)") and draw(st.booleans()):
        several = draw(st.sampled_from(among("list(type)")))
        return dataclasses.replace(arg, type_list_attr=several)
    if among("int") and draw(st.booleans()):
        arg = dataclasses.replace(arg, count=draw(st.sampled_from(among("int"))))
    if among("type") and draw(st.booleans()):
        variable = draw(st.sampled_from(among("type")))
        return dataclasses.replace(arg, type_attr=variable)
    return dataclasses.replace(arg, dtype=draw(dtypes))


@st.composite
def truncated(
    draw: st.DrawFn, inputs: tuple[Arg, ...], attrs: list[Attr]
) -> tuple[tuple[str, DTypeName], ...]:
    inferred = {name for arg in inputs for name in arg.attrs_used}
    plain = [arg.name for arg in inputs if not arg.is_list and not arg.is_ref]
    plain += [a.name for a in attrs if a.kind == "int" and a.name not in inferred]
    chosen = draw(st.lists(st.sampled_from(plain), unique=True)) if plain else []
    dtype = st.sampled_from([*BOUNDS]).map(DTypeName)
    return tuple((name, draw(dtype)) for name in chosen)


# What any argument of any op may have.
SHAPES = [
    None,
    "scalar",
    "3 _",
    "... 2*3",
    "dims(2) 4",
    "*(dims(2) if 1 < 2 else dims(3))",
]
EXAMPLES = [None, ">>> 1", ">>> '''\\'''\n'\\\\'", '>>> """quotes"""\n...  # {{ x }}']
OP_NAMES = [
    "A",
    "If",
    "Not",
    "Any",
    "Iterator",
    "Unpack",
    "Print",
    "Int",
    "List",
    "Type",
    "Np",
    "Context",
    "Execute",
    "Property",
    "Addons>Op",
    "X>Y>Z2D",
    "T",
    "V",
    "MatMul",
    "Lambda",
    "None_",
    "LazyPackage",
    "Annotations",
    "Default",
    "Range",
    "Exceptions",
]


@st.composite
def valid_ops(draw: st.DrawFn) -> Op:
    attr_names = draw(st.lists(st.sampled_from(ODD_ATTRS), max_size=7, unique=True))
    known = [draw(attrs(name)) for name in attr_names]
    free = [name for name in ODD_NAMES if name not in attr_names]
    inputs = draw(st.lists(st.sampled_from(free), max_size=4, unique=True))
    free = [name for name in free if name not in inputs]
    outputs = draw(st.lists(st.sampled_from(free), max_size=3, unique=True))
    found = tuple(draw(args(name, known)) for name in inputs)
    deprecation = st.builds(Deprecation, st.integers(1, 99), texts, st.none())
    return Op(
        name=draw(st.sampled_from(OP_NAMES)),
        group="nn",
        inputs=found,
        outputs=tuple(draw(args(name, known)) for name in outputs),
        attrs=tuple(known),
        is_stateful=draw(st.booleans()),
        deprecation=draw(st.one_of(st.none(), deprecation)),
        summary=draw(prose),
        description=draw(prose),
        example=draw(st.sampled_from(EXAMPLES)),
        unchecked=draw(prose),
        truncated=draw(truncated(found, known)),
        source="opdefs/nn/Fuzzed.yaml",
    )


@pytest.mark.rotating
@fuzz
@given(valid_ops())
def test_valid_ops_survive_yaml_and_generate_python(op: Op) -> None:
    assume(not list(naming.clashes(op)))
    path = load.op_path(Path("opdefs"), op.group, op.name)
    text = dump.dump(op).encode()
    assert load.load_text(text, path) == (op, []), text.decode()
    import_generated(op)


@pytest.mark.rotating
@fuzz
@given(spoiled_nodes())
def test_spoiled_ops_that_stay_valid_generate_python(
    spoiled: tuple[bytes, Path],
) -> None:
    op = check(*spoiled)
    assume(op is not None)
    assert op is not None
    import_generated(op)
