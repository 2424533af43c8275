"""Tests of Fade. Yours: opwright-codegen wrote it once and leaves it alone."""

from __future__ import annotations

import doctest
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from opwright_runtime.api import OpError, Scope  # Also of opwright.

from my_audio.ops.audio import Fade, fade

#: Arguments, and the results that they must have.
GOLDEN = json.loads((Path(__file__).parent / "golden/Fade.json").read_text())


def tensors(read: Any) -> Any:
    if isinstance(read, list):
        return [tensors(one) for one in read]
    try:
        return tf.constant(read["values"], tf.as_dtype(read["dtype"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"golden/Fade.json: {read} is no tensor: write values, and a dtype"
            " such as float32"
        ) from error


def flat(found: Any) -> list[Any]:
    return list(tf.nest.flatten(found))


def arguments() -> dict[str, Any]:
    return {name: tensors(read) for name, read in GOLDEN["arguments"].items()}


OUTPUTS = [output.python_name for output in Fade.op_def.outputs]


def results(**arguments: Any) -> dict[str, Any]:
    found: Any = fade(**arguments, **GOLDEN["attrs"])
    if len(OUTPUTS) > 1:
        return dict(found._asdict())
    return dict.fromkeys(OUTPUTS, found)


def test_results_equal_golden() -> None:
    found = results(**arguments())
    wanted = GOLDEN["results"]
    assert wanted is not None, f"golden/Fade.json wants results; here came {found}"
    assert found.keys() == wanted.keys()
    for name, read in wanted.items():
        pairs = zip(flat(found[name]), flat(tensors(read)), strict=True)
        for got, want in pairs:
            assert got.dtype == want.dtype, name
            np.testing.assert_allclose(got.numpy(), want.numpy(), rtol=1e-5)


def test_results_in_graph_equal_eager() -> None:
    eager = results(**arguments())
    graph = tf.function(lambda: results(**arguments()))()
    for got, want in zip(flat(graph), flat(eager), strict=True):
        np.testing.assert_array_equal(got.numpy(), want.numpy())


def test_example_of_the_opdef_gives_its_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # An example may write files.
    text = fade.__doc__ or ""
    names = {"np": np, "tf": tf, "Scope": Scope, "Fade": Fade, "fade": fade}
    example = doctest.DocTestParser().get_doctest(text, names, "Fade", None, None)
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    assert doctest.DocTestRunner(optionflags=flags).run(example).failed == 0


def test_kernels_are_of_this_library() -> None:
    assert {kernel.provider for kernel in Fade.kernels()} == {"libmy_audio_ops.so"}


def test_signal_of_another_shape_is_refused() -> None:
    given = arguments()
    wrong = tf.zeros([1] * 7, given["signal"].dtype)
    with pytest.raises(OpError, match="signal"):
        fade(**{**given, "signal": wrong}, **GOLDEN["attrs"])


def test_gains_of_another_shape_is_refused() -> None:
    given = arguments()
    wrong = tf.zeros([1] * 7, given["gains"].dtype)
    with pytest.raises(OpError, match="gains"):
        fade(**{**given, "gains": wrong}, **GOLDEN["attrs"])
