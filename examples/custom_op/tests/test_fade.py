"""Tests of Fade. Yours: opwright-codegen wrote it once and leaves it alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from opwright_runtime.api import OpError  # Also opwright.OpError.

from my_audio.ops.audio import Fade, fade

#: Arguments, and the results that they must have.
GOLDEN = json.loads((Path(__file__).parent / "golden/Fade.json").read_text())


def tensors(read: Any) -> Any:
    if isinstance(read, list):
        return [tensors(one) for one in read]
    return tf.constant(read["values"], read["dtype"])


def flat(found: Any) -> list[Any]:
    return list(tf.nest.flatten(found))


ARGUMENTS = {name: tensors(read) for name, read in GOLDEN["arguments"].items()}
OUTPUTS = [output.python_name for output in Fade.op_def.outputs]


def results(**arguments: Any) -> dict[str, Any]:
    found: Any = fade(**arguments, **GOLDEN["attrs"])
    if len(OUTPUTS) > 1:
        return dict(found._asdict())
    return dict.fromkeys(OUTPUTS, found)


def test_results_equal_golden() -> None:
    found = results(**ARGUMENTS)
    wanted = GOLDEN["results"]
    assert wanted is not None, f"golden/Fade.json wants results; here came {found}"
    assert found.keys() == wanted.keys()
    for name, read in wanted.items():
        pairs = zip(flat(found[name]), flat(tensors(read)), strict=True)
        for got, want in pairs:
            assert got.dtype == want.dtype, name
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)


def test_results_in_graph_equal_eager() -> None:
    eager = results(**ARGUMENTS)
    graph = tf.function(lambda: results(**ARGUMENTS))()
    for got, want in zip(flat(graph), flat(eager), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_kernels_are_of_this_library() -> None:
    assert {kernel.provider for kernel in Fade.kernels()} == {"libmy_audio_ops.so"}


def test_signal_of_another_shape_is_refused() -> None:
    wrong = tf.zeros([1] * 7, ARGUMENTS["signal"].dtype)
    with pytest.raises(OpError, match="signal"):
        fade(**{**ARGUMENTS, "signal": wrong}, **GOLDEN["attrs"])


def test_gains_of_another_shape_is_refused() -> None:
    wrong = tf.zeros([1] * 7, ARGUMENTS["gains"].dtype)
    with pytest.raises(OpError, match="gains"):
        fade(**{**ARGUMENTS, "gains": wrong}, **GOLDEN["attrs"])
