"""Messages, where an op wants what they serialize to."""

import tensorflow as tf
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)
from typing_extensions import assert_type

from opwright import Scope
from opwright.tpu import (
    ConfigureTPUEmbedding,
    IsTPUEmbeddingInitialized,
    configure_tpu_embedding,
    is_tpu_embedding_initialized,
)


def a_message_or_its_bytes() -> None:
    config = TPUEmbeddingConfiguration(num_hosts=1)
    with tf.Graph().as_default():
        configure_tpu_embedding(config)
        configure_tpu_embedding(config.SerializeToString())
        is_tpu_embedding_initialized(config=config)
        options = IsTPUEmbeddingInitialized.Options(config=config).with_config(b"")
        IsTPUEmbeddingInitialized.create(Scope.current(), options)


def read_back() -> None:
    with tf.Graph().as_default():
        made = ConfigureTPUEmbedding.create(
            Scope.current(), TPUEmbeddingConfiguration(num_hosts=1)
        )
        assert_type(made.inputs.config, bytes)
