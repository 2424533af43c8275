"""TPUEmbeddingV2 with custom combiners, under software_strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpAttrError, OpInputError, tpu
from support.processes import run_program

embedding = tf.tpu.experimental.embedding
BATCH, ROWS, WIDTH, VALENCY = 4, 32, 3, 3
IDS = [[1, 2], [], [4, 4, 5], [31]]

if tf.__version__ < "2.21":
    pytest.skip("TPUEmbeddingV2 runs with TensorFlow 2.21", allow_module_level=True)


def check_trainings(first: int, count: int) -> None:
    """Of the drawn trainings with these numbers, on 1, 2 and 4 cores."""
    name = "embedding.support.custom_combiners"
    done = run_program(name, str(first), str(count), timeout=600 + 120 * count)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    assert done.stdout.endswith("done\n")


@pytest.mark.equivalence
@pytest.mark.parametrize("first", range(0, 64, 8))
def test_custom_combiners_64_drawn_trainings_match_reference(first: int) -> None:
    check_trainings(first, 8)


@pytest.mark.rotating
@pytest.mark.parametrize("number", range(64, 72))
def test_custom_combiners_drawn_training_matches_reference(number: int) -> None:
    check_trainings(number, 1)


def scaled_sum(valency: tf.Tensor, vectors: tf.Tensor, weights: tf.Tensor) -> Any:
    taken = tf.range(VALENCY) < valency
    return weights[0] * tf.reduce_sum(
        tf.where(taken[:, None], vectors, tf.zeros_like(vectors)), 0
    )


def combiner(function: Any = scaled_sum, **changes: Any) -> Any:
    arguments = {
        "max_valency": VALENCY,
        "num_weights": 1,
        "initializer": tf.keras.initializers.Constant(2.0),
        "combiner_weights_learning_rate": 0.5,
    }
    return embedding.CustomCombiner(function, **(arguments | changes))


class Setup:
    """A feature of one table, on one core."""

    def __init__(
        self, custom: Any = None, strict: bool = True, name: str = "films"
    ) -> None:
        self.strategy = tpu.software_strategy(strict=strict, embedding_feature="v2")
        table = embedding.TableConfig(
            ROWS,
            WIDTH,
            initializer=tf.keras.initializers.Constant(0.5),
            combiner=custom or combiner(),
            name=name,
        )
        self.features = {"film": embedding.FeatureConfig(table, output_shape=[BATCH])}
        with self.strategy.scope():
            self.embedding = embedding.TPUEmbeddingV2(
                self.features, embedding.SGD(0.25)
            )

    @property
    def weights(self) -> list[float]:
        (variable,) = self.embedding.custom_combiner_variables.values()
        values: list[float] = variable.numpy().tolist()
        return values

    def step(self, ids: Any, gradient: Any = 1.0, weights: Any = None) -> tf.Tensor:
        activations, preserved = self.embedding({"film": ids}, weights)
        found = activations["film"]
        gradients = {"film": tf.ones_like(found) * gradient}
        self.embedding.apply_gradients(gradients, preserved)
        return found

    @tf.function
    def run(self, ids: Any, gradient: Any = 1.0) -> tf.Tensor:
        return self.strategy.run(self.step, args=(ids, gradient))


def ragged(ids: Any = IDS) -> tf.RaggedTensor:
    return tf.ragged.constant(ids, tf.int64, ragged_rank=1)


@pytest.mark.parametrize("strict", [True, False])
def test_custom_combiner_step_trains_table_and_weights(strict: bool) -> None:
    setup = Setup(strict=strict)
    counts = np.array([len(one) for one in IDS], np.float32)
    found = setup.run(ragged())
    np.testing.assert_allclose(found, np.outer(counts, np.ones(WIDTH)))
    rows = tpu.table("films").rows.numpy()[:, 0]
    # The weight 2 times 0.25, twice for a row that is there twice.
    assert rows[[0, 1, 4, 31]].tolist() == [0.5, 0, -0.5, 0]
    # Six rows of three columns of 0.5, times 0.5.
    assert setup.weights == [2 - 0.5 * 6 * WIDTH * 0.5]


@pytest.mark.parametrize("custom", [None, "sum"])
def test_custom_combiners_as_the_name_of_a_table_trains_it(custom: Any) -> None:
    setup = Setup(custom, name="custom_combiners")
    setup.run(ragged())
    assert tpu.table("custom_combiners").rows.numpy()[31, 0] < 0.5


def test_custom_combiner_compiled_step_has_the_same_results() -> None:
    results = []
    for jit in (False, True):
        setup = Setup()
        run = tf.function(
            lambda ids, setup=setup: setup.strategy.run(setup.step, args=(ids,)),
            jit_compile=jit,
        )
        run(ragged())
        results.append([run(ragged()).numpy().tolist(), setup.weights])
    assert results[0] == results[1]


def test_custom_combiner_function_of_tf_function_is_vectorized() -> None:
    setup = Setup(combiner(tf.function(scaled_sum)))
    assert setup.run(ragged())[0].numpy().tolist() == [2, 2, 2]


def test_custom_combiner_learning_rate_may_be_a_function() -> None:
    rate = tf.Variable(0.0)
    setup = Setup(combiner(combiner_weights_learning_rate=lambda: rate))
    setup.run(ragged())
    assert setup.weights == [2]
    rate.assign(1.0)
    setup.run(ragged())
    assert setup.weights != [2]


def test_custom_combiner_too_many_ids_are_refused() -> None:
    setup = Setup()
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        setup.run(ragged([[1], [2, 3, 4, 5], [6], [7]]))
    message = raised.value.message
    assert "TPUEmbeddingV2.enqueue: features at film, of table films" in message
    assert "max_valency of its combiner is 3; its largest number of ids" in message
    assert "are] [4] [1]" in message
    assert (tpu.table("films").rows.numpy() == 0.5).all()
    assert setup.weights == [2]


def test_custom_combiner_id_beyond_the_table_is_refused() -> None:
    setup = Setup()
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"at 'film'.*films.*32"):
        setup.run(ragged([[1], [2], [6], [32]]))
    assert setup.weights == [2]


def test_custom_combiner_bad_gradients_change_nothing() -> None:
    for bad in (np.nan, np.inf):
        setup = Setup()
        with pytest.raises(tf.errors.InvalidArgumentError, match="films"):
            setup.run(ragged(), bad)
        assert (tpu.table("films").rows.numpy() == 0.5).all()
        assert setup.weights == [2]


def test_custom_combiner_weights_of_ids_are_refused() -> None:
    setup = Setup()
    weights = {"film": tf.ones_like(ragged(), tf.float32)}
    with pytest.raises(OpInputError, match="weights at 'film', of table 'films'"):
        tf.function(
            lambda: setup.strategy.run(setup.step, args=(ragged(), 1.0, weights))
        )()


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda valency, vectors, weights: valency, r"films.*float32, \[3\]"),
        (lambda valency, vectors, weights: vectors, r"films.*float32, \[3\]"),
        (lambda valency, vectors, weights: [vectors[0]] * 2, r"films.*float32, \[3\]"),
    ],
)
def test_custom_combiner_function_of_other_results_is_refused(
    function: Any, words: str
) -> None:
    setup = Setup(combiner(function))
    with pytest.raises(OpAttrError, match=words):
        setup.run(ragged())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"function": "sum"}, "combiner_computation of the combiner of table 'films'"),
        ({"max_valency": 0}, "max_valency of the combiner of table 'films'.*not 0"),
        ({"max_valency": True}, "max_valency of the combiner of table 'films'"),
        ({"max_valency": 2.0}, "max_valency of the combiner of table 'films'"),
        ({"num_weights": -1}, "num_weights of the combiner of table 'films'.*not -1"),
    ],
)
def test_custom_combiner_bad_parts_are_refused(
    changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(OpAttrError, match=words):
        Setup(combiner(**changes))


def test_custom_combiner_weights_are_in_checkpoints(tmp_path: Path) -> None:
    setup = Setup()
    setup.run(ragged())
    saved = tf.train.Checkpoint(tables=setup.embedding).save(str(tmp_path / "at"))
    new = Setup()
    tf.train.Checkpoint(tables=new.embedding).restore(saved)
    assert new.weights == setup.weights != [2]
    np.testing.assert_array_equal(new.run(ragged()), setup.run(ragged()))


def test_custom_combiner_limits_of_a_data_set_suffice() -> None:
    """Equal ids of a sample count at each position."""
    setup = Setup()
    dataset = tf.data.Dataset.from_tensors({"film": ragged([[8, 8, 8], [8], [1], [2]])})
    limits = tpu.sparsecore_limits(
        dataset, setup.features, embedding.SGD(0.25), cores=1, sparse_cores_per_chip=4
    )
    assert limits.max_ids_per_table == {"films": 3}
    assert limits.max_unique_ids_per_table == {"films": 1}
    assert tpu.sparsecore_limits(dataset, setup.embedding).max_ids_per_table == {
        "films": 3
    }
