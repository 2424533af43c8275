"""Conditions of opdefs: what they mean for arguments of a call, and what they say."""

from __future__ import annotations

import ast
import builtins
import math
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import (
    OpAttrError,
    OpError,
    OpInputError,
    OpMemoryError,
    OpOptionError,
    Scope,
    raw_ops,
)
from opwright.array import fill, select_v2
from opwright.data import dataset_to_tf_record, map_dataset
from opwright.image import extract_image_patches
from opwright.io import parse_example
from opwright.linalg import (
    batch_mat_mul_v2,
    batch_mat_mul_v3,
    cholesky,
    einsum,
    matrix_diag_v3,
    matrix_triangular_solve,
)
from opwright.lookup import anonymous_hash_table, initialize_table_from_dataset
from opwright.math import add_v2
from opwright.nn import Conv2D, conv2d
from opwright.ragged import (
    ragged_tensor_to_tensor,
    ragged_tensor_to_variant,
    ragged_tensor_to_variant_gradient,
)
from opwright.signal import irfft
from opwright.train import (
    resource_accumulator_apply_gradient,
    resource_apply_adadelta,
    resource_apply_adagrad,
    resource_conditional_accumulator,
)
from opwright.variables import resource_gather
from opwright_codegen import helpers, load, requirements
from opwright_notation.conditions import JOINT, Condition, parsed
from opwright_notation.evaluation import Facts
from opwright_runtime._binding import equations, memory, properties, resources, texts
from opwright_runtime._internals import ConvolutionDimensionNumbers
from support.versions import until

IMAGE = np.ones((1, 4, 4, 1), np.float32)
FILTER = np.ones((2, 2, 1, 1), np.float32)
MATRIX = np.ones((3, 1), np.float32)
STEPS = [1, 1, 1, 1]
VECTOR = np.complex64([1, 2, 3])
WIDE, HIGH = (1, 2**33, 0), (2**33, 1, 0)


def eagerly(call: Callable[[], Any]) -> Any:
    return call()


def in_function(call: Callable[[], Any]) -> Any:
    return tf.function(call, autograph=False)()


def in_graph(call: Callable[[], Any]) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(call())


WAYS = pytest.mark.parametrize("way", [eagerly, in_function, in_graph])

#: The forms of an input of rank 2, of which Conv2D takes none.
FORMS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: tf.constant(MATRIX),
    "array": lambda: MATRIX,
    "list": lambda: MATRIX.tolist(),
    "list of arrays": lambda: list(MATRIX),
    "list of tensors": lambda: tf.unstack(tf.constant(MATRIX)),
    "variable": lambda: tf.Variable(MATRIX),
    "op": lambda: fill([3, 1], tf.constant(1.0)),
}


@pytest.mark.parametrize("form", FORMS)
def test_input_of_every_form_is_checked(form: str) -> None:
    with pytest.raises(OpInputError) as caught:
        conv2d(FORMS[form](), FILTER, STEPS, "SAME")
    assert str(caught.value) == "Conv2D: input has 2 dimensions; it must have 4"
    assert caught.value.argument == "input" and caught.value.op == "Conv2D"
    assert caught.value.given == 2 and caught.value.allowed == "it must have 4"


@pytest.mark.parametrize("kind", [tuple, list, np.int64])
def test_attr_of_every_form_is_checked(kind: Callable[[list[int]], Any]) -> None:
    with pytest.raises(OpAttrError, match="strides contains 1099511627776; each elem"):
        conv2d(IMAGE, FILTER, kind([1, 2**40, 1, 1]), "SAME")


def test_option_is_checked() -> None:
    words = "dilations contains 1099511627776; each element must be less than 21474836"
    with pytest.raises(OpOptionError, match=words):
        conv2d(IMAGE, FILTER, STEPS, "SAME", dilations=[1, 2**40, 1, 1])
    with pytest.raises(OpOptionError, match=words):
        option = Conv2D.Options(dilations=[1, 2**40, 1, 1])
        Conv2D.create(Scope.current(), IMAGE, FILTER, STEPS, "SAME", option)


CALLS: dict[str, Callable[[Any], Any]] = {
    "create": lambda x: Conv2D.create(Scope.current(), x, FILTER, STEPS, "SAME"),
    "function": lambda x: conv2d(x, FILTER, STEPS, "SAME"),
    "raw op": lambda x: raw_ops.Conv2D(
        input=x, filter=FILTER, strides=STEPS, padding="SAME", dilations=None
    ),
}


@WAYS
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_is_checked_in_every_mode(
    way: Callable[[Callable[[], Any]], Any], call: Callable[[Any], Any]
) -> None:
    with pytest.raises(OpInputError, match="input has 2 dimensions; it must have 4"):
        way(lambda: call(MATRIX))


@WAYS
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_call_that_meets_conditions_runs(
    way: Callable[[Callable[[], Any]], Any], call: Callable[[Any], Any]
) -> None:
    result = np.asarray(way(lambda: tf.convert_to_tensor(call(IMAGE))))
    assert result.ravel()[:4].tolist() == [4, 4, 4, 2]


def test_refusal_is_tensorflow_error_and_can_be_pickled() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        conv2d(MATRIX, FILTER, STEPS, "SAME")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and isinstance(again, OpInputError)


@WAYS
def test_contents_of_constant_are_checked(
    way: Callable[[Callable[[], Any]], Any],
) -> None:
    words = "IRFFT: fft_length ends with 0; its last element must be at least 1"
    with pytest.raises(OpInputError, match=words):
        way(lambda: irfft(VECTOR, [0]))
    assert np.asarray(way(lambda: irfft(VECTOR, [4]))).shape == (4,)


def test_unknown_shapes_and_contents_of_graph_pass() -> None:
    @tf.function(
        input_signature=[tf.TensorSpec(None, tf.float32), tf.TensorSpec(None, tf.int32)]
    )
    def call(x: Any, length: Any) -> Any:
        irfft(VECTOR, length)
        return conv2d(x, FILTER, STEPS, "SAME")

    assert call.get_concrete_function() is not None


