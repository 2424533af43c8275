"""docs/how-to/leaving_cudnn.md: its programs run, and its numbers are the code's."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import opwright.keras
from convert.support.models import (
    as_on_a_gpu,
    recurrent,
    saved_on_a_gpu,
    text_model,
    write_frozen,
)
from opwright_runtime.convert import numbers, onnx_model, plain_model, tflite_model
from opwright_runtime.convert_cli import main
from support.places import ROOT
from support.processes import run_code

PAGE = (ROOT / "docs/how-to/leaving_cudnn.md").read_text("utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


#: Those of ONNX and TFLite need packages of their own.
NUMBERS = [
    (
        pytest.param(number, marks=pytest.mark.convert)
        if "onnxruntime" in program
        else number
    )
    for number, program in enumerate(PROGRAMS)
]


def masked(line: str) -> str:
    """A line of a report without the numbers that differ from run to run."""
    return re.sub(r"up to \S+ \S+", "up to N, N", " ".join(line.split()))


@pytest.mark.parametrize("number", NUMBERS)
def test_leaving_cudnn_page_code_runs(number: int, tmp_path: Path) -> None:
    done = run_code(PROGRAMS[number], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    if number == 0:
        (shown,) = re.findall(r"`(largest difference .*?)`", PAGE)
        assert [*map(masked, done.stdout.splitlines())].count(masked(shown)) == 2
        said = " ".join(done.stdout.split())
        for signature in ("serve", "serving_default"):
            # A long time, in the next column, makes the row wrap.
            wanted = rf"a call of {signature} on this (.{{,40}} ms )?machine"
            assert re.search(wanted, said), said
    if number == 1:
        assert "applies dropout of 0.5" in done.stdout


@pytest.mark.convert
def test_leaving_cudnn_page_shows_what_check_prints(tmp_path: Path) -> None:
    model, found, _ = PROGRAMS[0].partition("folder = ")
    checked = (
        'model.save("model.keras")\n'
        "from opwright.convert import check\n"
        'print(check("model.keras"))\n'
    )
    done = run_code(model + checked, cwd=tmp_path)
    assert found and done.returncode == 0, done.stderr
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert shown in done.stdout


def test_leaving_cudnn_page_has_the_tolerances_of_the_code() -> None:
    shown = dict(re.findall(r"^\| ([^|]+) \| (\de-\d) \|$", PAGE, re.MULTILINE))
    narrow = numbers.tolerance(["float16"], 0.0)
    assert tflite_model.TOLERANCES[None] == onnx_model.TOLERANCE
    assert {name: float(value) for name, value in shown.items()} == {
        "plain TensorFlow": plain_model.TOLERANCE,
        "ONNX, TFLite": onnx_model.TOLERANCE,
        "layers of 16 bits": narrow,
        'TFLite with `quantize="float16"`': tflite_model.TOLERANCES["float16"],
        'TFLite with `quantize="dynamic"`': tflite_model.TOLERANCES["dynamic"],
    }


def of_keras(folder: Path) -> None:
    text_model(opwright.keras).save(folder / "model.keras")


def of_keras_2(folder: Path) -> None:
    layer = tf_keras.src.layers.rnn.cudnn_lstm.CuDNNLSTM(4)
    layers = [tf_keras.layers.InputLayer((None, 3)), layer]
    tf_keras.Sequential(layers).save(folder / "model.h5")


def frozen(folder: Path) -> None:
    write_frozen(folder / "frozen.pb")


def checkpoint(folder: Path) -> None:
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, [None, None, 2], "x")
        values = np.linspace(-1, 1, 84, dtype="float32")
        params = tf.compat.v1.get_variable("p", initializer=values)
        tf.identity(recurrent(x, params)[0], "y")
        with tf.compat.v1.Session(graph=graph) as session:
            session.run(tf.compat.v1.global_variables_initializer())
            tf.compat.v1.train.Saver().save(session, str(folder / "model"))


def training(folder: Path) -> None:
    module: Any = tf.Module()
    module.params = tf.Variable(tf.linspace(-1.0, 1.0, 84))

    @tf.function(input_signature=[tf.TensorSpec([None, None, 2], name="x")])
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(recurrent(x, module.params)[0] ** 2)
        return {"gradient": tape.gradient(loss, module.params)}

    module.step = step
    tf.saved_model.save(module, str(folder / "train"), signatures=step)


def stateful(folder: Path) -> None:
    x = keras.Input([5, 3], batch_size=2, name="x")
    model = keras.Model(x, keras.layers.LSTM(4, stateful=True)(x))
    with as_on_a_gpu():
        model.export(str(folder / "gpu_model"), verbose=False)


#: What writes the sources of the rows of the page's table, by how the rows begin.
SOURCES: dict[str, Callable[[Path], Any]] = {
    "a SavedModel with CudnnRNN ops": lambda folder: saved_on_a_gpu(
        folder / "gpu_model"
    ),
    "a `.keras` or `.h5` file of Keras 3": of_keras,
    "a `.keras` or `.h5` file of Keras 2": of_keras_2,
    "a frozen GraphDef": frozen,
    "a checkpoint of TensorFlow 1": checkpoint,
    "a training graph": training,
    "a layer that keeps its state": stateful,
}
#: Rows of functions, which the page's programs call.
IN_PYTHON = ("a Keras model or a `tf.function` in Python",)


def cells() -> dict[str, list[str]]:
    """The rows of the table of commands."""
    _, _, table = PAGE.partition("| I have |")
    rows = [line.split(" | ") for line in table.partition("\n\n")[0].splitlines()[2:]]
    return {first.removeprefix("| "): others for first, *others in rows}


def test_leaving_cudnn_page_has_a_source_for_each_row() -> None:
    for row in cells():
        assert sum(row.startswith(one) for one in (*SOURCES, *IN_PYTHON)) == 1, row


@pytest.mark.rotating
@pytest.mark.parametrize("row", SOURCES)
@pytest.mark.parametrize(
    "column",
    [
        pytest.param(i, id=name, marks=pytest.mark.convert if i else ())
        for i, name in enumerate(("plain", "onnx", "tflite"))
    ],
)
def test_leaving_cudnn_page_command_of_a_cell_works_or_is_refused(
    row: str, column: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (found,) = [one for name, one in cells().items() if name.startswith(row)]
    cell = found[column].strip("| `")
    *_, source = found[0].split()[:2]
    target = f"model.{('', 'onnx', 'tflite')[column]}"
    refused = cell == "refused"
    if refused:
        cell = f"{('plain', 'onnx', 'tflite')[column]} {source} {target}"
    monkeypatch.chdir(tmp_path)
    SOURCES[row](tmp_path)
    assert main(cell.split()) == int(refused)
    assert Path(cell.split()[2]).exists() is not refused
