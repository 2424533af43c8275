"""Importing again: comments stay, arguments that have another name are followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.framework import op_def_pb2

from opwright_codegen import comments, dump, importer, load, renamed
from opwright_codegen.model import Arg, Attr, Op
from opwright_codegen.types import AttrKind, DTypeName
from support.workplace import place, tree

OLD = """\
# At the top,
# in two rows.
op: Mix   # behind the op
group: audio
# Above the summary.
summary: Mixes `signal` with others.   # behind the summary
description: |-   # behind a block's head
  No # comment of YAML's.

  It ends.
# Above the line.

# ---- Imported facts; by hand below: doc, shape, message, replacement. ----
# Below the line.
inputs:   # behind a section
  # Above the first.
  - name: signal   # behind a name
    type: T
    # Above a key.
    shape: n   # behind a shape
    doc: "What # is mixed."
  # Above the second, which is gone later.
  - {name: gone, type: int32}  # behind one in a row
  - name: count
    type: int32
    shape: scalar
    # At the end of the inputs.
outputs:
  - {name: mix, type: T}
attrs:
  - {name: T, type: type, allowed: [float, double]}
options:
  # Above an option.
  - {name: gain, type: float, default: 1.0}
# At the very end.
"""

NEW = """\
# At the top,
# in two rows.
op: Mix  # behind the op
group: audio
# Above the summary.
summary: Mixes `samples` with others.  # behind the summary
description: |-  # behind a block's head
  No # comment of YAML's.

  It ends.

# ---- Imported facts; by hand below: doc, shape, message, replacement. ----
# Above the line.
# Below the line.
inputs:  # behind a section
  # Above the first.
  - name: samples  # behind a name
    type: dtype
    # Above a key.
    shape: n  # behind a shape
    doc: 'What # is mixed.'
  - name: count
    type: int32
    shape: scalar
  # Above the second, which is gone later.
  # behind one in a row
  # At the end of the inputs.
outputs:
  - {name: mix, type: dtype}
attrs:
  - {name: dtype, type: type, allowed: [float, double]}
options:
  # Above an option.
  - {name: gain, type: float, default: 2.0}
  - {name: clip, type: bool, default: false}
# At the very end.
"""


def new_op_def(*inputs: str) -> Any:
    types = {"samples": {"type_attr": "dtype"}, "count": {"type": 3}}
    dtypes = {"list": {"type": [1, 2]}}
    return op_def_pb2.OpDef(
        name="Mix",
        input_arg=[{"name": name, **types.get(name, {"type": 3})} for name in inputs],
        output_arg=[{"name": "mix", "type_attr": "dtype"}],
        attr=[
            {"name": "dtype", "type": "type", "allowed_values": dtypes},
            {"name": "gain", "type": "float", "default_value": {"f": 2}},
            {"name": "clip", "type": "bool", "default_value": {"b": False}},
        ],
    )


def test_import_of_changed_op_keeps_comments(tmp_path: Path) -> None:
    path = place(tmp_path, "audio", "Mix", OLD)
    three = new_op_def("samples", "gone", "count")
    done = importer.import_ops([three], tmp_path)
    assert done.renamed == (("Mix", "T", "dtype"), ("Mix", "signal", "samples"))
    done = importer.import_ops([new_op_def("samples", "count")], tmp_path)
    assert done.updated == (path,)
    assert path.read_text("utf-8") == NEW
    again = importer.import_ops([new_op_def("samples", "count")], tmp_path)
    assert again.unchanged == (path,)


def test_comments_texts_skips_quoted_hashes() -> None:
    text = (
        "op: 'a # b' # c\nsummary: \"# d\"\n"
        "description: |\n  # e\n  f # g\nunchecked: a#h\n"
    )
    assert comments.texts(text) == ["# c"]


FLOAT, INT = DTypeName("float"), DTypeName("int32")
OP = Op(
    "Foo",
    "nn",
    (Arg("x", dtype=FLOAT, shape="n k"), Arg("k", dtype=INT)),
    outputs=(Arg("y", dtype=FLOAT, shape="n k"),),
    attrs=(Attr("mode", AttrKind("int"), 1), Attr("size", AttrKind("int"), 2)),
    description="Of `x`, x and `k`.",
)


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ((Arg("x", dtype=FLOAT), Arg("j", dtype=INT)), {"k": "j"}),
        ((Arg("a", dtype=FLOAT), Arg("b", dtype=INT)), {"x": "a", "k": "b"}),
        # Exchanged, of another type, one more: no name is another's.
        ((Arg("k", dtype=INT), Arg("x", dtype=FLOAT)), {}),
        ((Arg("x", dtype=FLOAT), Arg("j", dtype=FLOAT)), {}),
        ((Arg("x", dtype=FLOAT), Arg("j", dtype=INT), Arg("i", dtype=INT)), {}),
    ],
)
def test_renamed_find_pairs_inputs(
    inputs: tuple[Arg, ...], expected: dict[str, str]
) -> None:
    new = Op("Foo", "nn", inputs, OP.outputs, OP.attrs)
    assert renamed.find(OP, new) == expected


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ((("way", 1), ("size", 2)), {"mode": "way"}),
        ((("way", 1), ("length", 2)), {"mode": "way", "size": "length"}),
        ((("way", 7), ("size", 2)), {}),
        ((("way", 1), ("path", 1), ("size", 2)), {}),
    ],
)
def test_renamed_find_pairs_attrs(
    attrs: tuple[tuple[str, int], ...], expected: dict[str, str]
) -> None:
    new = tuple(Attr(name, AttrKind("int"), value) for name, value in attrs)
    found = renamed.find(OP, Op("Foo", "nn", OP.inputs, OP.outputs, new))
    assert found == expected


def test_renamed_apply_changes_shapes_and_prose() -> None:
    op = renamed.apply(OP, {"k": "width"})
    assert [arg.shape for arg in op.args()] == ["n width", None, "n width"]
    assert op.description == "Of `x`, x and `width`."
    # A size has the new name already: which is meant is unknown.
    assert renamed.apply(OP, {"x": "n"}).inputs[0].shape == "n k"


def test_import_of_removed_op_names_or_prunes_opdef(tmp_path: Path) -> None:
    gone, kept = (place(tmp_path, "audio", name) for name in ("Gone", "Kept"))
    op_defs = [op_def_pb2.OpDef(name="Kept")]
    assert importer.import_ops(op_defs, tmp_path).absent == (gone,)
    assert gone.exists()
    importer.import_ops(op_defs, tmp_path, prune=True)
    assert set(tree(tmp_path)) == {"audio/Kept.yaml"}
    assert load.load_text(kept.read_bytes(), kept)[1] == []


def test_comments_carry_without_comments_returns_text() -> None:
    text = dump.dump(OP)
    assert comments.carry(text, text, {}) == text
