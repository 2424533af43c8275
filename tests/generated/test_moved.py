"""Ops that moved to another group can be imported from their old group too."""

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


def test_core_package_keeps_all_moved_names() -> None:
    assert len(MOVED["core"]) == 340
    names = {naming.class_name(op) for op in MOVED["core"]}
    names |= {naming.function_name(op) for op in MOVED["core"]}
    assert set(import_module("opwright.core").__all__) == names


@pytest.mark.parametrize("group", MOVED)
def test_moved_op_old_import_gives_the_new_class(group: str) -> None:
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
        # The old module has no tuple of outputs.
        assert {*new.__all__} - {f"{cls}Outputs"} == {*old.__all__}
        for name in (cls, f"{cls}Inputs", function):
            assert getattr(old, name) is getattr(new, name)
        # Importing the module did not take the function's place.
        assert getattr(package, function) is getattr(new, function)
