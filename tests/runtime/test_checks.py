"""Graphs that check the conditions of their ops when they run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import OpInputError, OpMemoryError, Scope, TFloat32, checked, load_checked
from opwright.array import concat_v2, fill, pack
from opwright.io import parse_example
from opwright.linalg import batch_mat_mul_v2, einsum, matrix_diag_v3
from opwright.math import add_v2, square
from opwright.math import sum as sum_
from opwright.nn import Conv2D, conv2d
from opwright.signal import irfft
from opwright.tensor_list import tensor_list_length, tensor_list_reserve
from opwright.train import resource_apply_keras_momentum
from opwright.variables import resource_gather
from opwright.xla import xla_conv_v2
from opwright_runtime._binding import memory
from opwright_runtime._internals import ConvolutionDimensionNumbers

IMAGE = np.ones((1, 4, 4, 1), np.float32)
FILTER = np.ones((2, 2, 1, 1), np.float32)
MATRIX = np.ones((3, 1), np.float32)
STEPS = [1, 1, 1, 1]
INDICES = np.zeros([2, 1], np.int32)
#: A handle does not keep its variable.
KEPT: list[tf.Variable] = []
SPECTRUM = np.complex64([1, 2, 3])
MUST = r"Conv2D: rank\(input\) == 4 must hold.*input has the shape.*\[3 1\]"


def traced(call: Callable[..., Any], *dtypes: tf.DType) -> Any:
    """A function whose graph checks, and does not know shapes."""
    specs = [tf.TensorSpec(None, dtype) for dtype in dtypes]
    function = tf.function(call, autograph=False)
    with checked():
        return function.get_concrete_function(*specs)


def test_checked_function_refuses_shape_when_it_runs() -> None:
    call = traced(lambda x: conv2d(x, FILTER, STEPS, "SAME"), tf.float32)
    assert call(tf.constant(IMAGE)).shape == (1, 4, 4, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=MUST):
        call(tf.constant(MATRIX))


def test_checked_function_refuses_value_when_it_runs() -> None:
    call = traced(lambda n: irfft(SPECTRUM, n), tf.int32)
    assert call(tf.constant([4])).shape == (4,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must hold"):
        call(tf.constant([0]))


def test_checked_function_shows_values_that_it_refuses() -> None:
    call = traced(lambda n: irfft(SPECTRUM, n), tf.int32)
    shown = r"fft_length has the shape\] \[1\] \[fft_length contains\] \[-7\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=shown):
        call(tf.constant([-7]))
    call = traced(lambda dims: fill(dims, 1.0), tf.int32)
    shown = r"dims contains\] \[2 2 2 2 2 2 2 2\.\.\.\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=shown):
        call(tf.constant([2] * 50))


def test_checked_function_shows_no_values_that_it_does_not_read() -> None:
    call = traced(lambda x: conv2d(x, FILTER, STEPS, "SAME"), tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match=MUST) as caught:
        call(tf.constant(MATRIX))
    assert "contains" not in str(caught.value)


def test_checked_function_refuses_size_when_it_runs() -> None:
    call = traced(lambda dims: fill(dims, 1.0), tf.int32)
    assert call(tf.constant([2, 3])).shape == (2, 3)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"memory\(T, contents"):
        call(tf.constant([2**20, 2**20]))


@pytest.mark.parametrize(
    ("k", "rows", "columns"), [(0, -1, -1), ([1], -1, -1), ([0, 1], -1, 7), (-2, 4, 5)]
)
def test_checked_matrices_refuse_size_when_they_run(
    k: Any, rows: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagonals = tf.constant([[1, 2], [3, 4]])
    inputs = (tf.constant(k), tf.constant(rows), tf.constant(columns))
    needed = 4 * int(tf.size(matrix_diag_v3(diagonals, *inputs, 0)))

    def call(*each: Any) -> Any:
        return matrix_diag_v3(*each, 0)

    for limit in (needed, needed - 1):
        monkeypatch.setattr(memory, "_LIMIT", limit)
        monkeypatch.setattr(memory, "SMALL", 0)
        function = traced(call, *[tf.int32] * 4)
        if limit < needed:
            with pytest.raises(tf.errors.InvalidArgumentError, match="banded"):
                function(diagonals, *inputs)
        else:
            assert 4 * int(tf.size(function(diagonals, *inputs))) == needed


@pytest.mark.parametrize("axes", [[1], [-2], [1, 0], [1, -3]])
def test_checked_sum_refuses_size_when_it_runs(
    axes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = tf.zeros([3, 0, 4])
    needed = 4 * empty.numpy().sum(tuple(axes)).size
    monkeypatch.setattr(memory, "SMALL", 0)
    for limit in (needed, needed - 1):
        monkeypatch.setattr(memory, "_LIMIT", limit)
        functions = [
            traced(sum_, tf.float32, tf.int32),
            traced(lambda x, unused: sum_(x, axes), tf.float32, tf.int32),
        ]
        for function in functions:
            if limit < needed:
                with pytest.raises(tf.errors.InvalidArgumentError, match="remove"):
                    function(empty, tf.constant(axes))
            else:
                assert 4 * int(tf.size(function(empty, tf.constant(axes)))) == needed


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [[2, 3], [3, 4]]),
        ("i->iii", [[2]]),
        ("bij,bjk->kbi", [[2, 3, 4], [2, 4, 5]]),
        ("...ij,...jk->...ik", [[2, 1, 3, 4], [5, 4, 2]]),
        ("i...,j...->ij...", [[2, 3, 1], [4, 1, 5]]),
    ],
)
def test_checked_einsum_refuses_size_when_it_runs(
    equation: str, shapes: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs = [tf.ones(shape) for shape in shapes]
    result = einsum(inputs, equation)
    needed = 4 * int(tf.size(result))
    monkeypatch.setattr(memory, "SMALL", 0)
    # The indices of pairs of matrices may take more memory than the result.
    for limit in (16 * needed, needed - 1):
        monkeypatch.setattr(memory, "_LIMIT", limit)
        function = traced(
            lambda *each: einsum(each, equation), *[tf.float32] * len(shapes)
        )
        if limit < needed:
            words = r"memory\(T, einsum\(inputs, equation\)\) must hold"
            with pytest.raises(tf.errors.InvalidArgumentError, match=words):
                function(*inputs)
        else:
            assert function(*inputs).numpy().tolist() == result.numpy().tolist()


def test_checked_einsum_refuses_what_its_kernel_makes() -> None:
    def function(equation: str) -> Any:
        return traced(lambda *each: einsum(each, equation), tf.float32, tf.float32)

    batches = [tf.zeros([2**31, 0, 0]), tf.zeros([2**31, 0])]
    rows = [tf.zeros([2**40, 0])] * 2
    pairs = [tf.zeros([2**30, 1, 0]), tf.zeros([2**30, 0])]
    for equation, inputs, words in (
        ("bij,bj->bi", batches, "batches"),
        ("ij,ik->", rows, "reduced"),
        ("...i,i...->...", [tf.zeros([2**20, 1, 0]), tf.zeros([0, 2**20])], "einsum"),
        ("...i,...j->...ij", pairs, "batches"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=words):
            function(equation)(*inputs)


def test_checked_product_refuses_size_of_batches_when_it_runs() -> None:
    call = traced(batch_mat_mul_v2, tf.float32, tf.float32)
    assert call(tf.ones([2, 1, 3, 4]), tf.ones([5, 4, 2])).shape == (2, 5, 3, 2)
    assert not call(tf.ones([3, 0]), tf.ones([2, 0, 2])).numpy().any()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"memory\(.*int64"):
        call(tf.zeros([1, 3, 0]), tf.zeros([2**40, 0, 3]))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"memory\(T, broadcast"):
        call(tf.zeros([2**40, 0]), tf.zeros([0, 2**40]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="batch dimensions"):
        call(tf.ones([2, 3, 4]), tf.ones([3, 4, 2]))


def moved(values: Any) -> tf.Tensor:
    """A handle that does not say what its variable has."""
    variable = tf.Variable(values)
    KEPT.append(variable)
    return tf.reshape(variable.handle, [1])


def test_checked_function_refuses_dtype_of_variable_when_it_runs() -> None:
    def applied(var: tf.Tensor, accum: tf.Tensor) -> None:
        resource_apply_keras_momentum(var, accum, 0.1, [1.0, -2.0], tf.constant(0.5))

    call = traced(applied, tf.resource, tf.resource)
    var, accum = tf.Variable([1.0, 1.0]), moved([0.0, 0.0])
    call(tf.reshape(var.handle, [1]), accum)
    np.testing.assert_allclose(var.numpy(), [0.9, 1.2], rtol=1e-6)
    with pytest.raises(tf.errors.OpError, match="Expected float got complex64"):
        call(moved(np.zeros(2, np.complex64)), accum)
    with pytest.raises(tf.errors.OpError, match="Expected float got double"):
        call(var.handle, moved(np.zeros(2)))
    np.testing.assert_allclose(var.numpy(), [0.9, 1.2], rtol=1e-6)


def test_checked_function_refuses_dtype_of_variable_after_gather() -> None:
    """The variable is in the mode in which each read copies it."""
    gathered = traced(lambda x: resource_gather(x, [1, 0], dtype=TFloat32), tf.resource)
    for values in (np.float32([1, 2]), np.ones(2)):
        handle = moved(values)
        tf.raw_ops.ResourceGather(resource=handle, indices=0, dtype=values.dtype)
        if values.dtype == np.float32:
            assert gathered(handle).numpy().tolist() == [2, 1]
            continue
        with pytest.raises(tf.errors.OpError, match="Expected float got double"):
            gathered(handle)


def test_checked_function_reads_no_variable_of_known_dtype() -> None:
    variable = tf.Variable([1.0, 2.0])
    call = traced(lambda i: resource_gather(variable.handle, i, TFloat32), tf.int32)
    assert call(tf.constant([1])).numpy().tolist() == [2]
    functions = call.graph.as_graph_def().library.function
    assert "Read" not in str([node.op for one in functions for node in one.node_def])


def test_checked_gather_of_unknown_handle_has_gradient() -> None:
    variable = tf.Variable([1.0, 2.0])
    KEPT.append(variable)
    call = traced(lambda x: resource_gather(x, [1, 1], dtype=TFloat32), tf.resource)
    with tf.GradientTape() as tape:
        tape.watch(variable.handle)
        result = call(variable.handle)
    found = tf.convert_to_tensor(tape.gradient(result, variable.handle))
    assert found.numpy().tolist() == [0, 2]


def test_checked_function_refuses_shape_of_variable_when_it_runs() -> None:
    call = traced(
        lambda x: resource_gather(x, INDICES, batch_dims=1, dtype=TFloat32), tf.resource
    )
    assert call(moved(np.ones([2, 3], "f"))).shape == (2, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"held\(resource\)"):
        call(moved(np.ones([1, 3], "f")))


def test_checked_function_refuses_size_of_computed_axis_when_it_runs() -> None:
    part = tf.zeros([2**62, 0, 1], tf.int8)
    call = traced(lambda axis: concat_v2([part, part], axis), tf.int32)
    assert call(tf.constant(1)).shape == (2**62, 0, 1)
    assert call(tf.constant(-2)).shape == (2**62, 0, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must hold"):
        call(tf.constant(0))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"range \[-3, 3\)"):
        call(tf.constant(3))


def test_checked_function_refuses_product_that_an_int64_does_not_hold() -> None:
    call = traced(lambda x: pack([x] * 4), tf.float32)
    assert call(tf.zeros([5, 0])).shape == (4, 5, 0)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must hold"):
        call(tf.zeros([2**62, 0]))


def accumulator() -> Any:
    return opwright.train.resource_conditional_accumulator(tf.float32, [2])


def test_checked_function_refuses_several_handles_when_it_runs() -> None:
    call = traced(opwright.train.resource_accumulator_num_accumulated, tf.resource)
    one = accumulator()
    assert call(one).numpy() == 0
    with pytest.raises(tf.errors.InvalidArgumentError, match="must hold"):
        call(tf.stack([one, one]))
    # Shape inference says that the op makes two handles.
    assert traced(lambda: call(accumulator()))().numpy() == 0


def test_checked_function_refuses_known_size_when_it_is_built() -> None:
    with pytest.raises(OpMemoryError, match=r"its result takes 4096\.0 GiB"):
        traced(lambda: fill([2**20, 2**20], 1.0))
    with tf.Graph().as_default():
        assert fill([2**20, 2**20], 1.0).shape == (2**20, 2**20)


def test_checked_function_takes_convolution_without_dilations() -> None:
    numbers = ConvolutionDimensionNumbers(
        input_spatial_dimensions=[1],
        input_feature_dimension=2,
        kernel_spatial_dimensions=[0],
        kernel_input_feature_dimension=1,
        kernel_output_feature_dimension=2,
        output_spatial_dimensions=[1],
        output_feature_dimension=2,
    ).SerializeToString()

    def call(x: Any, k: Any, padding: Any, dilations: Any) -> Any:
        return xla_conv_v2(
            x, k, [1], padding, dilations, [1], 1, numbers, "", opwright.TInt32
        )

    function = traced(call, *[tf.int32] * 4)
    x, k = tf.constant([[[1], [2], [3]]]), tf.constant([[[10]], [[1]]])
    none = tf.constant([], tf.int32)
    for padding, expected in (([[-1, 0]], [23]), ([[-2, 0]], []), ([[0, 0]], [12, 23])):
        made = function(x, k, tf.constant(padding), none)
        assert made.numpy().ravel().tolist() == expected
    with pytest.raises(tf.errors.InvalidArgumentError, match="convolves"):
        function(x, k, tf.constant([[-4, 0]]), none)


def test_checked_function_checks_each_tensor_of_list() -> None:
    def call(key: Any) -> Any:
        lists: dict[str, Any] = {"sparse_keys": [], "sparse_types": []}
        parsed = parse_example(
            [b""], [], dense_keys=["a", key], dense_defaults=[1.0, 2.0],
            dense_shapes=[[], []], **lists,
        )  # fmt: skip
        return parsed.dense_values

    function = traced(call, tf.string)
    assert [one.numpy().tolist() for one in function(tf.constant("b"))] == [[1], [2]]
    with pytest.raises(tf.errors.InvalidArgumentError, match="must hold"):
        function(tf.constant(["b", "c"]))


def test_checks_are_added_only_where_they_are_needed() -> None:
    def types(call: Callable[..., Any], spec: tf.TensorSpec) -> list[str]:
        with checked():
            graph = tf.function(call, autograph=False).get_concrete_function(spec).graph
        return [operation.type for operation in graph.get_operations()]

    unknown, known = tf.TensorSpec(None), tf.TensorSpec([None, 4, 4, 1])
    check = "StatefulPartitionedCall"
    assert check in types(lambda x: conv2d(x, FILTER, STEPS, "SAME"), unknown)
    assert check not in types(lambda x: conv2d(x, FILTER, STEPS, "SAME"), known)
    sizes = tf.TensorSpec([4, 4])
    assert check in types(lambda x: add_v2(x, x), unknown)
    assert check not in types(lambda x: add_v2(x, x), sizes)
    assert check not in types(square, unknown)


def test_function_without_checks_has_none() -> None:
    function = tf.function(lambda x: conv2d(x, FILTER, STEPS, "SAME"), autograph=False)
    graph = function.get_concrete_function(tf.TensorSpec(None)).graph
    types = {operation.type for operation in graph.get_operations()}
    assert "StatefulPartitionedCall" not in types


def test_checked_ends_with_its_block() -> None:
    with pytest.raises(RuntimeError), checked():
        raise RuntimeError
    test_function_without_checks_has_none()


def test_checked_eager_call_is_as_before() -> None:
    with checked():
        assert conv2d(IMAGE, FILTER, STEPS, "SAME").shape == (1, 4, 4, 1)
        with pytest.raises(OpInputError, match="input has 2 dimensions"):
            conv2d(MATRIX, FILTER, STEPS, "SAME")


def test_scope_with_checks_checks_its_ops_in_graph() -> None:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        image = tf.compat.v1.placeholder(tf.float32)
        scope = Scope.current().with_checks().with_name("filtered")
        assert scope.checked and "checked" in repr(scope)
        op = Conv2D.create(scope, image, FILTER, STEPS, "SAME")
        assert op.op.name == "filtered"
        assert session.run(op.output, {image: IMAGE}).shape == (1, 4, 4, 1)
        with pytest.raises(tf.errors.InvalidArgumentError, match="must hold"):
            session.run(op.output, {image: MATRIX})
    assert not Scope.current().checked


def test_checked_bias_is_a_vector_where_ops_are_fused() -> None:
    """The fused kernel that TensorFlow makes of both ops ends for a scalar."""

    @tf.function(input_signature=[tf.TensorSpec(None)] * 3, autograph=False)
    def biased(x: tf.Tensor, w: tf.Tensor, bias: tf.Tensor) -> tf.Tensor:
        with opwright.checked():
            product = opwright.raw_ops.MatMul(a=x, b=w)
            return opwright.raw_ops.BiasAdd(value=product, bias=bias)

    ones = tf.ones([2, 2])
    np.testing.assert_array_equal(biased(ones, ones, tf.ones([2])), 3 * ones)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"rank\(bias\) == 1"):
        biased(ones, ones, tf.ones([]))


def test_checked_function_has_gradient() -> None:
    call = traced(lambda x: conv2d(x, FILTER, STEPS, "SAME"), tf.float32)
    image = tf.constant(IMAGE)
    with tf.GradientTape() as tape:
        tape.watch(image)
        result = call(image)
    assert tape.gradient(result, image).shape == image.shape


class Model(tf.Module):
    """A model whose ops are TensorFlow's."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = tf.Variable(FILTER)

    @tf.function(input_signature=[tf.TensorSpec(None, tf.float32)])
    def filtered(self, x: Any) -> Any:
        return tf.raw_ops.Conv2D(
            input=x, filter=self.filter, strides=STEPS, padding="SAME"
        )

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int32)])
    def inverse(self, length: Any) -> Any:
        return tf.cond(
            tf.size(length) > 0,
            lambda: tf.raw_ops.IRFFT(input=SPECTRUM, fft_length=length),
            lambda: tf.zeros([1]),
        )

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32)])
    def length(self, number: Any) -> Any:
        # Of this op, a saved model leaves out a dtype that is the default.
        return tensor_list_length(tensor_list_reserve([2], number, tf.float32))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    model = Model()
    tf.saved_model.save(model, str(folder), signatures=model.filtered)
    return folder


