"""The versions in opdefs and dtypes match the installed TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

import opwright
from opwright_codegen import naming, registries, registry, since, sources
from opwright_codegen.model import Attr, Op
from opwright_runtime import types
from support.opdefs import every_op
from support.places import OPDEFS
from support.versions import MINOR, dropped, is_installed, later

INSTALLED = {op_def.name: op_def for op_def in registry.installed()}


@pytest.fixture(scope="module")
def ops() -> list[Op]:
    return [*every_op().values()]


def test_opdef_since_matches_installed_tensorflow(ops: list[Op]) -> None:
    absent = {op.name for op in ops if not is_installed(op)}
    assert absent == {op.name for op in ops} - INSTALLED.keys()


def test_kept_registry_of_the_installed_version_is_the_installed_one() -> None:
    kept = registries.kept(OPDEFS)
    if MINOR in kept:
        found = {one.name: one for one in sources.wanted(sources.op_defs(MINOR))}
        assert found == {one.name: one for one in sources.wanted(INSTALLED.values())}


def differences(ops: list[Op]) -> Iterator[str]:
    for op in ops:
        if op.name not in INSTALLED:
            continue
        there = {
            a.name: a for a in registry.from_op_def(INSTALLED[op.name], "core").attrs
        }
        for attr in op.attrs:
            if is_installed(attr) != (attr.name in there):
                yield f"{op.name}.{attr.name}"
            allowed = there[attr.name].allowed if attr.name in there else None
            for value in attr.allowed or () if allowed is not None else ():
                if later(dict(attr.allowed_since).get(value)) == (value in allowed):
                    yield f"{op.name}.{attr.name}={value}"


def test_opdef_attr_since_matches_installed_tensorflow(ops: list[Op]) -> None:
    assert list(differences(ops)) == []


def test_op_class_newer_than_tensorflow_raises_op_unknown_error(ops: list[Op]) -> None:
    newer = [op for op in ops if later(op.since)]
    for op in newer:
        words = re.escape(f"has no op {op.name}: TensorFlow {op.since} brought it")
        with pytest.raises(opwright.OpUnknownError, match=words):
            _ = opwright.op_class(op.name).op_def


def test_op_class_that_tensorflow_dropped_raises_op_unknown_error(
    ops: list[Op],
) -> None:
    for op in ops:
        if dropped(op.dropped_in):
            words = re.escape(
                f"has no op {op.name}: TensorFlow {op.dropped_in} dropped it: use"
                " another op, or an older TensorFlow"
            )
            with pytest.raises(opwright.OpUnknownError, match=words):
                _ = opwright.op_class(op.name).op_def


def absent_options(ops: list[Op]) -> Iterator[tuple[Op, Attr]]:
    """The options of installed ops that the installed TensorFlow does not have."""
    for op in filter(is_installed, ops):
        yield from ((op, attr) for attr in op.options if not is_installed(attr))


def test_option_that_tensorflow_lacks_takes_only_its_default(ops: list[Op]) -> None:
    for op, attr in absent_options(ops):
        cls: Any = opwright.op_class(op.name)
        options = cls.Options
        name = naming.argument(attr.name)
        assert options(**{name: attr.default}) == options()
        if isinstance(attr.default, int):
            is_bool = isinstance(attr.default, bool)
            other = not attr.default if is_bool else attr.default + 1
            words = f"{op.name}: {name} must be left at {attr.default} .*TensorFlow"
            with pytest.raises(opwright.OpAttrError, match=words):
                options(**{name: other})


def test_dtype_class_newer_than_tensorflow_raises_type_error() -> None:
    """All classes can be imported; use of one that TensorFlow lacks is refused."""
    classes = {
        getattr(opwright, name) for name in dir(opwright) if name.startswith("TF")
    }
    assert types.TFloat4E2m1fn in classes
    assert ("float4_e2m1fn" in types.DTYPES) == (not later("2.21"))
    assert ("int2" in types.DTYPES) == (not later("2.20"))
    assert ("float8_e5m2fnuz" in types.DTYPES) == (not later("2.19"))
    if later("2.21"):
        with pytest.raises(TypeError, match=r"TensorFlow 2\.21 brought"):
            types.as_dtype(types.TFloat4E2m1fn)


def test_since_dated_finds_first_version_of_op_and_attr(ops: list[Op]) -> None:
    """An op of the only version has no `since`; otherwise it has the first version."""
    op = next(op for op in ops if op.attrs)
    bare = Op(op.name, op.group)
    assert since.dated(op, [("1.0", {op.name: op})]) == op
    dated = since.dated(
        op, [("1.0", {}), ("1.1", {op.name: bare}), ("1.2", {op.name: op})]
    )
    assert dated.since == "1.1"
    assert [attr.since for attr in dated.attrs] == ["1.2"] * len(op.attrs)
