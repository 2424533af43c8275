"""Ops that moved to another group are still imported from where they lay."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
import yaml

import opwright
from opwright_codegen import naming

OPDEFS = Path(__file__).parents[2] / "opdefs"
MOVED: dict[str, list[str]] = yaml.safe_load((OPDEFS / "groups.yaml").read_text())[
    "moved"
]


def test_all_that_core_had_is_there() -> None:
    assert len(MOVED["core"]) == 340
    names = {naming.class_name(op) for op in MOVED["core"]}
    names |= {naming.function_name(op) for op in MOVED["core"]}
    assert set(import_module("opwright.core").__all__) == names


@pytest.mark.parametrize("group", MOVED)
def test_old_names_are_the_new_ones(group: str) -> None:
    package = import_module(f"opwright.{group}")
    for op in MOVED[group]:
        cls, function = naming.class_name(op), naming.function_name(op)
        here = opwright.op_class(op)
        assert not here.__module__.startswith(f"opwright.{group}."), op
        new = import_module(here.__module__)
        assert getattr(package, cls) is here
        assert getattr(package, function) is getattr(new, function)
        assert {cls, function} <= set(package.__all__)

        old = import_module(f"opwright.{group}.{naming.module_name(op)}")
        assert old is not new
        assert sorted(old.__all__) == sorted([cls, function])
        # Tuples of outputs are younger than the move.
        assert {*new.__all__} - {f"{cls}Outputs"} == {*old.__all__}
        for name in (cls, f"{cls}Inputs", function):
            assert getattr(old, name) is getattr(new, name)
        # Importing the module did not take the function's place.
        assert getattr(package, function) is getattr(new, function)
