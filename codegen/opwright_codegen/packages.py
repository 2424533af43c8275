"""Checks the name of a package of classes. It must not hide a module that it needs."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Final

#: Distributions whose modules must not be hidden, nor those of their requirements.
_NEEDED: Final = ("opwright", "tensorflow", "black", "jinja2", "pyyaml", "pytest")
#: Modules that must not be hidden, even if no installed distribution has them.
_ALWAYS: Final = ("opwright", "opwright_runtime", "opwright_codegen", "tensorflow")
#: Names of CMake's own targets. A project's library must not have such a name.
_TARGETS: Final = ("all", "clean", "help", "install", "package", "tensorflow")


def refusal(name: str) -> str | None:
    """Why a package cannot have this name; None if it can."""
    parts = name.split(".")
    if not all(re.fullmatch(r"[A-Za-z_]\w*", part, re.ASCII) for part in parts):
        return (
            "is no name of a Python package: letters from a to z, digits and"
            " underscores, with dots between packages"
        )
    if words := [part for part in parts if keyword.iskeyword(part)]:
        return f"is no name of a Python package: {words[0]} is a keyword of Python"
    top = parts[0]
    if top in sys.stdlib_module_names:
        return f"would hide Python's own module {top}; take another name"
    if top in _ALWAYS or top in _required_modules():
        return f"would hide {top}, which the classes need; take another name"
    return None


def project_refusal(name: str) -> str | None:
    """Why a project cannot have a package of this name; None if it can."""
    top = name.partition(".")[0]
    if name in _TARGETS:
        return f"is what CMake calls a target of its own; not {name}: my_{name}"
    if not top.strip("_") or top != top.strip("_"):
        return "must begin with a letter and not end in '_', as a wheel's name does"
    return None


@cache
def _required_modules() -> frozenset[str]:
    """The installed top-level modules of `_NEEDED` and of their requirements."""
    found: dict[str, Distribution] = {}
    names = [*_NEEDED]
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue
        names += _requirements(found[name])
    return frozenset(module for one in found.values() for module in _modules(one))


def _requirements(one: Distribution) -> Iterator[str]:
    for row in one.requires or ():
        named = re.match(r"[\w.-]+", row)
        if named is not None and "extra ==" not in row:
            yield named[0]


def _modules(one: Distribution) -> Iterator[str]:
    listed = one.read_text("top_level.txt")
    if listed is not None:
        yield from listed.split()
        return
    for file in one.files or ():
        if file.suffix in (".py", ".so"):
            yield file.parts[0].partition(".")[0]
