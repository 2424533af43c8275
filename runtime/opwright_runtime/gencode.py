"""What generated code imports from the runtime: this module and no other.

That is a contract: a package that was generated keeps working, whoever generated it,
with every runtime that has the same number. It is the names in `__all__` and what the
base classes have for those derived from them: `Op._build`, `Op._call`, `Op._unknown`,
`OpOptions._set`, `_with`.
A class may state what its op was when it was generated, `MADE_FOR`.
A name more does not change the number; a name less, or with another meaning, does. A
package says once, to `declare_package`, which number it was generated for.

An eager call runs its op with TensorFlow's fast path, `execute(context[CURRENT],
op_name, name, *inputs, *attrs)`, if the thread builds no graph, `graphs.stack` being
empty, and a class's scope is eager; for a function, if the program did not turn eager
execution off, which `context[EAGER]` says.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from opwright_runtime import __version__ as __version__
from opwright_runtime._binding import lazy
from opwright_runtime._binding.lazy import lazy_package as lazy_package
from opwright_runtime._binding.lazy import lazy_packages as lazy_packages
from opwright_runtime.libraries import load_library as load_library
from opwright_runtime.libraries import register_gradients as register_gradients
from opwright_runtime.native import load_if_present as load_if_present

if TYPE_CHECKING:
    from opwright_runtime._binding.classes import *
    from opwright_runtime._binding.op import Op

ABI = 2
"""The number of the contract."""


def declare_package(
    package: str,
    *,
    abi: int,
    ops: Mapping[str, tuple[str, str]],
    packages: Collection[str],
    exports: str | None = None,
) -> tuple[Callable[[str], type[Op]], Callable[[], list[str]]]:
    """Makes a package of its groups' packages, and returns its `op_class`, `op_names`.

    Args:
        package: its name.
        abi: the number of the contract that it was generated for.
        ops: OP_NAME to module, relative to the package, and class.
        packages: those of groups, imported when they are named.
        exports: the module whose public names it has too.

    Raises:
        ImportError: it was generated for another contract than this runtime's.
    """
    if abi != ABI:
        raise ImportError(
            f"{package} was generated for contract {abi} between generated code and "
            f"opwright's runtime; opwright {__version__}, which is installed, has "
            f"contract {ABI}. Generate {package} anew with its `opwright-codegen "
            f"generate`, or install an opwright that has contract {abi}",
            name=package,
        )
    op_class, op_names = lazy.registry(package, ops)
    lazy.lazy_packages(package, packages)
    lazy.lazy_exports(package, ("op_class", "op_names"), exports)
    return op_class, op_names


# Packages need no more. What classes need is imported with the first of them.
lazy.lazy_exports(
    __name__,
    (
        "ABI",
        "__version__",
        "declare_package",
        "lazy_package",
        "lazy_packages",
        "load_if_present",
        "load_library",
        "register_gradients",
    ),
    "opwright_runtime._binding.classes",
)
