"""Writes a folder of stubs of TensorFlow that contains all of `tf.raw_ops`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from opwright_codegen import contents, emit, load, raw_ops, stubs, write
from opwright_codegen.problems import OpdefError, SourceError

#: This line exports `tf.raw_ops`. typeshed's `tensorflow/__init__.pyi` does not.
_EXPORT: Final = "from tensorflow import raw_ops as raw_ops\n"
#: The classes of TensorFlow that programs use in annotations.
_CLASSES: Final = (
    *("DType", "GradientTape", "Graph", "IndexedSlices", "Module", "Operation"),
    *("RaggedTensor", "RaggedTensorSpec", "SparseTensor", "SparseTensorSpec"),
    *("Tensor", "TensorArray", "TensorShape", "TensorSpec", "TypeSpec", "Variable"),
)
_ALIAS: Final = "{}: TypeAlias = Incomplete\n"
_IMPORTS: Final = """\
from _typeshed import Incomplete
from typing_extensions import TypeAlias

"""
#: Minimal stubs of the rest of TensorFlow, for an environment without its stubs.
_ALONE: Final = {
    "__init__.pyi": _IMPORTS
    + _EXPORT
    + "".join(map(_ALIAS.format, _CLASSES))
    + "def __getattr__(name: str) -> Incomplete: ...\n",
    "_aliases.pyi": _IMPORTS
    + "".join(map(_ALIAS.format, ("DTypeLike", "ShapeLike", "TensorCompatible"))),
}
#: typeshed's stubs are copied unchanged. In strict mode, mypy finds errors in them.
#: With this comment it does not report these.
_UNCHECKED: Final = "# mypy: ignore-errors\n"


def installed() -> Path | None:
    """The folder of the stubs of the installed types-tensorflow; None without it."""
    try:
        found = distribution("types-tensorflow")
    except PackageNotFoundError:
        return None
    return Path(str(found.locate_file("tensorflow-stubs")))


def write_stubs(opdefs: Path, folder: Path, base: Path | None) -> int:
    """Writes stubs of TensorFlow with all of `tf.raw_ops`; returns the number of ops.

    Args:
      opdefs: the folder of opdefs.
      folder: the folder to write, which must have the name `tensorflow`.
      base: the folder of the other stubs of TensorFlow; None for none.

    Raises:
      OpdefError: the opdefs have mistakes. Nothing was written.
      SourceError: the opdefs are not TensorFlow's, or `base` has no stubs. Nothing was
        written.
    """
    files = _ALONE if base is None else _files(base)
    ops = load.read(opdefs)
    raw, problems = raw_ops.read(opdefs, load.find(opdefs))
    if problems:
        raise OpdefError(problems)
    if raw is None:
        raise SourceError(
            f"{opdefs}: has no {load.RAW_OPS}; give the opdefs of TensorFlow's ops"
        )
    stub = stubs.typeshed(ops, raw)
    for name, text in files.items():
        write.write(folder / name, text.encode())
    text = emit.raw_ops_stub("", stub)
    if base is None:
        # Without stubs, tensors have the type Any. mypy then reports that comments
        # `type: ignore` in the stub are unused.
        text = _UNCHECKED + text
    write.write(folder / "raw_ops.pyi", text.encode())
    return len(stub.functions)


def _files(base: Path) -> dict[str, str]:
    """The stubs below `base` by their paths. They also export `raw_ops`."""
    files = {
        path.relative_to(base).as_posix(): _UNCHECKED + contents.of(path).decode()
        for path in sorted(base.rglob("*.pyi"))
    }
    top = files.get("__init__.pyi")
    if top is None:
        raise SourceError(
            f"{base}: has no __init__.pyi; give the folder tensorflow-stubs of"
            " types-tensorflow"
        )
    if _EXPORT not in top:
        files["__init__.pyi"] = f"{top.rstrip()}\n\n{_EXPORT}"
    return files
