"""Packages that only some conversions need."""

from __future__ import annotations

import importlib
from typing import Any

from opwright_runtime._extras import how_to_install
from opwright_runtime.convert.errors import ConvertError


def load(name: str, user: str) -> Any:
    """Imports a module of an optional package.

    Args:
        name: of the module.
        user: what needs it, for the error.

    Raises:
        ConvertError: it is not installed.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.partition(".")[0]
        raise ConvertError(
            f"{user} needs {package}, which is not installed;"
            f" {how_to_install('convert')}"
        ) from error
