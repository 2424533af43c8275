"""What shapes say of a call: what fits, what comes out, what is refused how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpInputError
from opwright.linalg import mat_mul
from opwright_runtime._binding.shapes import (
    Facts,
    MisfitError,
    MismatchError,
    Tensor,
    fits,
    held,
    match,
    shapes,
)

ANY = (...,)


def facts(**known: Any) -> Facts:
    """Sizes by name; attrs begin with an upper case, values end with one."""
    return Facts(
        {name.lower(): value for name, value in known.items() if name[0].isupper()},
        {name[:-2]: value for name, value in known.items() if name.endswith("_v")},
        {
            name: value
            for name, value in known.items()
            if name[0].islower() and not name.endswith("_v")
        },
    )


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("(m, 2 * m, m // 2, _)", {"m": 5}, (5, 10, 2, None)),
        ("(*x, n)", {"x": (1, 2)}, (1, 2, None)),
        ("(*x, 3)", {}, (..., 3)),
        ("(m, n) if flag else (n, m)", {"m": 1, "n": 2, "Flag": False}, (2, 1)),
        ("(size,)", {"size_v": -1}, (None,)),
        ("(*size,)", {"size_v": (2, -1)}, (2, None)),
        ("(*size,)", {"size_v": None}, ANY),
        ("(*shape,)", {"Shape": None}, ANY),
        ("(sum(n), len(n))", {"n": {0: 2, 1: 3}}, (5, 2)),
        ("(prod(x),)", {"x": (2, 3)}, (6,)),
        ("(*broadcast(x, y),)", {"x": (2, 1), "y": (5, 1, 3)}, (5, 2, 3)),
        ("(*broadcast(x, y),)", {"x": (None, 1), "y": (3,)}, (None, 3)),
        ("(*dims(r),)", {"r": 2}, (None, None)),
        ("(*dims(r),)", {}, ANY),
        ("(*insert(x, at, 7),)", {"x": (1, 2), "at_v": -1}, (1, 2, 7)),
        ("(*insert(x, at, 7),)", {"x": (1, 2), "at_v": None}, (None, None, None)),
        ("(*replace(x, at, 7),)", {"x": (1, 2), "at_v": 0}, (7, 2)),
        ("(*remove(x, at),)", {"x": (1, 2, 3), "at_v": (0, -1)}, (2,)),
        ("(*reduce(x, at, keep),)", {"x": (4, 2), "at_v": 0, "Keep": True}, (1, 2)),
        ("(*reduce(x, at, keep),)", {"x": (4,), "at_v": None, "Keep": True}, (None,)),
        ("(*squeeze(x, at),)", {"x": (1, 2, 1), "At": ()}, (2,)),
        ("(*squeeze(x, at),)", {"x": (1, 2, 1), "At": (-1,)}, (1, 2)),
        ("(*permute(x, at),)", {"x": (1, 2, 3), "at_v": (2, 0, 1)}, (3, 1, 2)),
        ("(*pad(x, at),)", {"x": (1, 2), "at_v": ((1, 1), (0, 2))}, (3, 4)),
        ("(*tile(x, at),)", {"x": (1, 2), "at_v": (2, 3)}, (2, 6)),
        ("(*reshape(x, at),)", {"x": (4, 6), "at_v": (3, -1)}, (3, 8)),
        ("(*x[:at], *x[at + 1:])", {"x": (4, 5, 6), "at_v": 1}, (4, 6)),
        ("(window(n, k, 2, pad),)", {"n": 7, "k": 3, "Pad": "VALID"}, (3,)),
        ("(window(n, k, 2, pad),)", {"n": 7, "k": 3, "Pad": "SAME"}, (4,)),
        ("(window(n, k, 1, pad, 2),)", {"n": 7, "k": 3, "Pad": "VALID"}, (3,)),
        ("(window(n, k, 1, pad),)", {"n": 7, "k": 3, "Pad": "EXPLICIT"}, (None,)),
        ("(max(ceildiv(n, 2), 3),)", {"n": 9}, (5,)),
        ("(n * (1 if flag else 2),)", {"n": 9, "Flag": False}, (18,)),
        ("(n * (1 if flag else 2),)", {"n": 9, "Flag": None}, (None,)),
        ("(*(x if flag else y),)", {"x": (1,), "y": (2,), "Flag": False}, (2,)),
    ],
)  # fmt: skip
def test_comes_out(text: str, known: dict[str, Any], expected: object) -> None:
    assert shapes(text, facts(**known)) == [expected]


def test_what_is_open_may_be_either() -> None:
    assert shapes("either((), (n,))", facts(n=2)) == [(), (2,)]
    assert shapes("(1,) if flag else (2,)", facts(Flag=None)) == [(1,), (2,)]
    assert held("of((), (*v,))", facts(v=(2,))) == [(2,)]
    assert held("()", facts()) is None


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("(n - 3,)", {"n": 2}),
        ("(*broadcast(x, y),)", {"x": (2,), "y": (3,)}),
        ("(*insert(x, at, 1),)", {"x": (2,), "at_v": 2}),
        ("(*remove(x, at),)", {"x": (2,), "at_v": (0, 0)}),
        ("(*squeeze(x, at),)", {"x": (2,), "At": (0,)}),
        ("(*permute(x, at),)", {"x": (2, 3), "at_v": (0, 0)}),
        ("(*reshape(x, at),)", {"x": (2, 3), "at_v": (4, -1)}),
        ("(*x[3:],)", {"x": (1, 2)}),
        ("(x[2],)", {"x": (1, 2)}),
        ("(window(n, k, 1, pad),)", {"n": 2, "k": 3, "Pad": "VALID"}),
        ("where((n,), n > 3)", {"n": 2}),
    ],
)
def test_does_not_go_together(text: str, known: dict[str, Any]) -> None:
    with pytest.raises(MisfitError):
        shapes(text, facts(**known))


@pytest.mark.parametrize(
    ("actual", "row", "expected"),
    [
        ((2, None), (2, 3), True),
        ((2,), (2, 3), False),
        (ANY, (2, 3), True),
        ((1, 2, 3), (..., 3), True),
        ((1, 2, 4), (..., 3), False),
        ((1,), (2, ..., 3), False),
        ((), (..., 3), False),
    ],
)
def test_fits(actual: Any, row: Any, expected: bool) -> None:
    assert fits(actual, row) is expected


MAT_MUL = {
    "a": "(m, k) if not flip else (k, m)",
    "b": "(k, n)",
}


def given(**sizes: tuple[int | None, ...]) -> list[Tensor]:
    return [Tensor(name, name, row) for name, row in sizes.items()]


def test_binds_sizes() -> None:
    known = facts(Flip=True)
    match(MAT_MUL, given(a=(2, 3), b=(2, None)), known)
    assert known.sizes == {"k": 2, "m": 3}
    known = Facts()
    match({"a": "(*x, 2 * n + 1)"}, given(a=(4, 5, 7)), known)
    assert known.sizes == {"x": (4, 5), "n": 3}
    known = Facts()
    lists = [Tensor("p", f"p[{at}]", (at, 2), at) for at in range(3)]
    match({"p": "(n[i], r)"}, lists, known)
    assert known.sizes == {"n": {0: 0, 1: 1, 2: 2}, "r": 2}


def test_the_form_that_fits_is_taken() -> None:
    known = Facts()
    match({"a": "either((), (n,))"}, given(a=(4,)), known)
    assert known.sizes == {"n": 4}


@pytest.mark.parametrize(
    ("expected", "sizes", "message"),
    [
        (MAT_MUL, {"a": (2, 4), "b": (3, 5)}, "b has 3 rows, a has 4 columns (k)"),
        (MAT_MUL, {"a": (2,), "b": (3, 5)}, "a has 1 dimension; it must be m k"),
        ({"a": "(3,)"}, {"a": (1,)}, "a has 1 element, not 3"),
        (
            {"a": "(*x, n)", "b": "(2 * n,)"},
            {"a": (1, 1, 4), "b": (7,)},
            "b has 7 elements, not 8 (2 * n)",
        ),
        (
            {"a": "(1, m, n)", "b": "(m, n)"},
            {"a": (1, 2, 3), "b": (2, 2)},
            "b has 2 columns, a has size 3 at axis 2 (n)",
        ),
        (
            {"a": "either((), (n,))"},
            {"a": (2, 2)},
            "a has shape [2, 2]; it must be scalar or n",
        ),
        ({"a": "(2 * n,)"}, {"a": (3,)}, "a has 3 elements; it must be 2 * n"),
    ],
)
def test_says_what_does_not_fit(
    expected: dict[str, str], sizes: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(MismatchError) as refused:
        match(expected, given(**sizes), facts(Flip=False))
    assert str(refused.value) == message


@pytest.mark.parametrize("traced", [False, True])
def test_calls_are_refused_in_words_of_the_shapes(traced: bool) -> None:
    call: Any = tf.function(mat_mul, autograph=False) if traced else mat_mul
    with pytest.raises(OpInputError) as refused:
        call(tf.ones((2, 4)), tf.ones((3, 5)))
    error = refused.value
    assert str(error) == "MatMul: b has 3 rows, a has 4 columns (k)"
    assert error.argument == "b" and error.given == (3, 5)
    with pytest.raises(OpInputError, match=r"b has 3 rows, a has 2 rows \(k\)"):
        mat_mul(np.ones((2, 4)), np.ones((3, 5)), transpose_a=True)


def test_it_is_an_error_of_tensorflow_as_well() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        mat_mul(tf.ones((2, 4)), tf.ones((3, 5)))
