"""The functions of the extension module do what the functions of Python do."""

from __future__ import annotations

import gc
import subprocess
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import BuiltinFunctionType
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from opwright import Scope
from opwright.dtypes import cast
from opwright.linalg import MatMul
from opwright.math import AddV2, add_v2
from opwright_runtime._binding import fast_path, narrowing, properties
from opwright_runtime._binding.op import new
from opwright_runtime._binding.options import merging
from opwright_runtime._internals import execute

pytestmark = pytest.mark.skipif(
    not Path(sysconfig.get_path("include"), "Python.h").exists(),
    reason="the headers of Python are missing",
)

LARGE = tf.zeros((2**31, 0, 2**31))
RAGGED = [tf.ones(2), tf.ones((3, 1))]
VALUES: dict[str, Any] = {
    "scalar": tf.constant(3),
    "matrix": tf.ones((2, 3)),
    "empty": tf.ones((4, 0)),
    "large and empty": LARGE,
    "text": tf.constant(["a", "b"]),
    "handle": tf.raw_ops.AnonymousSeedGenerator(seed=1, seed2=2, reshuffle=True)[0],
    "int": 7,
    "float": 1.5,
    "None": None,
    "str": "abc",
    "array": np.ones((2, 2)),
    "NumPy scalar": np.float32(3),
    "variable": tf.Variable([1.0, 2.0]),
    "list": [1, 2, 3],
    "nested": [[1], [2]],
    "empty list": [],
    "tuple of tensors": tuple(RAGGED),
    "list of tensors": RAGGED,
    "list of some": [tf.ones(1), 3],
    "subclass of list": type("Odd", (list,), {})(RAGGED),
    "generator": (one for one in RAGGED),
    "dict": {"a": 1},
}
#: The dtypes that the functions of the extension module read.
NUMBERS = [
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
]
CONTENTS: dict[str, Any] = {
    **{
        f"{dtype} of {name}": tf.cast(tf.constant(numbers, tf.float64), dtype)
        for dtype in [*NUMBERS, "half", "bfloat16", "bool", "complex64"]
        for name, numbers in {
            "one": 7,
            "one in a matrix": [[7]],
            "few": [3, 1, 2],
            "a matrix": [[5, 6], [7, 4]],
            "none": [],
            "no rows": np.zeros((0, 3)),
            "many": np.arange(1024) % 100,
            "too many": np.arange(1025) % 100,
        }.items()
    },
    **{
        f"extremes of {dtype.__name__}": tf.constant(
            [np.iinfo(dtype).max, np.iinfo(dtype).min], dtype
        )
        for dtype in (np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64)
    },
    "nan first": tf.constant([np.nan, 1.0]),
    "nan in the middle": tf.constant([1.0, np.nan, 2.0], tf.float64),
    "one nan": tf.constant(np.nan),
    "inf": tf.constant([1.0, np.inf]),
    "both infinities": tf.constant([-np.inf, np.inf]),
    "one inf": tf.constant(-np.inf, tf.float64),
    "large floats": tf.constant([3e38, 3e38]),
    "small floats": tf.constant([1e-45, -1e-45]),
    "list with a bool": [True, 2],
    "list of bools": [True, False],
    "list with a float": [1, 2.5],
    "list of large": [2**64, 1],
    "list and large": [3, -(2**70)],
    "list of equal": [258, 258],
    "tuple": (3, -1, 7),
    "empty tuple": (),
    "nested tuple": ((1, 2), (3,)),
    "list of NumPy": [np.int64(3), np.int64(4)],
    "quantized": tf.quantization.quantize([1.0], 0, 2, tf.qint8)[0],
}
READERS: dict[str, Callable[[Any], Any]] = {
    "value_of": properties.value_of,
    "contents_of": properties.contents_of,
    "last_of": properties.last_of,
    "least_of": properties.least_of,
    "most_of": properties.most_of,
    "all_finite": properties.all_finite,
    "is_nan_free": properties.is_nan_free,
}
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "all_tensors": narrowing.all_tensors,
    "tensors_of": properties.tensors_of,
    "elements_of": properties.elements_of,
    "rank_of": properties.rank_of,
    "sizes_of": properties.sizes_of,
    "is_eager": fast_path.is_eager,
    "can_broadcast": fast_path.can_broadcast,
}