def test_dtype_of_variable_is_checked() -> None:
    first, second = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
    words = "ResourceApplyAdagrad: var holds float32; it must hold float64 (T)"
    gradient = np.float64([1, 2])
    for rate in (np.float64(0.1), tf.constant(0.1, tf.float64)):
        with pytest.raises(OpInputError) as caught:
            resource_apply_adagrad(first.handle, second.handle, rate, gradient)
        assert str(caught.value) == words
    resource_apply_adagrad(first.handle, second.handle, 0.1, np.float32(gradient))
    with pytest.raises(OpInputError, match=r"resource holds float32; .* int64 \(dtyp"):
        resource_gather(first.handle, [0], tf.int64)


def test_dtype_of_variable_in_function_is_checked() -> None:
    variable = tf.Variable([1.0, 2.0])
    with pytest.raises(OpInputError, match="resource holds float32; it must hold int"):
        in_function(lambda: resource_gather(variable.handle, [0], tf.int64))


def test_dtype_of_handle_without_variable_is_checked() -> None:
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2, 3], shared_name="bare")
    with pytest.raises(OpInputError, match="resource holds float32; it must hold int"):
        resource_gather(handle, [0], tf.int64)
    assert resources.held_of(handle) == (2, 3)
    unknown = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=None, shared_name="any")
    assert resources.held_of(unknown) is None
    assert resources.held_by(unknown) == "float32"


def test_shape_of_variable_is_checked() -> None:
    variable = tf.Variable([[1.0, 2.0]])
    with pytest.raises(OpError, match="batch_dims is 2; it must be less than 2"):
        resource_gather(variable.handle, [[[0]]], tf.float32, batch_dims=2)
    with pytest.raises(OpInputError, match=r"is \[1\]; it must be \[2\]"):
        resource_gather(variable.handle, [[0], [1]], tf.float32, batch_dims=1)
    found = resource_gather(variable.handle, [[1]], tf.float32, batch_dims=1)
    assert found.numpy().tolist() == [[2.0]]


def test_dtype_of_ragged_variant_is_checked() -> None:
    packed = ragged_tensor_to_variant([np.int64([0, 2, 3])], [0.1, 0.2, 0.3], True)
    splits = np.int64([0, 2, 3])
    with pytest.raises(OpInputError, match="holds float32; it must hold int64"):
        ragged_tensor_to_variant_gradient(packed, splits, [3], tf.int64)
    found = ragged_tensor_to_variant_gradient(packed, splits, [3], tf.float32)
    assert found.shape == [3]


@pytest.mark.parametrize(
    ("keys", "values", "is_taken"),
    [
        (["a"], np.int64([1]), True),
        (["a"], [1.0], False),
        ([1], np.int64([1]), False),
        ([["a", "b"]], np.int64([[1, 2]]), False),
    ],
)
def test_data_set_for_table_has_its_dtypes(
    keys: Any, values: Any, is_taken: bool
) -> None:
    table = tf.raw_ops.AnonymousHashTable(key_dtype=tf.string, value_dtype=tf.int64)
    data = tf.data.Dataset.from_tensor_slices((keys, values))
    if is_taken:
        initialize_table_from_dataset(table, data._variant_tensor)
        assert tf.raw_ops.LookupTableSizeV2(table_handle=table).numpy() == 1
        return
    with pytest.raises(OpInputError, match="and dataset do not go together"):
        initialize_table_from_dataset(table, data._variant_tensor)


@pytest.mark.parametrize(
    ("shape", "is_taken"),
    [
        ([], True),
        pytest.param([1, 1], True, marks=until("2.22")),
        ([2], False),
        ([0], False),
        ([1, 3], False),
    ],
)
def test_data_set_for_records_has_one_string_per_element(
    shape: list[int], is_taken: bool, tmp_path: Path
) -> None:
    data = tf.data.Dataset.from_tensors(tf.fill(shape, "a"))._variant_tensor
    file = str(tmp_path / "records")
    if is_taken:
        dataset_to_tf_record(data, file, "")
        assert [one.numpy() for one in tf.data.TFRecordDataset(file)] == [b"a"]
        return
    with pytest.raises(OpInputError, match="does not state"):
        dataset_to_tf_record(data, file, "")


def test_data_set_of_numbers_for_records_is_refused_by_tensorflow(
    tmp_path: Path,
) -> None:
    data = tf.data.Dataset.range(2)._variant_tensor
    with pytest.raises(OpError, match="only supports DT_STRING"):
        dataset_to_tf_record(data, str(tmp_path / "records"), "")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dtype_of_accumulator_is_checked(dtype: str) -> None:
    sums = tf.raw_ops.ResourceConditionalAccumulator(
        dtype=dtype, shape=[2], shared_name=f"sums of {dtype}"
    )
    assert resources.held_by(sums) == dtype
    with pytest.raises(OpInputError, match=f"handle holds {dtype}; it must hold int32"):
        resource_accumulator_apply_gradient(sums, 5, np.int32([1, 2]))
    resource_accumulator_apply_gradient(sums, 5, tf.constant([1, 2], dtype))
    taken = tf.raw_ops.ResourceAccumulatorTakeGradient(
        handle=sums, num_required=1, dtype=dtype
    )
    assert taken.numpy().tolist() == [1, 2]


@pytest.mark.parametrize("size", [0, 1, 3])
def test_step_with_variable_of_other_shape_is_refused(size: int) -> None:
    first, second = tf.Variable([1.0, 2.0]), tf.Variable([0.0, 0.0])
    other = tf.Variable(tf.zeros([size]))
    numbers = {"lr": 1.0, "rho": 0.9, "epsilon": 0.1, "grad": [1.0, 2.0]}
    with pytest.raises(OpInputError, match=f"is {size}; it must be 2"):
        resource_apply_adadelta(first.handle, second.handle, other.handle, **numbers)
    same = tf.Variable(tf.zeros([2, 1]))
    resource_apply_adadelta(first.handle, second.handle, same.handle, **numbers)
    assert first.numpy().tolist() != [1.0, 2.0]


