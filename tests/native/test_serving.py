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
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from opwright_runtime import native
from support.places import ROOT
from support.processes import Done, run_program

# They serve models that processes make and save.
pytestmark = pytest.mark.rotating(together="program", part=9)


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


def options(names: list[str]) -> list[str]:
    """The model's input, which Python computed results of, in the program's words."""
    start, x, ids, *outputs = names
    signal = ",".join(f"{0.1 * i:.1f}" for i in range(10))
    fed = ["-i", f"{x}=5,1,2:{signal}", "-i", f"{ids}=4:3,0,3,1"]
    return ["-s", start, *fed, *(word for name in outputs for word in ("-o", name))]


def serve(program: Path, library: str | Path, folder: Path, words: list[str]) -> Done:
    return subprocess.run(
        [program, library, folder, *words],
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
    done = serve(program, native.library_path(), folder, options(said["names"]))
    assert done.returncode == 0, done.stderr
    for line, wanted in zip(done.stdout.splitlines(), said["results"], strict=True):
        found = np.array(line.split(), np.float64)
        np.testing.assert_allclose(found, wanted, atol=2e-6)
    assert np.allclose(said["results"][1], [1.5, 1.75, 0, 0.25, 1.5, 1.75, 0.5, 0.75])


def test_serve_program_without_library_fails(
    program: Path, model: tuple[Path, Any], tmp_path: Path
) -> None:
    folder, said = model
    words = options(said["names"])
    without = serve(program, "-", folder, words)
    assert without.returncode == 1
    assert "No OpKernel was registered" in without.stderr, without.stderr
    # The library works from any folder, without other files.
    elsewhere = shutil.copy(native.library_path(), tmp_path / "ops.so")
    done = serve(program, elsewhere, folder, words)
    assert done.returncode == 0, done.stderr


class Scaled(tf.Module):
    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float64),
            tf.TensorSpec([], tf.int64),
            tf.TensorSpec([], tf.bool),
        ]
    )
    def serve(self, x: tf.Tensor, by: tf.Tensor, negative: tf.Tensor) -> dict[str, Any]:
        scaled = x * tf.cast(by, tf.float64)
        return {"scaled": tf.where(negative, -scaled, scaled), "by": by + 1}


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("scaled")
    module = Scaled()
    tf.saved_model.save(module, str(folder), signatures=module.serve)
    return folder


def test_serve_program_serves_any_model(program: Path, scaled: Path) -> None:
    model = SavedModel.FromString((scaled / "saved_model.pb").read_bytes())
    signature = model.meta_graphs[0].signature_def["serving_default"]
    values = {"x": "3,2:1,2.5", "by": ":3", "negative": ":1"}
    words = []
    for key, value in values.items():
        words += ["-i", f"{signature.inputs[key].name}={value}"]
    for key in ("by", "scaled"):
        words += ["-o", signature.outputs[key].name]
    done = serve(program, "-", scaled, words)
    assert done.returncode == 0, done.stderr
    by, found = done.stdout.splitlines()
    assert by.split() == ["4"]
    assert np.array(found.split(), float).tolist() == [-3, -7.5] * 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-q", "x:0"], "usage: serve LIBRARY MODEL"),
        (["-o", "nothing:0"], "nothing:0: the model has no such tensor"),
        (["-i", "serving_default_x:0=3,2:"], "no values"),
        (["-i", "serving_default_x:0=3,2:one"], "one: no list of numbers"),
    ],
)
def test_serve_program_says_what_is_wrong_with_its_options(
    program: Path, scaled: Path, words: list[str], message: str
) -> None:
    done = serve(program, "-", scaled, words)
    assert done.returncode in (1, 2)
    assert message in done.stderr
