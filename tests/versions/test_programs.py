"""Small programs with recurrent layers, embedding tables and typed ops."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import keras, tpu
from opwright.linalg import MatMul, mat_mul
from opwright_runtime import native


@pytest.fixture(scope="module", autouse=True)
def library() -> None:
    native.load()


def test_keras_layers_match_tf_keras() -> None:
    x = np.random.default_rng(7).normal(size=(3, 5, 4)).astype(np.float32)
    for name in ("LSTM", "GRU", "SimpleRNN"):
        tf.keras.utils.set_random_seed(1)
        theirs = getattr(tf.keras.layers, name)(6)
        expected = theirs(x)
        ours = getattr(keras, name)(6)
        ours.build(x.shape)
        ours.set_weights(theirs.get_weights())
        np.testing.assert_allclose(ours(x), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.rotating
def test_keras_lstm_fit_loss_falls() -> None:
    tf.keras.utils.set_random_seed(1)
    model = tf.keras.Sequential([keras.LSTM(8), tf.keras.layers.Dense(1)])
    model.compile("adam", "mse")
    x = np.random.default_rng(7).normal(size=(64, 10, 3)).astype(np.float32)
    history = model.fit(x, x.sum((1, 2))[:, None], epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]


def test_cudnn_rnn_v3_jit_compile_matches_eager() -> None:
    from opwright.nn import cudnn_rnn_v3

    x, h = tf.ones([2, 1, 3]), tf.zeros([1, 1, 4])
    params = tf.fill([4 * 4 * (3 + 4 + 2)], 0.1)

    def run() -> tf.Tensor:
        return cudnn_rnn_v3(x, h, h, params, [2], is_training=False).output

    compiled = tf.function(run, jit_compile=True, autograph=False)
    np.testing.assert_allclose(compiled(), run(), rtol=1e-5)


def test_tpu_embedding_training_loss_falls() -> None:
    embedding = tf.tpu.experimental.embedding
    strategy = tpu.software_strategy()
    films = embedding.TableConfig(100, 8, name="films", combiner="mean")
    with strategy.scope():
        tables = embedding.TPUEmbedding(
            {"seen": embedding.FeatureConfig(table=films)}, embedding.Adagrad(0.5)
        )

    @tf.function
    def train(ids: tf.RaggedTensor) -> tf.Tensor:
        def step() -> tf.Tensor:
            with tf.GradientTape() as tape:
                rows = tables.dequeue()
                tape.watch(rows)
                loss = tf.reduce_mean((rows["seen"] - 1.0) ** 2)
            tables.apply_gradients(tape.gradient(loss, rows))
            return loss

        tables.enqueue({"seen": ids}, training=True)
        return strategy.run(step)

    ids = tf.ragged.constant([[1, 7], [3], [], [99, 0, 5]], tf.int64)
    losses = [float(train(ids)) for _ in range(10)]
    assert losses[-1] < losses[0]
    assert tpu.table("films").rows.shape == (100, 8)


@pytest.mark.rotating
def test_mat_mul_class_is_typed_and_refuses_mixed_dtypes() -> None:
    a = tf.constant([[1.0, 2.0], [3.0, 4.0]])
    made = MatMul.create(
        opwright.Scope.current(), a, a, MatMul.Options(transpose_b=True)
    )
    assert made.product.numpy().tolist() == [[5.0, 11.0], [11.0, 25.0]]
    assert opwright.typed(a, opwright.TFloat32) is a
    with pytest.raises(opwright.OpInputError) as raised:
        mat_mul(a, tf.cast(a, tf.float64))
    assert str(raised.value) == "MatMul: b must be float32 as a is, not float64"
