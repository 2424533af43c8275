"""`opwright-tpu-check`, on SavedModels and functions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tensorflow as tf

from opwright_runtime.tpu_check import cli
from support.processes import run_code

PROGRAMS = Path(__file__).parent / "support" / "programs.py"


class Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(tf.ones([4, 3]), name="w")

    @tf.function(input_signature=[tf.TensorSpec([None, 4], name="x")])
    def score(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"scores": x @ self.w}

    @tf.function(input_signature=[tf.TensorSpec([2, 4], name="x")])
    def text(self, x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"text": tf.strings.as_string(x)}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = str(tmp_path_factory.mktemp("saved"))
    model = Model()
    signatures = {"score": model.score, "text": model.text}
    tf.saved_model.save(model, folder, signatures)
    return folder


def test_tpu_check_command_saved_model_compiles(saved: str) -> None:
    module = "from opwright_runtime.tpu_check.cli import main; raise SystemExit(main())"
    arguments = ["--signature", "score", "--input", "x=8,4", "--chip", "v5e", "--json"]
    done = run_code(module, saved, *arguments)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["compiles"] and report["program"] == "score"
    kinds = [(each["name"], each["kind"]) for each in report["arguments"]]
    assert kinds == [("x", "argument"), ("w", "variable")]
    assert report["compilations"][0]["flops"] > 0


def test_tpu_check_command_unsupported_op_returns_1(
    saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([saved, "--signature", "text"]) == 1
    out = capsys.readouterr().out
    assert "text does not compile for TPU" in out
    assert "AsString" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no signature 'serving_default'; there are: score, text"),
        (["--signature", "score"], "argument 'x' has shape (None, 4)"),
        (["--signature", "score", "--input", "y=1"], "no input 'y'; there are: x"),
        (
            ["--signature", "score", "--input", "x=8,5"],
            "input 'x' is float32 of shape (None, 4), not float32 of shape (8, 5)",
        ),
        (["--signature", "score", "--input", "x=8,4:floot"], "no dtype 'floot'"),
    ],
)
def test_tpu_check_command_bad_arguments_return_2(
    saved: str,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main([saved, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_tpu_check_command_without_saved_model_returns_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([str(tmp_path)]) == 2
    assert "no SavedModel there" in capsys.readouterr().err


def test_tpu_check_command_function_of_a_file_compiles(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = f"{PROGRAMS}:dense"
    inputs = ["--input", "x=8,4:bfloat16", "--input", "w=4,2:bfloat16"]
    assert cli.main([program, *inputs, "--chip", "v6e"]) == 0
    out = capsys.readouterr().out
    assert "dense compiles for v6e" in out and "bfloat16" in out

    assert cli.main([f"{PROGRAMS}:nothing"]) == 2
    assert "has no function 'nothing'" in capsys.readouterr().err