def python(function: Any) -> Callable[..., Any]:
    """The function of Python that a native function stands for."""
    found: Callable[..., Any] = function.__self__
    assert found is not function
    return found


def outcome(function: Callable[..., Any], *values: Any) -> Any:
    try:
        return function(*values)
    except Exception as error:
        return type(error), str(error)


def test_extension_is_used() -> None:
    assert fast_path.is_native


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_native_function_equals_that_of_python(name: str, value: str) -> None:
    function, given = FUNCTIONS[name], VALUES[value]
    expected = outcome(python(function), given)
    found = outcome(function, given)
    assert found == expected and type(found) is type(expected)


@pytest.mark.filterwarnings("ignore:Casting complex")
# NumPy has no array that is as large and empty.
@pytest.mark.parametrize("value", sorted({*VALUES, *CONTENTS} - {"large and empty"}))
@pytest.mark.parametrize("name", READERS)
def test_native_reader_equals_that_of_python(name: str, value: str) -> None:
    function, given = READERS[name], {**VALUES, **CONTENTS}[value]
    expected = outcome(python(function), given)
    found = outcome(function, given)
    # `repr` tells nan from nan, -0.0 from 0.0, and 1.0 from 1.
    assert repr(found) == repr(expected)


def test_readers_know_all_numbers_without_python() -> None:
    """So the test above compares more than Python with itself."""
    for name, function in READERS.items():
        asked: list[Any] = []
        apart = fast_path._EXTENSION.native(name, asked.append, "")  # type: ignore[union-attr]
        for dtype in NUMBERS:
            apart(CONTENTS[f"{dtype} of one"])
        expected = 2 if name == "contents_of" else 0  # Floats are no contents.
        assert len(asked) == expected, name
        assert type(function) is BuiltinFunctionType