def test_last_tensor_of_list_is_named() -> None:
    splits = np.int64([0, 2, 9])
    with pytest.raises(OpInputError) as caught:
        ragged_tensor_to_tensor(
            np.int64([-1, -1]), [1.0, 2.0], 0.0, [splits], ["ROW_SPLITS"]
        )
    words = "row_partition_tensors[-1] ends with 9; its last element must be at most 2"
    assert words in str(caught.value)
    assert caught.value.argument == "row_partition_tensors[-1]"


def test_each_tensor_of_list_is_checked() -> None:
    arguments = {"serialized": [b""], "names": [], "sparse_keys": []}
    arguments |= {"dense_keys": ["a", ["b", "c"]], "dense_defaults": [1.0, 1.0]}
    with pytest.raises(OpInputError) as caught:
        parse_example(**arguments, sparse_types=[], dense_shapes=[[], []])
    words = "ParseExample: dense_keys[1] has 2 elements; it must have 1"
    assert str(caught.value) == words
    assert caught.value.argument == "dense_keys[1]"


def test_result_larger_than_memory_is_refused() -> None:
    with pytest.raises(tf.errors.ResourceExhaustedError) as caught:
        fill([2**20, 2**20], tf.constant(1.0))
    assert isinstance(caught.value, OpMemoryError)
    words = str(caught.value)
    assert words.startswith("Fill: its result takes 4096.0 GiB, and ")
    assert words.endswith("OPWRIGHT_MAX_OUTPUT_BYTES sets another limit")


def test_result_larger_than_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "SMALL", 0)
    monkeypatch.setattr(memory, "limit", lambda: 100)
    assert fill([5, 5], tf.constant(1.0)).shape == (5, 5)
    with pytest.raises(OpMemoryError, match="its result takes"):
        fill([5, 6], tf.constant(1.0))
    with pytest.raises(OpMemoryError):  # A string is a size, a capacity, and a pointer.
        fill([5], tf.constant("a"))


def test_graph_takes_result_larger_than_memory() -> None:
    graph = tf.function(lambda: fill([2**20, 2**20], 1.0)).get_concrete_function()
    assert graph.output_shapes == (2**20, 2**20)


def test_batches_without_memory_for_their_product_are_refused() -> None:
    for product in (batch_mat_mul_v2, partial(batch_mat_mul_v3, Tout=tf.float32)):
        assert product(tf.ones([2, 1, 3, 0]), tf.ones([5, 0, 2])).shape == (2, 5, 3, 2)
        # It has as many batches as the second stack, and no elements.
        many = product(tf.zeros([1, 2**40, 3, 0]), tf.zeros([2**40, 0, 0]))
        assert many.shape == (1, 2**40, 3, 0)
        for x, y in (([1, 3, 0], [2**40, 0, 3]), ([2**40, 0], [0, 2**40])):
            with pytest.raises(OpMemoryError, match="its result takes"):
                product(tf.zeros(x), tf.zeros(y))


def test_batches_of_empty_matrices_are_solved_as_far_as_they_fit() -> None:
    few, many = tf.zeros([3, 0, 0]), tf.zeros([2**40, 0, 0])
    assert cholesky(few).shape == (3, 0, 0)
    with pytest.raises(OpInputError, match="must be at most 1073741824"):
        cholesky(many)
    assert matrix_triangular_solve(few, tf.zeros([1, 0, 2])).shape == (3, 0, 2)
    with pytest.raises(OpMemoryError, match="its result takes"):
        matrix_triangular_solve(tf.ones([1, 1, 1]), tf.zeros([2**40, 1, 0]))
    x, y = tf.zeros([2**33, 1, 0, 2, 2]), tf.zeros([1, 2**33, 0, 2, 2])
    for product in (matrix_triangular_solve, batch_mat_mul_v2):
        with pytest.raises(OpInputError, match="it must be less than 9223372036854"):
            product(x, y)


def test_empty_vectors_are_refused_as_vectors() -> None:
    for call in (batch_mat_mul_v2, matrix_triangular_solve):
        with pytest.raises(OpError, match="has 1 dimension, not 2 or more"):
            call(tf.zeros([0]), tf.zeros([0]))


def test_batches_that_do_not_broadcast_are_refused_by_tensorflow() -> None:
    with pytest.raises(OpError, match="compatible batch dimensions"):
        batch_mat_mul_v2(tf.ones([2, 3, 4]), tf.ones([3, 4, 2]))


@pytest.mark.parametrize(
    "call", [add_v2, lambda x, y: select_v2(x == 0.0, y, 1.0), partial(select_v2, True)]
)
def test_shapes_whose_sizes_together_are_too_large_are_refused(
    call: Callable[[Any, Any], Any],
) -> None:
    wide, high = tf.zeros(WIDE), tf.zeros(HIGH)
    assert call(wide, wide).shape == WIDE
    for x, y in ((wide, high), (high, wide)):
        with pytest.raises(OpInputError, match="the product of the sizes of broadcast"):
            call(x, y)
        with opwright.checked():
            function = tf.function(call, input_signature=[tf.TensorSpec(None)] * 2)
            graph = function.get_concrete_function()
        assert graph(x, x).shape == x.shape
        with pytest.raises(tf.errors.InvalidArgumentError, match="must hold"):
            graph(x, y)


def test_shapes_that_do_not_broadcast_are_refused_as_such() -> None:
    high, others = tf.zeros(HIGH), tf.zeros([3, 2**33, 0])
    with pytest.raises(OpError, match=r"[Ii]ncompatible|broadcast") as caught:
        add_v2(high, others)
    assert "product" not in str(caught.value)
    with opwright.checked():
        function = tf.function(add_v2, input_signature=[tf.TensorSpec(None)] * 2)
        graph = function.get_concrete_function()
    with pytest.raises(tf.errors.InvalidArgumentError, match="Incompatible shapes"):
        graph(high, others)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(2, 1), (5,)], (2, 5)),
        ([(), (3,), (4, 1, 1)], (4, 1, 3)),
        ([(0, 1), (1, 7)], (0, 7)),
        ([(1,), (0,)], (0,)),
        ([(4, 2, 0), (3, 1, 0)], ()),
    ],
)
def test_broadcast_of_shapes_is_theirs_together(
    rows: list[tuple[int, ...]], expected: tuple[int, ...]
) -> None:
    assert properties.broadcast_of(*rows) == expected
    assert properties.broadcast_of(*reversed(rows)) == expected


