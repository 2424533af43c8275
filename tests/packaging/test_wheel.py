"""The wheel: what is in it, and that it works where nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from support.places import ROOT

SMOKE = """
from importlib import metadata
import opwright, tensorflow as tf
from opwright.linalg import MatMul
from opwright.math import add_v2

a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
made = MatMul.create(opwright.Scope.current(), a, a, MatMul.Options(transpose_b=True))
assert made.product.numpy().tolist() == [[5.0, 11.0], [11.0, 25.0]], made.product
assert add_v2(a, a).numpy().tolist() == [[2.0, 4.0], [6.0, 8.0]]
assert opwright.op_class("MatMul") is MatMul
assert opwright.__version__ == metadata.version("opwright"), opwright.__version__
print(len(opwright.op_names()))
"""

NATIVE = """
import opwright, tensorflow as tf
from opwright.nn import CudnnRNNV3, cudnn_rnn_v3

x, h = tf.ones([2, 1, 3]), tf.zeros([1, 1, 4])
params = tf.fill([4 * 4 * (3 + 4 + 2)], 0.1)
print(cudnn_rnn_v3(x, h, h, params, [2], is_training=False).output.shape)
"""


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    built = run(
        sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, cwd=folder
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_holds_the_three_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    packages = {name for name in tops if not name.endswith(".dist-info")}
    assert packages == {"opwright", "opwright_runtime", "opwright_codegen"}
    assert {"opwright/py.typed", "opwright_runtime/py.typed"} <= set(names)
    assert "opwright_codegen/templates/op.py.jinja" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_names_the_platform_of_its_native_library(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "opwright_runtime/_lib/libopwright.so" in names
    assert "opwright_runtime/_lib/libopwright.json" in names
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")


def test_works_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    made = run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    installed = run(python, "-m", "pip", "install", "--quiet", wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr

    smoke = run(python, "-c", SMOKE, cwd=tmp_path)
    assert smoke.returncode == 0, smoke.stderr
    assert smoke.stdout.split() == ["1626"]

    native = run(python, "-c", NATIVE, cwd=tmp_path)
    assert native.returncode == 0, native.stderr
    assert native.stdout.strip() == "(2, 1, 4)"

    # Classes need no generator; who calls it is told what to install.
    command = run(python.parent / "opwright-codegen", "--help", cwd=tmp_path)
    assert command.returncode == 2
    assert "pip install 'opwright[codegen]'" in command.stderr
