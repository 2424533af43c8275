"""Chooses what a release is for: versions of TensorFlow, interpreters, and opwright."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from opwright_codegen import load, registries
from opwright_codegen.model import version_number
from opwright_codegen.problems import SourceError
from opwright_codegen.upgrade.environment import is_version, minor_of

#: The distributions of TensorFlow that a project may require.
_NAMES: Final = ("tensorflow", "tensorflow-cpu", "tensorflow-rocm")
#: No minor version of TensorFlow has had as many releases.
_PATCHES: Final = 20
_PROBE: Final = "import sys; print('%d.%d' % sys.version_info[:2])"


@dataclass(frozen=True)
class Interpreter:
    """An interpreter of Python, and its minor version."""

    path: Path
    version: str


@dataclass(frozen=True)
class Opwright:
    """What environments install as opwright.

    `source`: a folder with opwright's sources, or None. `requirement`: what pip takes.
    """

    requirement: str
    source: Path | None = None
    wheel: Path | None = None


def versions(given: Sequence[str], dependencies: Sequence[str]) -> list[str]:
    """The versions of TensorFlow to release for, the oldest first.

    Args:
      given: those that the user asks for, such as 2.21 or 2.22.0rc0; empty for those
        that opwright knows.
      dependencies: the requirements of the project.

    Raises:
      SourceError: there is none, two are of one minor version, or the project excludes
        one.
    """
    stated = tensorflow_of(dependencies)
    chosen = list(given) or list(registries.kept(load.own_opdefs()))
    excluded = [one for one in chosen if not all(_takes(r, one) for r in stated)]
    if given and excluded:
        raise SourceError(
            f"pyproject.toml requires {' and '.join(map(str, stated))}, which excludes"
            f" TensorFlow {', '.join(excluded)}: change one of them"
        )
    chosen = [one for one in chosen if one not in excluded]
    if not chosen:
        raise SourceError(
            f"pyproject.toml requires {' and '.join(map(str, stated))}, and opwright"
            f" knows TensorFlow {', '.join(excluded)}: give --tensorflow"
        )
    by_minor: dict[str, str] = {}
    for one in chosen:
        other = by_minor.setdefault(minor_of(one), one)
        if other != one:
            raise SourceError(
                f"{other} and {one} are both TensorFlow {minor_of(one)}, and a wheel"
                " has one library for it: give one of them"
            )
    return [by_minor[minor] for minor in sorted(by_minor, key=version_number)]


def tensorflow_of(dependencies: Sequence[str]) -> list[Requirement]:
    """The requirements of TensorFlow among those of a project."""
    return [one for one in map(_requirement, dependencies) if one.name in _NAMES]


def _takes(requirement: Requirement, version: str) -> bool:
    """Whether a requirement takes a version, or any release of a minor version."""
    patches = [f"{version}.{patch}" for patch in range(_PATCHES)]
    tried = patches if version.count(".") == 1 else [version]
    return any(requirement.specifier.contains(one, prereleases=True) for one in tried)


def pinned(version: str) -> str:
    """The requirement of a version of TensorFlow: 2.22 stands for the newest 2.22."""
    return f"tensorflow=={version}" + (".*" if version.count(".") == 1 else "")


def interpreters(given: Sequence[str]) -> list[Interpreter]:
    """The interpreters to test with, in the given order.

    Args:
      given: paths, or versions such as 3.12; empty for the running interpreter.

    Raises:
      SourceError: there is no such interpreter, or two are of one version.
    """
    found = [_interpreter(one) for one in given or [sys.executable]]
    seen: dict[str, Interpreter] = {}
    for one in found:
        other = seen.setdefault(one.version, one)
        if other is not one:
            raise SourceError(
                f"{other.path} and {one.path} are both Python {one.version}: give one"
            )
    return found


def _interpreter(text: str) -> Interpreter:
    is_number = text.replace(".", "").isdigit()
    if not is_number:
        # A link stays as it is: Python finds an environment by its path.
        places = [Path(shutil.which(text) or text).absolute()]
    else:
        pyenv = Path.home() / ".pyenv" / "versions"
        named = shutil.which(f"python{text}")
        places = [Path(named)] if named else []
        places += sorted(pyenv.glob(f"{text}.*/bin/python{text}"))
    for path in places:
        version = _version_of(path)
        if version is not None and (not is_number or version == text):
            return Interpreter(path, version)
    raise SourceError(
        f"--python {text}: no such interpreter starts; give the path of one, such as"
        " /usr/bin/python3.12, or install it"
    )


def _version_of(path: Path) -> str | None:
    try:
        done = subprocess.run(
            [path, "-c", _PROBE], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def opwright(given: str | None) -> Opwright:
    """What environments install as opwright; by default, what is installed here.

    Args:
      given: the path of a wheel or of a folder with the sources, or a requirement.

    Raises:
      SourceError: it is none of these.
    """
    if given is not None:
        if not given.strip():
            raise SourceError("--opwright is empty: give a path or a requirement")
        path = Path(given)
        if path.exists():
            return _local(path)
        if given.endswith(".whl") or "/" in given.partition("@")[0]:
            raise SourceError(f"--opwright {given}: there is no such file or folder")
        if _requirement(given).name != "opwright":
            raise SourceError(f"--opwright {given}: this is no requirement of opwright")
        return Opwright(given)
    try:
        installed = importlib.metadata.distribution("opwright")
    except importlib.metadata.PackageNotFoundError:
        raise SourceError("opwright is not installed here; give --opwright") from None
    url = json.loads(installed.read_text("direct_url.json") or "{}").get("url", "")
    path = Path(unquote(urlsplit(url).path))
    if url.startswith("file:") and path.exists():
        return _local(path)
    return Opwright(f"opwright=={installed.version}")


def _local(path: Path) -> Opwright:
    path = path.absolute()
    if path.suffix == ".whl":
        return Opwright(str(path), wheel=path)
    if (path / "pyproject.toml").exists():
        return Opwright(str(path), source=path)
    raise SourceError(f"{path} is no wheel, and no folder with opwright's sources")


def _requirement(text: str) -> Requirement:
    try:
        return Requirement(text)
    except InvalidRequirement as error:
        raise SourceError(f"{text!r} is no requirement of a package: {error}") from None


def is_wanted(text: str) -> bool:
    """Whether a text is a version of TensorFlow that a release can be for."""
    return is_version(text)
