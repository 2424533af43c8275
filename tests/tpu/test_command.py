"""`opwright-tpu-check`, on SavedModels and functions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import keras
import pytest
import tensorflow as tf

from opwright_runtime.tpu_check import cli
from support.processes import environment, run_code

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


@pytest.mark.rotating
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
    assert (report["path"], report["signature"]) == (saved, "score")
    assert report["training"] is None and not report["refused"]
    named = re.findall("^opwright-tpu-check: (.*)$", done.stderr, re.MULTILINE)
    steps = ["starting TensorFlow", "reading the SavedModel", "lowering to XLA"]
    assert named == [*steps, "compiling for v5e (1 of 1)"]


def test_tpu_check_command_help_lists_the_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "Compiles a SavedModel, a .keras file, a Keras model or a function" in text
    assert "folder of a SavedModel, a .keras file, or a function or Keras model" in text


def test_tpu_check_command_unsupported_op_returns_1(
    saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([saved, "--signature", "text"]) == 1
    out = capsys.readouterr().out
    assert "text does not compile for any TPU" in out
    assert "AsString" in out


def test_tpu_check_command_unsupported_op_with_json_has_the_requested_chips(
    saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chips = ["--chip", "v6e", "--chip", "v4"]
    assert cli.main([saved, "--signature", "text", *chips, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["chips"] == ["v6e", "v4"] and report["compilations"] == []
    assert report["refused"] and not report["compiles"]
    assert report["versions"] == {
        "tensorflow": tf.__version__,
        "libtpu": version("libtpu"),
    }


@pytest.mark.rotating
def test_tpu_check_command_unnamed_input_is_that_of_the_only_one(
    saved: str, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = ["--signature", "score", "--input", "8,4"]
    assert cli.main([saved, *inputs, "--chip", "v5e", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["arguments"][0]["shape"] == [8, 4]


@pytest.fixture(scope="module")
def keras_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("keras") / "pair.keras"
    inputs = [keras.Input([4], name="left"), keras.Input([4], name="right")]
    keras.Model(inputs, keras.layers.Dense(3)(inputs[0] + inputs[1])).save(path)
    return str(path)


@pytest.mark.rotating
def test_tpu_check_command_keras_file_compiles(
    keras_file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    inputs = ["--input", "left=8,4", "--input", "right=8,4"]
    assert cli.main([keras_file, *inputs, "--chip", "v5e", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["arguments"]
    assert [one["name"] for one in found[:2]] == ["left", "right"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--input", "left=8,4"],
            "input 'right' has shape (None, 4), and a TPU program takes fixed shapes: "
            "give --input right=8,4",
        ),
        (["--input", "middle=8,4"], "no input 'middle'; there are: left, right"),
        (["--input", "8,4"], "needs the names of its inputs: left, right"),
        (["--input", "8,4", "--input", "8,4"], "NAME=DIMS, where there are several"),
        (["--input", "left=8,4", "--input", "left=8,4"], "'left' is given twice"),
        (["--input", "left=8,4:int32"], "input 'left' is float32 of shape (None, 4)"),
        (["--signature", "score"], "only a SavedModel has signatures"),
    ],
)
def test_tpu_check_command_bad_inputs_of_a_keras_file_return_2(
    keras_file: str,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main([keras_file, *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.rotating
def test_tpu_check_command_keras_model_of_a_module_takes_an_unnamed_input(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = f"{PROGRAMS}:small"
    assert cli.main([program, "--input", "8,4", "--chip", "v5e"]) == 0
    assert "small compiles for v5e" in capsys.readouterr().out
    assert cli.main([program, "--input", "y=8,4"]) == 2
    assert "small has no input 'y'; there are: x" in capsys.readouterr().err


def test_tpu_check_command_wrong_names_are_found_before_tracing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main([f"{PROGRAMS}:dense", "--input", "x=8,4"]) == 2
    assert (
        "dense: missing 'w'; its inputs are: x, w; give --input w=DIMS[:DTYPE]"
        in capsys.readouterr().err
    )
    assert cli.main([f"{PROGRAMS}:dense", "--input", "z=8,4"]) == 2
    assert "dense has no input 'z'; there are: x, w" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--input", "x=8:int17"], "'x=8:int17': no dtype 'int17'; did you mean int16"),
        (["--input", "8:q"], "no dtype 'q'; one of bool, bfloat16"),
        (
            ["--chip", "v5e,v6e"],
            "no chip 'v5e,v6e': give one of v4, v5e, v5p, v6e",
        ),
        (["--chip", "v5"], "repeat the option for more; did you mean v5e or v5p?"),
        (["--chip", "V6E"], "; did you mean v6e?"),
        (["--input", "a=None,256"], "give every size, such as a=8,256"),
        (["--input", "a=-1,256:int64"], "give every size, such as a=8,256:int64"),
        (["--input", "?,256"], "give every size, such as 8,256"),
        (["--input", "a=128x256"], "; did you mean a=128,256?"),
        (["--input", "a=[128, 256]"], "; did you mean a=128,256?"),
    ],
)
def test_tpu_check_command_wrong_option_is_refused_before_a_program_is_read(
    option: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["nosuch", *option])
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_tpu_check_command_dtypes_are_dtypes_of_tensorflow() -> None:
    assert all(tf.as_dtype(name) for name in cli.DTYPES)
    aliases = {"half", "float", "double"}
    assert {tf.as_dtype(name).name for name in cli.DTYPES} == {*cli.DTYPES} - aliases


def test_tpu_check_command_timeout_returns_3(
    capsys: pytest.CaptureFixture[str],
) -> None:
    inputs = ["--input", "x=8,4", "--input", "w=4,2"]
    program = f"{PROGRAMS}:dense"
    late = ["--timeout", "0.05", "--chip", "v5e"]
    assert cli.main([program, *inputs, *late]) == 3
    assert "dense not known for v5e (timed out)" in capsys.readouterr().out


def test_tpu_check_command_wrong_names_are_found_before_the_model_is_loaded(
    saved: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(path: str) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(tf.saved_model, "load", load)
    assert cli.main([saved, "--signature", "score", "--input", "y=8,4"]) == 2
    assert "no input 'y'; there are: x" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch", "no such file or folder"),
        ("missing.py:step", "missing.py: no such file"),
        ("a.h5", "load it with keras.models.load_model, and save it as a .keras"),
        ("a.py", "the command takes a function as file.py:name"),
    ],
)
def test_tpu_check_command_wrong_paths_return_2_without_tensorflow(
    name: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "a.h5").touch()
    (tmp_path / "a.py").touch()
    code = (
        "import sys; from opwright_runtime.tpu_check import cli;"
        "code = cli.main(sys.argv[1:]); assert 'tensorflow' not in sys.modules;"
        "raise SystemExit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / name],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            [],
            "no signature 'serving_default'; there are: score, text; choose",
        ),
        (
            ["--signature", "score"],
            "input 'x' has shape (None, 4), and a TPU program takes fixed shapes: "
            "give --input x=8,4",
        ),
        (["--signature", "score", "--input", "y=1"], "no input 'y'; there are: x"),
        (
            ["--signature", "score", "--input", "x=8,5"],
            "input 'x' is float32 of shape (None, 4), not float32 of shape (8, 5)",
        ),
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


@pytest.mark.parametrize("name", ["model", "model.keras"])
def test_tpu_check_command_without_saved_model_returns_2(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    assert cli.main([str(folder)]) == 2
    assert "no SavedModel there" in capsys.readouterr().err


@pytest.mark.rotating
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


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("f = 1\nf = unknown_name", r"broken.py:2: NameError: name 'unknown_name'"),
        ("def f(:\n", r"SyntaxError: .*broken.py, line 1"),
        ("import sys\nsys.exit(3)", "ends while it is imported, with status 3; put"),
        ("f = 1", "'f' of .*broken.py is no function but int"),
        ("f = None", "'f' of .*broken.py is no function but NoneType"),
        ("def fn(x): return x", "has no function 'f'; did you mean fn[?]"),
    ],
)
def test_tpu_check_command_of_a_broken_file_names_the_fault_and_returns_2(
    source: str,
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "broken.py"
    file.write_text(source)
    sys.modules.pop("broken", None)
    try:
        assert cli.main([f"{file}:f", "--input", "8"]) == 2
    finally:
        sys.modules.pop("broken", None)
    said = capsys.readouterr().err
    assert re.search(words, said.replace("\n", " ")), said
    assert "Traceback" not in said


def test_tpu_check_command_of_a_script_with_options_names_the_script(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "with_options.py"
    file.write_text(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--data', required=True)\n"
        "parser.parse_args()\n"
    )
    own = [*sys.argv]
    assert cli.main([f"{file}:f", "--input", "8"]) == 2
    assert sys.argv == own
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "usage: with_options.py [-h] --data DATA"
    assert lines[-1].startswith(f"opwright-tpu-check: {file} ends while it is imported")


def test_tpu_check_command_of_several_inputs_without_names_gives_the_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "of_two_inputs.py"
    file.write_text(
        "import keras\n"
        "left, right = keras.Input([4], name='left'), keras.Input([4], name='right')\n"
        "model = keras.Model([left, right], left + right, name='pair')\n"
    )
    assert cli.main([f"{file}:model", "--input", "16,4"]) == 2
    said = "pair has several inputs: give --input left=8,4 --input right=8,4"
    assert said in capsys.readouterr().err


def test_tpu_check_command_of_an_input_signature_gives_shapes_and_dtypes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "with_signature.py"
    file.write_text(
        "import tensorflow as tf\n"
        "specs = [tf.TensorSpec([None, 4]), tf.TensorSpec([None], tf.int64)]\n"
        "@tf.function(input_signature=specs)\n"
        "def chosen(x, rows):\n"
        "    return tf.gather(x, rows)\n"
    )
    assert cli.main([f"{file}:chosen"]) == 2
    said = capsys.readouterr().err
    assert "give --input x=8,4:float32 --input rows=8:int64\n" in said


def test_tpu_check_command_keras_file_with_a_custom_layer_names_the_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Doubled(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: tf.Tensor) -> tf.Tensor:
            return 2 * x

    path = tmp_path / "model.keras"
    keras.Sequential([keras.Input([4]), Doubled()]).save(path)
    assert cli.main([str(path), "--input", "8,4"]) == 2
    said = capsys.readouterr().err
    assert "it has the class 'Doubled', which the file does not define" in said


TALKATIVE = """\
import atexit
import os

import tensorflow as tf

print("imported")
os.write(1, b"imported\\n")
os.system("echo imported")
atexit.register(print, "ended")


def doubled(x):
    print("traced")
    return x * 2
"""


@pytest.mark.rotating
def test_tpu_check_command_json_of_a_program_that_prints_stands_alone(
    tmp_path: Path,
) -> None:
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    module = "from opwright_runtime.tpu_check.cli import main; raise SystemExit(main())"
    arguments = ["--input", "x=8", "--chip", "v5e", "--json"]
    done = run_code(module, f"{tmp_path}/talkative.py:doubled", *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["program"] == "doubled"
    said = done.stderr.split()
    assert said.count("imported") == 3
    assert said.count("traced") >= 1 and said.count("ended") == 1


@pytest.mark.rotating
def test_tpu_check_command_json_leaves_stdout_to_its_caller(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    program = TALKATIVE.replace('atexit.register(print, "ended")', "")
    (tmp_path / "chatty.py").write_text(program)
    assert (
        cli.main([f"{tmp_path}/chatty.py:doubled", "--input", "x=8,8", "--json"]) == 0
    )
    os.write(1, b"after")
    out = capfd.readouterr().out
    assert out.endswith("after") and json.loads(out.removesuffix("after"))["compiles"]
