"""Compares row-wise Adagrad with FBGEMM's, which defines it.

FBGEMM is EXACT_ROWWISE_ADAGRAD of SplitTableBatchedEmbeddingBagsCodegen on the CPU, in
float32. Both start from the same tables and look up the same bags, in which rows occur
several times. Both get the same gradients. The program prints the largest error of
weights and accumulators after the steps, relative to the largest value, and fails if
one is not below 1e-6. `pip install --group bench` installs FBGEMM.
"""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import torch
from fbgemm_gpu.split_embedding_configs import EmbOptimType
from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
    ComputeDevice,
    SplitTableBatchedEmbeddingBagsCodegen,
)
from numpy.typing import NDArray

from opwright import tpu

ROWS, BAGS, IDS, STEPS = 500, 64, 640, 20
RATE, EPSILON, ACCUMULATOR, TOLERANCE = 0.05, 1e-8, 0.01, 1e-6
# FBGEMM takes multiples of 4.
WIDTHS = (4, 8, 12, 16, 20, 32, 60, 64, 68, 100, 128, 256, 1000)

Floats = NDArray[np.float32]
Batch = tuple[NDArray[np.int32], NDArray[np.int32], Floats]


def draw_batches(width: int, rng: np.random.Generator) -> list[Batch]:
    """Ids, row splits and gradients of each step. Some bags are empty."""
    made: list[Batch] = []
    for _ in range(STEPS):
        ids = rng.integers(0, ROWS // 5, IDS).astype(np.int32) ** 2 % ROWS
        ends = np.sort(rng.integers(0, IDS + 1, BAGS - 1))
        splits = np.concatenate([[0], ends, [IDS]]).astype(np.int32)
        made.append((ids, splits, rng.standard_normal((BAGS, width), np.float32)))
    return made


def by_fbgemm(weights: Floats, batches: list[Batch]) -> tuple[Floats, Floats]:
    spec = (*weights.shape, EmbeddingLocation.HOST, ComputeDevice.CPU)
    module = SplitTableBatchedEmbeddingBagsCodegen(
        [spec],
        optimizer=EmbOptimType.EXACT_ROWWISE_ADAGRAD,
        learning_rate=RATE,
        eps=EPSILON,
        stochastic_rounding=False,
    )
    ((accumulators,),) = module.split_optimizer_states()
    accumulators.fill_(ACCUMULATOR)
    (table,) = module.split_embedding_weights()
    table.copy_(torch.from_numpy(weights))
    for ids, splits, gradients in batches:
        activations = module(torch.from_numpy(ids), torch.from_numpy(splits))
        activations.backward(torch.from_numpy(gradients))
    return table.detach().numpy(), accumulators.numpy()


def by_opwright(weights: Floats, batches: list[Batch]) -> tuple[Floats, Floats]:
    optimizer = tpu.RowWiseAdagrad(RATE, ACCUMULATOR, EPSILON)
    films = tpu.EmbeddingTable("films", *weights.shape, optimizer)
    feature = tpu.EmbeddingFeature("seen", films, [BAGS])
    config = tpu.EmbeddingConfig([films], [feature]).message
    tpu.configure_distributed_tpu()
    tpu.configure_tpu_embedding(config)
    load(weights, config)
    nothing = np.zeros(0, np.float32)
    for ids, splits, gradients in batches:
        tpu.enqueue_tpu_embedding_arbitrary_tensor_batch(
            [splits], [ids], [nothing], "train", combiners=["sum"]
        )
        tpu.recv_tpu_embedding_activations(1, config)
        tpu.send_tpu_embedding_gradients([gradients], [], config)
    found = tpu.table("films")
    tpu.shutdown_distributed_tpu()
    return found.rows.numpy(), found.slots["accumulators"].numpy()[:, 0]


def load(weights: Floats, config: Any) -> None:
    accumulators = np.full((len(weights), 1), ACCUMULATOR, np.float32)
    empty = [np.zeros((0, 0), np.float32)]
    tpu.load_all_tpu_embedding_parameters(
        [weights], [accumulators], *[empty] * 6, config=config, num_shards=1, shard_id=0
    )


def main() -> None:
    worst = 0.0
    for width in WIDTHS:
        rng = np.random.default_rng(width)
        weights = rng.standard_normal((ROWS, width), np.float32)
        batches = draw_batches(width, rng)
        ours, theirs = by_opwright(weights, batches), by_fbgemm(weights, batches)
        errors = [
            float(np.abs(one - other).max() / np.abs(other).max())
            for one, other in zip(ours, theirs, strict=True)
        ]
        print(
            f"{width:5} columns: weights {errors[0]:.1e}, accumulators {errors[1]:.1e}"
        )
        worst = max(worst, *errors)
    if not worst < TOLERANCE:
        raise SystemExit(f"the largest error is {worst:.1e}, not below {TOLERANCE}")


if __name__ == "__main__":
    main()
