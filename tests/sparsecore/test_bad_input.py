"""Bad calls of the SparseCore ops: each has one bad argument."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from sparsecore.support.lookups import DIVISIONS, PAD, Array, listed, raw, wrapped
from sparsecore.support.updates import CASES


def floats(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def ints(*values: int) -> Array:
    return np.array(values, np.int32)


def check_refused(argument: str, call: Callable[[], Any], error: Any = None) -> None:
    error = error or tf.errors.InvalidArgumentError
    with pytest.raises(error) as raised:
        call()
    assert f"{argument}: " in raised.value.message, raised.value.message


COO: list[tuple[str, dict[str, Any]]] = [
    ("combiner", {"combiner": "max"}),
    ("values", {"values": ints(1, -2, 3)}),
    ("values", {"values": np.zeros((3, 1), "i4")}),
    ("values", {"indices_or_row_splits": ints()}),
    ("weights", {"weights": floats(2)}),
    ("weights", {"weights": floats(3, 1)}),
    ("weights", {"weights": np.array([1, np.nan, 1], np.float32)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, 3)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, 2, 1, 1, 3)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, 1, 2, 3, 9)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, 9, 9, 9, 3)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(1, 1, 2, 3, 3)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, -1, 2, 3, 3)}),
    ("indices_or_row_splits", {"indices_or_row_splits": ints(0, 1, 1, 1, 1)}),
    ("indices_or_row_splits", {"indices_or_row_splits": np.zeros((2, 2), "i4")}),
    ("indices_or_row_splits", {"indices_or_row_splits": np.zeros((0, 2), "i4")}),
    ("indices_or_row_splits", {"indices_or_row_splits": np.zeros((3, 3), "i4")}),
    ("indices_or_row_splits", {"indices_or_row_splits": np.zeros((3, 2, 1), "i4")}),
    ("indices_or_row_splits", {"indices_or_row_splits": np.int32(0)}),
    ("indices_or_row_splits", {"indices_or_row_splits": [[0, 0], [4, 0], [4, 1]]}),
    ("indices_or_row_splits", {"indices_or_row_splits": [[-1, 0], [0, 0], [0, 1]]}),
    ("indices_or_row_splits", {"indices_or_row_splits": [[1, 0], [0, 0], [2, 0]]}),
]


@pytest.mark.parametrize(("argument", "changes"), COO)
def test_convert_to_coo_tensor_bad_features_are_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    good = {
        "indices_or_row_splits": ints(0, 1, 2, 3, 3),
        "values": ints(1, 2, 3),
        "weights": floats(3),
        "sample_count": 4,
        "combiner": "mean",
    }
    raw.ConvertToCooTensor(**good)
    check_refused(argument, lambda: raw.ConvertToCooTensor(**(good | changes)))
    changes = {"weights": floats(3)} | changes
    weights = changes.pop("weights")
    check_refused(argument, lambda: listed([[1], [2], [3], []], weights, 2, **changes))


STACKING = [
    ("num_sc_shards", {"num_sc_shards": 6}),
    ("sample_count", {"num_sc_per_chip": 3}),
    ("stacked_table_sample_count", {"stacked_table_sample_count": 2**31 - 1}),
    ("values", {"col_offset": 2**31 - 2}),
]


@pytest.mark.parametrize(("argument", "changes"), STACKING)
def test_list_of_coo_tensors_bad_stacking_is_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    check_refused(argument, lambda: listed([[1], [2], [3], []], 1.0, 2, **changes))


SORT: list[tuple[str, dict[str, Any]]] = [
    ("row_ids_list[1]", {"row_ids_list": [ints(0, 1), ints(0, -1)]}),
    ("col_ids_list[0]", {"col_ids_list": [ints(0, 64), ints(0, 1)]}),
    ("col_ids_list[0]", {"col_ids_list": [ints(0, -1), ints(0, 1)]}),
    ("col_ids_list[1]", {"col_ids_list": [ints(0, 1), ints(0)]}),
    ("gains_list[1]", {"gains_list": [floats(2), floats(3)]}),
    ("gains_list[0]", {"gains_list": [floats(2, 1), floats(2)]}),
    ("sample_count_list", {"sample_count_list": [4]}),
    ("sample_count_list", {"sample_count_list": [0, 0]}),
    ("sample_count_list", {"sample_count_list": [4, -3]}),
    ("col_offset_list", {"col_offset_list": [0, 0, 0]}),
    ("num_replica", {"num_replica": 3}),
    ("num_replica", {"num_replica": 2**30, "num_sc_per_chip": 2**30}),
]


@pytest.mark.parametrize(("argument", "changes"), SORT)
def test_sort_coo_tensors_bad_lists_are_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    good: dict[str, Any] = {
        "row_ids_list": [ints(0, 1), ints(0, 1)],
        "col_ids_list": [ints(0, 1), ints(0, 1)],
        "gains_list": [floats(2), floats(2)],
        "sample_count_list": [4, 4],
        "col_offset_list": [0, 0],
        "num_replica": 2,
        "table_vocab_size": 64,
        "feature_width": 4,
        "num_sc_per_chip": 2,
        "table_name": "the_table",
    }
    limits = {"max_ids_per_sparse_core": 9, "max_unique_ids_per_sparse_core": 9}
    power = changes == {"num_replica": 3}
    error = tf.errors.FailedPreconditionError if power else None
    raw.SortListOfSparseCoreCooTensors(**good, **limits)
    for op, more in (
        (raw.SortListOfSparseCoreCooTensors, limits),
        (raw.GetStatsFromListOfSparseCoreCooTensors, {}),
    ):
        call = partial(op, **(good | changes | more))
        check_refused(argument, call, error)


CSR: list[tuple[str, dict[str, Any]]] = [
    ("splits", {"splits": np.int64(-1)}),
    ("splits", {"splits": np.int64(0b111)}),
    ("id_counts_list[0]", {"splits": np.int64(1)}),
    ("id_counts_list[0]", {"id_counts_list": [ints(0, 1)]}),
    ("id_counts_list[0]", {"id_counts_list": [ints(0, 1, 4)]}),
    ("id_counts_list[0]", {"id_counts_list": [ints(0, 2, 1)]}),
    ("id_counts_list[0]", {"id_counts_list": [ints(-1, 2, 3)]}),
    ("sorted_col_ids_list[0]", {"sorted_col_ids_list": [ints(0, 1)]}),
    ("sorted_gains_list[0]", {"sorted_gains_list": [floats(3, 1)]}),
    ("max_ids_per_chip_per_sample", {"max_ids_per_chip_per_sample": 3}),
    ("max_ids_per_chip_per_sample", {"max_ids_per_chip_per_sample": 2**31 - 1}),
    ("max_minibatches_per_sc", {"max_minibatches_per_sc": 2**31 - 1}),
    ("num_replica", {"num_replica": 2**33}),
]


@pytest.mark.parametrize(("argument", "changes"), CSR)
def test_wrapped_csr_bad_buffers_are_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    source = SimpleNamespace(
        sorted_row_ids=ints(0, 1, 2),
        sorted_col_ids=ints(0, 1, 2),
        sorted_gains=floats(3),
        id_counts=ints(0, 1, 3),
    )
    wrapped([source], 4, num_replica=2)
    call = {"num_replica": 2} | changes
    check_refused(argument, lambda: wrapped([source], 4, **call))


def test_wrapped_csr_uneven_id_counts_are_refused() -> None:
    sources = [
        SimpleNamespace(
            sorted_row_ids=ints(),
            sorted_col_ids=ints(),
            sorted_gains=floats(0),
            id_counts=np.zeros(n, np.int32),
        )
        for n in (3, 2 * DIVISIONS + 1)
    ]
    check_refused("id_counts_list[1]", lambda: wrapped(sources, 4))


LOOKUP: list[tuple[str, dict[str, Any]]] = [
    ("row_pointers", {"row_pointers": ints(-1, *[8] * 7)}),
    ("row_pointers", {"row_pointers": ints(9, *[16] * 7)}),
    # The second run begins at 8.
    ("row_pointers", {"row_pointers": ints(2, 7, *[8] * 6)}),
    ("row_pointers", {"row_pointers": ints(2, *[8] * 6, PAD)}),
    # More shards than the device has.
    ("row_pointers", {"row_pointers": ints(0, 0, 1, 8, 8, 8, 8, 8)}),
    ("row_pointers", {"row_pointers": np.zeros((1, 8), "i4")}),
    ("num_minibatches_per_physical_sparse_core", {"row_pointers": ints(0)}),
    ("num_minibatches_per_physical_sparse_core", {"num_minibatches": 0}),
    ("num_minibatches_per_physical_sparse_core", {"num_minibatches": -1}),
    ("num_minibatches_per_physical_sparse_core", {"num_minibatches": 2}),
    ("num_minibatches_per_physical_sparse_core", {"num_minibatches": [1]}),
    ("sorted_sample_ids", {"sorted_sample_ids": ints(0, 4, *[PAD] * 6)}),
    ("sorted_sample_ids", {"sorted_sample_ids": ints(-1, 1, *[PAD] * 6)}),
    ("sorted_token_ids", {"sorted_token_ids": ints(0, 8, *[PAD] * 6)}),
    ("sorted_token_ids", {"sorted_token_ids": ints(0, -1, *[PAD] * 6)}),
    ("sorted_token_ids", {"sorted_token_ids": ints(0, 1)}),
    ("sorted_gains", {"sorted_gains": floats(9)}),
    ("sorted_gains", {"sorted_gains": np.full(8, np.inf, np.float32)}),
    ("embedding_table", {"embedding_table": floats(8)}),
    ("num_sparsecores_per_device", {"num_sparsecores_per_device": 3}),
    ("num_sparsecores_per_device", {"num_sparsecores_per_device": 0}),
    ("num_sparsecores_per_device", {"num_sparsecores_per_device": -2}),
]


def small(changes: dict[str, Any]) -> dict[str, Any]:
    """Two triples of one SparseCore with four samples and eight rows."""
    arguments: dict[str, Any] = {
        "row_pointers": ints(2, *[8] * 7),
        "sorted_sample_ids": ints(0, 1, *[PAD] * 6),
        "sorted_token_ids": ints(0, 1, *[PAD] * 6),
        "sorted_gains": floats(8),
        "embedding_table": floats(8, 3),
        "num_minibatches": 1,
        "num_sparsecores_per_device": 1,
        "table_name": "the_table",
    } | changes
    name = "num_minibatches_per_physical_sparse_core"
    arguments[name] = np.int32(arguments.pop("num_minibatches"))
    return arguments


QUANTIZATION = {
    "quantization_config_low": -1.0,
    "quantization_config_high": 1.0,
    "quantization_config_num_buckets": 0,
}


def refused_in_eager_and_graph(
    argument: str, op: Callable[..., Any], arguments: dict[str, Any]
) -> None:
    """Checks that the op names the argument, eagerly and in a graph."""
    arrays = {k: x for k, x in arguments.items() if isinstance(x, np.ndarray)}
    rest = {k: x for k, x in arguments.items() if k not in arrays}
    check_refused(argument, lambda: op(**arguments))

    @tf.function(
        input_signature=[tf.TensorSpec(None, x.dtype) for x in arrays.values()],
        autograph=False,
    )
    def graph(*given: tf.Tensor) -> Any:
        return op(**dict(zip(arrays, given, strict=True)), **rest)

    check_refused(argument, lambda: graph(*arrays.values()))


@pytest.mark.parametrize(("argument", "changes"), LOOKUP)
def test_dense_matmul_bad_argument_is_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    more = QUANTIZATION | {"input_size": 4}
    raw.XlaSparseDenseMatmulWithCsrInput(**small({}), **more)
    refused_in_eager_and_graph(
        argument, raw.XlaSparseDenseMatmulWithCsrInput, small(changes) | more
    )
    gradient = {
        "activation_gradients": floats(4, 3),
        "learning_rate": np.float32(1),
    }
    refused_in_eager_and_graph(
        argument,
        raw.XlaSparseDenseMatmulGradWithSgdAndCsrInput,
        small(changes) | gradient,
    )


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("quantization_config_num_buckets", {"quantization_config_num_buckets": 1}),
        (
            "quantization_config_low",
            {"quantization_config_num_buckets": 2, "quantization_config_high": -1.0},
        ),
        (
            "quantization_config_low",
            {
                "quantization_config_num_buckets": 2,
                "quantization_config_high": float("inf"),
            },
        ),
        (
            "input_size",
            {"num_sparsecores_per_device": 8, "row_pointers": ints(*[0] * 64)},
        ),
        (
            "embedding_table",
            {"num_sparsecores_per_device": 4, "embedding_table": floats(6, 3)},
        ),
        (
            "quantization_config_num_buckets",
            {
                "quantization_config_num_buckets": 2,
                "embedding_table": tf.zeros((8, 3), tf.int32),
            },
        ),
    ],
)
def test_dense_matmul_bad_settings_are_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    arguments = small({}) | QUANTIZATION | {"input_size": 4} | changes
    check_refused(argument, lambda: raw.XlaSparseDenseMatmulWithCsrInput(**arguments))


@pytest.mark.parametrize(
    ("argument", "changes"),
    [
        ("max_ids_per_sparse_core", {"max_ids_per_sparse_core": 1}),
        ("max_unique_ids_per_sparse_core", {"max_unique_ids_per_sparse_core": 1}),
    ],
)
def test_dense_matmul_static_buffer_too_many_ids_are_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    limits = {"max_ids_per_sparse_core": 2, "max_unique_ids_per_sparse_core": 2}
    arguments = small({}) | QUANTIZATION | {"input_size": 4} | limits
    op = raw.XlaSparseDenseMatmulWithStaticBufferSize
    op(**arguments)
    check_refused(argument, lambda: op(**(arguments | changes)))


GRADIENT: list[tuple[str, dict[str, Any]]] = [
    ("activation_gradients", {"activation_gradients": floats(4, 2)}),
    ("activation_gradients", {"activation_gradients": floats(4)}),
    ("activation_gradients", {"activation_gradients": floats(4, 3) * np.nan}),
    ("learning_rate", {"learning_rate": floats(1)}),
    ("learning_rate", {"learning_rate": np.float32(np.nan)}),
    ("accumulator", {"accumulator": floats(8, 2)}),
    ("linear", {"linear": floats(7, 3)}),
    ("clip_weight_min", {"clip_weight_min": 2.0, "clip_weight_max": 1.0}),
]


@pytest.mark.parametrize(("argument", "changes"), GRADIENT)
def test_dense_matmul_grad_bad_argument_is_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    arguments = (
        small({})
        | CASES["ftrl"].hyper
        | {
            "activation_gradients": floats(4, 3),
            "learning_rate": np.float32(1),
            "accumulator": floats(8, 3),
            "linear": floats(8, 3),
        }
    )
    op = raw.XlaSparseDenseMatmulGradWithFtrlAndCsrInput
    op(**arguments)
    refused_in_eager_and_graph(argument, op, arguments | changes)


ROWS: list[tuple[str, dict[str, Any]]] = [
    ("indices", {"indices": ints(0, 8)}),
    ("indices", {"indices": ints(0, -1)}),
    ("indices", {"indices": np.zeros((2, 1), "i4")}),
    ("gradient", {"gradient": floats(3, 3)}),
    ("gradient", {"gradient": floats(2, 4)}),
    ("gradient", {"gradient": np.full((2, 3), -np.inf, np.float32)}),
    ("embedding_table", {"feature_width": 2}),
    ("embedding_table", {"embedding_table": floats(24)}),
    ("velocity", {"velocity": floats(8, 4)}),
    ("momentum", {"momentum": floats(9, 3)}),
    ("beta_1", {"beta_1": floats(1)}),
    ("beta_1", {"beta_1": np.float32(np.inf)}),
    ("learning_rate", {"learning_rate": floats(2)}),
]


@pytest.mark.parametrize(("argument", "changes"), ROWS)
def test_sparse_core_adam_bad_argument_is_refused(
    argument: str, changes: dict[str, Any]
) -> None:
    arguments = {
        "embedding_table": floats(8, 3),
        "indices": ints(0, 1),
        "gradient": floats(2, 3),
        "learning_rate": np.float32(1),
        "momentum": floats(8, 3),
        "velocity": floats(8, 3),
        "beta_1": np.float32(0.9),
        "beta_2": np.float32(0.9),
        "epsilon": np.float32(0.1),
        "feature_width": 3,
        "use_sum_inside_sqrt": False,
    }
    raw.XlaSparseCoreAdam(**arguments)
    refused_in_eager_and_graph(argument, raw.XlaSparseCoreAdam, arguments | changes)
