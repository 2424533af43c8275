"""What errors say of bent calls is true; and the judge of that notices what is not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpInputError
from opwright_runtime import errors
from support.equivalence.calls import call_tensorflow
from support.versions import until

from . import bends
from .bends import DTYPES, Bent
from .claims import false
from .diagnosis import names, tally
from .judging import filled, judged
from .supervisor import processor_time

# Ops that are called in every run, in addition to those of the seed.
ALWAYS = [
    "AddV2",
    "BiasAdd",
    "ConcatV2",
    "Cumsum",
    "FloorDiv",
    "MatMul",
    "StridedSlice",
]


@pytest.mark.rotating
def test_bent_calls_are_refused_in_true_words() -> None:
    chosen = [*names(seed=0)[:30], *ALWAYS]  # The last ones first.
    found = tally(chosen, calls=20 * len(chosen), seed=0, jobs=1, seconds=30)
    assert not found.false, "\n".join(one.words for one in found.false)
    assert found.outcomes["OpInputError"] > 0
    assert found.outcomes["OpInputError, of a number"] > 0
    assert found.outcomes["ran"] > 0
    assert {"eager", "graph"} == found.ways.keys()
    assert set(DTYPES) <= found.dtypes.keys()


def answer(bent: Bent) -> Any:
    def answered(arguments: Any) -> str | None:
        try:
            call_tensorflow(bent.op, arguments)
        except (tf.errors.OpError, TypeError, ValueError) as error:
            return str(error)
        return None

    return answered


def product(a: tuple[int, ...], b: tuple[int, ...]) -> Bent:
    given = {"a": np.ones(a, np.float32), "b": np.ones(b, np.float32)}
    fitting = {"a": np.ones((2, 3), np.float32), "b": np.ones((3, 2), np.float32)}
    return Bent("MatMul", given, fitting, "eager")


def said(words: str, argument: str = "b", **fields: Any) -> errors.OpError:
    text = f"MatMul: {words}"
    return errors.make(OpInputError, "MatMul", text, argument=argument, **fields)


@pytest.mark.parametrize(
    "words",
    [
        "b has 4 rows, a has 3 columns (k)",
        "b has 4 rows, not 3",
        "b has 4 rows, not the 3 that follow from a",
    ],
)
def test_false_true_words_pass(words: str) -> None:
    bent = product((2, 3), (4, 2))
    assert false(bent, said(words), answer(bent)) is None


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("b has 1 dimension, not 2", "does not have"),
        ("b has 5 rows, not 3", "does not have"),
        ("b has 4 rows, a has 4 columns (k)", "does not have"),
        ("b has 4 rows; it must be k n", "no known form"),
        ("b has 4 rows, not the 3 that follow from c", "no argument 'c'"),
        ("c has 4 rows, not 3", "does not have"),
    ],
)
def test_false_untrue_words_are_noticed(words: str, why: str) -> None:
    bent = product((2, 3), (4, 2))
    found = false(bent, said(words), answer(bent))
    assert found is not None
    assert why in found


def test_false_words_about_a_call_that_fits_are_noticed() -> None:
    bent = product((2, 3), (3, 2))
    found = false(bent, said("b has 3 rows, not 4"), answer(bent))
    assert found == "TensorFlow takes the call"


def test_false_words_that_change_nothing_are_noticed() -> None:
    """The value of an axis is refused, whatever the shape of `x` is."""
    given = {"x": np.int32([1, 2]), "axis": np.int32(7)}
    bent = Bent("Cumsum", given, {**given, "axis": np.int32(0)}, "eager")
    text = "Cumsum: x has 2 elements, not 1"
    error = errors.make(OpInputError, "Cumsum", text, argument="x")
    found = false(bent, error, answer(bent))
    assert found == "TensorFlow's answer does not depend on it"


def test_false_shape_that_fits_with_other_values_is_noticed() -> None:
    """Eagerly, TensorFlow reads axes of any shape. Here one is there twice."""
    given = {"input": np.ones((2, 2), bool), "reduction_indices": np.int32([[0, 0]])}
    fitting = {**given, "reduction_indices": np.int32([0, 1])}
    bent = Bent("All", given, fitting, "eager")
    text = "All: reduction_indices has 2 dimensions, not 0 or 1"
    error = errors.make(OpInputError, "All", text, argument="reduction_indices")
    found = false(bent, error, answer(bent))
    assert found == "TensorFlow takes the shape with other values"


@pytest.mark.rotating
def test_tally_goes_on_after_an_op_that_waits_for_ever() -> None:
    found = tally(["Recv", "AddV2"], calls=20, seed=0, jobs=1, seconds=300)
    assert found.deaths == {"hang": 1}
    assert found.ops == {"AddV2"}
    assert found.calls == 10


@pytest.mark.rotating
def test_processor_time_of_a_process_that_waits_for_a_processor_goes_on() -> None:
    """Two that are at work on one processor; either has half of it."""
    cpu = next(iter(os.sched_getaffinity(0)))
    code = f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
    both = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    try:
        time.sleep(1)
        before, began = processor_time(both[0].pid), time.monotonic()
        time.sleep(2)
        passed = time.monotonic() - began
        assert processor_time(both[0].pid) - before > 0.8 * passed
    finally:
        for one in both:
            one.kill()
            one.wait()


def test_false_dtypes_are_held_against_the_tensor() -> None:
    bent = product((2, 3), (3, 2))
    wrong = said("b must be int32", given=tf.int64, allowed=(tf.int32,))
    assert "is float32, not int64" in (false(bent, wrong, answer(bent)) or "")
    allowed = said("b must be float32", given=tf.float32, allowed=(tf.float32,))
    assert "which is allowed" in (false(bent, allowed, answer(bent)) or "")


def lists(**changed: Any) -> Bent:
    fitting = {
        "tensor": np.float32([10, 20]),
        "indices": np.int32([2, 0]),
        "element_shape": np.int32(-1),
        "num_elements": np.int32(4),
    }
    return Bent("TensorListScatterV2", {**fitting, **changed}, fitting, "eager")


def test_judged_rows_of_indices_are_blamed_on_no_rank() -> None:
    """TensorFlow reads indices of any rank, one for each row."""
    wrong = np.int32([-1, -1, -1])
    bent = lists(indices=np.int32([[2, 0]]), element_shape=wrong)
    kind, why, words = judged(bent)
    assert (kind, why) == ("OpInputError", None), words
    assert "element_shape" in words


@pytest.mark.parametrize("indices", [[[2], [0]], [[2, 0]]])
def test_judged_indices_of_a_matrix_run(indices: Any) -> None:
    assert judged(lists(indices=np.int32(indices))) == ("ran", None, "")


def windows(**changed: Any) -> Bent:
    fitting = {
        "orig_input": np.float32([[[[1], [5], [3], [2]], [[0], [0], [0], [9]]]]),
        "orig_output": np.float32([[[[5], [9]]]]),
        "out_backprop": np.float32([[[[10], [20]]]]),
        "row_pooling_sequence": np.int64([0, 2]),
        "col_pooling_sequence": np.int64([0, 2, 4]),
    }
    return Bent("FractionalMaxPoolGrad", {**fitting, **changed}, fitting, "eager")


@pytest.mark.parametrize(
    "changed",
    [
        # The maximum of a window is found past nan.
        {"orig_input": np.float32([[[[1], [5], [3], [np.nan]], [[0], [0], [0], [9]]]])},
        {"out_backprop": np.float32([[[[10]]]])},
    ],
)
def test_judged_windows_that_tensorflow_takes_run(changed: Any) -> None:
    assert judged(windows(**changed)) == ("ran", None, "")


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {"col_pooling_sequence": np.int64([0, 2, 4, 0])},
            "col_pooling_sequence has 4 elements; it must have at most 3",
        ),
        (
            {"col_pooling_sequence": np.int64([-1, 2, 4])},
            "col_pooling_sequence contains -1; each element must be at least 0",
        ),
    ],
)
def test_judged_windows_outside_of_memory_are_refused(changed: Any, words: str) -> None:
    """TensorFlow takes these calls, and reads or writes outside of its buffers."""
    kind, why, text = judged(windows(**changed))
    assert (kind, why) == ("OpInputError", None)
    assert words in text


def test_judged_smaller_gradients_run() -> None:
    """TensorFlow fills the rest of the image with zeros."""
    fitting = {
        "orig_input_tensor_shape": np.int64([1, 1, 3, 1]),
        "out_backprop": np.float32([[[[10], [20]]]]),
        "row_pooling_sequence": np.int64([0, 1]),
        "col_pooling_sequence": np.int64([0, 1, 3]),
    }
    for shape in ([7, 1, 3, 1], [1, 1, 3, 4]):
        given = {**fitting, "orig_input_tensor_shape": np.int64(shape)}
        bent = Bent("FractionalAvgPoolGrad", given, fitting, "eager")
        assert judged(bent) == ("ran", None, "")


def lstm(**changed: Any) -> Bent:
    x, state, none = np.ones([3, 1, 1], "f"), np.zeros([1, 1], "f"), np.zeros([1], "f")
    gates = dict.fromkeys(("i", "cs", "f", "o", "ci", "co", "h"), x)
    fitting = {
        "seq_len_max": np.int64(2),
        "x": x,
        "cs_prev": state,
        "h_prev": state,
        "w": np.ones([2, 4], "f"),
        **dict.fromkeys(("wci", "wcf", "wco"), none),
        "b": np.zeros([4], "f"),
        **gates,
        "cs_grad": x,
        "h_grad": x,
        "use_peephole": False,
    }
    return Bent("BlockLSTMGrad", {**fitting, **changed}, fitting, "eager")


@pytest.mark.parametrize("steps", [2, 6])
def test_judged_gates_of_other_steps_run(steps: int) -> None:
    assert judged(lstm(cs=np.ones([steps, 1, 1], "f"))) == ("ran", None, "")


@pytest.mark.parametrize("shape", [(3, 1, 0), (3, 1, 2), (3, 2, 1)])
def test_judged_gates_of_other_cells_are_refused(shape: tuple[int, ...]) -> None:
    """TensorFlow takes these calls, and reads or writes outside of its buffers."""
    kind, why, words = judged(lstm(ci=np.ones(shape, "f")))
    assert (kind, why) == ("OpInputError", None)
    assert "ci has size" in words


@pytest.mark.parametrize("size", [0, 2])
def test_judged_peepholes_of_other_cells_are_refused(size: int) -> None:
    """TensorFlow reads past these weights, or takes those of another unit."""
    bent = lstm(wci=np.ones([size], "f"), use_peephole=True)
    kind, why, words = judged(bent)
    assert (kind, why) == ("OpInputError", None)
    assert f"wci has size {size} at axis 0; it must be 1" in words
    assert judged(lstm(wci=np.ones([size], "f"))) == ("ran", None, "")


def test_judged_flags_for_a_scalar_run() -> None:
    """TensorFlow returns a scalar before it looks at the flags."""
    fitting = {"tensor": np.ones([2, 3], "f"), "dims": np.array([True, False])}
    given = {**fitting, "tensor": np.uint8(1)}
    assert judged(Bent("Reverse", given, fitting, "eager")) == ("ran", None, "")


def test_judged_images_of_more_dimensions_run() -> None:
    """TensorFlow reads the first four dimensions."""
    image = np.float32([1, 2, 4]).reshape(1, 1, 3, 1)
    fitting = {
        "input": image,
        "paddings": np.int32([[0, 0], [0, 0], [1, 1], [0, 0]]),
        "filter": np.ones([1, 2, 1, 1], "f"),
        "mode": "REFLECT",
        "strides": [1, 1, 1, 1],
        "padding": "VALID",
    }
    given = {**fitting, "input": image[..., None]}
    assert judged(Bent("FusedPadConv2D", given, fitting, "eager")) == ("ran", None, "")


def test_judged_ranges_of_a_matrix_run_unless_too_few() -> None:
    """TensorFlow counts the elements of a range, not its dimensions."""
    row = np.float32([[-4.0, -8.0]])
    bits = tf.constant([[[[2**30, 2**29]]]], tf.int32)
    fitting = {
        "input": tf.bitcast(bits, tf.qint32),
        "input_min": row[0],
        "input_max": -row[0],
        "requested_output_min": np.float32(0),
        "requested_output_max": np.float32(4),
    }
    given = {**fitting, "input_min": row}
    bent = Bent("RequantizePerChannel", given, fitting, "eager")
    assert judged(bent) == ("ran", None, "")
    given = {**fitting, "input_max": -row[0, :1]}
    kind, why, words = judged(Bent("RequantizePerChannel", given, fitting, "eager"))
    assert (kind, why) == ("OpInputError", None)
    assert "input_max has 1 element; it must have at least 2" in words


def test_judged_element_shape_of_a_matrix_runs() -> None:
    """TensorFlow reads the shape of an element only where none is set."""
    rows = tf.constant([[1, 2], [3, 4]])
    handle = tf.raw_ops.TensorListFromTensor(tensor=rows, element_shape=[2])
    fitting = {
        "input_handle": handle,
        "index": np.int32(1),
        "element_shape": np.int32([2]),
        "element_dtype": tf.int32,
    }
    given = {**fitting, "element_shape": np.int32([[2, 2]])}
    bent = Bent("TensorListGetItem", given, fitting, "eager")
    assert judged(bent) == ("ran", None, "")


@until("2.22")
def test_judged_axes_of_an_empty_tensor_count_as_refused() -> None:
    """TensorFlow returns an empty tensor before it looks at axes."""
    fitting = {"tensor": np.ones([2, 3], "f"), "axis": np.int32([0])}
    given = {"tensor": np.ones([2, 0], "f"), "axis": np.int32([[0, 0]])}
    bent = Bent("ReverseV2", given, fitting, "eager")
    assert judged(bent) == ("ran", None, "")


@pytest.mark.parametrize("way", ["eager", "graph"])
def test_judged_values_of_other_rows_are_not_blamed(way: str) -> None:
    """Here TensorFlow looks at the dimensions of the shape alone."""
    fitting = {
        "sparse_indices": np.int64([[0, 1]]),
        "sparse_values": np.float32([7]),
        "sparse_shape": np.int64([2, 2]),
        "out_type": tf.string,
    }
    wrong = {"sparse_values": np.float32([7, 7]), "sparse_shape": np.int64(1)}
    outcome, why, words = judged(
        Bent("SerializeSparse", {**fitting, **wrong}, fitting, way)
    )
    assert (outcome != "ran", why) == (True, None), words


def test_judged_names_of_several_tensors_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TensorFlow restores the first tensor, whatever the rank of the names."""
    monkeypatch.chdir(tmp_path)
    tf.raw_ops.Save(filename="old.ckpt", tensor_names=["b"], data=[[3]])
    fitting = {
        "file_pattern": np.array("old.ckpt", object),
        "tensor_name": np.array("b", object),
        "dt": tf.int32,
    }
    given = {**fitting, "tensor_name": np.array(["b", "b"], object)}
    assert judged(Bent("Restore", given, fitting, "eager")) == ("ran", None, "")


