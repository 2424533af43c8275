"""Every op has complete documentation that copies no text of TensorFlow."""

from __future__ import annotations

import dataclasses

import pytest

from opwright_codegen.model import Op
from reference.support import examples, prose
from support.grouped import check_each, every_opdef_by_group
from support.opdefs import every_op


@every_opdef_by_group()
def test_opdef_prose_is_complete(names: list[str]) -> None:
    known = frozenset(every_op())

    def check(name: str) -> None:
        op = every_op()[name]
        assert [*prose.incomplete(op), *prose.unknown_names(op, known)] == []

    check_each(names, check)


@every_opdef_by_group()
def test_opdef_prose_copies_no_tensorflow_text(names: list[str]) -> None:
    def check(name: str) -> None:
        assert list(prose.copied(every_op()[name])) == []

    check_each(names, check)


@every_opdef_by_group()
def test_opdef_example_is_in_form(names: list[str]) -> None:
    def check(name: str) -> None:
        assert list(examples.in_form(every_op()[name])) == []

    check_each(names, check)


def test_tensorflow_texts_exist_for_most_ops() -> None:
    found = [name for name in every_op() if prose.tensorflow_texts(name)]
    assert len(found) > 1400


def changed(name: str, **changes: object) -> Op:
    return dataclasses.replace(every_op()[name], **changes)  # type: ignore[arg-type]


def test_prose_copied_finds_copied_sentence() -> None:
    theirs = (
        "the inputs must be two-dimensional matrices and the inner dimension of"
        " both has to agree"
    )
    (found,) = prose.copied(changed("MatMul", description=f"Here {theirs}."))
    assert "matrices and the inner dimension of" in found


def test_prose_copied_ignores_set_phrases_and_code() -> None:
    theirs = "Must be one of the following types: `float32`, `float64`, `int32`."
    assert list(prose.copied(changed("MatMul", description=theirs))) == []


@pytest.mark.parametrize(
    ("name", "doc", "expected"),
    [
        ("x", "The x.", True),
        ("x", "A tensor.", True),
        ("indices", "Index tensor of indices.", False),
        ("indices", "The input indices.", True),
        ("batch_size", "The batch size.", True),
        ("batch_size", "Rows in a batch.", False),
    ],
)
def test_prose_restates_doc_that_repeats_the_name(
    name: str, doc: str, expected: bool
) -> None:
    assert prose.restates(name, doc) is expected


def test_prose_incomplete_lists_missing_texts() -> None:
    op = changed("MatMul", summary=None, example=None, description=None)
    assert "has no summary" in list(prose.incomplete(op))
    assert "has no description" in list(prose.incomplete(op))
    assert list(examples.in_form(op)) == ["has no example"]
