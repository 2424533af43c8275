"""Makes an environment with a version of TensorFlow, or checks one that exists.

`make test-with-2.22` uses the same folders. The file `.ready` says that an environment
is complete.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opwright_codegen.upgrade import programs
from opwright_codegen.upgrade.steps import Show, StepError

_PROJECT: Final = Path("pyproject.toml")
#: The file that says that an environment is complete; the Makefile writes it too.
READY: Final = ".ready"
#: The distributions of TensorFlow.
_NAMES: Final = ("tensorflow", "tensorflow-cpu", "tf-nightly", "tf-nightly-cpu")
_PROBE: Final = f"""\
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = None
for name in {_NAMES!r}:
    try:
        found = found or version(name)
    except PackageNotFoundError:
        pass
print(json.dumps([sys.version.split()[0], found]))
"""
#: How long an interpreter has to say what is installed, in seconds.
_PROBE_SECONDS: Final = 60


@dataclass(frozen=True)
class Environment:
    """An interpreter, and the version of TensorFlow in its environment."""

    python: Path
    python_version: str
    tensorflow: str

    @property
    def minor(self) -> str:
        """The minor version of TensorFlow, such as 2.22."""
        return minor_of(self.tensorflow)


def minor_of(version: str) -> str:
    """The minor version of 2.22.0rc0, which is 2.22."""
    return ".".join(version.split(".")[:2])


def given(python: Path, wanted: str | None) -> Environment:
    """The environment of an interpreter.

    Args:
      python: the interpreter.
      wanted: the version of TensorFlow that it must have; None for any.

    Raises:
      StepError: it cannot be run, or does not have that TensorFlow.
    """
    # A link stays as it is: Python finds an environment by the path of its interpreter.
    found = _probed(Path(shutil.which(python) or python).absolute())
    if found is None:
        raise StepError(
            f"{python} does not run as an interpreter of Python",
            "give --python the path of one, such as build/environments/2.22/bin/python",
        )
    if not found.tensorflow:
        raise StepError(
            f"{python} has no TensorFlow installed",
            f"install it with '{python} -m pip install tensorflow', or leave --python"
            " out and give --tensorflow",
        )
    if wanted is not None and not _fits(found.tensorflow, wanted):
        raise StepError(
            f"{python} has TensorFlow {found.tensorflow}, not {wanted}",
            "give another --python or another --tensorflow, or leave one of them out",
        )
    return found


def existing(folder: Path, wanted: str) -> Environment | None:
    """The environment in a folder, if it is complete and has that TensorFlow."""
    ready = folder / READY
    if not ready.exists():
        return None
    if _PROJECT.exists() and ready.stat().st_mtime < _PROJECT.stat().st_mtime:
        # Its dependencies may have changed.
        return None
    found = _probed(_python_in(folder))
    if found is None or not _fits(found.tensorflow, wanted):
        return None
    return found


def make(folder: Path, wanted: str, log: Path, show: Show) -> Environment:
    """Makes an environment in a folder, or completes the one that is there.

    Args:
      folder: the folder.
      wanted: the version of TensorFlow: 2.22.0rc0, or 2.22 for the newest of these.
      log: the file for the output of pip.
      show: shows a line of progress.

    Raises:
      StepError: the environment cannot be made, or pip fails.
    """
    if not _PROJECT.exists():
        raise StepError(
            f"there is no {_PROJECT} here, which lists what the environment needs",
            "run the command in the folder of opwright's source tree, or give --python",
        )
    (folder / READY).unlink(missing_ok=True)
    programs.run(
        [sys.executable, "-m", "venv", folder],
        log,
        show,
        advice=f"delete {folder}, and run the command again",
    )
    python = _python_in(folder)
    requirement = f"tensorflow=={wanted}" + (".*" if wanted.count(".") == 1 else "")
    minor = ".".join(map(str, sys.version_info[:2]))
    listing = (
        f"'{python} -m pip index versions --pre tensorflow' lists the versions that"
        f" there are for Python {minor}"
    )
    again = "mend what pip names, and run the command again"
    for words, advice in (
        (["--upgrade", "pip>=25.1"], again),
        (["--editable", ".[codegen]", "--group", "smoke", requirement], listing),
        # A new TensorFlow may have no tf_keras of its version, and the one before
        # refuses it.
        (["--no-deps", f"tf_keras<={minor_of(wanted)}.99"], again),
    ):
        pip = ["-m", "pip", "--disable-pip-version-check", "--no-input"]
        command = [str(python), *pip, "install", "--progress-bar=off", *words]
        programs.run(command, log, show, advice=advice)
    found = given(python, wanted)
    (folder / READY).touch()
    return found


def _python_in(folder: Path) -> Path:
    return folder.absolute() / "bin" / "python"


def _probed(python: Path) -> Environment | None:
    """The environment of an interpreter; None if it cannot be run."""
    try:
        done = subprocess.run(
            [python, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=True,
        )
        version, tensorflow = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return Environment(python, version, tensorflow or "")


def _fits(found: str, wanted: str) -> bool:
    """Whether a version of TensorFlow is the wanted one, or of the wanted minor."""
    return found == wanted or minor_of(found) == wanted


def is_version(text: str) -> bool:
    """Whether a text is a version of TensorFlow: 2.22, 2.22.0 or 2.22.0rc0."""
    return bool(re.fullmatch(r"\d+\.\d+(\.\d+((a|b|rc|\.dev)\d+)?)?", text))
