"""docs/how-to/leaving_cudnn.md: its programs run, and its numbers are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opwright_runtime.convert import numbers, onnx_model, plain_model, tflite_model
from opwright_runtime.convert.rewrite import Found
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
        for signature in ("serve", "serving_default"):
            assert f"a call of {signature} on this machine" in done.stdout
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
    narrow = numbers.tolerance([Found("", "", "", "", "float16")], 0.0)
    assert tflite_model.TOLERANCES[None] == onnx_model.TOLERANCE
    assert {name: float(value) for name, value in shown.items()} == {
        "plain TensorFlow": plain_model.TOLERANCE,
        "ONNX, TFLite": onnx_model.TOLERANCE,
        "layers of 16 bits": narrow,
        'TFLite with `quantize="float16"`': tflite_model.TOLERANCES["float16"],
        'TFLite with `quantize="dynamic"`': tflite_model.TOLERANCES["dynamic"],
    }
