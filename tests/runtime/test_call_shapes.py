"""What shapes say of a call: what fits, what comes out, what is refused how."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpInputError
from opwright.linalg import mat_mul
from opwright_notation.evaluation import Facts, Tensor, values_used
from opwright_notation.sizes import MisfitError
from opwright_runtime._binding.matching import MismatchError, match
from support.notation import fits, held, shapes

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
        ("where((n,), x == y)", {"n": 1, "x": (None, 2), "y": (3, 2)}, (1,)),
        ("where((n,), n < mode)", {"n": 1, "Mode": "same"}, (1,)),
        ("where((n,), n in m)", {"n": 1, "m": 1}, (1,)),
        ("(*squeeze(x, at),)", {"x": (1, 2), "at_v": None}, ANY),
        ("(*permute(x, at),)", {"x": (1, 2), "At": (0, None)}, (None, None)),
        ("(*tile(x, at),)", {"x": (1, 2), "At": (None, 3)}, (None, None)),
        ("(*pad(x, at),)", {"x": (1, 2), "at_v": (1, 0)}, (None, None)),
        ("(*reshape(x, at),)", {"x": (4, 6), "At": (None, 3)}, (8, 3)),
        ("(*remove(x, at[1:]),)", {"x": (4, 6), "at_v": (0, -1)}, (4,)),
    ],
)  # fmt: skip
def test_shapes_expression_gives_sizes(
    text: str, known: dict[str, Any], expected: object
) -> None:
    assert shapes(text, facts(**known)) == [expected]


def test_shapes_open_condition_gives_both_forms() -> None:
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
        ("(*permute(x, at),)", {"x": (2, 3), "at_v": (2, 1)}),
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
def test_fits_row_gives_expected(actual: Any, row: Any, expected: bool) -> None:
    assert fits(actual, row) is expected


MAT_MUL = {
    "a": "(m, k) if not flip else (k, m)",
    "b": "(k, n)",
}


def given(**sizes: tuple[int | None, ...]) -> list[Tensor]:
    return [Tensor(name, name, row) for name, row in sizes.items()]


def test_match_binds_sizes() -> None:
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


def test_match_either_takes_fitting_form() -> None:
    known = Facts()
    match({"a": "either((), (n,))"}, given(a=(4,)), known)
    assert known.sizes == {"n": 4}


@pytest.mark.parametrize(
    ("expected", "sizes", "message"),
    [
        (MAT_MUL, {"a": (2, 4), "b": (3, 5)}, "b has 3 rows, a has 4 columns (k)"),
        (MAT_MUL, {"a": (2,), "b": (3, 5)}, "a has 1 dimension, not 2"),
        ({"a": "(3,)"}, {"a": (1,)}, "a has 1 element, not 3"),
        (
            {"a": "(*x, n)", "b": "(2 * n,)"},
            {"a": (1, 1, 4), "b": (7,)},
            "b has 7 elements, not the 8 that follow from a",
        ),
        (
            {"a": "(1, m, n)", "b": "(m, n)"},
            {"a": (1, 2, 3), "b": (2, 2)},
            "b has 2 columns, a has size 3 at axis 2 (n)",
        ),
        (
            {"a": "either((), (n,))"},
            {"a": (2, 2)},
            "a has 2 dimensions, not 0 or 1",
        ),
        ({"a": "(2 * n,)"}, {"a": (3,)}, "a has 3 elements, not a multiple of 2"),
        (
            {"a": "(2 * n + 1,)"},
            {"a": (4,)},
            "a has 4 elements, not a multiple of 2 and 1",
        ),
        ({"a": "(n + 2,)"}, {"a": (1,)}, "a has 1 element, not 2 or more"),
        ({"a": "(*x, m, n)"}, {"a": (1,)}, "a has 1 dimension, not 2 or more"),
        ({"a": "()"}, {"a": (2,)}, "a has 1 dimension; it must be a scalar"),
        (
            {"a": "(*x,)", "b": "(*x, ...)"},
            {"a": (2, 3), "b": (2,)},
            "b has 1 dimension, not the 2 or more that follow from a",
        ),
        (
            {"a": "(*x,)", "b": "(*x,)"},
            {"a": (2, 3), "b": ()},
            "b has no dimensions; a has 2",
        ),
        (
            {"a": "(*x,)", "b": "(*x,)"},
            {"a": (2, 3), "b": (2, 4)},
            "b has 4 columns, a has 3 columns (x)",
        ),
        (
            {"a": "(*x,)", "b": "(*x, n)"},
            {"a": (2,), "b": (2,)},
            "b has 1 dimension, not the 2 that follow from a",
        ),
        (
            {"a": "(*x,)", "b": "(*x[1:],)"},
            {"a": (5, 1), "b": (2,)},
            "b has 2 elements, not the 1 that follows from a",
        ),
        (
            {"a": "(*x,)", "b": "(*broadcast(x, x),)"},
            {"a": (5, 3), "b": (5, 2)},
            "b has 2 columns, not the 3 that follow from a",
        ),
        (
            {"a": "either((), (n, 3))", "b": "(n,)"},
            {"a": (5, 4), "b": (5,)},
            "a has 4 columns, not 3",
        ),
    ],
)
def test_match_misfit_names_sizes(
    expected: dict[str, str], sizes: dict[str, tuple[int, ...]], message: str
) -> None:
    with pytest.raises(MismatchError) as refused:
        match(expected, given(**sizes), facts(Flip=False))
    assert str(refused.value) == message


@pytest.mark.parametrize("traced", [False, True])
def test_mat_mul_bad_shapes_error_names_sizes(traced: bool) -> None:
    call: Any = tf.function(mat_mul, autograph=False) if traced else mat_mul
    with pytest.raises(OpInputError) as refused:
        call(tf.ones((2, 4)), tf.ones((3, 5)))
    error = refused.value
    assert str(error) == "MatMul: b has 3 rows, a has 4 columns (k)"
    assert error.argument == "b" and error.given == (3, 5)
    with pytest.raises(OpInputError, match=r"b has 3 rows, a has 2 rows \(k\)"):
        mat_mul(np.ones((2, 4)), np.ones((3, 5)), transpose_a=True)


@pytest.mark.parametrize(
    ("expected", "sizes"),
    [
        ({"a": "()"}, {"a": (1, 1)}),
        ({"a": "either((n, 3), (n, 4))"}, {"a": (2, 5)}),
    ],
)
def test_match_sizes_without_one_cause_names_no_tensor(
    expected: dict[str, str], sizes: dict[str, tuple[int, ...]]
) -> None:
    try:
        match(expected, given(**sizes), Facts())
    except MisfitError as error:
        assert not isinstance(error, MismatchError)


def test_match_an_attr_that_settles_a_size_names_the_argument() -> None:
    known = Facts({"N": 3}, labels={"N": "values"})
    with pytest.raises(MismatchError) as refused:
        match({"a": "(N,)"}, given(a=(2,)), known)
    assert str(refused.value) == "a has 2 elements, not the 3 that follow from values"
    assert refused.value.allowed == "3"


EITHER = {"y": "(n[i], 9)", "x": "either((k, 3), (n[i], 4))"}


def test_match_a_form_that_does_not_fit_binds_nothing() -> None:
    known = Facts()
    tensors = [
        Tensor("y", "y[0]", (2, 9), 0),
        Tensor("x", "x[1]", (5, 3), 1),
        Tensor("y", "y[1]", (7, 9), 1),
    ]
    match(EITHER, tensors, known)
    assert known.sizes == {"n": {0: 2, 1: 7}, "k": 5}


def test_match_an_empty_form_binds_no_sizes_of_the_other() -> None:
    shape = "either((rows[i], dimension[i]), (0, 0))"
    tensors = [
        Tensor(name, f"{name}[0]", sizes, 0)
        for name, sizes in (("a", (0, 0)), ("b", (3, 4)), ("c", (3, 5)))
    ]
    with pytest.raises(MismatchError, match=r"^c\[0\] has 5 columns, b\[0\] has 4"):
        match(dict.fromkeys("abc", shape), tensors, Facts())


def test_match_a_trial_leaves_origins_alone() -> None:
    known = Facts()
    match({"b": "(n,)"}, given(b=(4,)), known)
    origins = dict(known.origins)
    match({"a": "either((m, 3), (k, 4))"}, given(a=(None, None)), known)
    assert known.origins == origins


@pytest.mark.parametrize(
    ("expected", "used"),
    [
        ({"x": "(*x,)", "y": "(*broadcast(x, x),)"}, set()),
        ({"x": "(*x,)", "y": "(len(x), axis)"}, {"axis"}),
        ({"x": "where((*s,), x > 1)"}, {"x"}),
        ({"x": "(*s,) if x > 1 else ()"}, {"x"}),
        ({"x": "either((), (x,))", "y": "(x,)"}, set()),
        ({"x": "of((), (*x,))", "y": "(*x,)"}, set()),
        ({"x": "(2,)", "axis": "(*dims(x),)"}, {"x"}),
        ({"x": "(*dims(axis),)", "axis": "()"}, {"axis"}),
    ],
)
def test_values_used_takes_names_of_own_shapes_for_sizes(
    expected: dict[str, str], used: set[str]
) -> None:
    assert values_used(expected, ("x", "y", "axis")) == used


def test_mat_mul_shape_error_is_invalid_argument_error() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError):
        mat_mul(tf.ones((2, 4)), tf.ones((3, 5)))
