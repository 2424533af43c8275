"""The wheel: its content, and its use in an empty environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
import release_check
import tensorflow as tf
from native_files import lay_out

import opwright_runtime
from opwright_runtime import _native_library
from support.facts import FACTS
from support.places import ROOT

HERE = _native_library.minor(tf.__version__)

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
assert metadata.version("opwright") == opwright.__version__
print(len(opwright.op_names()))

# A native kernel.
from opwright.nn import CudnnRNNV3, cudnn_rnn_v3

x, h = tf.ones([2, 1, 3]), tf.zeros([1, 1, 4])
params = tf.fill([4 * 4 * (3 + 4 + 2)], 0.1)
print(cudnn_rnn_v3(x, h, h, params, [2], is_training=False).output.shape)
"""


def run(
    *command: str | Path, cwd: Path, timeout: float = 600, **changes: str
) -> subprocess.CompletedProcess[str]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV", "OPWRIGHT_NATIVE")
    } | changes
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the library that `make native` has built."""
    laid_out = tmp_path_factory.mktemp("native")
    lay_out(laid_out, [ROOT / "build" / "native"])
    folder = tmp_path_factory.mktemp("dist")
    return build("--wheel", folder, OPWRIGHT_NATIVE=str(laid_out))[0]


def build(what: str, folder: Path, **changes: str) -> tuple[Path, str]:
    """Builds a wheel or an sdist; its path and the output of the build."""
    command = (sys.executable, "-m", "build", what, "--outdir", folder, ROOT)
    built = run(*command, cwd=folder, **changes)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.iterdir()
    return path, built.stdout + built.stderr


def facts(wheel: Path) -> Message:
    archive = zipfile.ZipFile(wheel)
    (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    return Parser().parsestr(archive.read(name).decode())


def test_wheel_holds_the_packages_only(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    packages = {name for name in tops if not name.endswith(".dist-info")}
    assert packages == {
        "opwright",
        "opwright_runtime",
        "opwright_notation",
        "opwright_codegen",
    }
    assert {"opwright/py.typed", "opwright_runtime/py.typed"} <= set(names)
    assert "opwright_codegen/templates/op.py.jinja" in names
    assert {"tf_names.json", "synonyms.txt"} <= {
        name.removeprefix("opwright_runtime/search/") for name in names
    }
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_wheel_with_native_library_has_platform_tag(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    for suffix in ("so", "json"):
        assert f"opwright_runtime/_lib/{HERE}/libopwright.{suffix}" in names
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    assert wheel.name.endswith(f"-py3-none-{platform}.whl")


def test_wheel_of_another_processor_has_its_name(tmp_path: Path) -> None:
    laid_out = tmp_path / "native"
    lay_out(laid_out, [ROOT / "build" / "native"])
    recipe = laid_out / "_native" / "build.json"
    changed = {**json.loads(recipe.read_text()), "machine": "aarch64"}
    recipe.write_text(json.dumps(changed))
    folder = tmp_path / "dist"
    folder.mkdir()
    built, _ = build("--wheel", folder, OPWRIGHT_NATIVE=str(laid_out))
    assert built.name.endswith("-py3-none-linux_aarch64.whl")


def test_wheel_has_own_version_and_no_upper_bound_of_tensorflow(wheel: Path) -> None:
    metadata = facts(wheel)
    assert metadata["Version"] == opwright_runtime.__version__
    required = metadata.get_all("Requires-Dist", [])
    assert "tensorflow>=2.18" in required
    always = [one for one in required if "extra ==" not in one]
    assert [one for one in always if "<" in one] == []


def test_wheel_has_the_sources_that_its_recipe_names(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    recipe = json.loads(archive.read("opwright_runtime/_native/build.json"))
    assert all(unit["sources"] for unit in recipe["units"])
    sources = {path for unit in recipe["units"] for path in unit["sources"]}
    flags = {flag for unit in recipe["units"] for flag in unit["flags"]}
    assert not [flag for flag in flags if "{root}/build" in flag or "-include" in flag]
    assert "runtime/native/library.cc" in sources
    names = set(archive.namelist())
    assert {f"opwright_runtime/_native/{path}" for path in sources} <= names
    assert not [name for name in names if name.endswith("_test.cc")]


def test_generator_of_wheel_reads_opdefs_in_archive(
    wheel: Path, tmp_path: Path
) -> None:
    site, temporary = tmp_path / "site", tmp_path / "temporary"
    zipfile.ZipFile(wheel).extractall(site)
    temporary.mkdir()
    changes = {"PYTHONPATH": str(site), "TMPDIR": str(temporary)}
    program = (
        "from pathlib import Path\n"
        "from opwright_codegen import load\n"
        f"tree, own = Path({str(ROOT / 'opdefs')!r}), load.own_opdefs()\n"
        "files = {p.relative_to(tree) for p in tree.rglob('*') if p.is_file()}\n"
        "print(own.parent, own == load.own_opdefs(), len(files) > 1600)\n"
        "print(all((own / p).read_bytes() == (tree / p).read_bytes() for p in files))"
    )
    read = run(sys.executable, "-c", program, cwd=tmp_path, **changes)
    assert read.stdout.splitlines() == [f"{temporary} True True", "True"], read.stderr
    command = (sys.executable, "-m", "opwright_codegen", "diff", "opwright", "2.21")
    compared = run(*command, cwd=tmp_path, **changes)
    assert compared.returncode == 1, compared.stderr
    assert "XlaSparseDenseMatmulPositionalWeightedWithCsrInput" in compared.stdout
    # Nothing is left of the temporary folders.
    assert list(temporary.glob("opwright-*")) == []


def test_wheel_is_no_larger_than_its_limit_with_all_libraries(wheel: Path) -> None:
    """A library more for each further version: they differ little in size."""
    archive = zipfile.ZipFile(wheel)
    libraries = [one for one in archive.infolist() if one.filename.endswith(".so")]
    (library,) = libraries
    further = len(release_check.versions()) - 1
    size = wheel.stat().st_size + further * library.compress_size
    assert size < release_check.MOST_BYTES


def test_wheel_requirements_are_those_of_the_runtime(wheel: Path) -> None:
    required = facts(wheel).get_all("Requires-Dist", [])
    always = [one for one in required if "extra ==" not in one]
    names = {re.split(r"[<>=!;\[ ]", one)[0].replace("_", "-") for one in always}
    assert names == {"tensorflow", "numpy", "protobuf", "typing-extensions"}


def test_wheel_without_native_library_is_pure_python(tmp_path: Path) -> None:
    wheel, said = build("--wheel", tmp_path, OPWRIGHT_NATIVE="")
    assert "This wheel has no native kernels" in said
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [n for n in zipfile.ZipFile(wheel).namelist() if n.endswith(".so")]
    assert "tensorflow>=2.18" in facts(wheel).get_all("Requires-Dist", [])
    release_check.kernels(wheel)


def test_wheel_from_folder_without_library_is_refused(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, ROOT)
    built = run(*command, cwd=tmp_path, OPWRIGHT_NATIVE=str(tmp_path))
    assert built.returncode != 0
    words = "has no _lib/*/libopwright.so: `make wheel` builds"
    assert words in built.stdout + built.stderr


def test_sdist_holds_sources_and_no_library(tmp_path: Path) -> None:
    path, _ = build("--sdist", tmp_path)
    with tarfile.open(path) as archive:
        names = archive.getnames()
    top = path.name.removesuffix(".tar.gz")
    assert f"{top}/runtime/native/library.cc" in names
    assert f"{top}/opdefs/groups.yaml" in names
    assert not [name for name in names if "_lib/" in name]


def test_wheel_in_empty_environment_runs(wheel: Path, tmp_path: Path) -> None:
    python = tmp_path / "venv" / "bin" / "python"
    made = run(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    # Python compiles only the modules that it imports, a small part of TensorFlow.
    install = ("-m", "pip", "install", "--quiet", "--no-compile")
    installed = run(python, *install, wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr

    smoke = run(python, "-c", SMOKE, cwd=tmp_path)
    assert smoke.returncode == 0, smoke.stderr
    assert smoke.stdout.splitlines() == [str(FACTS["ops"]), "(2, 1, 4)"]

    # The wheel installs without the generator's dependencies; the command names them.
    command = run(python.parent / "opwright-codegen", "--help", cwd=tmp_path)
    assert command.returncode == 2
    assert "pip install 'opwright[codegen]'" in command.stderr


#: Python imports it when it starts. TensorFlow then has a version that no wheel has
#: kernels for.
OTHER_VERSION = """
import importlib.util, sys

