"""Features by the names that their user gave them: the keys of his dict.

A `FeatureConfig` without a name is nameless in the configuration that TPUEmbedding
makes, and so in every error. TensorFlow has no place to say more, so the method that
makes it is wrapped.
"""

from __future__ import annotations

import functools

import tensorflow as tf

from opwright_runtime._internals import nest, tpu_embedding_class


def name_features(strategies: tuple[type, ...]) -> None:
    """Features of every TPUEmbedding under such strategies have names from now on."""
    make = tpu_embedding_class._create_config_proto
    if hasattr(make, "__wrapped__"):
        return

    @functools.wraps(make)
    def make_with_names(
        self: tf.tpu.experimental.embedding.TPUEmbedding,
    ) -> object:
        config = make(self)
        if isinstance(self._strategy, strategies):
            paths = nest.flatten_with_joined_string_paths(self._feature_config)
            for descriptor, (path, _) in zip(
                config.feature_descriptor, paths, strict=True
            ):
                descriptor.name = descriptor.name or path
        return config

    tpu_embedding_class._create_config_proto = make_with_names