def test_load_checked_refuses_when_it_runs(saved: Path) -> None:
    model = load_checked(saved)
    assert model.filtered(tf.constant(IMAGE)).shape == (1, 4, 4, 1)
    with pytest.raises(tf.errors.InvalidArgumentError, match=MUST):
        model.filtered(tf.constant(MATRIX))
    signature = model.signatures["serving_default"]
    with pytest.raises(tf.errors.InvalidArgumentError, match=MUST):
        signature(tf.constant(MATRIX))


def test_load_checked_refuses_in_branches_and_with_default_attrs(saved: Path) -> None:
    model = load_checked(str(saved))
    assert model.inverse(tf.constant([4])).shape == (4,)
    assert model.inverse(tf.constant([], tf.int32)).shape == (1,)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must hold"):
        model.inverse(tf.constant([0]))
    assert model.length(tf.constant(5)).numpy() == 5
    with pytest.raises(tf.errors.InvalidArgumentError, match="must hold"):
        model.length(tf.constant(2**31 - 1))


class Table(tf.Module):
    """Rows of a variable, also in a function that XLA compiles."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = tf.Variable([1.0, 2.0, 3.0])

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int32)])
    def gathered(self, indices: Any) -> Any:
        return tf.raw_ops.ResourceGather(
            resource=self.rows.handle, indices=indices, dtype=tf.float32
        )

    @tf.function(input_signature=[tf.TensorSpec([2], tf.int32)], jit_compile=True)
    def compiled(self, indices: Any) -> Any:
        return self.gathered(indices) + 1.0


def test_load_checked_gathers_again_and_in_compiled_function(tmp_path: Path) -> None:
    tf.saved_model.save(Table(), str(tmp_path))
    model = load_checked(tmp_path)
    for _ in range(2):
        assert model.gathered(tf.constant([2, 0])).numpy().tolist() == [3, 1]
        assert model.compiled(tf.constant([2, 0])).numpy().tolist() == [4, 2]


def test_checked_graph_tells_the_shape_of_a_variable() -> None:
    table = tf.Variable(tf.zeros([1] * 250))

    @tf.function(input_signature=[tf.TensorSpec(None, tf.int32)])
    def gathered(indices: Any) -> Any:
        with checked():
            return opwright.variables.resource_gather(
                table.handle, indices, dtype=tf.float32
            )

    holds = r"ResourceGather: .* must hold.*resource holds the shape\] \[1 1 "
    assert gathered(tf.zeros([1] * 4, tf.int32)).shape.rank == 253
    with pytest.raises(tf.errors.InvalidArgumentError, match=holds):
        gathered(tf.zeros([1] * 6, tf.int32))


def test_load_checked_keeps_model_and_its_files(saved: Path) -> None:
    before = {path: path.read_bytes() for path in saved.rglob("*") if path.is_file()}
    model = load_checked(saved)
    assert model.filter.numpy().tolist() == FILTER.tolist()
    after = {path: path.read_bytes() for path in saved.rglob("*") if path.is_file()}
    assert after == before


def test_load_checked_without_model_raises(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"saved_model\.pb"):
        load_checked(tmp_path)


def test_load_checked_of_other_bytes_raises(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_text("nonsense")
    with pytest.raises(OSError, match=r"saved_model\.pb is no SavedModel"):
        load_checked(tmp_path)


def test_load_checked_error_names_folder_of_model(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"The SavedModel at {saved} has one"):
        load_checked(saved, tags=["x"])
    shutil.copytree(saved, tmp_path, dirs_exist_ok=True)
    shutil.rmtree(tmp_path / "variables")
    with pytest.raises(OSError, match=f"matching files for {tmp_path}/variables"):
        load_checked(tmp_path)


def test_checked_is_public() -> None:
    assert opwright.checked is checked and opwright.load_checked is load_checked
