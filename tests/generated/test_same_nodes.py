"""In a graph, each class makes the node that TensorFlow's own builder makes."""

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from opwright_runtime._binding import dispatch
from support.equivalence import calls
from support.equivalence.modes import OLD_GRAPH
from support.equivalence.registry import given, has_default, is_removed, op_def
from support.equivalence.synthesis import arguments
from support.grouped import check_each, every_op_by_group
from support.tiers import part_of
from support.versions import installed_ops


def node(
    build: Callable[..., calls.Called], op: str, *, options: bool, name: str | None
) -> Any:
    """The NodeDef that `build` returns for synthesised arguments, in a new graph."""
    with tf.Graph().as_default():
        definition = op_def(op)
        if is_removed(definition):
            tf.import_graph_def(OLD_GRAPH, name="")
        made = build(op, arguments(definition, options=options), name)
    assert made.operation is not None
    return made.operation.node_def


@pytest.fixture(autouse=True)
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adds nodes whose synthesised arguments would end the process if they ran."""
    monkeypatch.setattr(dispatch, "_check", lambda *_, **__: None)


@pytest.mark.partial
@every_op_by_group()
def test_node_def_matches_tensorflow_builder(names: list[str]) -> None:
    def check(op: str) -> None:
        expected = node(calls.build, op, options=False, name=None)
        assert node(calls.call_opwright, op, options=False, name=None) == expected

    check_each(part_of(names), check)


@pytest.mark.partial
@every_op_by_group()
def test_node_def_with_every_option_matches_tensorflow_builder(
    names: list[str],
) -> None:
    def check(op: str) -> None:
        expected = node(calls.build, op, options=True, name="named")
        made = node(calls.call_opwright_function, op, options=True, name="named")
        assert made == expected

    check_each(part_of(names), check)


@pytest.mark.rotating
def test_node_def_options_differ_from_their_defaults() -> None:
    left = []
    for name in installed_ops():
        made = node(calls.build, name, options=True, name=None)
        for attr in given(op_def(name)):
            if has_default(attr) and made.attr[attr.name] == attr.default_value:
                left.append(attr.name)
    # A table has an id or a name; the other options allow their defaults alone, or do
    # not go with others.
    assert left.count("table_id") == 26
    assert len(left) <= 36


def test_node_def_of_other_call_differs() -> None:
    default = node(calls.build, "MatMul", options=False, name=None)
    assert default != node(calls.build, "MatMul", options=True, name=None)
    assert default != node(calls.build, "MatMul", options=False, name="other")
    assert default != node(calls.build, "BatchMatMul", options=False, name="MatMul")
