"""The op families that are documented by hand are documented in full."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest
import tensorflow as tf

from opwright_codegen.load import load_text, op_name_of
from opwright_codegen.model import Arg, Attr, Op
from support.places import OPDEFS

FAMILIES = {
    "CudnnRNN": r"CudnnRNN",
    "TPUEmbedding": r"TPUEmbedding|DistributedTPU$|ShutdownTPUSystem",
    "accumulators": r"Accumulator",
    "deduplication": r"Dedup",
    "SparseCore": r"SparseCore|SparseDenseMatmul|Coo",
}
# Shorter runs are names, types and set phrases that every author has to use.
COPIED = 12
# Values that kernels compare but OpDefs do not list, and `dirs`, which shapes use.
VALUES = {"sum", "mean", "sqrtn", "train", "inference", "unspecified", "dirs"}
ARTICLES = {"a", "an", "the", "tensor", "tensors", "of", "value", "values"}


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


def documented(op: Op) -> Iterator[Arg | Attr]:
    """Everything that a caller gives or gets; inferred attrs are neither."""
    yield from op.args()
    yield from (attr for attr in op.attrs if attr.name not in op.inferred)


def words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def runs(text: str) -> set[tuple[str, ...]]:
    found = words(text)
    return {tuple(found[i : i + COPIED]) for i in range(len(found) - COPIED + 1)}


@cache
def tensorflow_runs() -> frozenset[tuple[str, ...]]:
    docs = (getattr(tf.raw_ops, name, None).__doc__ or "" for name in PATHS)
    return frozenset(chain.from_iterable(map(runs, docs)))


def test_families_are_found() -> None:
    for family, pattern in FAMILIES.items():
        found = [name for name in PATHS if re.search(pattern, name)]
        assert len(found) >= 8, f"{family}: {found}"


@pytest.mark.parametrize("name", PATHS)
def test_documented_in_full(name: str) -> None:
    op = load(name)
    assert op.summary is not None and op.description is not None
    assert [part.name for part in documented(op) if part.doc is None] == []
    shapeless = [a.name for a in op.args() if not a.shape]
    assert shapeless == []


@pytest.mark.parametrize("name", PATHS)
def test_says_more_than_the_name(name: str) -> None:
    op = load(name)
    for part in documented(op):
        rest = [word for word in words(part.doc or "") if word not in ARTICLES]
        assert len(rest) > 1 and rest != words(part.name), f"{part.name}: {part.doc}"


@pytest.mark.parametrize("name", PATHS)
def test_is_of_readable_length(name: str) -> None:
    op = load(name)
    summary, description = op.summary or "", op.description or ""
    assert summary.endswith(".") and "\n" not in summary and len(summary) <= 78
    assert len(description) <= 2500
    for part in documented(op):
        assert len(part.doc or "") <= 320, part.name
        assert (part.doc or "").endswith("."), part.name


@pytest.mark.parametrize("name", PATHS)
def test_fits_a_docstring(name: str) -> None:
    """Rows that keep their layout must not be longer than a docstring's lines."""
    rows = (load(name).description or "").split("\n")
    kept = [row for row in rows if row.startswith((" ", "-", "|"))]
    assert [row for row in kept if len(row) > 84] == []


@pytest.mark.parametrize("name", PATHS)
def test_is_not_copied(name: str) -> None:
    op = load(name)
    texts = [op.summary, op.description, *(part.doc for part in documented(op))]
    assert tensorflow_runs(), "no text to compare with"
    for text in filter(None, texts):
        assert [" ".join(run) for run in runs(text) & tensorflow_runs()] == []


@pytest.mark.parametrize("name", PATHS)
def test_names_ops_and_attrs_that_exist(name: str) -> None:
    """A name in backquotes is one of this op, or of the op whose gradient it is."""
    op = load(name)
    ops = [op] if op.gradient_of is None else [op, load(op.gradient_of)]
    known = {arg.name for each in ops for arg in each.args()}
    known.update(attr.name for each in ops for attr in each.attrs)
    known.update(chain.from_iterable(attr.allowed or () for attr in op.attrs))
    texts = [op.description or "", *(part.doc or "" for part in documented(op))]
    spans = [span for text in texts for span in re.findall(r"`([^`]+)`", text)]
    unknown = {span for span in spans if re.fullmatch(r"[A-Za-z_]\w*", span)} - known
    assert unknown - VALUES == set()