def test_claimed_empty_tensor_is_still_blamed_itself() -> None:
    """Both ways, `tensor` is the only empty tensor."""
    given = {"tensor": np.ones([2, 0], "f"), "axis": np.int32([0])}
    assert filled(given, "tensor") is None
    full = filled(given, "axis")
    assert full is not None
    assert full["tensor"].shape == (2, 1)


def test_judged_ragged_rank_that_hides_values_is_refused() -> None:
    """TensorFlow takes this call, and gives the values for splits."""
    fitting = {
        "params_nested_splits": [np.int32([0, 2, 2, 5])],
        "params_dense_values": np.int32([10, 11, 20, 21, 22]),
        "indices": np.int32([2, 0]),
        "OUTPUT_RAGGED_RANK": 1,
    }
    bent = Bent("RaggedGather", {**fitting, "indices": np.int32(2)}, fitting, "eager")
    kind, why, words = judged(bent)
    assert (kind, why) == ("OpAttrError", None)
    assert "OUTPUT_RAGGED_RANK is 1; it must be 0" in words


def test_judged_values_before_the_last_split_are_refused() -> None:
    """TensorFlow takes this call, and reads past the values."""
    fitting = {
        "shape": np.int64([-1, -1]),
        "values": np.float32([10, 11, 20, 21, 22]),
        "default_value": np.float32(0),
        "row_partition_tensors": [np.int64([0, 2, 2, 5])],
        "row_partition_types": ["ROW_SPLITS"],
    }
    given = {**fitting, "values": np.float32([10])}
    bent = Bent("RaggedTensorToTensor", given, fitting, "eager")
    kind, why, words = judged(bent)
    assert (kind, why) == ("OpInputError", None)
    assert "row_partition_tensors[-1] ends with 5" in words


