"""The TensorFlow rows of gpu_check.py, run on the CPU."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

from gpu.support import tensorflow_gpu
from gpu.support.building import BUILD
from gpu.support.report import FAILED, OK
from gpu.support.rnn_core import Layers

if not (BUILD / "CMakeCache.txt").exists():
    raise pytest.UsageError("tests/gpu need the native library: run `make native`")

ROWS = dict(tensorflow_gpu.rows("/CPU:0"))


@pytest.mark.parametrize("what", ROWS)
def test_gpu_check_row_on_cpu_passes(what: str) -> None:
    verdict, note = ROWS[what]()
    assert verdict == OK, note
    assert note


def test_gpu_check_row_with_zero_tolerance_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tolerance of 0 makes every comparison fail."""
    monkeypatch.setattr(tensorflow_gpu, "RNN_TOLERANCE", 0.0)
    monkeypatch.setattr(tensorflow_gpu, "EMBEDDING_TOLERANCE", 0.0)
    layers, lengths = tensorflow_gpu.recurrent_draws()[0]
    assert tensorflow_gpu.compare_rnn("/CPU:0", layers, lengths)[0] == FAILED
    assert tensorflow_gpu.train("/CPU:0", "adagrad", {})[0] == FAILED


def test_gpu_check_row_without_gpu_fails() -> None:
    """The rows fail if the ops do not run on the GPU."""
    if tf.config.list_physical_devices("GPU"):
        pytest.skip("there is a GPU: run tools/gpu_check.py itself")
    layers = Layers("gru", 4, 3)
    with pytest.raises(Exception, match="GPU:0"):
        tensorflow_gpu.compare_params("/GPU:0", layers)
    with pytest.raises(Exception, match="GPU:0"):
        tensorflow_gpu.compare_rnn("/GPU:0", layers, [1, 2, 3, 4, 5])
    verdict, note = tensorflow_gpu.train("/GPU:0", "adagrad", {})
    assert verdict == FAILED and "not on /GPU:0" in note
