"""Generated packages, and their tables of ops."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

_packages = set[str]()


def add_package(package: str) -> None:
    """Adds a package. Its module `_table` is imported on first use."""
    _packages.add(package)


def package_of(module: str) -> str:
    """The generated package that a module is in; "" if there is none."""
    while module and module not in _packages:
        module = module.rpartition(".")[0]
    return module


def table(package: str) -> Mapping[str, tuple[str, str]]:
    """The module and class of each OP_NAME. Modules are relative to `package`."""
    found: Mapping[str, tuple[str, str]] = import_module(f"{package}._table").OPS
    return found
