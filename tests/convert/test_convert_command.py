"""The command opwright-convert, and check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from convert.support.models import barred, onnx_ops, ops_of, saved_on_a_gpu
from opwright.convert import ConvertError, check
from opwright_runtime.convert_cli import main, with_flags_alone
from support.places import environment
from support.processes import run_code


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved_on_a_gpu(tmp_path_factory.mktemp("models") / "source")


@pytest.mark.rotating
def test_opwright_convert_plain_writes_a_model_and_a_table(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plain", str(source), str(tmp_path / "plain")]) == 0
    assert not barred(ops_of(tmp_path / "plain"))
    out = capsys.readouterr().out
    assert "a loop of plain ops" in out and "largest difference" in out
    assert max(map(len, out.splitlines())) <= 120


def test_opwright_convert_an_existing_target_names_the_flag_alone(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plain", str(source), str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"opwright-convert: {tmp_path} exists; remove it, or pass --overwrite\n"
    )


@pytest.mark.parametrize(
    ("of_functions", "of_the_command"),
    [
        ("name them with outputs= (--output)", "name them with --output"),
        ('pass dropout="off" (--dropout off) to', "pass --dropout off to"),
        ("pass batch= and shapes= (--batch and --shape)", "pass --batch and --shape"),
        (
            "'a=b' (CudnnRNN): it has dropout=0.5",
            "'a=b' (CudnnRNN): it has dropout=0.5",
        ),
    ],
)
def test_with_flags_alone_arguments_of_functions_are_left_out(
    of_functions: str, of_the_command: str
) -> None:
    assert with_flags_alone(of_functions) == of_the_command


@pytest.mark.convert
def test_opwright_convert_onnx_prints_json(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "model.onnx"
    assert main(["onnx", str(source), str(target), "--opset", "15", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["format"] == "ONNX" and len(report["found"]) == 4
    assert report["comparisons"]["serving_default"]["difference"] <= 2e-6
    assert report["result_bytes"] == target.stat().st_size
    assert "LSTM" in onnx_ops(target)


@pytest.mark.convert
def test_opwright_convert_tflite_takes_a_batch_and_a_shape(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = str(tmp_path / "model.tflite")
    arguments = ["--shape", "words=1,9", "--fused", "yes"]
    assert main(["tflite", str(source), target, *arguments]) == 0
    assert "UNIDIRECTIONAL_SEQUENCE_LSTM" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", ["words", "words=", "words=1,,2", "words=-1"])
def test_opwright_convert_a_bad_shape_is_a_wrong_call(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["onnx", "model", "model.onnx", "--shape", wrong])
    assert ended.value.code == 2
    assert "is not NAME=DIMS, as x=1,none,8" in capsys.readouterr().err


def test_opwright_convert_a_refusal_is_one_line_without_traceback(
    tmp_path: Path,
) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"\x0a\xff\xff\xff\xff\x7fno model")
    code = "from opwright_runtime.convert_cli import main; raise SystemExit(main())"
    done = run_code(code, "plain", tmp_path, tmp_path / "plain")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    (line,) = [x for x in done.stderr.splitlines() if x.startswith("opwright-convert:")]
    assert "damaged" in line
    assert os.listdir(tmp_path) == ["saved_model.pb"]


@pytest.mark.convert
def test_check_names_the_ops_and_the_conversions(source: Path) -> None:
    found = check(source)
    assert found.works and len(found.found) == 4
    assert [one.command for one in found.verdicts] == ["plain", "onnx", "tflite"]
    assert all(one.barred == {"CudnnRNNV3": 4} for one in found.verdicts)
    assert "opwright-convert tflite" in str(found)


@pytest.mark.convert
def test_check_says_which_runtime_refuses_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tf.Module()
    module.serve = tf.function(
        lambda x: tf.raw_ops.StringToHashBucketFast(input=x, num_buckets=3),
        input_signature=[tf.TensorSpec([None], tf.string, "x")],
        autograph=False,
    )
    tf.saved_model.save(module, str(tmp_path / "source"), signatures=module.serve)
    before = sorted(tmp_path.rglob("*"))
    assert main(["check", str(tmp_path / "source"), "--json"]) == 1
    verdicts = json.loads(capsys.readouterr().out)["verdicts"]
    refusals = {one["command"]: one["refusal"] for one in verdicts}
    assert refusals["plain"] is None
    assert "StringToHashBucketFast" in refusals["onnx"]
    assert "StringToHashBucketFast" in refusals["tflite"]
    assert sorted(tmp_path.rglob("*")) == before


def test_check_of_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConvertError, match=r"has no saved_model.pb|of no known kind"):
        check(tmp_path)


# A model that ends TensorFlow's process, as others see it.
ENDS = """
import os
import sys
from pathlib import Path
from opwright_runtime import convert_cli
from opwright_runtime.convert import files

def main():
    with files.replacing(Path(sys.argv[3]), overwrite=True) as made:
        made.mkdir()
        (made / "half").write_text("written")
        Path(os.environ["TMPDIR"], "kept").touch()
        tempfile.mkdtemp()
        if os.environ["AT"] == "move":
            os.rename(sys.argv[3], made.parent / "old")
        os.kill(os.getpid(), signal.SIGSEGV)

import signal
import tempfile
convert_cli.main = main
sys.argv = ["opwright-convert", "plain", *sys.argv[1:]]
raise SystemExit(convert_cli.command())
"""


@pytest.mark.parametrize("at", ["write", "move"])
def test_opwright_convert_a_model_that_ends_the_process_is_refused(
    at: str, tmp_path: Path
) -> None:
    target, temporary = tmp_path / "target", tmp_path / "temporary"
    for folder in (target, temporary):
        folder.mkdir()
    (target / "kept").write_text("kept")
    done = run_code(ENDS, "model", str(target), TMPDIR=str(temporary), AT=at)
    assert done.returncode == 1
    assert "opwright-convert: SIGSEGV ended the process" in done.stderr
    assert "nothing was written" in done.stderr and "Traceback" not in done.stderr
    assert [one.name for one in temporary.iterdir()] == ["kept"]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["target", "temporary"]
    assert [one.name for one in target.iterdir()] == ["kept"]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        # It imports TensorFlow afresh.
        pytest.param(["plain", "no_model", "new"], 1, marks=pytest.mark.rotating),
        (["plain"], 2),
    ],
)
def test_opwright_convert_command_ends_with_the_status_of_the_conversion(
    arguments: list[str], status: int, tmp_path: Path
) -> None:
    code = """
import sys
from opwright_runtime.convert_cli import command
assert "tensorflow" not in sys.modules
sys.argv[0] = "opwright-convert"
raise SystemExit(command())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment(TMPDIR=str(tmp_path)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == status, done.stderr
    if status == 1:
        assert "opwright-convert: no_model does not exist" in done.stderr
    assert not [*tmp_path.iterdir()]