def test_free_memory_is_that_of_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    monkeypatch.setattr(memory, "_MEMORY", tmp_path / "meminfo")
    assert memory.free() == math.inf
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   4096 kB\n")
    assert memory.free() == 4096 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("2000\n")
    assert memory.free() == 4096 * 1024
    (tmp_path / "memory.max").write_text("3000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 500\n")
    assert memory.free() == 1500


@pytest.mark.parametrize("text", ["many", "-1", "1.5"])
def test_bad_limit_warns(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(memory.VARIABLE, text)
    with pytest.warns(UserWarning, match="must be a number of bytes, not "):
        assert memory._given() is None
    monkeypatch.setenv(memory.VARIABLE, "1000")
    assert memory._given() == 1000


# Conditions mean the same in generated code and where they are explained.

OPDEF = """
op: Odd
group: nn
requires: ['{}']
inputs:
  - {{name: x, type: T}}
  - {{name: y, type: float}}
  - {{name: n, type: int64}}
  - {{name: parts, type: float, count: N}}
attrs:
  - {{name: T, type: type}}
  - {{name: N, type: int}}
  - {{name: block, type: int}}
options:
  - {{name: rate, type: float, default: 1.0}}
  - {{name: format, type: string, default: A}}
  - {{name: steps, type: list(int), default: []}}
"""
CONDITIONS = [
    "rank(x, y) == 2",
    "elements(x) == 1",
    "shape(x) == shape(y)",
    "shape(x)[-1] == block",
    "shape(x)[1:] == shape(y)[1:]",
    "elements(n) == 1 and value(n) >= 2",
    "least(n) >= 0 and most(n) < block",
    "contents(n)[0] > 1 or elements(n) == 0",
    "finite(y)",
    "elements(y) == 1 and -1e6 <= value(y) * 2 - 1 <= 1.5",
    "last(n) + 1 < 3",
    "memory(T, last(n), shape(x)[1:], steps(y, y, y)) and rank(x) == 0",
    "len(remove(shape(x), contents(n))) == 1",
    "prod(broadcast(shape(x), shape(y)[1:], shape(parts[0]))) < 2",
    "extent(shape(x)) < 2 or extent(contents(n)) == 2",
    "extent(broadcast(shape(x), shape(y))) < 2",
    "elements(parts[-1]) > 1 or rank(parts) == 1",
    "rising(n)",
    "permutation(n)",
    "batched(n, block)",
    "distinct(y, block)",
    "nan_free(y)",
    "spans(n, block) or block == 2",
    "rank(parts) == 1",
    "rank(parts[-1]) == 1 and len(parts) < 3",
    "rank(x, y, n) == 1",
    "shape(x, y, n) == shape(parts[0])",
    "shape(x)[0] == 1 and shape(x)[-1] <= block",
    "last(n) >= 1 and prod(contents(n)) < 9 and memory(T, contents(n))",
    "len(parts) == N and N < 3",
    'format == "A" or len(steps) == 2',
    "least(steps) >= 1 and most(steps) < 2**31",
    'rank(x) == (2 if format == "A" else 1)',
    "finite(rate) and 0 < rate <= block",
    "prod(contents(n)) % block == 0",
    "sum(steps) + max(block, 1) * 2 - min(block, 3) // 2 < 6",
    'T == "float32" and dtype(n) == "int64" and block == 1',
    "not (block > 1)",
]
TENSORS = [1.0, [1.0], [[1.0, 2.0]], np.zeros((0, 2)), [[math.nan], [math.inf]]]
NUMBERS = [3, [0], [2, 1], [0, 1, 2], [2, 2, 3], [], [-1, 5], [1, 0]]
ATTRS: list[dict[str, Any]] = [
    {"block": 1, "rate": 1.0, "format": "A", "steps": (1, 1)},
    {"block": 2, "rate": math.nan, "format": "B", "steps": (1, 2**40)},
    {"block": 3, "rate": 4.0, "format": "B", "steps": (0,)},
]


def generated(condition: str) -> Callable[..., bool]:
    """The function of generated code for a condition."""
    text = OPDEF.format(condition.replace("'", "''"))
    op, problems = load.load_text(text.encode(), Path("opdefs/nn/Odd.yaml"))
    assert op is not None, problems
    found = requirements.in_python(op)
    code = compile(found.condition, condition, "eval")
    names = vars(properties) | vars(resources) | {"__builtins__": builtins}

    def holds(**arguments: Any) -> bool:
        try:
            return bool(eval(code, names, arguments))
        except Exception:
            return False

    return holds


def explained(condition: str, arguments: dict[str, Any]) -> bool:
    inputs = {name: arguments[name] for name in ("x", "y", "n", "parts")}
    lengths = dict.fromkeys(inputs) | {"parts": len(inputs["parts"])}
    attrs = {name: v for name, v in arguments.items() if name not in inputs}
    attrs |= {"T": inputs["x"].dtype.name, "N": len(inputs["parts"])}

    def property_of(name: str, argument: str, index: int | None, more: Any) -> object:
        if name in JOINT:
            more = [inputs[one] for one in more]
        tensor = inputs[argument] if index is None else inputs[argument][index]
        return getattr(properties, helpers.OF_FUNCTION[name])(tensor, *more)

    found = Condition(Facts(attrs), None, lengths, property_of, lambda *_: None)
    try:
        node = parsed(condition)
        parts = node.values if isinstance(node, ast.BoolOp) else [node]
        if not isinstance(getattr(node, "op", None), ast.And):
            parts = [node]
        return all(
            found.at(index).holds(part)
            for part in parts
            for index in found.positions(part)
        )
    except Exception:
        return False


@pytest.mark.parametrize("condition", CONDITIONS)
def test_generated_code_and_explanation_agree(condition: str) -> None:
    holds = generated(condition)
    outcomes = set()
    for attrs in ATTRS:
        for x in TENSORS:
            for n in NUMBERS:
                inputs = {"x": tf.constant(x, tf.float32)}
                inputs["y"] = tf.constant(x if attrs["block"] == 1 else 1.0, tf.float32)
                inputs["n"] = tf.constant(n, tf.int64)
                inputs["parts"] = [inputs["x"]] * attrs["block"]
                arguments = inputs | attrs
                found = holds(**arguments)
                assert found == explained(condition, arguments), arguments
                outcomes.add(found)
    assert outcomes == {True, False}


@pytest.mark.parametrize(
    "value",
    [3, True, 2.5, [1, 2], [[1, 2], [3, 4]], (1,), [], np.float32([[1]]), np.int64(3)],
)
def test_property_of_plain_value_is_that_of_its_tensor(value: Any) -> None:
    tensor = tf.constant(value)
    assert properties.rank_of(value) == properties.rank_of(tensor)
    assert properties.elements_of(value) == properties.elements_of(tensor)
    assert properties.sizes_of(value) == properties.sizes_of(tensor)
    for function in (properties.least_of, properties.most_of, properties.all_finite):
        assert function(value) == function(tf.cast(tensor, tf.float64))


@pytest.mark.parametrize("value", [object(), [object()], None, {1}])
def test_property_of_unknown_value_is_refused(value: Any) -> None:
    for function in (properties.rank_of, properties.value_of, properties.least_of):
        with pytest.raises(TypeError):
            function(value)


def test_are_spans_of_rows_within_size() -> None:
    def are(*rows: list[int]) -> bool:
        return properties.are_spans(tf.constant(rows, tf.int64), 5)

    assert are([9, 0, 5], [7, 2, 2]) and are([0, 3])
    assert not are([9, 0, 6]) and not are([9, 3, 2]) and not are([9, -1, 2])
    assert not are([1]) and not properties.are_spans(tf.constant([0, 1]), 5)


def test_refusal_of_a_long_text_is_short() -> None:
    lhs = tf.bitcast(np.int8([[[1, 2]]]), tf.qint8)
    rhs = tf.bitcast(tf.zeros([0, 1, 2], tf.int8), tf.qint8)
    low, high = (-128, 127), (-(2**31), 2**31 - 1)
    with pytest.raises(OpAttrError, match=r"dimension_numbers is 'x+\.{3}") as caught:
        opwright.nn.uniform_quantized_convolution(
            lhs,
            rhs,
            *(1.0, 0) * 3,
            tf.qint32,
            "VALID",
            *low,
            *low,
            *high,
            dimension_numbers="x" * 1000,
        )
    assert len(str(caught.value)) < 500


def test_products_leave_out_unknown_sizes() -> None:
    assert properties.products_of([[None, 2, 3], [], [4, 0]]) == (6, 1, 0)


def test_handle_that_is_two_accumulators_holds_no_known_dtype() -> None:
    sums = resource_conditional_accumulator(tf.float32, [2])
    assert resources.held_by(sums) == "float32"
    assert resources.held_by(tf.stack([sums, sums])) is None


def test_are_distinct_counts_rows_that_differ() -> None:
    rows = tf.constant([[0.0, 1.0], [-0.0, 1.0], [0.0, 2.0], [0.0, 1.0]])
    assert properties.are_distinct(rows, 2) and properties.are_distinct(rows, 0)
    assert not properties.are_distinct(rows, 3)
    assert not properties.are_distinct(tf.zeros([0, 2]), 1)


def test_is_batched_of_indices_within_batch() -> None:
    assert properties.is_batched(tf.constant([[0, 3], [4, 7]]), 4)
    assert not properties.is_batched(tf.constant([[0, 4], [4, 7]]), 4)
    assert not properties.is_batched(tf.constant([[0, 1], [3, 4]]), 4)
    assert properties.is_batched(tf.constant([], tf.int64), 4)


def test_steps_of_ranges_are_their_lengths() -> None:
    assert properties.steps_of(2, 11, 3) == len(range(2, 11, 3))
    assert properties.steps_of(5.0, 0.0, -2.0) == 3
    assert properties.steps_of(5, 0, 1) == 0
    for delta in (0, math.nan, math.inf):
        assert properties.steps_of(0, 5, delta) == (delta == math.inf) * 0
    several = tf.constant([0, 5, 9]), tf.constant([3, 5, 0]), tf.constant([1, 1, -3])
    assert properties.steps_of(*several) == 3 + 0 + 3


@pytest.mark.parametrize(
    ("window", "padding", "fields", "expected"),
    [
        ((2, 1, 1), (0, 0), {}, True),
        ((2, 1, 1), (-1, -4), {}, True),
        ((2, 1, 1), (-1, -5), {}, False),
        ((0, 1, 1), (0, 0), {}, False),
        ((2, 0, 1), (0, 0), {}, True),
        ((2, 1), (0, 0), {}, False),
        ((2, 1, 1), (0, 0), {"output_spatial_dimensions": [3]}, False),
        ((2, 1, 1), (0, 0), {"kernel_spatial_dimensions": [-1]}, False),
        ((2, 1, 1), (0, 0), {"input_feature_dimension": 3}, False),
    ],
)
def test_is_convolved_if_axes_fit_filter_and_padding(
    window: tuple[int, ...],
    padding: tuple[int, int],
    fields: dict[str, Any],
    expected: bool,
) -> None:
    axes: dict[str, Any] = {
        "input_spatial_dimensions": [1],
        "input_feature_dimension": 2,
        "kernel_spatial_dimensions": [0],
        "kernel_input_feature_dimension": 1,
        "kernel_output_feature_dimension": 2,
        "output_spatial_dimensions": [1],
        "output_feature_dimension": 2,
    }
    numbers = ConvolutionDimensionNumbers(**(axes | fields)).SerializeToString()
    # Three elements that are two apart take five.
    found = properties.is_convolved(
        tf.zeros([1, 3, 1]),
        tf.zeros(window),
        tf.constant([padding]),
        tf.constant([2]),
        numbers,
    )
    assert found is expected


@pytest.mark.parametrize(
    ("padding", "dilations", "expected"),
    [
        ([[-1, -2]], [], True),
        ([[-1, -3]], [], False),
        ([], [2], True),
        ([], [], True),
    ],
)
def test_is_convolved_without_sizes_takes_ones_and_no_padding(
    padding: list[list[int]], dilations: list[int], expected: bool
) -> None:
    """Without features the window is empty, so that all sizes are read."""
    numbers = ConvolutionDimensionNumbers(
        input_spatial_dimensions=[1], input_feature_dimension=2
    ).SerializeToString()
    found = properties.is_convolved(
        tf.zeros([1, 3, 1]),
        tf.zeros([2, 0, 1]),
        tf.constant(padding, tf.int32),
        tf.constant(dilations, tf.int32),
        numbers,
    )
    assert found is expected


#: Descriptions of slices that end TensorFlow's process.
ENDING = (
    "-1 -",
    "4 -4 0,1:0,1",
    "4294967296 4294967296 0,1:0,1",
    "1 " * 255 + ":".join(["-"] * 255),
)
#: Descriptions that TensorFlow takes, or refuses with an error.
OTHER = (
    "",
    "4 0,1",
    "4 2 0,3:-",
    "0 -",
    "4 0,-1",
    "4 -2,1",
    "4611686018427387904 0,1",
    "1 " * 254 + ":".join(["-"] * 254),
    "-",
    "four 0,1",
    "4",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [(one, False) for one in ENDING] + [(one, True) for one in OTHER],
)
def test_are_slices_unless_sizes_are_not_those_of_a_tensor(
    text: str, expected: bool
) -> None:
    for value in (text, tf.constant(text), ["", text], tf.constant([["", text]])):
        assert texts.are_slices(value) is expected
    with tf.Graph().as_default() as graph:
        described = tf.compat.v1.placeholder(tf.string)
        found = texts.are_slices_in_graph(described)
        with tf.compat.v1.Session(graph=graph) as session:
            for row in (text, ["", text]):
                assert session.run(found, {described: row}) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([[2, 3]], True),
        ([[2, 3], [0, 5]], True),
        ([[]], True),
        ([[2, 3], [-1, 2]], False),
        ([[2**62, 2**62]], False),
        ([[2**62]], True),
        ([[2**62], [1]], False),
        ([[1] * 253], True),
        ([[1] * 254], False),
    ],
)
def test_sparse_tensors_stack_unless_sizes_are_not_those_of_a_tensor(
    rows: list[list[int]], expected: bool
) -> None:
    sizes = [tf.io.serialize_tensor(tf.constant(row, tf.int64)) for row in rows]
    stack = tf.stack([[one, one, one] for one in sizes])
    for value in (stack, stack.numpy(), stack.numpy().tolist()):
        assert texts.are_stackable(value) is expected
    assert texts.are_stackable(["-1", "-1", "no tensor"])
    with tf.Graph().as_default():
        assert texts.are_stackable(stack.numpy()) is expected


