"""Fixtures of the goldens: libraries of custom ops. Adds --update-goldens."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from support.processes import run_code

HERE = Path(__file__).parent
#: Builds a library of custom ops from one source file, as their authors do.
Build = Callable[..., Path]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens",
        action="store_true",
        help="write tests/golden/expected anew; read the difference before committing",
    )


@pytest.fixture(scope="session")
def compiler() -> list[str]:
    """The command that compiles against the installed TensorFlow."""
    code = (
        "import json, tensorflow as tf;"
        "print(json.dumps([tf.sysconfig.get_compile_flags(),"
        " tf.sysconfig.get_link_flags()]))"
    )
    compiling, linking = json.loads(run_code(code).stdout)
    # Headers of TensorFlow are the system's: their warnings are not ours.
    flags = [flag.replace("-I", "-isystem", 1) for flag in compiling]
    mine = ["-shared", "-fPIC", "-O0", "-Wall", "-Wextra", "-Werror"]
    return [os.environ.get("CXX", "g++"), *mine, *flags, *linking]


@pytest.fixture(scope="session")
def build(compiler: list[str], tmp_path_factory: pytest.TempPathFactory) -> Build:
    def build(source: Path, name: str, *flags: str) -> Path:
        library = tmp_path_factory.mktemp("library") / f"{name}.so"
        command, links = compiler[:-2], compiler[-2:]
        done = subprocess.run(
            [*command, *flags, str(source), "-o", str(library), *links],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return library

    return build


@pytest.fixture(scope="session")
def odd_ops(build: Build) -> Path:
    """The library of odd ops."""
    return build(HERE / "library" / "odd_ops.cc", "odd_ops")


@pytest.fixture(scope="session")
def versions(build: Build) -> tuple[Path, Path]:
    """Two versions of one library, in files of one name."""
    source = HERE / "library" / "versions.cc"
    return build(source, "versions"), build(source, "versions", "-DNEXT")