class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name != "tensorflow":
            return None
        sys.meta_path.remove(cls)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            module.__version__ = "2.97.0"
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder)
"""
LAYER = """
import tensorflow as tf
from opwright.nn import cudnn_rnn_v3
x, h = tf.ones([2, 1, 3]), tf.zeros([1, 1, 4])
print(cudnn_rnn_v3(x, h, h, tf.fill([144], 0.1), [2], is_training=False).output.shape)
"""


def test_wheel_with_unknown_tensorflow_has_kernels_after_build_native(
    wheel: Path, tmp_path: Path
) -> None:
    """Compiles the sources of the wheel, which takes minutes."""
    site = tmp_path / "site"
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps")
    installed = run(*pip, "--target", site, wheel, cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    (site / "sitecustomize.py").write_text(OTHER_VERSION)
    changes = {"PYTHONPATH": str(site), "OPWRIGHT_DATA_DIR": str(tmp_path / "data")}

    def python(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run(sys.executable, *arguments, cwd=tmp_path, timeout=7200, **changes)

    before = python("-c", LAYER)
    assert before.returncode == 1
    words = f"this opwright has kernels for TensorFlow {HERE}; `python -m opwright "
    assert words in before.stderr

    build_native = python("-m", "opwright", "build-native")
    assert build_native.returncode == 0, build_native.stderr
    library = tmp_path / "data" / "native-*" / "2.97" / "libopwright.so"
    assert re.search(str(library).replace("*", ".*"), build_native.stdout)
    after = python("-c", LAYER)
    assert after.returncode == 0, after.stderr
    assert after.stdout == "(2, 1, 4)\n"
