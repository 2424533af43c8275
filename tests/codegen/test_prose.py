"""What authors write into an OpDef, as documentation."""

from __future__ import annotations

import pytest
from tensorflow.core.framework import op_def_pb2

from opwright_codegen import prose
from opwright_codegen.model import Arg, Attr, Op
from opwright_codegen.types import AttrKind, DTypeName

FLOAT = DTypeName("float")
OP = Op(
    "Odd",
    "core",
    (Arg("x", dtype=FLOAT),),
    (Arg("y", dtype=FLOAT),),
    attrs=(Attr("size", AttrKind("int")),),
)
PARTS = {"input_arg": [{"name": "x"}], "output_arg": [{"name": "y"}]}


def documented(summary: str, description: str = "") -> Op:
    op_def = op_def_pb2.OpDef(
        name="Odd", summary=summary, description=description, **PARTS
    )
    return prose.documented(OP, op_def)


@pytest.mark.parametrize(
    ("summary", "description", "expected"),
    [
        ("", "", (None, None)),
        ("Does it", "", ("Does it.", None)),
        ("Does it!", "All of it.", ("Does it!", "All of it.")),
        # Authors do not know that the summary ends with its row.
        (
            "  Does it with",
            "  the rest. Or not.",
            ("Does it with the rest.", "Or not."),
        ),
        ("Does it", "Then more.", ("Does it.", "Then more.")),
        ("Does", "# One\n\ntext", ("Does.", "One\n\ntext")),
        ("Does.", "```\na\n\nb\n```\nc", ("Does.", "  a\n\n  b\n\nc")),
        ("Does.", "1. a\n2. b", ("Does.", "  1. a\n  2. b")),
    ],
)
def test_documented_text_gives_summary_and_description(
    summary: str, description: str, expected: tuple[str | None, str | None]
) -> None:
    op = documented(summary, description)
    assert (op.summary, op.description) == expected


def test_documented_sections_become_docs_of_arguments() -> None:
    op = documented(
        "Does.",
        "    What it does.\n\n    Args:\n      x: A number,\n        or none.\n"
        "      * `size` (int): How many.\n      other: Kept.\n    Returns:\n"
        "      y:\n        What came.\n\n    Notes:\n      Kept, too.",
    )
    assert op.inputs[0].doc == "A number, or none."
    assert op.attrs[0].doc == "How many."
    assert op.outputs[0].doc == "What came."
    assert op.description == (
        "What it does.\n\nArgs:\n  other: Kept.\n\nNotes:\n  Kept, too."
    )


def test_documented_indented_sections_and_unnamed_result_are_read() -> None:
    op = documented(
        "Does.",
        "What it does.\n\n  Args:\n    x: A number.\n  Returns:\n    What came.\n\n"
        "```\nArgs:\n  x: code\n```\nEnd.",
    )
    assert (op.inputs[0].doc, op.outputs[0].doc) == ("A number.", "What came.")
    assert op.description == "What it does.\n\n  Args:\n    x: code\n\nEnd."


def test_documented_own_description_precedes_section() -> None:
    parts = {**PARTS, "input_arg": [{"name": "x", "description": "Its own."}]}
    op_def = op_def_pb2.OpDef(name="Odd", description="Args:\n  x: Not.", **parts)
    assert prose.documented(OP, op_def).inputs[0].doc == "Its own."


def test_digest_of_rewrapped_text_is_equal() -> None:
    assert prose.digest("a b\n  c") == prose.digest("a\nb c") != prose.digest("a bc")
