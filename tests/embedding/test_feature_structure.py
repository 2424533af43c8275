"""What enqueue says of features that are not those of the configuration."""

from typing import Any

import pytest
import tensorflow as tf

from opwright import OpInputError, tpu

embedding = tf.tpu.experimental.embedding
IDS = tf.constant([1, 2])


@pytest.fixture(scope="module")
def tables() -> Any:
    with tpu.software_strategy().scope():
        table = embedding.TableConfig(10, 4, name="t", optimizer=embedding.SGD(0.1))
        features = {"a": embedding.FeatureConfig(table)}
        features["b"] = {"c": embedding.FeatureConfig(table)}
        return embedding.TPUEmbedding(features, embedding.SGD(0.1))


@pytest.mark.parametrize(
    ("features", "fault"),
    [
        ({"a": IDS}, "missing: b/c"),
        ({"a": IDS, "b": {"c": IDS}, "d": IDS}, "not configured: d"),
        ({"a": IDS, "b": IDS}, "missing: b/c; not configured: b"),
        (IDS, "missing: a, b/c; not configured: a value without a name"),
    ],
)
def test_enqueue_wrong_features_are_named(
    tables: Any, features: Any, fault: str
) -> None:
    with pytest.raises(OpInputError) as caught:
        tf.function(lambda: tables.enqueue(features))()
    text = str(caught.value)
    assert "features must be those of feature_config, a, b/c; " in text
    assert text.endswith(fault)


def test_enqueue_weights_without_a_feature_are_named(tables: Any) -> None:
    features = {"a": IDS, "b": {"c": IDS}}
    with pytest.raises(OpInputError, match=r"weights must be .* missing: b/c$"):
        tf.function(lambda: tables.enqueue(features, {"a": None}))()