def test_graph_checks_sparse_tensors_when_it_runs() -> None:
    @tf.function(input_signature=[tf.TensorSpec(None, tf.string)], autograph=False)
    def read(serialized: tf.Tensor) -> tf.Tensor:
        with opwright.checked():
            found = opwright.raw_ops.DeserializeManySparse(
                serialized_sparse=serialized, dtype=tf.float32
            )
        return found.sparse_shape

    def one(*sizes: int) -> tf.Tensor:
        parts = (np.int64([[0] * len(sizes)]), np.float32([1]), np.int64(sizes))
        return tf.stack([[tf.io.serialize_tensor(part) for part in parts]])

    assert read(one(2, 3)).numpy().tolist() == [1, 2, 3]
    with pytest.raises(tf.errors.InvalidArgumentError, match="stackable"):
        read(one(-1, 3))


def test_several_handles_of_an_accumulator_are_refused() -> None:
    one = opwright.train.resource_conditional_accumulator(tf.float32, [2])
    with pytest.raises(OpInputError, match="handle has 2 elements; it must have 1"):
        opwright.train.resource_accumulator_num_accumulated(tf.stack([one, one]))
    with tf.Graph().as_default() as graph:
        one = opwright.train.resource_conditional_accumulator(tf.float32, [2])
        number = opwright.train.resource_accumulator_num_accumulated(one)
        with tf.compat.v1.Session(graph=graph) as session:
            assert session.run(number) == 0


