"""The notation of shapes: what it means in Python, and what is no notation."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from opwright_codegen import load, shapes
from opwright_codegen.model import Op
from opwright_notation.evaluation import values_used
from support.grouped import check_each, every_opdef_by_group
from support.places import OPDEFS

OPDEF = """
op: Odd
group: nn
inputs:
  - {name: a, type: T}
  - {name: b, type: float}
  - {name: size, type: int32}
  - {name: parts, type: T, count: N}
  - {name: handle, type: resource}
outputs:
  - {name: y, type: T}
  - {name: ys, types: Ts}
attrs:
  - {name: T, type: type}
  - {name: N, type: int}
  - {name: Ts, type: list(type)}
  - {name: block, type: int}
  - {name: shape, type: shape}
  - {name: shapes, type: list(shape)}
options:
  - {name: flip, type: bool, default: false}
  - {name: format, type: string, default: NHWC, allowed: [NHWC, NCHW]}
  - {name: strides, type: list(int), default: []}
"""


def op(**given: str) -> Op:
    found, problems = load.load_text(OPDEF.encode(), Path("opdefs/nn/Odd.yaml"))
    assert found is not None, problems
    return dataclasses.replace(
        found,
        inputs=tuple(
            dataclasses.replace(arg, shape=given.get(arg.name)) for arg in found.inputs
        ),
        outputs=tuple(
            dataclasses.replace(arg, shape=given.get(arg.name)) for arg in found.outputs
        ),
    )


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("scalar", "()"),
        ("3", "(3,)"),
        ("n", "(n,)"),
        ("*batch m n", "(*batch, m, n)"),
        ("... n", "(..., n)"),
        ("_ 2", "(_, 2)"),
        ("n+1 2*n n//2 -n+9", "(n + 1, 2 * n, n // 2, -n + 9)"),
        ("m n if not flip else n m", "(m, n) if not flip else (n, m)"),
        (
            'n c if format == "NCHW" else scalar if flip else n',
            "(n, c) if format == 'NCHW' else () if flip else (n,)",
        ),
        ("scalar | n", "either((), (n,))"),
        ("*x where len(x) >= 1", "where((*x,), len(x) >= 1)"),
        (
            "*x n*block where n > 1 and not flip",
            "where((*x, n * block), n > 1 and (not flip))",
        ),
        ("n strides[0] *shape *shapes[0]", "(n, strides[0], *shape, *shapes[0])"),
        ("insert(x, block, 1) n", "(*insert(x, block, 1), n)"),
        ("*x[1:] max(n, 2)", "(*x[1:], max(n, 2))"),
        ("n*(1 if flip else 2)", "(n * (1 if flip else 2),)"),
        ("len(shapes) *(x if flip else y)", "(len(shapes), *(x if flip else y))"),
        ("*size size[0]", "(*size, size[0])"),
        ("window(n, 3, strides[0], format)", "(window(n, 3, strides[0], format),)"),
    ],
)
def test_read_shape_gives_expression(shape: str, expected: str) -> None:
    found, problems = shapes.read(op(a=shape))
    assert problems == []
    assert found.inputs == {"a": expected}


def test_read_list_indexes_give_indexed_symbols() -> None:
    found, problems = shapes.read(
        op(parts="n[i] *x[i] r", y="sum(n) r", ys="*shapes[i] *x[i]")
    )
    assert problems == []
    assert found.inputs == {"parts": "(n[i], *x[i], r)"}
    assert found.outputs == {"y": "(sum(n), r)", "ys": "(*shapes[i], *x[i])"}
    symbols = found.symbols.values()
    assert {one.name: (one.kind.name, one.indexed) for one in symbols} == {
        "n": ("SIZE", True),
        "x": ("ROW", True),
        "r": ("SIZE", False),
    }


def test_read_names_are_sizes_attrs_or_values() -> None:
    found, _ = shapes.read(op(a="a *rest", size="2", y="a size[0] block _found *rest"))
    assert set(found.symbols) == {"a", "rest", "_found"}
    assert found.attrs == {"block"}
    assert found.values == {"size"}


def test_read_input_named_in_own_shape_is_no_value() -> None:
    found, _ = shapes.read(op(size="*size", y="*size"))
    assert found.values == frozenset() and set(found.symbols) == {"size"}


@pytest.mark.rotating
@every_opdef_by_group()
def test_values_used_of_every_op_equals_read(names: list[str]) -> None:
    def check(name: str) -> None:
        (path,) = OPDEFS.glob(f"*/{name}.yaml")
        found, problems = load.load_text(path.read_bytes(), path)
        assert found is not None, problems
        read, _ = shapes.read(found)
        inputs = [arg.name for arg in found.inputs]
        assert values_used({**read.inputs, **read.outputs}, inputs) == read.values

    check_each(names, check)


def test_read_condition_adds_no_size() -> None:
    found, problems = shapes.read(op(size="scalar where size > 1", y="size"))
    assert problems == [] and found.values == {"size"}


def test_read_handle_shape_gives_of() -> None:
    found, problems = shapes.read(op(handle="scalar of *v", a="*v"))
    assert problems == []
    assert found.inputs["handle"] == "of((), (*v,))"


@pytest.mark.parametrize(
    ("shape", "offset", "words"),
    [
        ("[m, n]", 0, "'[m, n]' has no meaning in a shape; write 'm n'"),
        ("(*x, n)", 0, "has no meaning in a shape; write '*x n'"),
        ("()", 0, "'()' has no meaning in a shape; write 'scalar'"),
        ("n []", 2, "'[]' has no meaning in a shape; write 'scalar'"),
        ("m n)", 3, "closes nothing"),
        ("m (n", 2, "not closed"),
        ("m +", 2, "no expression"),
        ("if flip else n", 0, "no sizes before 'if'"),
        ("n if flip", 2, "wants an 'else'"),
        ("n where", 2, "a condition must follow"),
        ("n where n > 1 else m", 14, "stands where the shape should end"),
        ("x *x", 3, "is a size, not a row of sizes"),
        ("*x x", 3, "put a * before it"),
        ("n shape", 2, "put a * before it"),
        ("n b", 2, "values of that input, which are no sizes"),
        ("n flip", 2, "not a size"),
        ("n spread(n)", 2, "calls no function of: len, sum"),
        ("insert(x, 1)", 0, "takes 3 arguments, not 2"),
        ("n[i]", 0, "this is no list"),
        ("n i", 2, "this is no list"),
        ("_n", 0, "only sizes of outputs"),
        ("n of m", 2, "'of' is for handles"),
        ("n.size", 0, "no meaning"),
        ("n where m > 1", 8, "stands in conditions only"),
        ("block[0]", 0, "has no parts"),
        ("n where n is 3", 8, "no meaning"),
        ("n/2", 0, "no meaning"),
    ],
)
def test_read_bad_shape_is_one_problem(shape: str, offset: int, words: str) -> None:
    _, problems = shapes.read(op(a=shape))
    assert [(one.arg, one.offset) for one in problems] == [("a", offset)]
    assert words in problems[0].message


def test_read_output_with_new_size_is_problem() -> None:
    _, (problem,) = shapes.read(op(a="rows *rest", y="row"))
    assert problem.arg == "y"
    assert "did you mean 'rows'?); a size that values decide is '_' or '_row'" in (
        problem.message
    )


@pytest.mark.parametrize(
    ("written", "line", "column"),
    [
        ("shape: m spread(m)", 5, 14),
        ("shape: 'm spread(m)'", 5, 15),
        ("shape: >-\n      m\n      spread(m)", 5, 12),
    ],
)
def test_load_text_shape_problem_has_line_and_column(
    written: str, line: int, column: int
) -> None:
    text = f"op: Odd\ngroup: nn\ninputs:\n  - name: a\n    {written}\n    type: float\n"
    _, (problem,) = load.load_text(text.encode(), Path("opdefs/nn/Odd.yaml"))
    assert (problem.line, problem.column) == (line, column)
    assert "'shape' of 'a': 'spread(m)' calls no function" in problem.message


def test_load_text_unquoted_star_asks_for_quotes() -> None:
    text = "op: Odd\ngroup: nn\ninputs:\n  - {name: a, type: float, shape: *x}\n"
    _, (problem,) = load.load_text(text.encode(), Path("opdefs/nn/Odd.yaml"))
    assert "put a text that begins with * in quotes" in problem.message


INPUT = """\
inputs:
  - {name: n, type: int64}
  - {name: l, type: int64, count: N}
