"""Tests of many things, a group of them at a time.

pytest takes milliseconds for a test, whatever it does, which for several of each op is
a minute. So a test goes through a group, and fails with all that is wrong, by name.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from opwright_codegen.load import find, op_name_of
from support.equivalence.registry import op_defs
from support.places import OPDEFS

Name = TypeVar("Name")


def ops() -> dict[str, list[str]]:
    """The ops of this tree that the installed TensorFlow has, by group."""
    here = op_defs()
    return {
        group: [name for name in names if name in here]
        for group, names in opdefs().items()
    }


def opdefs() -> dict[str, list[str]]:
    """The ops of this tree, by group."""
    groups: dict[str, list[str]] = {}
    for path in find(OPDEFS):
        groups.setdefault(path.parent.name, []).append(op_name_of(path))
    return groups


def every_op_by_group() -> pytest.MarkDecorator:
    """Parametrizes a test by `names`, the ops of a group that TensorFlow has."""
    return _by_group(ops())


def every_opdef_by_group() -> pytest.MarkDecorator:
    """The same of all ops, also those that the installed TensorFlow does not have."""
    return _by_group(opdefs())


def _by_group(groups: dict[str, list[str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("names", groups.values(), ids=groups.keys())


def check_each(names: Iterable[Name], check: Callable[[Name], object]) -> None:
    """Calls `check` with each name, and fails with what it raised of any."""
    wrong = []
    for name in names:
        try:
            check(name)
        except Exception as error:
            said = "".join(traceback.format_exception(error))
            wrong.append(f"---- {name}\n{said}")
    if wrong:
        pytest.fail(f"{len(wrong)} are wrong:\n" + "\n".join(wrong), pytrace=False)
