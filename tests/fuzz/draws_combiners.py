"""Calls of the ops with custom combiners: lookups, and updates with their results."""

from __future__ import annotations

from typing import Any

from sparsecore.support.ordered import ordered_csr

from .calls import Literal, Made, Scenario
from .damage import Draw
from .draws_sparse_core import OPTIMIZERS, Chain, floats, scalar, slot

ROWS, WIDTH, VALENCY = 16, 3, 3
PREFIX = "XlaSparseDenseMatmulCustomCombinerOnTc"


def draw(rng: Draw) -> Scenario:
    """A lookup, and some updates."""
    chain = Chain(rng)
    cores, weighted = rng.pick(1, 2, 4), rng.chance(0.6)
    samples, number = 4 * rng.pick(1, 2), VALENCY if weighted else 0
    bags = [
        [rng.int(0, ROWS - 1) for _ in range(rng.int(0, VALENCY))]
        for _ in range(samples)
    ]
    buffers: dict[str, Any] = {
        name: Literal(
            array.dtype.name, list(array.shape), [one.item() for one in array]
        )
        for name, array in ordered_csr(bags, cores).items()
    }
    weights = floats(rng, number)
    shared = {
        "max_valency": VALENCY,
        "num_weights": number,
        "table_name": b"t",
        "num_sparsecores_per_device": cores,
    }
    inputs = {"embedding_table": floats(rng, ROWS, WIDTH), "weights": weights}
    attrs = {
        "input_size": samples,
        "combiner_computation": "weighted" if weighted else "sum",
        "quantization_config_low": -1.0,
        "quantization_config_high": 1.0,
        "quantization_config_num_buckets": rng.pick(0, 0, 5),
    }
    found = chain.add(f"{PREFIX}WithCsrInput", buffers | inputs, attrs | shared, 3)
    given: dict[str, Any] = buffers | {
        "weights": weights,
        "preserved_valencies": Made(found, 1),
        "preserved_vectors": Made(found, 2),
        "preserved_weights": weights,
        "activation_gradients": floats(rng, samples, WIDTH),
        "combiner_weights_learning_rate": scalar(rng.pick(0.0, 0.125)),
    }
    unweighted = rng.pick("no_weights_vjp", "sum_vjp")
    functions = {
        "combiner_table_vjp_computation": "weighted_vjp" if weighted else "sum_vjp",
        "combiner_weights_vjp_computation": (
            rng.pick("weights_vjp", "weights_vjp", "no_weights_vjp")
            if weighted
            else unweighted
        ),
    }
    for kind in rng.sample([*OPTIMIZERS, "", ""], 2):
        update(chain, kind, given, shared | functions)
    return Scenario("combiners", chain.calls)


def update(
    chain: Chain, kind: str, given: dict[str, Any], attrs: dict[str, Any]
) -> None:
    """An update by an optimizer of the op, or by a function."""
    rng = chain.rng
    table = floats(rng, ROWS, WIDTH)
    if not kind:
        inputs = {"tables": [table], "hyperparameters": [scalar(0.5)]}
        attrs = attrs | {"optimizer_custom_computation": "descent"}
        chain.add(f"{PREFIX}GradWithCsrInput", given | inputs, attrs, 2)
        return
    slots, hyper = OPTIMIZERS[kind]
    tables = {name: slot(rng, name, ROWS, WIDTH) for name in slots}
    more = tables | {"embedding_table": table, "learning_rate": scalar(0.5)}
    if rng.chance(0.3):
        hyper = hyper | {"clip_weight_min": -1.0, "clip_weight_max": 1.0}
    op = f"{PREFIX}GradWith{kind}AndCsrInput"
    chain.add(op, given | more, attrs | hyper, 2)
