"""Nothing of an OpDef is lost: registry, model and YAML say the same."""

from __future__ import annotations

import dataclasses
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.framework import op_def_pb2

from opwright_codegen import dump, importer, load, registries, registry, sources
from opwright_codegen.model import (
    Arg,
    Attr,
    Deprecation,
    FuncValue,
    Op,
    ShapeValue,
    TensorValue,
)
from opwright_codegen.problems import OpdefError, SourceError
from opwright_codegen.types import AttrKind, DTypeName
from support.opdefs import every_op
from support.places import OPDEFS
from support.versions import installed_ops, later
from support.workplace import command_on_registry, place, tree


@cache
def op_defs() -> dict[str, Any]:
    """The registry's ops but TensorFlow's own test ops and internal ones."""
    return {op_def.name: op_def for op_def in sources.wanted(registry.installed())}


def prose_cleared(op_def: Any) -> Any:
    copy = op_def_pb2.OpDef()
    copy.CopyFrom(op_def)
    copy.summary = copy.description = ""
    for part in (*copy.input_arg, *copy.output_arg, *copy.attr):
        part.description = ""
    return copy


def facts(op_def: Any) -> Op:
    return registry.from_op_def(op_def, "core")


@pytest.mark.slow  # It takes seconds.
def test_registry_ops_all_have_opdefs() -> None:
    assert sorted(installed_ops()) == sorted(op_defs())


def test_op_defs_are_rebuilt_from_yaml_field_by_field() -> None:
    different = [
        name
        for name, op_def in op_defs().items()
        if registry.to_op_def(installed_ops()[name]) != prose_cleared(op_def)
    ]
    assert different == []


def test_models_of_the_registry_and_of_yaml_agree_in_facts() -> None:
    different = [
        name
        for name, op_def in op_defs().items()
        if dump.with_facts(ours := installed_ops()[name], facts(op_def)) != ours
    ]
    assert different == []


@pytest.mark.slow
def test_dump_of_every_opdef_is_byte_identical() -> None:
    """A file that is read and written anew is the same, byte for byte."""
    different = [
        name
        for name, op in every_op().items()
        if dump.dump(op).encode() != Path(op.source).read_bytes()
    ]
    assert different == []


AWKWARD = Op(
    name="Space>Awkward",
    group="odd.sub",
    inputs=(
        Arg("x", type_attr="T", shape="*a 3", doc="- looks: like a list"),
        Arg("y", dtype=DTypeName("int32"), shape="2"),
        Arg("in", dtype=DTypeName("string"), is_ref=True),
    ),
    outputs=(Arg("no", type_list_attr="Ts", doc="ends in backslash \\"),),
    attrs=(
        Attr("s", AttrKind("string"), default="no"),
        Attr("T", AttrKind("type"), allowed=("float", "int32")),
        Attr("quotes", AttrKind("string"), default="'\"\\\n\t # é: {}[],&*"),
        Attr("empty", AttrKind("string"), default=""),
        Attr("space", AttrKind("string"), default=" "),
        Attr("number", AttrKind("string"), default="010"),
        Attr("message", AttrKind("string"), default="", message="a.b.Message"),
        Attr("choice", AttrKind("string"), default="yes", allowed=("yes", "", "~")),
        Attr("Ts", AttrKind("list(type)"), minimum=0),
        Attr("zero", AttrKind("int"), default=0, minimum=-1),
        Attr("least", AttrKind("int"), default=-(2**63)),
        Attr("f", AttrKind("float"), default=1e-05),
        Attr("big", AttrKind("float"), default=3e38),
        Attr("inf", AttrKind("float"), default=float("-inf")),
        Attr("whole", AttrKind("float"), default=-0.0),
        Attr("shape", AttrKind("shape"), default=ShapeValue(None)),
        Attr("scalar", AttrKind("shape"), default=ShapeValue(())),
        Attr("dims", AttrKind("shape"), default=ShapeValue((-1, 2))),
        Attr(
            "shapes",
            AttrKind("list(shape)"),
            default=(ShapeValue(None), ShapeValue((0,))),
        ),
        Attr("func", AttrKind("func"), default=FuncValue("null")),
        Attr("nothing", AttrKind("list(func)"), default=()),
        Attr("flags", AttrKind("list(bool)"), default=(True, False), minimum=2),
        Attr(
            "tensor",
            AttrKind("tensor"),
            default=TensorValue(DTypeName("string"), (1, 2), ("on", "a\nb")),
        ),
    ),
    is_commutative=True,
    deprecation=Deprecation(7, 'it was "wrong": # really', "Other"),
    summary='Says `x: y`, "quoted", and # no comment; ünïcode.',
    description="First line.\n\n  indented: formula\n- list\n\nLast \\ line.",
    gradient_of="If",
    kernels=(("CPU", "opwright"), ("XLA", "opwright")),
)


