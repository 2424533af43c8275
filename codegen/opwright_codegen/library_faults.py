"""Why a library of ops does not load, or registers nothing: what its file says."""

from __future__ import annotations

import ctypes
import mmap
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_BUILT_FOR: Final = re.compile(rb"built for TensorFlow ([0-9][^\0]*)\0")
_SYMBOL: Final = re.compile(r"undefined symbol: (\w+)")
#: Abseil's names have the version of Abseil, which each TensorFlow sets.
_ABSEIL: Final = re.compile(rb"lts_([0-9]{8})")
#: One with a digest in its name.
_OWN_FRAMEWORK: Final = re.compile(
    rb"\0(libtensorflow_(?:framework|cc)-[0-9a-f]{6,}\.so[.0-9]*)\0"
)
_FRAMEWORK: Final = re.compile(rb"\0(libtensorflow_(?:framework|cc)[-.\w]*)\0")


def own_framework(path: Path) -> str | None:
    """The name of a copy of TensorFlow's library that a library needs, if any.

    Tools such as auditwheel copy libraries into a wheel, with a digest in their names.
    """
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return None
        with mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            found = _OWN_FRAMEWORK.search(mapped)
            return None if found is None else found[1].decode()


def of_unloadable(path: Path, reason: str, framework: Path, version: str) -> str:
    """What a library lacks that TensorFlow cannot load, or "".

    Args:
        path: the library.
        reason: the loader's text.
        framework: TensorFlow's own library.
        version: of TensorFlow.
    """
    facts = []
    if symbol := _SYMBOL.search(reason):
        facts.append(f"the symbol is {demangled(symbol[1])}")
    facts += _versions(path.read_bytes(), framework, version)
    return "; ".join(facts)


def of_silent(path: Path, loaded: Sequence[str], framework: Path, version: str) -> str:
    """Why a library that TensorFlow has loaded registers no op.

    Args:
        path: the library.
        loaded: the files of TensorFlow's libraries in the process that loaded it.
        framework: TensorFlow's own library.
        version: of TensorFlow.
    """
    own = framework.resolve().parent
    others = [file for file in loaded if Path(file).resolve().parent != own]
    if others:
        return (
            f"it loads {', '.join(others)}, a second copy of TensorFlow, and registers"
            f" its ops there: link it with {framework}, without a path of its own"
            " (RPATH)"
        )
    content = path.read_bytes()
    if not _FRAMEWORK.search(content):
        return (
            "it is not linked with libtensorflow_framework.so.2: either it has no"
            " REGISTER_OP, or it contains a copy of TensorFlow and registers its ops"
            " there. Link it with the flags of tf.sysconfig.get_link_flags()"
        )
    versions = "; ".join(_versions(content, framework, version))
    return (
        "it has no REGISTER_OP, or the linker left out the object files that have"
        f" them (link static libraries with --whole-archive){versions and '; '}"
        f"{versions}"
    )


def _versions(content: bytes, framework: Path, version: str) -> list[str]:
    """The signs in a library's file that it was built for another TensorFlow."""
    if found := _BUILT_FOR.search(content):
        built = found[1].decode()
        same = built == version
        return [] if same else [f"it was built for TensorFlow {built}"]
    theirs = {tag.decode() for tag in _ABSEIL.findall(content)}
    ours = {tag.decode() for tag in _ABSEIL.findall(framework.read_bytes())}
    if theirs and not theirs & ours:
        return [
            "it was built for another TensorFlow: its Abseil is"
            f" {', '.join(sorted(theirs))}, and that of TensorFlow {version} is"
            f" {', '.join(sorted(ours))}"
        ]
    return []


def demangled(symbol: str) -> str:
    """A symbol as C++ writes it; the symbol itself if it is none of C++."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return symbol
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    made = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not made or status.value:
        return symbol
    text = ctypes.string_at(made).decode("utf-8", "replace")
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    free(made)
    return text
