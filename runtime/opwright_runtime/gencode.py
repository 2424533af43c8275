"""The only module of the runtime that generated code imports.

It is a contract, which has a number. A generated package works with every runtime of
the same number. The contract consists of the names in `__all__` and of the methods that
generated classes use of their base classes: `Op._build`, `Op._call`, `Op._refused`,
`Op._create_refused`, `OpOptions._refused`, `OpOptions._set`, `OpOptions._with`. A class
may state the op that it was generated for, as `SCHEMA`. The number stays the same if a
name is added. It changes if a name is removed or changes its meaning. A package passes
its number to `declare_package`.

An eager call runs its op with TensorFlow's fast path, `execute(op_name, name, *inputs,
*attrs)`. The condition is `is_eager()`. In addition, `create` needs an eager scope.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from opwright_runtime import __version__ as __version__
from opwright_runtime._binding import lazy
from opwright_runtime._binding.lazy import lazy_package as lazy_package
from opwright_runtime._binding.lazy import lazy_packages as lazy_packages
from opwright_runtime.native import load_if_present as load_if_present

if TYPE_CHECKING:
    from opwright_runtime._binding.classes import *
    from opwright_runtime._binding.op import Op
    from opwright_runtime.libraries import load_library as load_library
    from opwright_runtime.libraries import register_gradients as register_gradients

ABI = 6
"""The number of the contract."""


def declare_package(
    package: str,
    *,
    abi: int,
    packages: Collection[str] = (),
    exports: str | None = None,
    **_other: object,
) -> tuple[Callable[[str], type[Op]], Callable[[], list[str]]]:
    """Sets up a generated package; returns its `op_class` and `op_names`.

    The module `_table` of the package has, by OP_NAME, the module of each op, relative
    to the package, and its class. It is imported on first use.

    Args:
        package: its name.
        abi: the number of the contract that it was generated for.
        packages: the packages of its groups, imported on first use.
        exports: a module whose public names the package exports, too.
        _other: what packages of other contracts pass, which are refused.

    Raises:
        ImportError: it was generated for another contract than this runtime's.
        TypeError: `_other` has names, but the contract is this runtime's.
    """
    if abi != ABI:
        raise ImportError(
            f"{package} was generated for contract {abi} between generated code and "
            f"opwright's runtime; opwright {__version__}, which is installed, has "
            f"contract {ABI}. Generate {package} anew with its `opwright-codegen "
            f"generate`, or install an opwright that has contract {abi}",
            name=package,
        )
    if _other:
        raise TypeError(f"{package}: declare_package takes no {', '.join(_other)}")
    op_class, op_names = lazy.registry(package, _function_named)
    lazy.lazy_packages(package, packages)
    lazy.lazy_exports(package, ("op_class", "op_names"), exports)
    return op_class, op_names


def _function_named(name: str) -> str | None:
    from opwright_runtime.search import tf_names  # Only the errors need its data.

    return tf_names.function_named(name)


def declare_raw_ops(
    module: str,
    *,
    ops: Mapping[str, tuple[str, str]],
    keywords: Mapping[str, Mapping[str, str]],
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a module with the raw ops of TensorFlow.

    Args:
        module: its name. Its package has the ops.
        ops: by OP_NAME, the module, relative to the package, and the class.
        keywords: for each OP_NAME, the keywords that differ from the OpDef's names. The
            keys are the OpDef's names.
    """
    # It is imported here because few programs use it.
    from opwright_runtime._binding.raw_ops import RawOps

    raw_ops = RawOps(module, ops, keywords)
    return raw_ops.get, raw_ops.names


# The import of a generated package needs only the names above. That of a package for a
# library also needs those of `libraries`. The names of `classes` are for classes of
# ops, and take longer to import. They are imported with the first class.
lazy.lazy_exports(
    __name__,
    (
        "ABI",
        "__version__",
        "declare_package",
        "declare_raw_ops",
        "lazy_package",
        "lazy_packages",
        "load_if_present",
    ),
    "opwright_runtime._binding.classes",
    {
        "load_library": "opwright_runtime.libraries",
        "register_gradients": "opwright_runtime.libraries",
    },
)
