"""Damaged models are converted, or refused with an error: `python -m fuzz.models`."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tensorflow.core.framework import graph_pb2

from support import tiers
from support.processes import run_program

from .model_damage import damage

COUNT = 500 if tiers.FULL else 40
GRAPH: Any = vars(graph_pb2)["GraphDef"]


@pytest.mark.partial
@pytest.mark.endurance
def test_convert_of_damaged_models_is_done_or_refused() -> None:
    start = 0 if tiers.FULL else COUNT * tiers.part()
    done = run_program("fuzz.models", str(COUNT), "--seed", str(start), timeout=3000)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    *_, last = done.stdout.strip().splitlines()
    outcomes = {name: int(count) for count, name in map(str.split, last.split(", "))}
    assert outcomes.keys() <= {"converted", "refused", "endless"}, last
    assert outcomes["converted"] >= 2 and outcomes["refused"] >= COUNT // 4, last


def test_damage_of_a_seed_is_always_the_same(tmp_path: Path) -> None:
    graph = GRAPH()
    for i in range(20):
        graph.node.add(name=f"n{i}", op="NoOp").attr["i"].i = i
    source, copy = tmp_path / "source.pb", tmp_path / "copy.pb"
    source.write_bytes(graph.SerializeToString())
    seen = set()
    for seed in range(30):
        twice = []
        for _ in range(2):
            damage(source, copy, GRAPH, random.Random(seed))
            twice.append(copy.read_bytes())
        assert twice[0] == twice[1]
        seen.add(twice[0])
    assert len(seen) > 20