def test_dump_awkward_values_are_lossless() -> None:
    text = dump.dump(AWKWARD)
    path = load.op_path(Path("x"), AWKWARD.group, AWKWARD.name)
    op, problems = load.load_text(text.encode(), path)
    assert problems == []
    assert op == AWKWARD
    assert dump.dump(op) == text


def test_dump_description_with_final_line_break_is_lossless() -> None:
    op = dataclasses.replace(AWKWARD, description="One.\nTwo.\n")
    path = load.op_path(Path("x"), op.group, op.name)
    assert load.load_text(dump.dump(op).encode(), path) == (op, [])


def test_dump_tpu_only_reason_is_lossless() -> None:
    why = "it is the end of a queue: of one that is on the chip"
    op = dataclasses.replace(AWKWARD, kernels=(), tpu_only=why)
    path = load.op_path(Path("x"), op.group, op.name)
    assert load.load_text(dump.dump(op).encode(), path) == (op, [])


# Importing again.

WRITTEN = """\
# Kept: why this op is here.
op: Roll
group: math
summary: Rolls a tensor along some of its axes, by hand.
description: |-
  Elements that fall off one end come back at the other.

  - a list, too
example: |-
  >>> roll([1, 2], 1, 0).numpy()
  array([2, 1], dtype=int32)
check_with:
  shift: [1, 2]
unchecked: The op needs a device.
truncated: {shift: int32}
gradient_of: Roll
kernels: {CPU: opwright}
deprecated: {version: 20, explanation: Old., replacement: Roll}
inputs:
  - name: input
    type: T
    shape: "*x"
    doc: What is rolled.
  - {name: shift, type: Tshift}
  - {name: gone, type: int32}
outputs:
  - name: output
    type: T
    doc: Rolled.
attrs:
  - name: T
    type: type
    doc: Any dtype.
  - {name: Tshift, type: type, allowed: [int32]}
"""


def test_import_of_renewed_op_keeps_documentation(tmp_path: Path) -> None:
    path = place(tmp_path, "math", "Roll", WRITTEN)
    roll = op_defs()["Roll"]
    assert [arg.name for arg in roll.input_arg] == ["input", "shift", "axis"]

    done = importer.import_ops([roll], tmp_path, "core")

    assert done.updated == (path,)
    assert path.read_text("utf-8") == """\
# Kept: why this op is here.
op: Roll
group: math
summary: Rolls a tensor along some of its axes, by hand.
description: |-
  Elements that fall off one end come back at the other.

  - a list, too
example: |-
  >>> roll([1, 2], 1, 0).numpy()
  array([2, 1], dtype=int32)
check_with:
  shift: [1, 2]
unchecked: The op needs a device.
truncated: {shift: int32}
gradient_of: Roll
kernels: {CPU: opwright}

# ---- Imported facts; by hand below: doc, shape, message, replacement. ----
inputs:
  - name: input
    type: T
    shape: '*x'
    doc: What is rolled.
  - {name: shift, type: Tshift}
  - {name: axis, type: Taxis}
outputs:
  - name: output
    type: T
    doc: Rolled.
attrs:
  - name: T
    type: type
    doc: Any dtype.
  - {name: Tshift, type: type, allowed: [int32, int64]}
  - {name: Taxis, type: type, allowed: [int32, int64]}
"""
    assert importer.import_ops([roll], tmp_path, "core").unchanged == (path,)


def test_with_facts_tpu_only_and_message_are_kept(tmp_path: Path) -> None:
    name, message = "WorkerHeartbeat", "tensorflow.WorkerHeartbeatRequest"
    path = place(
        tmp_path,
        "tpu",
        name,
        f"op: {name}\ngroup: tpu\ntpu_only: it asks the chip's runtime\n"
        f"attrs: [{{name: request, type: string, message: {message}}}]\n",
    )
    fact = registry.from_op_def(op_defs()[name], "tpu")
    attrs = (Attr("request", AttrKind("string")), Attr("count", AttrKind("int")))
    facts = dataclasses.replace(fact, attrs=attrs)
    op, _ = load.load_text(path.read_bytes(), path)
    assert op is not None
    renewed = dump.with_facts(op, facts)
    assert renewed.is_stateful
    assert renewed.tpu_only == "it asks the chip's runtime"
    assert [attr.message for attr in renewed.attrs] == [message, None]


