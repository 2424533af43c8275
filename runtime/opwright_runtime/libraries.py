"""Libraries of custom ops: loads them, and finds the library that has a kernel."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import tensorflow as tf

from opwright_runtime import _library_versions
from opwright_runtime._internals import (
    kernel_registry,
    op_def_registry,
    session_library,
)

if TYPE_CHECKING:
    import mmap

__all__ = ["load_library", "provider", "register_gradients"]


def load_library(package: str, library: str) -> None:
    """Loads the library of a generated package.

    Args:
        package: the package, which is being imported.
        library: a file, relative to the package's folder; or `module:function`, a
            function to call. The module may be relative to the package. If there is no
            such file, the one for this TensorFlow in `_lib` beside it is loaded, such
            as `_lib/2.21/libmy_ops.so`.

    Raises:
        ImportError: there is no such file, none for this TensorFlow, TensorFlow cannot
            load it, it is linked with another copy of TensorFlow, another library has
            the kernels of an op of the package, or there is no such function.
    """
    module, is_function, function = library.partition(":")
    if is_function:
        found = import_module(module, package)
        if not callable(loader := getattr(found, function, None)):
            raise ImportError(
                f"{package} is loaded by {library}, but {found.__name__} has no "
                f"function {function}",
                name=package,
            )
        loader()
        return
    folder = os.path.dirname(str(sys.modules[package].__file__))
    path = _found(package, os.path.abspath(os.path.join(folder, library)))
    if (own := _own_framework(Path(path))) is not None:
        raise ImportError(
            f"{package} loads {path}, which is linked with {own}, a copy of TensorFlow "
            "of its own; a process can hold one. Leave TensorFlow's libraries out "
            "of the wheel: auditwheel repair --exclude libtensorflow_framework.so.2 "
            "--exclude libtensorflow_cc.so.2",
            name=package,
        )
    before = _kernels_of_known_ops(package)
    try:
        session_library.TF_DeleteLibraryHandle(session_library.TF_LoadLibrary(path))
    except (tf.errors.OpError, RuntimeError) as error:
        raise ImportError(
            f"{package} loads {path}, which TensorFlow {tf.__version__} cannot load: "
            f"{getattr(error, 'message', error)}; {_remedy(Path(path))}",
            name=package,
        ) from error
    _refuse_second_kernels(package, path, before)


def _found(package: str, path: str) -> str:
    """The library at a path, or the one for this TensorFlow in `_lib` beside it.

    Raises:
        ImportError: there is neither.
    """
    if os.path.exists(path):
        return path
    folder, name = Path(path).parent / _library_versions.FOLDER, Path(path).name
    there = _library_versions.versions(folder, name)
    if not there:
        raise ImportError(
            f"{package} loads {path}, which is not there; build it first", name=package
        )
    found = _library_versions.place(folder, name)
    here = _library_versions.minor(tf.__version__)
    if here not in there:
        raise ImportError(
            f"{package} has libraries for TensorFlow {', '.join(there)}, this is "
            f"TensorFlow {tf.__version__}; install one of these, or a {package} that "
            f"was released for TensorFlow {here}",
            name=package,
        )
    built = _built_for(found.read_bytes())
    if built is not None and (misfit := _library_versions.misfit(built)):
        raise ImportError(
            f"{package} loads {found}, which {misfit}; install TensorFlow "
            f"{built}, or a {package} that was released for this TensorFlow",
            name=package,
        )
    return str(found)


def _built_for(content: bytes) -> str | None:
    """The TensorFlow that a library says it was built for; None if it says none."""
    # `tensorflow.cmake` of a project puts this text into its library.
    found = re.search(rb"built for TensorFlow ([0-9][^\0]*)\0", content)
    return None if found is None else found[1].decode()


def _remedy(path: Path) -> str:
    """What to do about a library that TensorFlow cannot load."""
    content = path.read_bytes() if path.is_file() else b""
    if not content.startswith(b"\x7fELF"):
        return "the file is damaged or no library; build or install it again"
    built = _built_for(content)
    if built is None or built == tf.__version__:
        return "build it against this TensorFlow"
    return (
        f"it was built for TensorFlow {built}; install that, or build the library "
        "against this TensorFlow"
    )


def _kernels_of_known_ops(package: str) -> dict[str, Counter[bytes]]:
    """By op of a package that is registered already, its kernels."""
    try:
        ops = import_module(f"{package}._table").OPS
    except ModuleNotFoundError:
        return {}
    return {
        name: _kernels(name) for name in ops if op_def_registry.get(name) is not None
    }


def _refuse_second_kernels(
    package: str, path: str, before: Mapping[str, Counter[bytes]]
) -> None:
    """Refuses a library with kernels that another library has registered.

    TensorFlow takes such a library without an error. It then runs neither kernel.
    """
    for name, known in before.items():
        added = _kernels(name) - known
        if any(kernel in known for kernel in added):
            own = Path(path).resolve()
            others = [str(one) for one in _libraries_with(name) if one != own]
            raise ImportError(
                f"{package} loads {path}, which registers the op {name}. So does "
                f"{' and '.join(others) or 'TensorFlow'}. A process can hold one op "
                "of a name: import one of the packages, or rename the op in one of "
                "the libraries",
                name=package,
            )


def _kernels(op_name: str) -> Counter[bytes]:
    """The registered kernels of an op. Equal texts are kernels for the same calls."""
    found = kernel_registry.get_registered_kernels_for_op(op_name).kernel
    return Counter(row.SerializeToString(deterministic=True) for row in found)


def register_gradients(package: str, module: str) -> None:
    """Imports the module that registers the gradients of a package's ops.

    Raises:
        ImportError: there is no such module.
    """
    import_module(module, package)


def provider(op_name: str) -> str:
    """The library that has an op's kernels: "TensorFlow", or the name of a file."""
    from opwright_runtime.runs_on import is_known  # It reads a large table.

    if is_known(op_name) or op_name.startswith("_"):
        return "TensorFlow"
    found = [path.name for path in _libraries_with(op_name)]
    return " or ".join(found) or "TensorFlow"


