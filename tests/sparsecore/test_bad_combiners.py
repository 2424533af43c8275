"""Bad calls of the ops with custom combiners: each has one bad argument."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sparsecore.support import hostile_combiners
from sparsecore.support.combiners import (
    COMBINERS,
    Shape,
    combined_lookup,
    combined_update,
    concrete,
    forward_function,
    preserved,
    vjp_functions,
)
from sparsecore.support.lookups import PAD, Array
from sparsecore.support.ordered import ordered_csr
from sparsecore.support.updates import CASES

SHAPE = Shape(4, 3, 2, 3)
BAGS = [[0, 5], [], [7, 7, 1], [2]]
COMBINER = COMBINERS["weighted"]
TABLE = np.ones((8, 2), np.float32)
WEIGHTS = np.ones(3, np.float32)
CSR = ordered_csr(BAGS, 2)
SPECS = [
    tf.TensorSpec([4], tf.int32),
    tf.TensorSpec([4, 3, 2]),
    tf.TensorSpec([4, 3]),
]
BACKWARD = [*SPECS, tf.TensorSpec([4, 2])]


def changed(name: str, old: int, new: int) -> dict[str, Array]:
    """The first element of a buffer that is `old`, replaced by `new`."""
    buffer = CSR[name].copy()
    buffer[np.flatnonzero(buffer == old)[0]] = new
    return {name: buffer}


def gains(value: float) -> dict[str, Array]:
    return {"sorted_gains": np.full_like(CSR["sorted_gains"], value)}


BUFFERS: list[tuple[str, dict[str, Any]]] = [
    ("row_pointers", {"row_pointers": CSR["row_pointers"][:8]}),
    ("row_pointers", {"row_pointers": CSR["row_pointers"][None]}),
    ("row_pointers", {"row_pointers": -CSR["row_pointers"]}),
    ("row_pointers", {"row_pointers": CSR["row_pointers"] + 1000}),
    ("row_pointers", {"num_sparsecores_per_device": 4}),
    ("sorted_sample_ids", changed("sorted_sample_ids", 1, 2)),
    ("sorted_sample_ids", changed("sorted_sample_ids", 1, -1)),
    ("sorted_sample_ids", changed("sorted_sample_ids", 1, PAD)),
    ("sorted_token_ids", changed("sorted_token_ids", 3, 4)),
    ("sorted_token_ids", {"sorted_token_ids": CSR["sorted_token_ids"][:-1]}),
    ("sorted_pos_ids", {"sorted_pos_ids": CSR["sorted_pos_ids"][:-1]}),
    ("sorted_pos_ids", {"sorted_pos_ids": CSR["sorted_pos_ids"][None]}),
    ("sorted_pos_ids", changed("sorted_pos_ids", 2, 3)),
    ("sorted_pos_ids", changed("sorted_pos_ids", 2, 0)),
    ("sorted_pos_ids", changed("sorted_pos_ids", 2, -(2**31))),
    ("sorted_pos_ids", changed("sorted_pos_ids", 2, PAD)),
    ("sorted_gains", {"sorted_gains": CSR["sorted_gains"][:-1]}),
    ("sorted_gains", gains(0.5)),
    ("sorted_gains", gains(np.nan)),
    ("num_sparsecores_per_device", {"num_sparsecores_per_device": 3}),
    ("num_sparsecores_per_device", {"num_sparsecores_per_device": 0}),
    ("embedding_table", {"embedding_table": TABLE[0]}),
    ("embedding_table", {"embedding_table": TABLE[:7]}),
    ("weights", {"weights": WEIGHTS[:2]}),
    ("weights", {"weights": WEIGHTS[None]}),
]
FUNCTIONS: list[tuple[str, Any]] = [
    (
        "must take (int32, float, float), takes (int32)",
        concrete(lambda x: x, SPECS[:1]),
    ),
    ("must take (int32, float, float), takes nothing", concrete(lambda: TABLE, [])),
    ("must return (float), returns nothing", concrete(lambda *_: [], SPECS)),
    ("must return (float), returns (int32)", concrete(lambda *x: x[0], SPECS)),
    ("must return (float), returns (float, float)", concrete(lambda *x: x[1:], SPECS)),
    ("the shape [4,2], returns [4,3]", concrete(lambda *x: x[2], SPECS)),
    ("the shape [4,2], returns []", concrete(lambda *_: 1.0, SPECS)),
    (
        "the requested shape has 0",
        concrete(lambda *x: tf.reshape(x[2], x[0][:2]), SPECS),
    ),
]


def refused(words: str, call: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call()
    assert words in raised.value.message, raised.value.message


def look_up(**changes: Any) -> Any:
    function = changes.pop("combiner_computation", None) or forward_function(
        COMBINER, SHAPE
    )
    weights = changes.pop("weights", WEIGHTS)
    return combined_lookup(CSR, TABLE, weights, function, SHAPE, 2, **changes)


def update(**changes: Any) -> Any:
    saved = {
        "preserved_valencies": np.array([2, 0, 3, 1], np.int32),
        "preserved_vectors": np.ones((4, 3, 2), np.float32),
        "preserved_weights": WEIGHTS,
        "weights": WEIGHTS,
    }
    return combined_update(
        CASES["adagrad"],
        CSR,
        saved,
        vjp_functions(COMBINER, SHAPE),
        np.ones((4, 2), np.float32),
        [TABLE, TABLE],
        SHAPE,
        2,
        **changes,
    )


def test_combined_ops_good_calls_succeed() -> None:
    found = look_up()
    update(**preserved(found, WEIGHTS))


@pytest.mark.parametrize(("argument", "changes"), BUFFERS)
def test_combined_ops_damaged_buffers_are_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    refused(f"{argument}: ", partial(look_up, **changes))
    if argument == "embedding_table":
        changes = dict.fromkeys(("embedding_table", "accumulator"), TABLE[:7])
    refused(f"{argument}: ", partial(update, **changes))


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("max_valency", {"max_valency": 2}),
        ("max_valency", {"max_valency": 0}),
        ("max_valency", {"max_valency": 2**29}),
        ("max_valency", {"max_valency": 2**62}),
        ("input_size", {"input_size": 3}),
        ("sorted_sample_ids", {"input_size": 2}),
        ("max_valency", {"input_size": 2**62}),
        ("weights", {"num_weights": 2**62}),
        ("quantization_config_num_buckets", {"quantization_config_num_buckets": 1}),
    ],
)
def test_combined_lookup_bad_sizes_are_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    refused(f"{argument}: ", partial(look_up, **changes))


@pytest.mark.parametrize(("words", "function"), FUNCTIONS)
def test_combined_lookup_other_functions_are_refused(words: str, function: Any) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        look_up(combiner_computation=function)
    assert "combiner_computation: " in raised.value.message
    assert words in raised.value.message


GRADIENTS: list[tuple[str, dict[str, Any]]] = [
    ("activation_gradients", {"activation_gradients": np.ones((4, 3), np.float32)}),
    ("activation_gradients", {"activation_gradients": np.ones(4, np.float32)}),
    (
        "activation_gradients: must be finite, that of sample 1, column 0 is nan",
        {
            "activation_gradients": np.array(
                [[1, 1], [np.nan, 1], [1, 1], [1, 1]], np.float32
            )
        },
    ),
    ("preserved_valencies", {"preserved_valencies": np.zeros(3, np.int32)}),
    ("preserved_valencies", {"preserved_valencies": np.zeros((4, 1), np.int32)}),
    ("preserved_vectors", {"preserved_vectors": np.zeros((4, 2, 2), np.float32)}),
    ("preserved_vectors", {"max_valency": 2**28}),
    ("max_valency", {"max_valency": 2**62}),
    ("preserved_weights", {"preserved_weights": WEIGHTS[:2]}),
    ("combiner_weights_learning_rate", {"combiner_weights_learning_rate": WEIGHTS}),
    ("weights", {"combiner_weights_learning_rate": np.float32(np.inf)}),
    ("learning_rate", {"learning_rate": np.float32(np.nan)}),
    ("clip_weight_min", {"clip_weight_min": 2.0, "clip_weight_max": 1.0}),
    ("accumulator", {"accumulator": -TABLE}),
    ("accumulator", {"accumulator": TABLE[:4]}),
    (
        "combiner_table_vjp_computation: the function must take "
        "(int32, float, float, float), takes (int32, float, float)",
        {"combiner_table_vjp_computation": concrete(lambda *x: x[1], SPECS)},
    ),
    (
        "combiner_table_vjp_computation: the function must return a tensor of the "
        "shape [4,3,2], returns [4,2]",
        {"combiner_table_vjp_computation": concrete(lambda *x: x[3], BACKWARD)},
    ),
    (
        "combiner_table_vjp_computation: the function must return finite gradients, "
        "that of sample 0, position 0, column 0 is inf",
        {"combiner_table_vjp_computation": concrete(lambda *x: x[1] / 0, BACKWARD)},
    ),
    (
        "combiner_weights_vjp_computation: the function must return (float) or nothing",
        {"combiner_weights_vjp_computation": concrete(lambda *x: x[0], BACKWARD)},
    ),
    (
        "combiner_weights_vjp_computation: the function must return a tensor of the "
        "shape [4,3], returns [4,2]",
        {"combiner_weights_vjp_computation": concrete(lambda *x: x[3], BACKWARD)},
    ),
    (
        "weights: their update must be finite; number 0 is 1, the sum of its gradients",
        {"combiner_weights_vjp_computation": concrete(lambda *x: x[2] / 0, BACKWARD)},
    ),
]


@pytest.mark.parametrize(("words", "changes"), GRADIENTS)
def test_combined_update_bad_arguments_are_refused(
    words: str, changes: dict[str, Any]
) -> None:
    refused(words if ": " in words else f"{words}: ", partial(update, **changes))


def test_combined_ops_drawn_damage_is_refused_or_computed() -> None:
    refused_calls = hostile_combiners.run(300, 0)
    assert 100 < refused_calls < 300
