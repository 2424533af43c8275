"""`check_tpu(..., compare=True)`: values eagerly, in a graph and compiled by XLA.

The disagreements are those of TensorFlow's reports #117960, #118075, #118076, #118179
and #120236.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import check_tpu
from opwright_runtime.tpu_check import Comparison, TpuCheckError
from support.versions import until


def compared(program: Any, *given: Any) -> Comparison:
    found = check_tpu(program, *given, chips="v5e", compare=True).comparison
    assert found is not None
    return found


def variance(x: tf.Tensor) -> tf.Tensor:
    return tf.sqrt(tf.nn.moments(x, [1])[1]) + 1.0  # differs


def best(scores: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    shifted = scores - 1.0
    found = tf.math.in_top_k(labels, shifted, 1)  # differs
    return tf.cast(found, tf.float32)


@pytest.mark.parametrize(
    ("program", "given", "op"),
    [
        pytest.param(
            variance,
            [np.full([1, 3], 7.5e10, np.float32)],
            "SquaredDifference",
            marks=until("2.22"),
        ),
        (best, [np.float32([[0.5, np.nan, 0.7, 0.6]]), np.int32([2])], "InTopKV2"),
    ],
)
def test_compare_names_the_first_op_whose_values_differ(
    program: Any, given: list[Any], op: str
) -> None:
    report = check_tpu(program, *given, chips="v5e", compare=True)
    found = report.comparison
    assert found is not None and not found.agrees
    assert found.difference is not None
    assert found.difference.op == op and found.difference.modes == ("graph", "XLA")
    assert str(found.difference.code).endswith("# differs")
    assert f"graph and XLA differ, first in {op}" in str(report)
    assert json.loads(json.dumps(report.as_dict()))["comparison"]["difference"]


def finite(x: tf.Tensor) -> tf.Tensor:
    return tf.debugging.check_numerics(x, "no number")


def gathered(x: tf.Tensor, places: tf.Tensor) -> tf.Tensor:
    return tf.gather(x, places, axis=1, batch_dims=1)


def counted(x: tf.Tensor) -> tf.Tensor:
    return tf.math.bincount(x, minlength=3, maxlength=3, dtype=tf.int32)


@pytest.mark.parametrize(
    ("program", "given"),
    [
        (finite, [np.float32([1.0, np.nan])]),
        (gathered, [np.int32([[7, 8, 9, 11]]), np.int32([[-3, 1]])]),
        pytest.param(counted, [np.int32([0, -1, 2])], marks=until("2.22")),
    ],
)
def test_compare_says_that_xla_does_not_refuse_bad_input(
    program: Any, given: list[Any]
) -> None:
    report = check_tpu(program, *given, chips="v5e", compare=True)
    found = report.comparison
    assert found is not None and not found.agrees
    assert found.errors["eager"] and found.errors["graph"]
    assert found.errors["XLA"] is None
    assert "eager refuses the input: " in str(report)
    assert "But not XLA: check the input before the program" in str(report)


def test_compare_of_equal_values_agrees_and_keeps_variables() -> None:
    total = tf.Variable(tf.zeros([4]))

    def added(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            total.assign_add(tf.nn.softmax(x))
        return tf.reduce_sum(total)

    found = compared(added, np.float32([1, 2, 3, 4]))
    assert found.agrees and found.difference is None
    assert [*found.errors] == ["eager", "graph", "XLA"]
    assert total.numpy().tolist() == [0, 0, 0, 0]


def test_compare_leaves_out_random_outputs() -> None:
    def noisy(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return x + tf.random.normal([4]), x * 2.0

    found = compared(noisy, np.float32([1, 2, 3, 4]))
    assert found.agrees and found.random_outputs == 1


def test_compare_of_a_saved_model_has_no_eager_mode(tmp_path: Path) -> None:
    module = tf.Module()
    module.factor = tf.Variable(3.0)
    spec = tf.TensorSpec([4], name="x")
    module.times = tf.function(lambda x: {"y": x * module.factor})
    signature = module.times.get_concrete_function(spec)
    tf.saved_model.save(module, str(tmp_path), {"serving_default": signature})
    report = check_tpu(tmp_path, x=np.ones([4], np.float32), chips="v5e", compare=True)
    assert report.comparison is not None and report.comparison.agrees
    assert [*report.comparison.errors] == ["graph", "XLA"]


def test_compare_without_values_says_to_give_arrays() -> None:
    with pytest.raises(TpuCheckError, match="compare=True runs the program: give"):
        check_tpu(tf.nn.relu, tf.TensorSpec([4]), chips="v5e", compare=True)
