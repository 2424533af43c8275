"""Packages that import an op's module when the op is first named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from opwright_runtime.internals import autograph_config

if TYPE_CHECKING:
    from opwright_runtime.op import Op


class _LazyPackage(ModuleType):
    """A package whose names are each found in one of its modules."""

    _modules: Mapping[str, str] = {}
    _elsewhere: Mapping[str, str] = {}
    _packages: Collection[str] = ()

    def __getattr__(self, name: str) -> Any:
        if name in self._packages:
            return import_module(f"{self.__name__}.{name}")
        if name in self._modules:
            module = f"{self.__name__}.{self._modules[name]}"
        elif name in self._elsewhere:
            module = self._elsewhere[name]
        else:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        # A module is named as the function that it defines; once imported, Python binds
        # it to that name in its package, where the function belongs.
        if isinstance(value, ModuleType) and name in self._modules:
            value = getattr(value, name)
        super().__setattr__(name, value)

    def __dir__(self) -> Iterable[str]:
        names = {*self._modules, *self._elsewhere, *self._packages}
        return sorted(names.union(super().__dir__()))


def lazy_packages(package: str, names: Collection[str]) -> None:
    """Makes `package` import each of the packages `names` below it when it is named."""
    module = sys.modules[package]
    module.__dict__["_packages"] = names
    module.__class__ = _LazyPackage


def lazy_package(
    package: str, modules: Mapping[str, str], elsewhere: Mapping[str, str] | None = None
) -> None:
    """Makes `package` find each name of `modules` in that module of its own.

    The names of `elsewhere` it finds in modules of other packages. A package already
    imported is changed in place; its other names stay.
    """
    elsewhere = elsewhere or {}
    module = sys.modules[package]
    module.__dict__.update(_modules=modules, _elsewhere=elsewhere)
    module.__dict__.setdefault("__all__", sorted({*modules, *elsewhere}))
    module.__class__ = _LazyPackage
    _leave_to_python(package)


def registry(
    ops: Mapping[str, tuple[str, str]],
) -> tuple[Callable[[str], type[Op]], Callable[[], list[str]]]:
    """`op_class` and `op_names` over a table of OP_NAME to module and class."""

    def op_class(name: str) -> type[Op]:
        """The class of the op called `name`, `Namespace>Op` included.

        Raises:
            OpUnknownError: there is none.
        """
        try:
            module, cls = ops[name]
        except KeyError:
            from opwright_runtime import diagnosis

            raise diagnosis.unknown(name, ops) from None
        found: type[Op] = getattr(import_module(module), cls)
        return found

    def op_names() -> list[str]:
        """Every OP_NAME that there is a class for, sorted."""
        return sorted(ops)

    return op_class, op_names


def _leave_to_python(package: str) -> None:
    """Keeps AutoGraph from rewriting `package`'s code in the bodies of tf.functions."""
    rule = autograph_config.DoNotConvert(package)
    rules = (rule, *autograph_config.CONVERSION_RULES)
    autograph_config.CONVERSION_RULES = rules


_leave_to_python(__name__.partition(".")[0])
