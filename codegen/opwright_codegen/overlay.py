"""A folder of TensorFlow's stubs that has all of `tf.raw_ops`."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

from opwright_codegen import contents, emit, load, raw_ops, stubs, write
from opwright_codegen.problems import OpdefError, SourceError

#: Makes `tf.raw_ops` known, which `tensorflow/__init__.pyi` of typeshed does not name.
_EXPORT: Final = "from tensorflow import raw_ops as raw_ops\n"
#: Classes of TensorFlow that programs name in annotations.
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
#: What stands for the rest of TensorFlow where it has no stubs.
_ALONE: Final = {
    "__init__.pyi": _IMPORTS
    + _EXPORT
    + "".join(map(_ALIAS.format, _CLASSES))
    + "def __getattr__(name: str) -> Incomplete: ...\n",
    "_aliases.pyi": _IMPORTS
    + "".join(map(_ALIAS.format, ("DTypeLike", "ShapeLike", "TensorCompatible"))),
}
#: Other stubs are as they come. mypy would report what strict settings find in them.
_UNCHECKED: Final = "# mypy: ignore-errors\n"


def installed() -> Path | None:
    """The stubs of the installed types-tensorflow; None without it."""
    try:
        found = distribution("types-tensorflow")
    except PackageNotFoundError:
        return None
    return Path(str(found.locate_file("tensorflow-stubs")))


def write_stubs(opdefs: Path, folder: Path, base: Path | None) -> int:
    """Writes stubs of TensorFlow with all of `tf.raw_ops`; returns the number of ops.

    Args:
      opdefs: folder of opdefs.
      folder: where the stubs go: a folder that is called `tensorflow`.
      base: the other stubs of TensorFlow; None for none.

    Raises:
      OpdefError: the opdefs have mistakes. Nothing was written.
      SourceError: the opdefs are not TensorFlow's, or `base` has no stubs. Nothing was
        written.
    """
    ops = load.read(opdefs)
    raw, problems = raw_ops.read(opdefs, load.find(opdefs))
    if problems:
        raise OpdefError(problems)
    if raw is None:
        raise SourceError(
            f"{opdefs}: has no {load.RAW_OPS}; give the opdefs of TensorFlow's ops"
        )
    stub = stubs.typeshed(ops, raw)
    files = _ALONE if base is None else _files(base)
    for name, text in files.items():
        write.write(folder / name, text.encode())
    text = emit.raw_ops_stub("", stub)
    if base is None:
        # A comment that silences mypy is of no use where tensors are of any type.
        text = _UNCHECKED + text
    write.write(folder / "raw_ops.pyi", text.encode())
    return len(stub.functions)


def _files(base: Path) -> dict[str, str]:
    """The stubs below `base` by their names, with `raw_ops` among what they export."""
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
