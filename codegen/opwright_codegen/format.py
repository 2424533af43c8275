"""black, as a function."""

from __future__ import annotations

from functools import cache

import black
from black.mode import TargetVersion
from black.parsing import InvalidInput


def format_source(source: str) -> str:
    """`source` as black lays it out.

    Raises:
      ValueError: `source` is no Python; the message says where.
    """
    try:
        return black.format_str(source, mode=_mode())
    except InvalidInput as error:
        raise ValueError(f"generated code is no Python: {error}") from error


@cache
def _mode() -> black.Mode:
    return black.Mode(target_versions={TargetVersion.PY310}, line_length=88)
