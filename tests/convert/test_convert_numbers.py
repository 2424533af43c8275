"""Drawn models, converted to all formats, against NumPy in float64.

The conversions hold the results against the kernels themselves, on other inputs than
these, with other batches and numbers of steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from convert.support.models import (
    CONVERSIONS,
    Drawn,
    Run,
    barred,
    ops_of,
    run_onnx,
    run_tflite,
)
from opwright.convert import to_onnx, to_plain, to_tflite
from rnn.support.cases import TOLERANCE, error
from support.tiers import part_of

pytestmark = pytest.mark.partial
SEEDS = part_of(range(500), 60)
#: The largest differences from the kernels.
FROM_KERNELS: dict[Any, float] = {to_plain: 5e-6, to_onnx: 2e-6, to_tflite: 2e-6}


def run_plain(folder: Path) -> Run:
    loaded = tf.saved_model.load(str(folder))
    return lambda inputs: loaded.signatures["serving_default"](
        **{name: tf.constant(value) for name, value in inputs.items()}
    )


RUN_OF: dict[Any, Any] = {
    to_plain: run_plain,
    to_onnx: run_onnx,
    to_tflite: run_tflite,
}


@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_conversion_of_a_drawn_model_matches_reference(
    seed: int, convert: Any, tmp_path: Path
) -> None:
    drawn = Drawn(seed)
    drawn.save(tmp_path / "source")
    given, wanted = drawn.values()
    report = convert(tmp_path / "source", tmp_path / "target")
    assert len(report.found) == 1, str(drawn)
    compared, *_ = report.comparisons.values()
    if drawn.case.dtype == tf.float32:
        allowed = FROM_KERNELS[convert] * max(1.0, compared.scale)
        assert report.difference <= allowed, str(drawn)
    run = RUN_OF[convert](tmp_path / "target")
    # ONNX and TFLite compute float64 in float32.
    single = drawn.case.dtype == tf.float64 and convert is not to_plain
    tolerance = TOLERANCE[tf.float32 if single else drawn.case.dtype]
    first, second = drawn.time_major(run(given)), drawn.time_major(run(given))
    assert first.keys() == wanted.keys()
    for key, value in wanted.items():
        assert error(first[key], value) <= tolerance, f"{key}: {drawn}"
        assert error(second[key], value) <= tolerance, f"{key}: {drawn}"
    if convert is to_plain:
        assert not barred(ops_of(tmp_path / "target"))
