"""The extras of opwright: packages that commands need in addition to TensorFlow."""

from __future__ import annotations


def how_to_install(extra: str) -> str:
    """What to run, for a wheel from a clone and for PyPI."""
    return (
        f"run pip install './dist/<wheel>[{extra}]' with the wheel from your clone, or"
        f" pip install 'opwright[{extra}]' once opwright is on PyPI"
    )
