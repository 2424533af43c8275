"""Kernels truncate what opdefs state, and nothing else."""

from __future__ import annotations

import random

import pytest

from .truncation import find, ops

# Ops whose kernels truncate an input, in addition to those of the seed.
ALWAYS = ("ArgMax", "ConcatV2", "MatrixBandPart", "Roll", "TopKV2", "Transpose")


def stated() -> set[str]:
    return {f"{op.name}.{name}" for op in ops() for name, _ in op.truncated}


@pytest.mark.rotating
def test_truncation_of_some_ops_is_stated_by_their_opdefs() -> None:
    names = [op.name for op in ops()]
    chosen = [*ALWAYS, *random.Random(0).sample(names, 30)]
    found, tried = find(chosen, seconds=30)
    assert {"ConcatV2.axis", "Roll.shift", "Roll.axis", "TopKV2.k"} <= found
    assert found <= stated()
    assert len(tried) > len(found)


@pytest.mark.rotating
def test_find_leaves_out_seeds() -> None:
    found, tried = find(["RandomIndexShuffle"], seconds=300)
    assert "RandomIndexShuffle.max_index" in tried
    assert "RandomIndexShuffle.seed" not in tried
    assert not found


@pytest.mark.full_matrix
def test_truncation_of_every_op_is_stated_by_its_opdef() -> None:
    found, tried = find([op.name for op in ops()], seconds=1800)
    assert found <= stated()
    assert len(tried) > 500