def test_are_named_unless_a_text_is_empty() -> None:
    for names, expected in (("a", True), (["a", "b"], True), (["a", ""], False)):
        assert texts.are_named(names) is expected
        assert texts.are_named(tf.constant(names)) is expected
        assert texts.are_named_in_graph(tf.constant(names)).numpy() == expected
    assert texts.are_named(tf.constant([], tf.string))


def test_table_of_several_handles_is_the_first() -> None:
    make = anonymous_hash_table
    table = make(tf.string, tf.int64)
    pairs = tf.data.Dataset.from_tensors(("a", np.int64(1)))
    floats = tf.data.Dataset.from_tensors(("a", 1.0))
    handles = tf.stack([table, make(tf.int64, tf.int64)])
    assert resources.are_pairs(handles, pairs._variant_tensor)
    assert not resources.are_pairs(handles, floats._variant_tensor)


def test_padded_of_adds_paddings_to_shape() -> None:
    assert properties.padded_of(np.ones((2, 3)), [[1, 2], [0, 4]]) == (5, 7)
    with pytest.raises(TypeError):
        properties.padded_of(np.ones((2, 3)), [[1, 2]])


def test_results_and_parameters_of_function_are_counted() -> None:
    scalar = tf.TensorSpec([])
    captured = tf.Variable(1.0)
    function = tf.function(lambda x: (x, captured, 2)).get_concrete_function(scalar)
    assert properties.results_of(function) == 3
    assert properties.parameters_of(function) == 2
    for count in (properties.results_of, properties.parameters_of):
        with pytest.raises(TypeError):
            count("name")


def test_function_by_its_name_is_counted() -> None:
    function = tf.function(lambda: tf.constant(1, tf.int64)).get_concrete_function()
    function.add_to_graph()
    for f in (function, function.name.decode()):
        with pytest.raises(OpError, match=r"parameters\(f\) is 0"):
            map_dataset(
                tf.data.Dataset.range(2)._variant_tensor,
                [np.int64(1)],
                f=f,
                output_types=[tf.int64],
                output_shapes=[[]],
            )


