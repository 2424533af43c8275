"""Reads ops from the sources that commands accept.

A source is TensorFlow's registry, that of a version of TensorFlow, a folder of opdefs,
or files. Files are libraries, each of which is read in another process, and saved lists
of ops.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from opwright_codegen import contents, load, registries, registry
from opwright_codegen.left_out import OWN_OPS, TEST_OPS
from opwright_codegen.model import Op
from opwright_codegen.problems import Skipped, SourceError

_LIBRARIES: Final = (".so", ".dylib", ".dll")
_LISTS: Final = (".pb", ".pbtxt")


def ops(source: str) -> tuple[list[Op], list[Skipped]]:
    """The ops of a source that can have classes, and the ops that are skipped.

    Raises:
      SourceError: the source cannot be read.
      OpdefError: the source is a folder of opdefs with mistakes.
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
    if not Path(source).exists():
        source = str(registries.kept(load.own_opdefs()).get(source, source))
    return of_files([source])


def opdefs_of(source: str) -> Path | None:
    """The folder of opdefs that a source names; None for another source."""
    if source == "installed":
        return None
    if source == "opwright":
        return load.own_opdefs()
    path = Path(source)
    # An empty folder counts as a folder of opdefs, not as one of libraries.
    return path if path.is_dir() and (load.find(path) or not _within(path)) else None


@dataclass(frozen=True)
class Files:
    """The OpDefs of libraries and saved lists, together.

    `unread`: for each file that cannot be read, the reason.
    """

    op_defs: list[Any]
    unread: tuple[str, ...] = ()


def of_files(names: Iterable[str]) -> list[Any]:
    """The OpDefs of libraries and saved lists, together.

    Args:
      names: files, or folders of files. A name may be several, separated by commas.

    Raises:
      SourceError: some files cannot be read, all of which it names; or two files have
        different definitions of the same op.
    """
    found = read_files(names)
    if found.unread:
        raise SourceError(*found.unread)
    return found.op_defs


def read_files(names: Iterable[str]) -> Files:
    """Like `of_files`, but without the files that cannot be read.

    Raises:
      SourceError: no file can be read, or two files have different definitions of the
        same op.
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
            # Loading a library also loads libraries with which it is linked, so an op
            # may be found twice.
            if other != op_def:
                problems.append(
                    f"{op_def.name} is in {where} and in {path}, and not the same: a"
                    " process can hold one op of a name. Give one version of a library,"
                    " or rename the op in one of two libraries"
                )
    if problems or (unread and not found):
        raise SourceError(*unread, *problems)
    if not found:
        paths = [path for name in names for part in _parts(name) for path in part]
        raise SourceError(*(f"{path}: {_why_no_ops(path)}" for path in paths))
    op_defs = [op_def for op_def, _ in found.values()]
    return Files(op_defs, tuple(unread))


def _why_no_ops(path: Path) -> str:
    if not _is_library(path):
        return "lists no op"
    return f"registers no op: {registry.why_no_ops(path)}"


def ops_without_shapes(names: Iterable[str]) -> list[str]:
    """The ops of libraries for which TensorFlow infers no shapes, sorted by name.

    Args:
      names: files or folders, as for `of_files`. Saved lists and files that cannot be
        read are skipped.
    """
    found: set[str] = set()
    for path in [path for name in names for part in _parts(name) for path in part]:
        if _is_library(path):
            found.update(registry.ops_without_shapes(path))
    return sorted(name for name in found if not name.startswith("_"))


def wanted(op_defs: Iterable[Any]) -> list[Any]:
    """The OpDefs that can have classes: no internal ops, no test ops of TensorFlow."""
    listed = list(op_defs)
    left_out = TEST_OPS | OWN_OPS if is_tensorflow(listed) else frozenset()
    return [
        op_def
        for op_def in listed
        if not op_def.name.startswith("_") and op_def.name not in left_out
    ]


def is_tensorflow(op_defs: Iterable[Any]) -> bool:
    """Whether these are the ops of TensorFlow, not those of a library."""
    return any(op_def.name == "NoOp" for op_def in op_defs)


def _parts(name: str) -> Iterable[list[Path]]:
    """The files that a name stands for, one list for each folder or file."""
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
        if _is_library(path) or contents.is_list(path, *_LISTS)
        if path.is_file()
    )


def _is_library(path: Path) -> bool:
    # libfoo.so.2 is a library, too.
    return not {*path.suffixes}.isdisjoint(_LIBRARIES) and not contents.is_list(
        path, *_LISTS
    )