def test_import_of_deprecated_op_keeps_replacement(tmp_path: Path) -> None:
    text = (OPDEFS / "linalg" / "BatchSvd.yaml").read_text("utf-8")
    assert "replacement: Svd" in text and "version: 13" in text
    written = text.replace("version: 13", "version: 12")
    path = place(tmp_path, "linalg", "BatchSvd", written)
    importer.import_ops([op_defs()["BatchSvd"]], tmp_path, "core")
    op, _ = load.load_text(path.read_bytes(), path)
    assert op is not None and op.deprecation is not None
    assert (op.deprecation.version, op.deprecation.replacement) == (13, "Svd")


def test_import_with_same_facts_keeps_the_file(tmp_path: Path) -> None:
    """Not even its layout, nor the comments within it."""
    text = "op: NoOp   # the simplest of all\ngroup:   'core'\n"
    path = place(tmp_path, "core", "NoOp", text)
    done = importer.import_ops([op_defs()["NoOp"]], tmp_path, "core")
    assert done.unchanged == (path,)
    assert path.read_text("utf-8") == text


@pytest.mark.rotating
@pytest.mark.slow
@pytest.mark.parametrize("version", ["installed", "newest"])
def test_import_of_everything_changes_nothing(version: str, tmp_path: Path) -> None:
    """The newest version is of the registries that stand next to the opdefs."""
    shutil.copytree(OPDEFS, tmp_path / "opdefs")
    newest = [*registries.kept(OPDEFS).values()][-1]
    found = registry.installed() if version == "installed" else registry.saved(newest)
    done = importer.import_ops(found, tmp_path / "opdefs", "core")
    assert (done.added, done.updated) == ((), ())
    here = {op_def.name for op_def in found}
    dropped = {name for name, op in every_op().items() if op.dropped_in is not None}
    assert {path.stem for path in done.absent} == dropped - here
    assert {path.stem for path in done.unchanged} == {*every_op()} & here
    assert tree(tmp_path / "opdefs") == tree(OPDEFS)


def test_import_with_an_unreadable_file_writes_nothing(tmp_path: Path) -> None:
    place(tmp_path, "math", "Roll", WRITTEN)
    place(tmp_path, "core", "NoOp", "op: NoOp\ngroup: core\nstateful: yes\n")
    before = tree(tmp_path)
    with pytest.raises(OpdefError, match=r"NoOp\.yaml:3:11: NoOp: 'stateful'"):
        importer.import_ops([op_defs()["NoOp"], op_defs()["Roll"]], tmp_path, "core")
    assert tree(tmp_path) == before