def several(op_name: str) -> list[str]:
    """The files of the libraries that have an op, if there are several."""
    found = [str(path) for path in _libraries_with(op_name)]
    return found if len(found) > 1 else []


def _libraries_with(op_name: str) -> Iterator[Path]:
    """Shared libraries in this process that register an op."""
    # A registration contains the name of its op as a text that ends with a zero byte.
    text = op_name.encode() + b"\0"
    return (path for path in _libraries() if _has(path, text))


def _libraries() -> Iterator[Path]:
    """Shared libraries in this process that need TensorFlow, except its own."""
    try:
        rows = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    except OSError:  # Not Linux.
        return
    own = os.path.realpath(tf.sysconfig.get_lib())
    paths = {row.split(maxsplit=5)[-1] for row in rows if " r-xp " in row}
    for path in map(Path, sorted(paths)):
        if path.is_relative_to(own) or not path.is_file():
            continue
        if _has(path, b"libtensorflow_framework"):
            yield path


def _own_framework(path: Path) -> str | None:
    """The name of a copy of TensorFlow's library that this library needs, if any.

    Tools such as auditwheel copy libraries into a wheel, with a digest in their names.
    """
    if not path.is_file() or not path.stat().st_size:
        return None
    with _mapped(path) as content:
        found = re.search(
            rb"\0(libtensorflow_(?:framework|cc)-[0-9a-f]{6,}\.so[.0-9]*)\0", content
        )
        return None if found is None else found[1].decode()


def _has(path: Path, text: bytes) -> bool:
    with _mapped(path) as content:
        return content.find(text) >= 0


@contextmanager
def _mapped(path: Path) -> Iterator[mmap.mmap]:
    import mmap

    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as m:
        yield m