@pytest.mark.parametrize("op", ["RFFT2D", "IRFFT2D"])
def test_judged_transforms_of_nothing_run(op: str) -> None:
    dtype = np.complex64 if op == "IRFFT2D" else np.float32
    fitting = {"input": np.ones([2, 2], dtype), "fft_length": np.int32([2, 2])}
    given = {"input": np.ones([2, 0], dtype), "fft_length": np.int32([2, 0])}
    assert judged(Bent(op, given, fitting, "eager")) == ("ran", None, "")


@pytest.mark.parametrize(
    "name", ["window_strides", "padding", "lhs_dilation", "rhs_dilation"]
)
def test_judged_windows_without_sizes_run(name: str) -> None:
    """Without sizes, XLA moves windows by one, with neither padding nor gaps."""
    fitting = bends.examples("XlaConvV2")[0]
    without = {**fitting, name: np.asarray(fitting[name])[:0]}
    assert judged(Bent("XlaConvV2", without, fitting, "eager")) == ("ran", None, "")


def test_judged_batch_function_of_other_sizes_is_refused() -> None:
    """The op has attrs that only newer versions of TensorFlow have."""
    fitting = bends.examples("BatchFunction")[0]
    tensors = [np.zeros([2, 2], np.float32), np.zeros([3, 2], np.float32)]
    bent = {**fitting, "in_tensors": tensors}
    kind, why, _ = judged(Bent("BatchFunction", bent, fitting, "eager"))
    assert (kind, why) == ("OpInputError", None)
