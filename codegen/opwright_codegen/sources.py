"""Where ops come from: what commands take as a source.

TensorFlow's registry, opdefs, or files: libraries, each read in a process of its own,
and saved lists of ops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opwright_codegen import load, registry
from opwright_codegen.left_out import OWN_OPS, TEST_OPS
from opwright_codegen.model import Op
from opwright_codegen.problems import Skipped, SourceError

_LIBRARIES: Final = (".so", ".dylib", ".dll")
_LISTS: Final = (".pb", ".pbtxt")


def ops(source: str) -> tuple[list[Op], list[Skipped]]:
    """The ops of a source that can have classes, and those that no opdef can say.

    Raises:
      SourceError: it cannot be read.
      OpdefError: it is a folder of opdefs with mistakes.
    """
    folder = opdefs_of(source)
    if folder is not None:
        return load.read(folder), []
    found: list[Op] = []
    skipped: list[Skipped] = []
    for op_def in wanted(op_defs(source)):
        try:
            found.append(registry.from_op_def(op_def, "core"))
        except SourceError as error:
            skipped.append(Skipped(op_def.name, str(error)))
    return found, skipped


def op_defs(source: str) -> list[Any]:
    """The OpDefs of a source.

    Raises: as `ops` does.
    """
    if source == "installed":
        return registry.installed()
    folder = opdefs_of(source)
    if folder is not None:
        return [registry.to_op_def(op) for op in load.read(folder)]
    return of_files([source])


def opdefs_of(source: str) -> Path | None:
    """The folder of opdefs that a source is, if it is one."""
    if source == "installed":
        return None
    if source == "opwright":
        return load.own_opdefs()
    path = Path(source)
    # An empty folder, too, holds no opdefs rather than no libraries.
    return path if path.is_dir() and (load.find(path) or not _within(path)) else None


@dataclass(frozen=True)
class Files:
    """What libraries and saved lists have, together.

    `unread`: of each file that cannot be read, why.
    """

    op_defs: list[Any]
    unread: tuple[str, ...] = ()


def of_files(names: Iterable[str]) -> list[Any]:
    """The OpDefs of libraries and saved lists, together.

    Args:
      names: files, or folders of such; several in one with commas between them.

    Raises:
      SourceError: some cannot be read, all of which it names; or two of them have the
        same op, and not alike.
    """
    found = read_files(names)
    if found.unread:
        raise SourceError(*found.unread)
    return found.op_defs


def read_files(names: Iterable[str]) -> Files:
    """The same, of those that can be read.

    Raises:
      SourceError: none can be read; or two of them have the same op, and not alike.
    """
    names = list(names)
    unread: list[str] = []
    problems: list[str] = []
    found: dict[str, tuple[Any, Path]] = {}
    for path in [path for name in names for part in _parts(name) for path in part]:
        try:
            here = registry.library(path) if _is_library(path) else registry.saved(path)
        except SourceError as error:
            unread += error.reasons
            continue
        for op_def in here:
            other, where = found.setdefault(op_def.name, (op_def, path))
            # A library that another one is linked with brings its ops along.
            if other != op_def:
                problems.append(
                    f"{op_def.name} is in {where} and in {path}, and not the same:"
                    " give one version of a library"
                )
    if problems or (unread and not found):
        raise SourceError(*unread, *problems)
    if not found:
        raise SourceError(f"{', '.join(names)}: registers no op")
    op_defs = [op_def for op_def, _ in found.values()]
    return Files(op_defs, tuple(unread))


def ops_without_shapes(names: Iterable[str]) -> list[str]:
    """The ops of libraries for which TensorFlow infers no shapes, sorted by name.

    Args:
      names: as `of_files` takes them. Saved lists and files that cannot be read have
        none.
    """
    found: set[str] = set()
    for path in [path for name in names for part in _parts(name) for path in part]:
        if _is_library(path):
            found.update(registry.ops_without_shapes(path))
    return sorted(name for name in found if not name.startswith("_"))


def wanted(op_defs: Iterable[Any]) -> list[Any]:
    """Those that can have classes: no internal op, no test op of TensorFlow's."""
    listed = list(op_defs)
    left_out = TEST_OPS | OWN_OPS if is_tensorflow(listed) else frozenset()
    return [
        op_def
        for op_def in listed
        if not op_def.name.startswith("_") and op_def.name not in left_out
    ]


def is_tensorflow(op_defs: Iterable[Any]) -> bool:
    """Whether these are TensorFlow's ops and not a library's."""
    return any(op_def.name == "NoOp" for op_def in op_defs)


def _parts(name: str) -> Iterable[list[Path]]:
    """The files that a name stands for, folder by folder."""
    for part in [name] if Path(name).exists() else name.split(","):
        path = Path(part)
        if not path.is_dir():
            yield [path]
            continue
        files = _within(path)
        if not files:
            kinds = ", ".join((*_LIBRARIES, *_LISTS))
            raise SourceError(f"{path}: holds no libraries and no lists ({kinds})")
        yield files


def _within(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if _is_library(path) or path.suffix in _LISTS
        if path.is_file()
    )


def _is_library(path: Path) -> bool:
    # libfoo.so.2, too.
    return not {*path.suffixes}.isdisjoint(_LIBRARIES) and path.suffix not in _LISTS
