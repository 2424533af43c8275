"""Reads the project that is released, and tells whether its files have changed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final, TypeAlias, cast

from opwright_codegen.problems import SourceError

_Table: TypeAlias = "dict[str, object]"
#: The module that reads TOML; Python has it since 3.11.
_TOML: Final = "tomllib" if sys.version_info >= (3, 11) else "tomli"
_LEFT_OUT: Final = ("build", "dist", "wheelhouse", "__pycache__")
#: Files that builds write among the sources.
_MADE: Final = (".so", ".pyc")
#: The group of what the tests need, in pyproject.toml.
GROUP: Final = "test"


@dataclass(frozen=True)
class Project:
    """A project: its folder, and what its pyproject.toml says.

    `test_group`: the dependency groups as JSON; None if none is for the tests.
    `python_path`: folders that pytest adds to Python's path, without `src`, which would
    hide the installed package.
    """

    folder: Path
    name: str
    dependencies: tuple[str, ...]
    test_group: str | None
    python_path: tuple[str, ...]

    def digest(self, wanted: Callable[[Path], bool]) -> str:
        """A digest of the names and contents of some files of the project."""
        total = hashlib.sha256()
        for path in sorted(_files(self.folder)):
            relative = path.relative_to(self.folder)
            if wanted(relative):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                total.update(f"{relative}\0{content}\0".encode())
        return total.hexdigest()


def read(folder: Path) -> Project:
    """The project in a folder.

    Raises:
      SourceError: there is none.
    """
    for name in ("pyproject.toml", "CMakeLists.txt", "Makefile", "hatch_build.py"):
        if not (folder / name).is_file():
            raise SourceError(
                f"{folder / name} is missing: run release in the folder of a project"
                " that 'opwright-codegen new' made, or give --project"
            )
    path = folder / "pyproject.toml"
    try:
        loads: Callable[[str], _Table] = import_module(_TOML).loads
        content = loads(path.read_text("utf-8"))
    except ValueError as error:
        raise SourceError(f"{path} cannot be read: {error}") from error
    stated = _table(content, "project")
    pytest = _table(_table(_table(content, "tool"), "pytest"), "ini_options")
    groups = _table(content, "dependency-groups")
    return Project(
        folder.absolute(),
        str(stated.get("name", folder.absolute().name)),
        tuple(_texts(stated, "dependencies")),
        json.dumps(groups) if GROUP in groups else None,
        tuple(one for one in _texts(pytest, "pythonpath") if one != "src"),
    )


def of_library(path: Path) -> bool:
    """Whether the library may depend on a file."""
    return path.suffix not in (".py", ".pyi", ".md") and of_wheel(path)


def of_wheel(path: Path) -> bool:
    """Whether the wheel may depend on a file."""
    return path.parts[0] != "tests"


def of_tests(path: Path) -> bool:
    """Whether the tests may depend on a file: on any."""
    return True


def _files(folder: Path) -> Iterator[Path]:
    """The files that a person or the generator wrote."""
    for place, folders, names in os.walk(folder):
        here = Path(place)
        folders[:] = [
            one
            for one in folders
            if one not in _LEFT_OUT
            and not one.startswith(".")
            and not (here / one / "pyvenv.cfg").exists()
        ]
        for name in names:
            path = here / name
            if path.suffix not in _MADE and path.is_file():
                yield path


def _table(content: _Table, key: str) -> _Table:
    found = content.get(key, {})
    return cast(_Table, found) if isinstance(found, dict) else {}


def _texts(content: _Table, key: str) -> list[str]:
    found = content.get(key, [])
    if isinstance(found, str):
        return found.split()
    return [str(one) for one in found] if isinstance(found, list) else []
