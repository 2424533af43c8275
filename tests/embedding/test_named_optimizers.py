"""Optimizers that TensorFlow has no message or no ops for: programs, and own ops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tpu.optimization_parameters_pb2 import (
    OptimizationParameters,
)

from embedding.support import reference
from embedding.support.cases import (
    TRAITS,
    Feature,
    System,
    Table,
    configure,
    configured,
    f32,
    load,
    optimizer,
    retrieve,
)
from opwright_runtime import native

Invalid, Unimplemented = tf.errors.InvalidArgumentError, tf.errors.UnimplementedError
MESSAGES = OptimizationParameters.DESCRIPTOR.fields_by_name
NAMED = [name for name in TRAITS if name not in MESSAGES]
HYPER = [(name, hyper) for name in NAMED for hyper in TRAITS[name]["hyper"]]
ROW_WISE = [name for name, one in TRAITS.items() if one["row_wise"]]


def system(parameters: Any) -> System:
    return System([Table(7, 5, parameters)], [Feature(0, (1,), "dense")])


def tame(name: str) -> Any:
    rate = None if name == "frequency_estimator" else 0.125
    return optimizer(name, rate, **reference.RULES[name].tame)


def attributes(parameters: Any) -> Any:
    return parameters.user_defined_program.program.frontend_attributes.map


@pytest.mark.parametrize("name", ["adagard", "adagrad", ""])
def test_program_with_a_name_of_no_optimizer_is_refused(name: str) -> None:
    """TensorFlow's message is the only form of an optimizer that has one."""
    parameters = optimizer("user_defined_program")
    parameters.user_defined_program.program.name = f"opwright.{name}"
    words = rf"'table0'.*there is no optimizer 'opwright\.{name}'"
    with pytest.raises(Unimplemented, match=words):
        configure(system(parameters).proto)


@pytest.mark.parametrize(("name", "hyper"), HYPER)
def test_program_without_a_hyperparameter_is_refused(name: str, hyper: str) -> None:
    parameters = tame(name)
    del attributes(parameters)[hyper]
    words = f"'table0'.*{name} must have the attribute {hyper}, a number; it has none"
    with pytest.raises(Invalid, match=words):
        configure(system(parameters).proto)


@pytest.mark.parametrize(("name", "hyper"), HYPER)
@pytest.mark.parametrize("text", ["", "many", "1,5", "0.5 ."])
def test_program_with_text_for_a_hyperparameter_is_refused(
    name: str, hyper: str, text: str
) -> None:
    parameters = tame(name)
    attributes(parameters)[hyper] = text
    with pytest.raises(Invalid, match=f"{hyper}, a number; it has '{text}'"):
        configure(system(parameters).proto)


@pytest.mark.parametrize(("name", "hyper"), HYPER)
@pytest.mark.parametrize("text", ["nan", "inf", "-1e39"])
def test_program_with_a_hyperparameter_out_of_range_is_refused(
    name: str, hyper: str, text: str
) -> None:
    parameters = tame(name)
    attributes(parameters)[hyper] = text
    with pytest.raises(Invalid, match=rf"'table0'.*{name}\.{hyper} must be finite"):
        configure(system(parameters).proto)


def load_one(tensors: list[Any], config: bytes) -> None:
    native.ops().opwright_load_embedding_table(
        parameters=tensors[0],
        slots=tensors[1:],
        table_name="table0",
        num_shards=1,
        shard_id=0,
        config=config,
    )


def retrieve_one(slots: int, config: bytes, **table: Any) -> list[Any]:
    found = native.ops().opwright_retrieve_embedding_table(
        N=slots, num_shards=1, shard_id=0, config=config, **table
    )
    return [found.parameters, *found.slots]


@pytest.mark.parametrize("name", reference.RULES)
def test_own_ops_load_and_retrieve_a_table_of_any_optimizer(name: str) -> None:
    made = system(tame(name))
    rng = np.random.default_rng(0)
    first, second = (made.tables[0].draw(rng) for _ in range(2))
    with configured(made) as proto:
        load(made, [first])
        found = retrieve_one(len(first) - 1, proto, table_id=0)
        for tensor, values in zip(found, first.values(), strict=True):
            np.testing.assert_array_equal(tensor, values)
        load_one([f32(values) for values in second.values()], proto)
        (after,) = retrieve(made)
    for slot, values in second.items():
        np.testing.assert_array_equal(after[slot], values)


@pytest.mark.parametrize("slots", [0, 2])
def test_own_ops_with_another_number_of_slots_are_refused(slots: int) -> None:
    made = system(optimizer("adagrad"))
    words = f"slots.*'table0'.*adagrad with 1 slots, not {slots}"
    with configured(made) as proto:
        state = made.tables[0].draw(np.random.default_rng(0))
        load(made, [state])
        ones = [tf.ones([7, 5])] * (1 + slots)
        with pytest.raises(Invalid, match=words):
            load_one(ones, proto)
        with pytest.raises(Invalid, match=words):
            retrieve_one(slots, proto, table_name="table0")
        (after,) = retrieve(made)
    np.testing.assert_array_equal(after["parameters"], state["parameters"])


@pytest.mark.parametrize("name", ROW_WISE)
def test_row_wise_slot_with_a_column_a_weight_is_refused(name: str) -> None:
    made = system(tame(name))
    with configured(made) as proto:
        state = made.tables[0].draw(np.random.default_rng(0))
        load(made, [state])
        slots = TRAITS[name]["slots"]
        wrong = [tf.ones([7, 5])] * (1 + len(slots))
        with pytest.raises(Invalid, match=rf"{slots[0]}.*\[7,1\], has \[7,5\]"):
            load_one(wrong, proto)
        with pytest.raises(Invalid, match=r"auxiliary1.*\[7,1\], has \[7,5\]"):
            load(made, [{**state, slots[0]: np.ones((7, 5))}])
        (after,) = retrieve(made)
    np.testing.assert_array_equal(after[slots[0]], state[slots[0]])


@pytest.mark.parametrize("name", NAMED)
def test_ops_of_another_optimizer_are_refused_for_a_program(name: str) -> None:
    made = system(tame(name))
    with configured(made) as proto, pytest.raises(Invalid, match=name):
        tf.raw_ops.LoadTPUEmbeddingAdagradParameters(
            parameters=tf.ones([7, 5]),
            accumulators=tf.ones([7, 5]),
            table_id=0,
            num_shards=1,
            shard_id=0,
            config=proto,
        )
