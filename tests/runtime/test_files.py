"""Files that an op cannot write end the process; opwright refuses them first."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import OpAttrError
from opwright_runtime._binding.files import is_writable


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a folder, a file and a link to nothing."""
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("plain").touch()
    Path("link").symlink_to("folder/target")
    return tmp_path


@pytest.mark.parametrize(
    "names",
    [
        ("new",),
        ("plain",),
        ("link",),
        ("folder/new",),
        (b"new",),
        ("file:///tmp/new",),
        ("ram://new",),
        ("a" * 255,),
        ("new/sub", "file"),
        ("folder", "file"),
        ("", "file"),
        ("folder/", "../file"),
        ("folder", "/file"),
        ("new", "./file"),
    ],
)
def test_file_that_can_be_written_is_writable(names: tuple[str, ...]) -> None:
    assert is_writable(*names)
    if "ram://new" not in names and "file:///tmp/new" not in names:
        first, *others = map(os.fsdecode, names)
        if others:
            os.makedirs(first or ".", exist_ok=True)
        with open("/".join([first or ".", *others]), "a"):
            pass


@pytest.mark.parametrize(
    "names",
    [
        ("",),
        ("folder",),
        ("folder/",),
        ("new/",),
        ("new/file",),
        ("plain/file",),
        ("nowhere://file",),
        ("a" * 256,),
        ("zero\0",),
        ("a/" * 4000 + "a",),
        ("plain", "file"),
        ("plain/sub", "file"),
        ("folder", ""),
        ("folder", "."),
        ("folder", ".."),
        ("folder", "sub/file"),
        ("new", "../other/file"),
        ("new", "a" * 256),
        ("nowhere://folder", "file"),
    ],
)
def test_file_that_cannot_be_written_is_not(names: tuple[str, ...]) -> None:
    assert not is_writable(*names)


def test_file_that_the_user_may_not_change_is_not_writable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The superuser may change every file.
    monkeypatch.setattr(os, "access", lambda path, mode: "plain" not in str(path))
    assert not is_writable("plain")
    assert is_writable("other")


@pytest.mark.parametrize("is_eager", [True, False])
def test_dump_into_a_file_that_cannot_be_written_is_refused(is_eager: bool) -> None:
    def call() -> object:
        return opwright.debugging.dump_tensor([1], "plain", "log", True, "f", "n")

    message = (
        "^DumpTensor: log_dir_path is 'plain' and file_name is 'log'; it must name"
    )
    with pytest.raises(OpAttrError, match=message):
        call() if is_eager else tf.function(call)()


def test_statistics_in_a_file_that_cannot_be_written_are_refused() -> None:
    message = "^CalibrationStatisticsSaver: output_file_path is 'no/file'; it must name"
    with tf.Graph().as_default(), pytest.raises(OpAttrError, match=message):
        opwright.quantization.calibration_statistics_saver(
            [0.0, 1.0, np.int64([])], ["a"], [1], "no/file"
        )