attrs:
  - {name: N, type: int}
"""


@pytest.mark.parametrize(
    ("body", "where", "words"),
    [
        ("example: print(1)\n", "3:10", "must start with '>>> '"),
        ("example: |-\n  >>> 1\n\n  >>> 2\n", "3:10", "has an empty line"),
        ("check_with: {n: [1]}\n", "3:13", "names 'n', no input or attr"),
        ("check_with: {n: 1}\n", "3:17", "must be a list"),
        ("unchecked: ''\n", "3:12", "is empty"),
        ("truncated: {n: int32}\n", "3:12", "names 'n', no input or int"),
        ("truncated: {n: integer}\n", "3:16", "'integer', which is no dtype"),
        (
            f"truncated: {{n: float}}\n{INPUT}",
            "3:12",
            "with float; give int32",
        ),
        (f"truncated: {{N: int32}}\n{INPUT}", "3:12", "no input or int that callers"),
        (f"truncated: {{l: int32}}\n{INPUT}", "3:12", "a list or a reference"),
    ],
)
def test_load_text_bad_check_key_is_problem(body: str, where: str, words: str) -> None:
    text = f"op: Odd\ngroup: nn\n{body}"
    _, problems = load.load_text(text.encode(), Path("opdefs/nn/Odd.yaml"))
    assert f"{problems[0].line}:{problems[0].column}" == where
    assert words in problems[0].message