TENSORS = (
    {"dtype": 19, "half_val": [0x3C00, 0x2E66, 0x7C00, 0x7E00]},
    {"dtype": 14, "half_val": [0x3F80, 0x3DCD, 0xFF80, 0x8000]},
    {"dtype": 19, "tensor_content": bytes.fromhex("003c662e007c0080")},
    {"dtype": 1, "tensor_content": bytes.fromhex("cdcccc3d" * 4)},
    {"dtype": 1, "float_val": [0.1]},
    {"dtype": 3, "int_val": [1, -2]},
    {"dtype": 9},
    {"dtype": 7, "string_val": [b"\xff", "é".encode()]},
    {"dtype": 8, "scomplex_val": [0.1, 2, float("inf"), -0.0, 0, 0, 1, 1]},
    {"dtype": 18, "dcomplex_val": [0.1, -1.5]},
    {"dtype": 10, "bool_val": [True]},
    {"dtype": 23, "uint64_val": [2**64 - 1]},
)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("string", {"s": b"\xff"}),
        ("list(string)", {"list": {"s": [b"a", b"\x80\x00", b""]}}),
        ("float", {"f": float("nan")}),
        ("list(float)", {"list": {"f": [float("nan"), 0.1]}}),
        ("func", {"func": {"name": "f", "attr": {"a": {"i": 1}, "b": {"list": {}}}}}),
        (
            "func",
            {
                "func": {
                    "name": "f",
                    "attr": {
                        "z": {"func": {"name": "g", "attr": {"s": {"s": b"\xfe"}}}},
                        "T": {"list": {"type": [1, 19]}},
                        "t": {"tensor": {"dtype": 1, "tensor_shape": {}}},
                    },
                }
            },
        ),
        ("shape", {"shape": {"dim": [{"size": 1, "name": "rows"}, {"size": -1}]}}),
        *(
            ("tensor", {"tensor": {"tensor_shape": {"dim": [{"size": 4}]}, **tensor}})
            for tensor in TENSORS
        ),
    ],
)
def test_odd_defaults_are_lossless(kind: str, default: Any) -> None:
    attr = {"name": "a", "type": kind, "default_value": default}
    op_def = op_def_pb2.OpDef(name="Odd", attr=[attr])
    op = registry.from_op_def(op_def, "nn")
    read, problems = load.load_text(dump.dump(op).encode(), Path("nn/Odd.yaml"))
    assert problems == []
    assert read == op
    rebuilt = registry.to_op_def(read)
    assert rebuilt.SerializeToString(deterministic=True) == (
        op_def.SerializeToString(deterministic=True)
    )


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("float", {"f": -float("nan")}),
        (
            "func",
            {"func": {"name": "f", "attr": {"a": {"list": {"i": [1], "b": [1]}}}}},
        ),
        ("tensor", {"tensor": {"dtype": 20, "tensor_shape": {}}}),
        (
            "tensor",
            {"tensor": {"dtype": 8, "tensor_shape": {}, "scomplex_val": [1]}},
        ),
        ("tensor", {"tensor": {"dtype": 3, "version_number": 1, "tensor_shape": {}}}),
    ],
)
def test_import_of_an_inexpressible_op_skips_it(
    tmp_path: Path, kind: str, default: Any
) -> None:
    attr = {"name": "a", "type": kind, "default_value": default}
    op_defs = [op_def_pb2.OpDef(name="Odd", attr=[attr]), op_def_pb2.OpDef(name="Ok")]
    done = importer.import_ops(op_defs, tmp_path, "nn")
    (left_out,) = done.skipped
    assert left_out.op == "Odd" and left_out.why.startswith("Odd: ")
    assert set(tree(tmp_path)) == {"nn/Ok.yaml"}


@pytest.mark.slow  # In a process with TensorFlow.
@pytest.mark.parametrize(
    "attr",
    [
        {"name": "a", "type": "quaternion"},
        {"name": "a", "type": "list(list(int))"},
        {
            "name": "a",
            "type": "func",
            "default_value": {
                "func": {"name": "f", "attr": {"b": {"placeholder": "c"}}}
            },
        },
    ],
)
def test_import_of_an_attr_of_an_unknown_kind_leaves_the_op_out(
    tmp_path: Path, attr: dict[str, Any]
) -> None:
    ops = [op_def_pb2.OpDef(name="Odd", attr=[attr]), op_def_pb2.OpDef(name="Ok")]
    (tmp_path / "ops.pb").write_bytes(op_def_pb2.OpList(op=ops).SerializeToString())
    where = ("--library", "ops.pb", "--opdefs", "opdefs", "--group", "nn")
    done = command_on_registry("import", *where, cwd=tmp_path)
    assert done.returncode == 0
    assert "warning: Odd: cannot be an opdef: attr 'a" in done.stderr.replace(
        "'b", "'a"
    )
    assert "of the unknown kind" in done.stderr
    assert set(tree(tmp_path / "opdefs")) == {"nn/Ok.yaml"}


def test_opdefs_say_what_the_registry_of_gradients_has() -> None:
    said = {name: op.gradient for name, op in installed_ops().items()}
    registered = registry.gradients()
    if not later(
        "2.22"
    ):  # It brings gradients of them. The opdefs have one fact for all.
        for name in ("AdjustContrastv2", "SoftsignGrad"):
            assert (said.pop(name), registered[name]) == ("none", "registered")
    assert said == {name: registered[name] for name in said}
    assert {*said.values()} == {"registered", "not_differentiable", "none"}


@pytest.mark.parametrize(
    "content",
    [
        b"op { name: '\xff' }",
        b"op { nonsense: 1 }",
        b"op { attr { default_value " + b"{ func { attr { value " * 3000,
    ],
)
def test_saved_list_that_is_unreadable_is_refused(
    content: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "ops.pbtxt"
    path.write_bytes(content)
    with pytest.raises(SourceError, match=r"ops\.pbtxt: no OpList can be read"):
        registry.saved(path)
