"""Shapes of opdefs in C++: what a shape function says, what is left open, and why."""

from __future__ import annotations

from pathlib import Path

import pytest

from opwright_codegen import cxx_shapes, load
from opwright_codegen.model import Op

HEAD = """\
op: Foo
group: audio
inputs:
  - {{name: x, type: float, shape: {x}}}
  - {{name: n, type: int32, shape: scalar}}
  - {{name: many, type: float, count: N, shape: '{many}'}}
outputs:
  - {{name: y, type: float, shape: {y}}}
attrs:
  - {{name: N, type: int, minimum: 1}}
options:
  - {{name: k, type: int, default: 2}}
  - {{name: flip, type: bool, default: false}}
  - {{name: mode, type: string, default: a, allowed: [a, b]}}
  - {{name: sized, type: shape, default: []}}
"""


def op(x: str = "a b", y: str = "a b", many: str = "_") -> Op:
    text = HEAD.format(x=f"'{x}'", y=f"'{y}'", many=many)
    found, problems = load.load_text(text.encode(), Path("audio/Foo.yaml"))
    assert found is not None, problems
    return found


@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ("a b", 'opdef::Named("a"), opdef::Named("b")'),
        ("scalar", ""),
        ("a 3 _", 'opdef::Named("a"), opdef::Is(3), opdef::Any()'),
        ("...", "opdef::AnyRow()"),
        ("_found b", 'opdef::Any(), opdef::Named("b")'),
        (
            "k k+a",
            "opdef::Is(opdef::Given(attrs.k)), "
            'opdef::Is(opdef::Add(attrs.k, names.size("a")))',
        ),
        (
            "ceildiv(a,2) max(a,b)",
            'opdef::Is(opdef::DivideUp(names.size("a"), 2)), '
            'opdef::Is(opdef::Most(names.size("a"), names.size("b")))',
        ),
        ("*sized", "opdef::Are(opdef::Row(attrs.sized))"),
        (
            "a*(2 if flip else 1)",
            'opdef::Is(opdef::Multiply(names.size("a"), (attrs.flip ? 2 : 1)))',
        ),
    ],
)
def test_translate_integer_input_of_sizes_makes_a_row(shape: str, parts: str) -> None:
    found, open_ = cxx_shapes.translated(op(y=shape))
    assert found["y"].parts == f"opdef::Shape{{{parts}}}"
    assert open_ == {}


def test_translate_rows_gives_slices() -> None:
    made = op(x="*x a", y="*x[1:] len(x) prod(x)")
    found, _ = cxx_shapes.translated(made)
    assert found["x"].parts == 'opdef::Shape{opdef::RowNamed("x"), opdef::Named("a")}'
    x = 'names.row("x")'
    assert found["y"].parts == (
        f"opdef::Shape{{opdef::Are(opdef::Slice({x}, 1, {x}.length())), "
        f"opdef::Is({x}.length()), opdef::Is(opdef::Product({x}))}}"
    )


def test_translate_input_named_in_its_own_shape_makes_a_row() -> None:
    text = HEAD.format(x="a b", y="'*n'", many="_").replace("scalar", "'*n'")
    found, problems = load.load_text(text.encode(), Path("audio/Foo.yaml"))
    assert found is not None, problems
    shapes, open_ = cxx_shapes.translated(found)
    for arg in ("n", "y"):
        assert shapes[arg].parts == 'opdef::Shape{opdef::RowNamed("n")}'
    assert open_ == {}


@pytest.mark.parametrize(
    ("shape", "test"),
    [
        ("a b if flip else b a", "attrs.flip"),
        ("a b if not flip else b a", "!(attrs.flip)"),
        ('a b if mode == "a" else b a', 'attrs.mode == "a"'),
        ('a b if mode in ("a", "b") and k > 1 else b a', None),
    ],
)
def test_translate_attr_condition_gives_choice(shape: str, test: str | None) -> None:
    found, _ = cxx_shapes.translated(op(y=shape.replace("'", "''")))
    test = test or '((attrs.mode == "a" || attrs.mode == "b")) && (attrs.k > 1)'
    first, _, rest = found["y"].parts.partition(" ? ")
    assert first == test
    assert rest.count("opdef::Shape{") == 2


def test_translate_condition_makes_a_choice() -> None:
    found, _ = cxx_shapes.translated(op(x="*x where len(x) >= 1", y="*x"))
    assert found["x"].where == (
        'opdef::Known(names.row("x").length()) && !(names.row("x").length() >= 1)'
    )


@pytest.mark.parametrize(
    ("shapes", "arg", "why"),
    [
        ({"x": "a | a b", "y": "..."}, "x", "one of several forms"),
        ({"y": "n a"}, "y", "it depends on the values of n"),
        ({"y": "dims(n)"}, "y", "it depends on the values of n"),
        ({"many": "m[i]", "y": "sum(m)"}, "many", "each tensor of a list has its own"),
        ({"x": "*x", "y": "squeeze(x, x)"}, "y", "has no form in C++"),
    ],
)
def test_translate_untranslatable_shape_stays_open(
    shapes: dict[str, str], arg: str, why: str
) -> None:
    found, open_ = cxx_shapes.translated(op(**shapes))
    assert arg not in found
    assert why in open_[arg]


def test_names_that_cxx_keeps() -> None:
    assert cxx_shapes.member("default") == "default_"
    assert cxx_shapes.member("gain") == "gain"


def test_text_is_escaped() -> None:
    assert cxx_shapes.text('a"\\\n?é') == '"a\\"\\\\\\012\\077\\303\\251"'
