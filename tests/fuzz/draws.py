"""Scenarios by number: the same number is always the same scenario."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from . import (
    draws_combiners,
    draws_embedding,
    draws_minibatches,
    draws_rnn,
    draws_sparse_core,
    draws_variables,
)
from .calls import Scenario
from .damage import Draw
from .ways import WAYS

# How often each is drawn; some make twenty calls, some one.
FAMILIES: dict[str, tuple[Callable[[Draw], Scenario], float]] = {
    "rnn": (draws_rnn.layers, 0.36),
    "keras": (draws_rnn.keras, 0.06),
    "params": (draws_rnn.params, 0.18),
    "kept": (draws_rnn.kept, 0.0007),
    "sparse": (draws_sparse_core.batch, 0.06),
    "rows": (draws_sparse_core.rows, 0.10),
    "dedup": (draws_sparse_core.dedup, 0.08),
    "minibatches": (draws_minibatches.draw, 0.04),
    "combiners": (draws_combiners.draw, 0.03),
    "variables": (draws_variables.draw, 0.015),
    "embedding": (draws_embedding.steps, 0.13),
    "sends": (draws_embedding.many_sends, 0.0007),
}
SHARES = {"eager": 0.66, "graph": 0.2, "saved": 0.14}
# And these at least of all the calls that are made.
LEAST = {"saved": 0.1, "compiled": 0.01}
COMPILED = ("rnn", "keras", "params")
ALONE = ("kept", "sends")  # The same call again and again: eagerly, to be quick.


@dataclass(frozen=True)
class Choice:
    """What is drawn from."""

    families: list[str]
    kinds: list[str]
    cores: int = 2  # The most that a system has; 1 where its tables lie on a GPU.


def fitting(families: list[str], kind: str) -> list[str]:
    """The families that have calls of this kind."""
    if kind == "compiled":
        return [name for name in families if name in COMPILED]
    return [name for name in families if kind == "eager" or name not in ALONE]


def draw(seed: int, choice: Choice) -> Scenario:
    rng = Draw(seed)
    families = choice.families
    if len(choice.kinds) == 1:
        families = fitting(families, *choice.kinds) or families
    weights = [FAMILIES[name][1] for name in families]
    family = rng.choices(families, weights)[0]
    shares = {kind: SHARES[kind] for kind in choice.kinds if kind in SHARES}
    if "compiled" in choice.kinds and family in COMPILED:
        shares["compiled"] = 0.08 if len(choice.kinds) > 1 else 1.0
    kind = rng.choices(list(shares), list(shares.values()))[0] if shares else "eager"
    if family in ALONE:
        kind = "eager"
    rng.cores = choice.cores
    scenario = FAMILIES[family][0](rng)
    scenario.family = family
    for call in scenario.calls:
        set_up = call.op in draws_variables.SET_UP
        call.way = "eager" if set_up else rng.pick(*WAYS[kind])
    return scenario