def test_functions_wait_without_the_gil() -> None:
    """Another thread computes the tensor, in Python."""
    code = """
import time
import tensorflow as tf
from tensorflow.python.eager import context
from opwright_runtime._binding.properties import (
    contents_of, elements_of, have_ranks, rank_of, sizes_of, value_of
)

def slow():
    time.sleep(0.3)
    return 7

context.context().execution_mode = context.ASYNC
for function in (value_of, contents_of, elements_of, rank_of, sizes_of):
    print(function(tf.py_function(slow, [], tf.int32)))
print(have_ranks((0,), tf.py_function(slow, [], tf.int32)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["7", "(7,)", "1", "0", "()", "True"], done.stderr


@pytest.mark.parametrize(
    "ranks", [(), (2,), (2, 1), (1, 2), (2, 1, 0), [2, 1], ("a", 1)]
)
def test_have_ranks_equals_that_of_python(ranks: Any) -> None:
    have_ranks = properties.have_ranks
    scalar, vector, matrix = VALUES["scalar"], tf.ones(3), VALUES["matrix"]
    for values in ([], [matrix], [matrix, vector], [matrix, vector, scalar]):
        for given in (values, [one.numpy() for one in values], [*values[:1], object()]):
            expected = outcome(python(have_ranks), ranks, *given)
            found = outcome(have_ranks, ranks, *given)
            if ranks == ("a", 1) and found != expected:
                assert found[0] is TypeError  # No generated code has such ranks.
            else:
                assert found == expected


def test_native_functions_have_both_results() -> None:
    """So the test above compares more than constants."""
    for name in ("all_tensors", "is_eager", "can_broadcast"):
        found = {outcome(FUNCTIONS[name], given) for given in VALUES.values()}
        assert {True, False} <= found, name


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], True),
        ([(2, 3), (4, 1, 1)], True),
        ([(2, 3), (0,)], False),
        ([(0,), (0,)], False),
    ],
)
def test_can_broadcast_multiplies_elements(sizes: Any, expected: bool) -> None:
    tensors = [tf.zeros(one) for one in sizes]
    assert fast_path.can_broadcast(*tensors) is expected
    assert python(fast_path.can_broadcast)(*tensors) is expected


@pytest.mark.parametrize(("count", "expected"), [(3, True), (4, False), (9, False)])
def test_can_broadcast_counts_up_to_2_63(count: int, expected: bool) -> None:
    # 2**20 bytes each: 2**60 together, 2**80, 2**180.
    tensors = [tf.zeros(2**20, tf.int8)] * count
    assert fast_path.can_broadcast(*tensors) is expected
    assert python(fast_path.can_broadcast)(*tensors) is expected


def test_is_eager_follows_the_mode_of_the_thread() -> None:
    x = tf.ones(2)
    found: list[Any] = []

    def ask() -> None:
        for function in (fast_path.is_eager, fast_path.can_broadcast):
            expected = python(function)(x)
            found.append(expected)
            assert function(x) is expected

    ask()
    with tf.Graph().as_default():
        ask()
        with tf.init_scope():
            ask()
        elsewhere = threading.Thread(target=ask)
        elsewhere.start()
        elsewhere.join()
    tf.function(ask)()
    # Both answers: outside of the graph, in it; in the other thread, in the function.
    assert found[:4] + found[-4:] == [True] * 2 + [False] * 2 + [True] * 2 + [False] * 2


def test_execute_runs_an_op_as_the_fast_path_does() -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    arguments = (x, x, "transpose_a", True, "transpose_b", False)
    ours = fast_path.execute("MatMul", None, *arguments)
    theirs = execute(context._context, "MatMul", None, *arguments)
    assert type(ours) is type(theirs)
    np.testing.assert_array_equal(ours, [[10, 14], [14, 20]])


@pytest.mark.parametrize(
    "arguments",
    [
        ("AddV2", None, tf.ones(2), tf.ones(3)),  # The op refuses it.
        ("AddV2", None, tf.ones(2), tf.constant("a")),
        ("AddV2", None, object(), tf.ones(2)),
        ("AddV2", None),
        ("No such op", None, tf.ones(2)),
        (7, None),
        (),
    ],
)
def test_execute_raises_the_errors_of_the_fast_path(arguments: Any) -> None:
    expected = outcome(execute, context._context, *arguments)
    assert isinstance(expected, tuple) and issubclass(expected[0], Exception)
    assert outcome(fast_path.execute, *arguments) == expected


def test_tapes_record_what_execute_runs() -> None:
    x = tf.Variable(3.0)
    with tf.GradientTape() as tape:
        y = add_v2(x, x)
    assert float(tape.gradient(y, x)) == 2.0


def test_new_makes_an_op_and_refuses_what_is_no_class() -> None:
    made = new(AddV2)
    assert type(made) is AddV2
    assert outcome(new, 3)[0] is TypeError  # type: ignore[arg-type]


def test_merge_keeps_what_it_is_given_alone() -> None:
    merge = merging(MatMul.Options)
    one = MatMul.Options(transpose_a=True)
    other = MatMul.Options(transpose_b=True)
    assert merge((one,)) is one
    both = merge((one, other))
    assert (both.transpose_a, both.transpose_b) == (True, True)
    assert merge(()) == MatMul.Options()
    assert merge([one]) is one
    assert outcome(merge, (3,)) == outcome(MatMul.Options.merge, (3,))


def test_calls_keep_no_reference() -> None:
    x, options = tf.ones((2, 2)), MatMul.Options(transpose_a=True)
    y = tf.ones(3)

    def call() -> None:
        add_v2(x, x)
        cast(x, tf.int32)
        MatMul.create(Scope.current(), x, x, options)
        for function in FUNCTIONS.values():
            function([x, x] if function is properties.tensors_of else x)
        outcome(add_v2, x, y)

    def counts() -> tuple[list[int], Counter[type]]:
        gc.collect()
        references = [sys.getrefcount(one) for one in (x, y, options)]
        return references, Counter(map(type, gc.get_objects()))

    call()
    before, objects = counts()
    for _ in range(200):
        call()
    after, more = counts()
    assert after == before
    grown = more - objects
    assert max(grown.values(), default=0) < 100, grown.most_common(3)


def test_function_that_the_extension_lacks_stays_one_of_python() -> None:
    def no_such_function() -> None:
        pass

    assert fast_path.native(no_such_function) is no_such_function


@pytest.mark.parametrize(
    "function",
    [*FUNCTIONS.values(), fast_path.execute, new, merging(MatMul.Options)],
    ids=lambda function: function.__name__,
)
def test_extension_has_each_function(function: Any) -> None:
    assert type(function) is BuiltinFunctionType
