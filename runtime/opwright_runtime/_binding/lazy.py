"""Packages that import their names on first use, and the table of op classes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from importlib import import_module
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

from opwright_runtime._binding import tables
from opwright_runtime._patches import keep_from_autograph

if TYPE_CHECKING:
    from opwright_runtime._binding.op import Op


class _LazyPackage(ModuleType):
    """A package that imports its names from modules on first use.

    `_defined` are the names that its `__init__` defines itself.
    """

    _defined: Collection[str] = ()
    _packages: Collection[str] = ()
    _modules: Mapping[str, str] = {}
    _elsewhere: Mapping[str, str] = {}
    _exports: str | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return sorted(self._public())
        if name in self._packages:
            return import_module(f"{self.__name__}.{name}")
        if name in self._modules:
            module = f"{self.__name__}.{self._modules[name]}"
        elif name in self._elsewhere:
            module = self._elsewhere[name]
        elif self._exports and not name.startswith("_") and name in self._exported():
            module = self._exports
        else:
            raise _not_here(self.__name__, name, sys._getframe(1))
        value = getattr(import_module(module, self.__name__), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # A module has the same name as the function that it defines. On import, Python
        # binds the module to that name in the package. Here the function is bound to it
        # instead, also in a group that the op was in before.
        if isinstance(value, ModuleType) and (
            name in self._modules or name in self._elsewhere
        ):
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> Iterable[str]:
        return sorted({*self._public(), *self._packages, *super().__dir__()})

    def _public(self) -> set[str]:
        names = {*self._defined, *self._modules, *self._elsewhere}
        return names.union(self._exported())

    def _exported(self) -> Iterable[str]:
        """The public names of the hand-written module that the package exports."""
        if self._exports is None:
            return ()
        names: Iterable[str] = import_module(self._exports).__all__
        return names


def _not_here(package: str, name: str, caller: FrameType) -> Exception:
    """The error for a name that a package lacks. It says which package has the name."""
    text = f"module {package!r} has no attribute {name!r}"
    homes = () if name.startswith("_") else tuple(_homes(package, name))
    same = [group for group, known in homes if known == name]
    if same:
        text = f"{name!r} is not in {package}: write `from {same[0]} import {name}`"
    elif homes:
        group, known = homes[0]
        text = f"{text}; did you mean `from {group} import {known}`?"
    elif not name.startswith("_") and package.startswith("opwright."):
        text = f"{text}; opwright.search({name!r}) finds ops"
    else:
        return AttributeError(text)
    # `from package import name` discards an AttributeError and raises an ImportError
    # without its text. An ImportError is not discarded.
    if caller.f_code.co_name == "_handle_fromlist":
        return ImportError(text, name=package)
    return AttributeError(text)


def _homes(package: str, name: str) -> Iterator[tuple[str, str]]:
    """Other packages that have the name, each with its spelling there.

    Names are equal if their letters and digits are equal: `matmul` equals `mat_mul`.
    """
    root = tables.package_of(package)
    wanted = _plain(name)
    for module, cls in tables.table(root).values() if root else ():
        group, _, function = f"{root}{module}".rpartition(".")
        known = function if name.islower() else cls
        if _plain(known) == wanted and (known != name or group != package):
            yield group, known


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def lazy_packages(package: str, names: Collection[str]) -> None:
    """Makes `package` import its subpackages `names` on first use."""
    _make_lazy(package, _packages=names)


def lazy_package(
    package: str,
    modules: Mapping[str, str],
    elsewhere: Mapping[str, str] | None = None,
    exports: str | None = None,
) -> None:
    """Makes `package` find each name of `modules` in that module of the package.

    It finds the names of `elsewhere` in modules of other packages. These module names
    may be relative. It finds the public names of the module `exports` in that module. A
    package that is already imported is changed in place and keeps its other names.
    """
    elsewhere = elsewhere or {}
    _make_lazy(package, _modules=modules, _elsewhere=elsewhere, _exports=exports)
    keep_from_autograph(package)


def lazy_names(module: str, names: Mapping[str, str]) -> None:
    """Makes `module` find each of `names` in another module."""
    _make_lazy(module, _elsewhere=names)


def lazy_exports(
    module: str,
    defined: Collection[str],
    exports: str | None,
    elsewhere: Mapping[str, str] | None = None,
) -> None:
    """Makes `module` export the names `defined`, and the public names of `exports`.

    It also exports the names of `elsewhere`, each from another module.
    """
    _make_lazy(module, _defined=defined, _exports=exports, _elsewhere=elsewhere or {})


def _make_lazy(module: str, **facts: object) -> None:
    found = sys.modules[module]
    found.__dict__.update(facts)
    found.__class__ = _LazyPackage


def registry(
    package: str, function_named: Callable[[str], str | None]
) -> tuple[Callable[[str], type[Op]], Callable[[], list[str]]]:
    """`op_class` and `op_names` of a package that has a module `_table`.

    `function_named` finds a function of TensorFlow for the error of an unknown name.
    """
    tables.add_package(package)

    def op_class(name: str) -> type[Op]:
        """The class of the op called `name`, `Namespace>Op` included.

        Raises:
            OpUnknownError: there is no class of that name.
        """
        ops = tables.table(package)
        try:
            module, cls = ops[name]
        except KeyError:
            from opwright_runtime._binding import misuse

            raise misuse.unknown(name, ops, function_named) from None
        found: type[Op] = getattr(import_module(module, package), cls)
        return found

    def op_names() -> list[str]:
        """The OP_NAMEs that have a class, sorted."""
        return sorted(tables.table(package))

    return op_class, op_names


keep_from_autograph(__name__.partition(".")[0])