def test_least_of_list_with_nan_is_nan() -> None:
    for value in ([1.0, math.nan], [1, math.nan], np.float32([1, math.nan])):
        assert math.isnan(properties.least_of(value))


@pytest.mark.parametrize(
    "dtype", ["int8", "uint64", "int32", "float16", "bfloat16", "float32", "bool"]
)
@pytest.mark.parametrize("shape", [[], [1], [1, 1]])
def test_properties_of_one_element_are_numbers_of_python(
    dtype: str, shape: list[int]
) -> None:
    tensor = tf.cast(tf.ones(shape), dtype)
    for function in (properties.value_of, properties.least_of, properties.most_of):
        found = function(tensor)
        assert found == 1
        assert type(found) in (int, float, bool), function


@pytest.mark.parametrize("shape", [[], [0], [3], [33], [2, 3], [2, 0]])
def test_extremes_and_contents_are_those_of_numpy(shape: list[int]) -> None:
    array = np.arange(7, 7 + np.prod(shape, dtype=int), dtype="int32").reshape(shape)
    tensor = tf.constant(array)
    assert properties.contents_of(tensor) == tuple(array.ravel().tolist())
    assert properties.least_of(tensor) == (array.min() if array.size else math.inf)
    assert properties.most_of(tensor) == (array.max() if array.size else -math.inf)


@WAYS
def test_attr_below_its_minimum_is_named_before_a_condition(
    way: Callable[[Callable[[], Any]], Any],
) -> None:
    """`strides` breaks a condition, and `ksizes` is too short."""
    with pytest.raises(OpAttrError) as caught:
        way(
            lambda: extract_image_patches(
                IMAGE, [1, 1, 1], [2**21, 1, 1, 1], STEPS, "SAME"
            )
        )
    words = "ExtractImagePatches: ksizes must be at least 4 elements, not "
    assert str(caught.value).startswith(words)


#: A reference for each property of all elements.
REFERENCES: dict[str, Callable[[Any], Any]] = {
    "all_finite": lambda x: np.isfinite(x).all(),
    "is_nan_free": lambda x: not np.isnan(x).any(),
    "is_rising": lambda x: (np.diff(x.ravel()) >= 0).all(),
    "least_of": np.min,
    "most_of": np.max,
}
ROWS: list[list[float]] = [
    [1.0],
    [1.0, 1.0, 2.0],
    [2.0, 1.0],
    [1.0, math.nan, 0.0],
    [math.inf, -math.inf],
    [math.inf, 1.0],
    [1e308, 1e308],
    [-1e308, -1e308, 1.0],
]


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("times", [1, 40])
def test_property_of_few_numbers_is_that_of_many(name: str, times: int) -> None:
    for row in ROWS:
        for array in (
            np.array(row * times),
            np.array([row * times]),
            np.float64(row[0]),
        ):
            found = getattr(properties, name)(tf.constant(array, tf.float64))
            expected = REFERENCES[name](array)
            assert found == expected or (found != found and expected != expected), array


@pytest.mark.parametrize("times", [1, 40])
def test_is_permutation_and_rising_of_integers_are_exact(times: int) -> None:
    numbers = np.arange(3 * times)
    for change in (0, 1):
        numbers[0] += change
        tensor = tf.constant(numbers)
        assert properties.is_permutation(tensor) is not bool(change)
        assert properties.is_rising(tensor)
    assert not properties.is_rising(tf.constant(numbers[::-1].copy()))


@pytest.mark.parametrize("count", [2, 40])
def test_spans_and_batches_of_few_rows_are_those_of_many(count: int) -> None:
    spans = np.tile([9, 1, 5], (count, 1))
    indices = np.arange(count * 4).reshape(count, 4)
    assert properties.are_spans(tf.constant(spans), 5)
    assert properties.is_batched(tf.constant(indices), 4)
    for at, wrong in ((1, -1), (1, 6), (2, 6)):
        bad = spans.copy()
        bad[-1, at] = wrong
        assert not properties.are_spans(tf.constant(bad), 5)
    for wrong in (count * 4, (count - 1) * 4 - 1):
        bad = indices.copy()
        bad[-1, 0] = wrong
        assert not properties.is_batched(tf.constant(bad), 4)


@pytest.mark.parametrize("count", [2, 40])
@pytest.mark.parametrize("step", [1.0, 0.5, -1.0])
def test_steps_of_few_ranges_are_those_of_many(count: int, step: float) -> None:
    starts = [0.0] * count
    found = properties.steps_of(
        tf.constant(starts), tf.constant([3.0] * count), tf.constant(step)
    )
    assert found == count * len(np.arange(0.0, 3.0, step))


def test_steps_of_ranges_without_end_are_more_than_memory() -> None:
    starts, ends = tf.constant([0.0, 0.0]), tf.constant([math.inf, 1.0])
    assert properties.steps_of(starts, ends, tf.constant(1.0)) >= 2**62


BANDS = [
    ([1, 2], 0, -1, -1),
    ([1, 2], 1, -1, -1),
    ([1, 2], -1, 5, -1),
    ([1, 2], [-1], -1, 4),
    ([[1, 2], [3, 4]], [-1, 0], -1, -1),
    ([[[1, 2, 3], [3, 4, 5]]] * 2, [0, 1], 3, 5),
    ([[1, 2], [3, 4]], [2, 2], -1, -1),
    ([[1, 2]], -2, -1, -1),
]


@pytest.mark.parametrize(("diagonal", "k", "rows", "columns"), BANDS)
def test_banded_of_is_shape_that_tensorflow_makes(
    diagonal: Any, k: Any, rows: int, columns: int
) -> None:
    inputs = [tf.constant(one) for one in (diagonal, k, rows, columns)]
    made = tf.raw_ops.MatrixDiagV3(
        diagonal=inputs[0], k=k, num_rows=rows, num_cols=columns, padding_value=0
    )
    assert properties.banded_of(*inputs) == tuple(made.shape)


