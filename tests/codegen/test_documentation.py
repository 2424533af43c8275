"""Opdefs of ops with native kernels name only what their family has.

The tests in tests/reference check that all opdefs are complete and well-formed, and
do not copy TensorFlow's text.
"""

from __future__ import annotations

import dataclasses
import re
from functools import cache
from itertools import chain

import pytest

from opwright_codegen import docs
from opwright_codegen.load import load_text, op_name_of
from opwright_codegen.model import Op
from support.places import OPDEFS

FAMILIES = {
    "CudnnRNN": r"CudnnRNN",
    "TPUEmbedding": r"TPUEmbedding|DistributedTPU$|ShutdownTPUSystem",
    "accumulators": r"Accumulator",
    "deduplication": r"Dedup",
    "SparseCore": r"SparseCore|SparseDenseMatmul|Coo",
}
# Values that kernels compare but OpDefs do not list, and `dirs`, which shapes use.
VALUES = {"sum", "mean", "sqrtn", "train", "inference", "unspecified", "dirs"}


def in_family(name: str) -> bool:
    return any(re.search(pattern, name) for pattern in FAMILIES.values())


PATHS = {
    op_name_of(path): path
    for path in sorted(OPDEFS.glob("*/*.yaml"))
    if in_family(op_name_of(path))
}


@cache
def load(name: str) -> Op:
    op, problems = load_text(PATHS[name].read_bytes(), PATHS[name])
    assert op is not None, problems
    return op


def test_docs_output_with_reserved_name_is_field_or_attribute() -> None:
    """A tuple has methods of its own, after which no field can be named."""
    path = OPDEFS / "array" / "UniqueWithCounts.yaml"
    op, problems = load_text(path.read_bytes(), path)
    assert op is not None, problems
    returned = docs.function(op).partition("Returns:")[2]
    assert "count_: `out_idx`" in returned
    for text in (docs.op_class(op), docs.create(op)):
        assert "count: `out_idx`" in text
        assert "count_" not in text


@pytest.mark.parametrize("summary", ["Adds up.", None])
def test_docs_limits_of_inferred_attrs_stand_where_inputs_name_them(
    summary: str | None,
) -> None:
    text = """\
op: Both
group: math
inputs:
  - {name: x, type: T, count: N}
outputs:
  - {name: y, type: T}
attrs:
  - {name: N, type: int, minimum: 2}
  - {name: T, type: type, allowed: [float, double]}
"""
    op, problems = load_text(text.encode(), OPDEFS / "math" / "Both.yaml")
    assert op is not None, problems
    op = dataclasses.replace(op, summary=summary)
    texts = [docs.op_class(op), docs.create(op)]
    if summary is not None:
        texts += [docs.function(op), docs.raw_op(op, "opwright")]
    for text in texts:
        rows = [row.strip() for row in text.splitlines()]
        assert "`T`: float32 or float64." in rows
        assert "`N`: at least 2." in rows


def test_families_patterns_match_opdefs() -> None:
    for family, pattern in FAMILIES.items():
        found = [name for name in PATHS if re.search(pattern, name)]
        assert len(found) >= 8, f"{family}: {found}"


@pytest.mark.parametrize("name", PATHS)
def test_opdef_names_in_backquotes_exist(name: str) -> None:
    """A name in backquotes is one of this op, or of the op whose gradient it is."""
    op = load(name)
    ops = [op] if op.gradient_of is None else [op, load(op.gradient_of)]
    known = {arg.name for each in ops for arg in each.args()}
    known.update(attr.name for each in ops for attr in each.attrs)
    known.update(chain.from_iterable(attr.allowed or () for attr in op.attrs))
    docs = (part.doc or "" for part in (*op.args(), *op.given))
    texts = [op.description or "", *docs]
    spans = [span for text in texts for span in re.findall(r"`([^`]+)`", text)]
    unknown = {span for span in spans if re.fullmatch(r"[A-Za-z_]\w*", span)} - known
    assert unknown - VALUES == set()
