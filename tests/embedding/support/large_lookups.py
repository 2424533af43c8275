"""Page faults of lookups whose activations malloc would give back to the system."""

from __future__ import annotations

import resource

import numpy as np
import tensorflow as tf

from embedding.support.program import Program, table, tpu_embedding
from opwright import tpu

SAMPLES, COLUMNS = 400_000, 64


def main() -> None:
    weights = np.ones((10, COLUMNS), np.float32)
    feature = tpu_embedding.FeatureConfig(table(weights, "wide"), output_shape=[2])
    made = Program({"all": feature}, tpu_embedding.SGD(0.5))
    with made.strategy.scope():
        made.embedding.build()
    ids = tf.zeros([SAMPLES], tf.int32)
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        tpu.embedding_lookup(ids)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


if __name__ == "__main__":
    main()
