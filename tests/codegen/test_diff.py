"""`diff`: what changed between two sets of ops, and what of it breaks callers."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from opwright_codegen.diff import Change, compare
from opwright_codegen.model import Arg, Attr, Deprecation, Op
from opwright_codegen.types import AttrKind, DTypeName
from support.opdefs import every_op
from support.places import OPDEFS
from support.versions import is_installed
from support.workplace import command_on_registry

T = Attr("T", AttrKind("type"), allowed=("float", "double"))
MODE = Attr("mode", AttrKind("string"), default="fast", allowed=("fast", "exact"))
COUNT = Attr("count", AttrKind("int"), default=2, minimum=1)
OP = Op(
    "Foo",
    "math",
    inputs=(Arg("x", type_attr="T"), Arg("y", dtype=DTypeName("int32"))),
    outputs=(Arg("z", type_attr="T"),),
    attrs=(T, MODE, COUNT),
)


def with_attr(attr: Attr, **changes: Any) -> dict[str, Any]:
    new = dataclasses.replace(attr, **changes)
    return {"attrs": tuple(new if one is attr else one for one in OP.attrs)}


X, Y = OP.inputs
(Z,) = OP.outputs
EXTRA = Attr("extra", AttrKind("int"), default=0)
ALSO = Attr("also", AttrKind("int"))
FLOAT = dataclasses.replace(T, default=DTypeName("float"))


@pytest.mark.parametrize(
    ("changes", "kind", "what", "breaks"),
    [
        ({"inputs": (X,)}, "removed", "input y", True),
        ({"inputs": (Y, X)}, "changed", "order of the inputs", True),
        (
            {"inputs": (X, Y, Arg("w", type_attr="T"))},
            "added",
            "input w",
            True,
        ),
        (
            {"inputs": (X, Arg("y", dtype=DTypeName("int64")))},
            "changed",
            "input y: int32 -> int64",
            True,
        ),
        (
            {"inputs": (X, Arg("y", dtype=DTypeName("int32"), count="count"))},
            "changed",
            "input y: int32 -> count * int32",
            True,
        ),
        (
            {"inputs": (dataclasses.replace(X, is_ref=True), Y)},
            "changed",
            "input x: T -> ref(T)",
            True,
        ),
        ({"outputs": ()}, "removed", "output z", True),
        # The op was as good as its only output: tf.abs(foo).
        ({"outputs": (Z, Arg("w", type_attr="T"))}, "added", "output w", True),
        ({"outputs": (Arg("w", type_attr="T"), Z)}, "added", "output w", True),
        ({"attrs": (T, MODE)}, "removed", "attr count", True),
        ({"attrs": (*OP.attrs, EXTRA)}, "added", "attr extra", False),
        (
            {"attrs": (*OP.attrs, dataclasses.replace(EXTRA, default=None))},
            "added",
            "attr extra, which must be given",
            True,
        ),
        (
            with_attr(COUNT, kind=AttrKind("float"), default=2.0),
            "changed",
            "attr count: int -> float",
            True,
        ),
        (with_attr(COUNT, default=3), "changed", "default of count: 2 -> 3", True),
        (
            with_attr(COUNT, default=None),
            "changed",
            "default of count: 2 -> none",
            True,
        ),
        (with_attr(COUNT, minimum=2), "changed", "minimum of count: 1 -> 2", True),
        (
            with_attr(COUNT, minimum=None),
            "changed",
            "minimum of count: 1 -> none",
            False,
        ),
        (
            with_attr(MODE, allowed=("fast",)),
            "changed",
            "mode no longer allows exact",
            True,
        ),
        (
            with_attr(MODE, allowed=("fast", "exact", "wild")),
            "changed",
            "mode now allows wild",
            False,
        ),
        (with_attr(T, allowed=None), "changed", "T now allows any value", False),
        ({"is_stateful": True}, "changed", "is_stateful: False -> True", False),
        (
            {"deprecation": Deprecation(9, "Use Bar.")},
            "changed",
            "deprecation: none -> GraphDef version 9",
            True,
        ),
    ],
)
def test_compare_change_is_classified(
    changes: dict[str, Any], kind: str, what: str, breaks: bool
) -> None:
    new = dataclasses.replace(OP, **changes)
    assert compare([OP], [new]) == [Change("Foo", kind, what, breaks)]


SIZES = Attr("sizes", AttrKind("list(int)"))
GIVEN = dataclasses.replace(
    OP, outputs=(Z, Arg("w", type_attr="T")), attrs=(*OP.attrs, SIZES, ALSO)
)


@pytest.mark.parametrize(
    ("changes", "what", "breaks"),
    [
        ({"outputs": (*GIVEN.outputs, Arg("v", type_attr="T"))}, "output v", False),
        (
            {"attrs": (*OP.attrs, dataclasses.replace(SIZES, default=()), ALSO)},
            "default of sizes: none -> ()",
            True,
        ),
        (
            {"attrs": (*OP.attrs, ALSO, SIZES)},
            "order of the attrs that must be given",
            True,
        ),
        (
            {"attrs": (T, COUNT, MODE, SIZES, ALSO)},
            None,
            False,
        ),
        (
            {"attrs": (FLOAT, *GIVEN.attrs[1:])},
            'default of T: none -> "float32"',
            False,
        ),
    ],
)
def test_changes_of_an_op_with_more(
    changes: dict[str, Any], what: str | None, breaks: bool
) -> None:
    found = compare([GIVEN], [dataclasses.replace(GIVEN, **changes)])
    assert [(change.what, change.breaks) for change in found] == (
        [] if what is None else [(what, breaks)]
    )


def test_compare_with_any_hash_seed_keeps_order() -> None:
    """That of the OpDefs, whatever the hash of a name."""
    names = [f"n{number}" for number in range(20)]
    attrs = tuple(Attr(name, AttrKind("int"), default=0) for name in names)
    new = dataclasses.replace(OP, attrs=OP.attrs + attrs)
    assert [change.what for change in compare([OP], [new])] == [
        f"attr {name}" for name in names
    ]


def test_ops_come_and_go() -> None:
    other = dataclasses.replace(OP, name="Bar")
    assert compare([OP], [other]) == [
        Change("Bar", "added", "the op", False),
        Change("Foo", "removed", "the op", True),
    ]


def test_prose_is_no_change() -> None:
    new = dataclasses.replace(
        OP, summary="Adds.", inputs=(dataclasses.replace(X, doc="A number."), Y)
    )
    assert compare([OP], [new]) == []


@pytest.mark.rotating  # test_lossless.py finds the same, without the command.
def test_diff_of_installed_and_opdefs_is_what_other_versions_have() -> None:
    done = command_on_registry("diff", "installed", "opdefs")
    assert done.returncode == 0, done.stdout + done.stderr
    expected = []
    for name, op in every_op().items():
        if not is_installed(op):
            expected.append(f"{name}: added the op")
        else:
            absent = [attr.name for attr in op.attrs if not is_installed(attr)]
            expected += [f"{name}: added attr {attr}" for attr in absent]
    assert sorted(done.stdout.splitlines()) == sorted(expected)
    assert f"{len(expected)} change" in done.stderr


@pytest.mark.rotating
@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["pb", "pbtxt"])
def test_save_list_differs_from_changed_opdefs(tmp_path: Path, suffix: str) -> None:
    shutil.copytree(OPDEFS / "math", tmp_path / "opdefs" / "math")
    old = f"old.{suffix}"
    assert command_on_registry("save", "opdefs", old, cwd=tmp_path).returncode == 0
    same = command_on_registry("diff", old, "opdefs", cwd=tmp_path)
    assert same.returncode == 0, same.stdout + same.stderr

    (tmp_path / "opdefs/math/AddV2.yaml").unlink()
    gone = command_on_registry("diff", old, "opdefs", cwd=tmp_path)
    assert gone.returncode == 1
    assert "AddV2" in gone.stdout
    assert "1 of which break callers" in gone.stderr


@pytest.mark.slow  # In a process with TensorFlow.
def test_diff_of_an_unreadable_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.pb").write_bytes(b"\xff\xff")
    for source in ("missing.pb", "broken.pb"):
        done = command_on_registry("diff", source, "installed", cwd=tmp_path)
        assert done.returncode == 2
        assert source in done.stderr
