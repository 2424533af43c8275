"""A program in C serves a model with the library, without Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright_runtime import native
from support.places import ROOT
from support.processes import Done, run_program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """examples/serve.c, built as docs/how-to/serving.md says."""
    built = tmp_path_factory.mktemp("serve") / "serve"
    place = tf.sysconfig.get_lib()
    command = [
        os.environ.get("CC", "cc"),
        "-std=c99",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-isystem",
        tf.sysconfig.get_include(),
        ROOT / "examples/serve.c",
        "-o",
        built,
        f"-L{place}",
        f"-Wl,-rpath,{place}",
        "-l:libtensorflow_cc.so.2",
        "-l:libtensorflow_framework.so.2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    folder = tmp_path_factory.mktemp("model")
    done = run_program("native.support.served_model", folder)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1])


def serve(program: Path, library: str | Path, folder: Path, names: list[str]) -> Done:
    return subprocess.run(
        [program, library, folder, *names],
        env={name: os.environ[name] for name in ("PATH",)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_serve_program_matches_python_results(
    program: Path, model: tuple[Path, Any]
) -> None:
    folder, said = model
    assert {"CudnnRNNV3", "RecvTPUEmbeddingActivations"} <= set(said["ops"])
    done = serve(program, native.library_path(), folder, said["names"])
    assert done.returncode == 0, done.stderr
    for line, wanted in zip(done.stdout.splitlines(), said["results"], strict=True):
        found = np.array(line.split(), np.float64)
        np.testing.assert_allclose(found, wanted, atol=2e-6)
    assert np.allclose(said["results"][1], [1.5, 1.75, 0, 0.25, 1.5, 1.75, 0.5, 0.75])


def test_serve_program_without_library_fails(
    program: Path, model: tuple[Path, Any], tmp_path: Path
) -> None:
    folder, said = model
    without = serve(program, "-", folder, said["names"])
    assert without.returncode == 1
    assert "No OpKernel was registered" in without.stderr, without.stderr
    # The library works from any folder, without other files.
    elsewhere = shutil.copy(native.library_path(), tmp_path / "ops.so")
    done = serve(program, elsewhere, folder, said["names"])
    assert done.returncode == 0, done.stderr
