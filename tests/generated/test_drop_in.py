"""Functions in place of `tf.raw_ops`: the same keywords, the same structure."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

import opwright
from support.versions import later

# Arguments that TensorFlow's wrappers name differently than the OpDef. Our functions
# refuse those names, and suggest the OpDef's.
RENAMED = {
    "All Any EuclideanNorm Max Mean Min Prod Sum": {"axis": "reduction_indices"},
    "Split SplitV": {"axis": "split_dim"},
    "ExpandDims": {"axis": "dim"},
    "Squeeze": {"axis": "squeeze_dims"},
    "Select": {"x": "t", "y": "e"},
    "Where": {"condition": "input"},
    # `type` is Python's, which annotations are spelled with.
    "Bitcast CSRSparseMatrixComponents CSRSparseMatrixToDense "
    "CSRSparseMatrixToSparseTensor SparseMatrixSoftmax SparseMatrixSoftmaxGrad "
    "SparseMatrixSparseCholesky SparseMatrixSparseMatMul SparseMatrixTranspose "
    "SparseMatrixZeros": {"type": "type_"},
}
# A tuple has a method of that name.
RENAMED_OUTPUTS = {"UniqueWithCounts UniqueWithCountsV2": {"count": "count_"}}


def by_op(table: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {name: names for ops, names in table.items() for name in ops.split()}


ARGUMENTS, OUTPUTS = by_op(RENAMED), by_op(RENAMED_OUTPUTS)


def functions() -> Iterator[tuple[str, Any, Any, Any]]:
    """Name, raw op, function and class of every op that `tf.raw_ops` has."""
    for name in opwright.op_names():
        raw = getattr(tf.raw_ops, name, None)
        if raw is not None:
            cls = opwright.op_class(name)
            module = sys.modules[cls.__module__]
            yield name, raw, getattr(module, module.__all__[-1]), cls


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(function).parameters)
    return {n: p for n, p in found.items() if p.kind is not p.VAR_KEYWORD}


def test_function_keywords_match_raw_ops() -> None:
    seen = 0
    for name, raw, function, cls in functions():
        renamed = ARGUMENTS.get(name, {})
        expected = {renamed.get(keyword, keyword) for keyword in parameters(raw)}
        expected |= {attr for attr, version in cls.SINCE.items() if later(version)}
        ours = parameters(function)
        assert ours.keys() == expected, name
        required = {arg.python_name for arg in cls.op_def.inputs}
        required |= {a.python_name for a in cls.op_def.required if a.default is None}
        assert {n for n, p in ours.items() if p.kind is not p.KEYWORD_ONLY} == required
        seen += 1
    assert seen > 1400


def test_outputs_tuple_matches_raw_ops() -> None:
    modules = [m for n, m in sys.modules.items() if n.startswith("tensorflow.")]
    modules = [m for m in modules if ".gen_" in m.__name__]
    seen = 0
    for name, _, _, cls in functions():
        found = (getattr(module, f"_{name}Output", None) for module in modules)
        raw = next((one for one in found if hasattr(one, "_fields")), None)
        renamed = OUTPUTS.get(name, {})
        expected = raw and tuple(renamed.get(field, field) for field in raw._fields)
        ours = cls.__dict__.get("Outputs")
        assert (ours and ours._fields) == expected, name
        assert raw is None or ours.__name__ == raw.__name__
        seen += raw is not None
    assert seen > 200


@pytest.mark.parametrize("name", ARGUMENTS)
def test_function_with_raw_ops_keyword_suggests_the_opdefs(name: str) -> None:
    cls = opwright.op_class(name)
    module = sys.modules[cls.__module__]
    function = getattr(module, module.__all__[-1])
    for theirs, ours in ARGUMENTS[name].items():
        words = f"no argument '{theirs}'.*did you mean.*{ours}"
        with pytest.raises(TypeError, match=words):
            function(**{theirs: 0})