def test_matrices_larger_than_memory_are_refused() -> None:
    for diagonal, k, rows in (([1], -(2**24), -1), ([1], 2**24, -1), ([1], 0, 2**30)):
        with pytest.raises(OpMemoryError):
            matrix_diag_v3(diagonal, k, rows, 2**24 if rows > 0 else -1, 0)


EQUATIONS = [
    ("ij,jk->ik", [2, 3], [3, 4]),
    ("i,j->ij", [2], [3]),
    ("ij->ji", [2, 3]),
    ("ii->i", [3, 3]),
    ("i->iii", [2]),
    ("ij->iij", [2, 0]),
    ("ij->", [2, 3]),
    (",->", [], []),
    ("bij,bjk->kbi", [2, 3, 4], [2, 4, 5]),
    ("...ij,...jk->...ik", [2, 1, 3, 4], [5, 4, 2]),
    ("i...,j...->ij...", [2, 3, 1], [4, 1, 5]),
    ("i...j->j...", [2, 3, 4, 5]),
    ("...->...", [2, 3]),
    ("ij->i...j", [2, 3]),
    ("\u00e9->\u00e9", [2, 3]),
    (b"\xff\xfe->\xfe\xff", [2, 3]),
    ("i.->i.", [2, 3]),
]


@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EQUATIONS])
def test_einsum_of_is_shape_that_tensorflow_makes(
    equation: str | bytes, shapes: list[list[int]]
) -> None:
    inputs = [tf.zeros(shape) for shape in shapes]
    made = tf.raw_ops.Einsum(inputs=inputs, equation=equation)
    assert equations.are_subscripts(equation)
    assert equations.einsum_of(inputs, equation) == tuple(made.shape)
    assert einsum([np.zeros(shape) for shape in shapes], equation).shape == made.shape


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij", [[2, 3]]),
        ("a,b,c->a", [[2], [2], [2]]),
        ("ij,jk->ik", [[2, 3]]),
        ("ij->ij", [[2]]),
        ("...ij->ij", [[2]]),
        ("...i->i", [[2, 2]]),
        ("...i,...i->...i", [[2, 3, 4], [2, 5, 4]]),
        ("ij,jk->ik", [[2, 3], [4, 5]]),
    ],
)
def test_einsum_that_does_not_fit_is_refused_by_tensorflow(
    equation: str, shapes: list[list[int]]
) -> None:
    with pytest.raises(OpError) as caught:
        einsum([tf.zeros(shape) for shape in shapes], equation)
    assert isinstance(caught.value.__cause__, tf.errors.OpError)


@WAYS
@pytest.mark.parametrize(
    "equation",
    ["ij->kij", "...->......", "......->...", "i...j...->...", "ij->" + "i" * 255],
)
def test_equation_that_ends_the_kernel_is_refused(
    way: Callable[[Callable[[], Any]], Any], equation: str
) -> None:
    with pytest.raises(OpAttrError) as caught:
        way(lambda: einsum([tf.ones([2, 3])], equation))
    shown = f"{equation!r}" if len(equation) < 60 else f"'{equation[:56]}..."
    words = f"Einsum: equation is {shown}; each term must have at most one"
    assert str(caught.value).startswith(words)
    assert caught.value.argument == "equation" and caught.value.given == equation


def test_condition_that_must_not_hold_is_named_without_its_not() -> None:
    words = "upper_band_limit > sample_rate holds; it must not"
    with pytest.raises(OpError, match=words):
        opwright.audio.audio_microfrontend(np.zeros(480, "h"), upper_band_limit=1e38)


def test_einsum_of_too_many_axes_is_refused() -> None:
    words = r"len\(einsum\(inputs, equation\)\) is 300; it must be at most 254"
    with pytest.raises(OpInputError, match=words):
        einsum([tf.ones([1] * 101)], "...i->..." + "i" * 200)


def test_einsum_larger_than_an_int64_is_refused() -> None:
    for way in (eagerly, in_function):
        with pytest.raises(OpInputError, match=f"that are not 0 is {2**72}; it must"):
            way(lambda: einsum([tf.zeros([2**18, 0])], "ij->iiiij"))


def test_einsum_larger_than_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_LIMIT", 10**9)
    monkeypatch.setattr(memory, "SMALL", 0)
    vector, empty = tf.ones([2**15]), tf.zeros([2**28, 0])
    wide, high = tf.zeros([2**13, 1, 0]), tf.zeros([2**13, 0])
    for equation, *inputs in (
        ("i,j->ij", vector, vector),
        ("i->ii", vector),
        ("ij,ik->", empty, empty),
        ("...i,...i->...", wide, high),
    ):
        with pytest.raises(OpMemoryError, match="its result takes"):
            einsum(inputs, equation)
    assert einsum([empty], "ij->").numpy() == 0
    assert einsum([vector, vector], "i,i->").numpy() == 2**15


def test_einsum_without_memory_for_pairs_of_matrices_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_LIMIT", 16 * 12)
    monkeypatch.setattr(memory, "SMALL", 0)
    alone, high, wide = (tf.zeros([*one, 0, 2]) for one in ([13], [12, 1], [13, 1]))
    equation = "...ij,...j->...i"
    assert einsum([alone, tf.zeros([13, 2])], equation).shape == (13, 0)
    assert einsum([high, tf.zeros([1, 2])], equation).shape == (12, 1, 0)
    with pytest.raises(OpMemoryError):
        einsum([wide, tf.zeros([1, 2])], equation)


def test_einsum_of_too_many_matrices_is_refused() -> None:
    words = (
        r"batches\(inputs, equation\) is 2147483648; it must be less than 2147483648"
    )
    inputs = [tf.zeros([2**31, 0, 0]), tf.zeros([2**31, 0])]
    for equation in ("bij,bj->bi", "...ij,...j->...i"):
        with pytest.raises(OpInputError, match=words):
            einsum(inputs, equation)
    small = [tf.zeros([2**20, 0, 0]), tf.zeros([2**20, 0])]
    assert einsum(small, "bij,bj->bi").shape == (2**20, 0)
