"""Calls of `check_tpu` that name nothing to compile: each error says what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from opwright import check_tpu
from opwright_runtime.tpu_check import OpenShapeError, TpuCheckError, lowering

FLOAT = tf.TensorSpec([8, 4])


@pytest.mark.parametrize(
    ("chips", "words"),
    [
        ("v5", "not 'v5'; did you mean v5e or v5p[?]$"),
        ("V5E", "not 'V5E'; did you mean v5e[?]$"),
        (["v5e", "v6"], "not 'v6'; did you mean v6e[?]$"),
        ("gpu", "not 'gpu'$"),
        (5, "not 5$"),
    ],
)
def test_check_tpu_unknown_chip_names_close_ones(chips: Any, words: str) -> None:
    with pytest.raises(TpuCheckError, match=f"^chips must be of v4.*, {words}"):
        check_tpu(tf.nn.relu, FLOAT, chips=chips)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), "60"])
def test_check_tpu_timeout_that_is_no_time_is_refused(timeout: Any) -> None:
    with pytest.raises(TpuCheckError, match="timeout must be a number of seconds, not"):
        check_tpu(tf.nn.relu, FLOAT, timeout=timeout)


@pytest.mark.parametrize(
    "program", [3, None, tf.Module()], ids=["int", "None", "module"]
)
def test_check_tpu_object_that_is_no_program_is_refused(program: Any) -> None:
    with pytest.raises(TpuCheckError, match="the program must be a function, a Keras"):
        check_tpu(program, FLOAT)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("models.py:cnn", "no such file .* import the function or model, and give"),
        ("nosuch", "nosuch: no such file or folder$"),
        ("model.h5", "load it with keras.models.load_model, and save it as a .keras"),
        ("models.py", "no folder of a SavedModel and no .keras file"),
        ("", "no SavedModel there. A Keras model writes one with model.export"),
    ],
)
def test_check_tpu_path_without_a_model_says_what_to_do(
    name: str, words: str, tmp_path: Path
) -> None:
    for file in ("model.h5", "models.py"):
        (tmp_path / file).touch()
    with pytest.raises(TpuCheckError, match=words):
        check_tpu(tmp_path / name, [8, 4])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            tf.RaggedTensorSpec([4, None]),
            "RaggedTensor, .*, which its method to_tensor",
        ),
        (tf.ragged.constant([[1.0], [2.0, 3.0]]), "RaggedTensor, which has no"),
        (tf.SparseTensorSpec([4, 4]), "SparseTensor, .*, which tf.sparse.to_dense"),
        ([FLOAT, tf.sparse.from_dense([[1.0]])], "SparseTensor, which has no"),
    ],
)
def test_check_tpu_ragged_or_sparse_argument_is_named(given: Any, words: str) -> None:
    def same(rows: Any) -> Any:
        return rows

    with pytest.raises(TpuCheckError, match=f"^same: argument 'rows' is a {words}"):
        check_tpu(same, given)


def test_check_tpu_concrete_function_has_the_name_of_the_function() -> None:
    @tf.function
    def doubled(x: tf.Tensor) -> tf.Tensor:
        return x * 2

    concrete = doubled.get_concrete_function(FLOAT)
    assert lowering.from_function(concrete, (FLOAT,), {}).name == "doubled"


def test_check_tpu_open_input_signature_gives_the_specs_to_write() -> None:
    @tf.function(
        input_signature=[tf.TensorSpec([None, 4]), tf.TensorSpec([], tf.int32)]
    )
    def scaled(x: tf.Tensor, by: tf.Tensor) -> tf.Tensor:
        return x * tf.cast(by, tf.float32)

    with pytest.raises(OpenShapeError) as caught:
        check_tpu(scaled)
    assert str(caught.value) == (
        "input 'x' has shape (None, 4), and a TPU program takes fixed shapes: give "
        "x=tf.TensorSpec([8, 4], tf.float32)"
    )


def test_check_tpu_fixed_input_signature_needs_no_examples() -> None:
    @tf.function(input_signature=[FLOAT])
    def doubled(x: tf.Tensor) -> tf.Tensor:
        return x * 2

    traced = lowering.from_function(doubled, (), {})
    assert [each.shape for each in traced.arguments] == [(8, 4)]
    assert isinstance(lowering.lower(traced), bytes)
