"""What of the opdefs the installed TensorFlow has, by the versions that they state."""

from __future__ import annotations

import dataclasses
from functools import cache

import pytest
import tensorflow as tf

from opwright_codegen.model import Attr, Op, is_in, is_later
from support.opdefs import every_op

#: The installed version, such as 2.21.
MINOR = ".".join(tf.__version__.split(".")[:2])
#: Whether the installed version is a release, and not a candidate of one.
IS_RELEASE = tf.__version__.replace(".", "").isdecimal()


def later(version: str | None) -> bool:
    """Whether `version` comes after the TensorFlow that runs."""
    return is_later(version, MINOR)


def until(version: str) -> pytest.MarkDecorator:
    """Skips a test of what TensorFlow does until `version` does something else."""
    reason = f"TensorFlow {version} does something else"
    return pytest.mark.skipif(not later(version), reason=reason)


def dropped(version: str | None) -> bool:
    """Whether `version`, the first without an op or attr, runs or came before."""
    return version is not None and not later(version)


def is_installed(part: Op | Attr) -> bool:
    """Whether the installed TensorFlow has an op or attr."""
    return is_in(part, MINOR)


@cache
def installed_ops() -> dict[str, Op]:
    """The ops of this tree that the installed TensorFlow has, with the attrs it has."""
    return {
        name: dataclasses.replace(op, attrs=tuple(filter(is_installed, op.attrs)))
        for name, op in every_op().items()
        if is_installed(op)
    }
