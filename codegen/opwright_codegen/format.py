"""Formats Python source with black."""

from __future__ import annotations

from functools import cache

import black
from black.mode import TargetVersion
from black.parsing import InvalidInput


def format_source(source: str) -> str:
    """`source` in black's format.

    Raises:
      ValueError: `source` is not valid Python. The message names the place.
    """
    try:
        return black.format_str(source, mode=_mode())
    except InvalidInput as error:
        raise ValueError(f"generated code is no Python: {error}") from error


@cache
def _mode() -> black.Mode:
    return black.Mode(target_versions={TargetVersion.PY310}, line_length=88)
