"""Random numbers, from seeds in attrs, seeds in inputs and the state of a generator."""

import numpy as np
import tensorflow as tf

from support.equivalence.modes import GRAPH
from support.equivalence.samples.kit import Samples, positive, real

SAMPLES = Samples()

SEEDS = {"seed": 3, "seed2": 4}
SHAPE = [2, 3]
ZEROS, ONES = np.float32([0, 0]), np.float32([1, 1])

SAMPLES.each(
    "RandomUniform RandomStandardNormal TruncatedNormal",
    SHAPE,
    dtype=tf.float64,
    **SEEDS,
)
SAMPLES.add("RandomUniformInt", SHAPE, 5, 90, **SEEDS)
SAMPLES.add("RandomGamma", SHAPE, positive(2), **SEEDS)
SAMPLES.add("RandomPoisson", SHAPE, positive(2), **SEEDS)
SAMPLES.add("RandomPoissonV2", SHAPE, positive(2), **SEEDS, dtype=tf.int32)
SAMPLES.add("RandomShuffle", np.arange(6), **SEEDS)
SAMPLES.add("ParameterizedTruncatedNormal", SHAPE, ZEROS, ONES, -ONES, ONES, **SEEDS)
SAMPLES.add("Multinomial", real(2, 4), 5, **SEEDS, output_dtype=tf.int32)
SAMPLES.add("RandomIndexShuffle", np.int32([0, 5]), [1, 2, 3], 9, rounds=6)

STATELESS = "StatelessRandomUniform StatelessRandomNormal StatelessTruncatedNormal"
SAMPLES.each(STATELESS, SHAPE, [3, 4], dtype=tf.float64)
SAMPLES.each(STATELESS, SHAPE, [3, 4])
SAMPLES.add("StatelessRandomUniformInt", SHAPE, [3, 4], 5, 90)
SAMPLES.add("StatelessRandomUniformFullInt", SHAPE, [3, 4], dtype=tf.int32)
SAMPLES.add("StatelessMultinomial", real(2, 4), 5, [3, 4], output_dtype=tf.int32)
SAMPLES.add(
    "StatelessRandomBinomial",
    SHAPE,
    [3, 4],
    np.float32(9),
    np.float32(0.4),
    dtype=tf.int32,
)
SAMPLES.add("StatelessRandomGammaV2", SHAPE, [3, 4], positive(3))
SAMPLES.add("StatelessRandomPoisson", SHAPE, [3, 4], positive(3), dtype=tf.float32)
SAMPLES.add(
    "StatelessParameterizedTruncatedNormal",
    SHAPE,
    [3, 4],
    np.float32(0),
    np.float32(1),
    np.float32(-1),
    np.float32(1),
)


@SAMPLES.program()
def keys_and_counters(run):
    algorithm = run.StatelessRandomGetAlg()
    run.StatelessRandomGetKeyCounterAlg([3, 4])
    key, counter = run.StatelessRandomGetKeyCounter([3, 4])
    for op in ("Uniform", "Normal"):
        run(f"StatelessRandom{op}V2", SHAPE, key, counter, algorithm, dtype=tf.float64)
    run.StatelessTruncatedNormalV2(SHAPE, key, counter, algorithm, dtype=tf.float64)
    run.StatelessRandomUniformFullIntV2(SHAPE, key, counter, algorithm, dtype=tf.int64)
    run.StatelessRandomUniformIntV2(SHAPE, key, counter, algorithm, 5, 90)
    run.StatelessRandomGammaV3(SHAPE, key, counter, algorithm, positive(3))
    run.StatelessShuffle(np.arange(6), key, counter, algorithm)


@SAMPLES.program()
def generator_state(run):
    state = run.VarHandleOp(dtype=tf.int64, shape=[3], shared_name=run.unique("state"))
    run.AssignVariableOp(state, np.int64([1, 2, 3]))
    philox = np.int64(1)
    run.StatefulUniform(state, philox, SHAPE, dtype=tf.float64)
    run.StatefulStandardNormalV2(state, philox, SHAPE, dtype=tf.float64)
    run.StatefulTruncatedNormal(state, philox, SHAPE, dtype=tf.float64)
    run.StatefulUniformFullInt(state, philox, SHAPE, dtype=tf.int32)
    run.StatefulUniformInt(state, philox, SHAPE, 5, 90)
    run.StatefulRandomBinomial(
        state, philox, SHAPE, np.float32(9), np.float32(0.4), dtype=tf.int32
    )
    run.RngSkip(state, philox, np.int64(10))
    run.RngReadAndSkip(state, 1, np.uint64(10))
    run.ReadVariableOp(state, dtype=tf.int64)


@SAMPLES.program(modes=(GRAPH,), old=True)
def removed_generator_op(run):
    state = run.VarHandleOp(dtype=tf.int64, shape=[4])
    run.AssignVariableOp(state, np.int64([1, 2, 3, 4]))
    run.StatefulStandardNormal(state, SHAPE, dtype=tf.float64)


@SAMPLES.program()
def unseeded(run):
    run.opaque.NonDeterministicInts(SHAPE, dtype=tf.int32)
    run.opaque.RandomUniform(SHAPE, dtype=tf.float32)
