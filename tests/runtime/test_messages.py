"""Attrs that are serialized messages: the message is taken as well as its bytes."""

import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)

from opwright import OpOptionError, Scope, op_class, op_names
from opwright.tpu import (
    ConfigureTPUEmbedding,
    IsTPUEmbeddingInitialized,
    LoadTPUEmbeddingAdagradParameters,
    RecvTPUEmbeddingActivations,
)

# What does not read as text, so that nothing takes it for that.
CONFIG = TPUEmbeddingConfiguration(num_hosts=1, batch_size_per_tensor_core=200)
CONFIG.table_descriptor.add(name="films", vocabulary_size=1000, dimension=8)
BYTES = CONFIG.SerializeToString()


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.mark.parametrize("given", [CONFIG, BYTES], ids=["message", "bytes"])
def test_message_in_graph_is_sent_as_bytes(graph, given):
    recv = RecvTPUEmbeddingActivations.create(Scope.current(), 1, given)
    assert recv.op.get_attr("config") == BYTES
    assert recv.inputs.config == BYTES
    again = recv.rebuild(Scope.current())
    assert again.op.get_attr("config") == BYTES


def test_message_in_tf_function_is_sent_as_bytes():
    @tf.function
    def body():
        ConfigureTPUEmbedding.create(Scope.current(), CONFIG)

    (op,) = body.get_concrete_function().graph.get_operations()
    assert op.get_attr("config") == BYTES


def test_options_keep_the_bytes(graph):
    options = LoadTPUEmbeddingAdagradParameters.Options(config=CONFIG, table_id=0)
    assert options.config == BYTES
    assert options == type(options)(config=BYTES, table_id=0)
    assert hash(options) == hash(options.with_config(CONFIG))
    scope, rows = Scope.current(), tf.zeros([1000, 8])
    load = LoadTPUEmbeddingAdagradParameters.create(scope, rows, rows, 1, 0, options)
    assert load.op.get_attr("config") == BYTES


def test_options_refuse_another_message():
    table = CONFIG.table_descriptor[0]
    with pytest.raises(OpOptionError, match="TableDescriptor") as caught:
        IsTPUEmbeddingInitialized.Options(config=table)
    assert caught.value.argument == "config"
    assert caught.value.given is table
    with pytest.raises(OpOptionError, match="must be a tensorflow"):
        IsTPUEmbeddingInitialized.Options(config=TPUEmbeddingConfiguration)


def test_bytes_that_read_as_text_are_read_as_bytes(graph):
    config = TPUEmbeddingConfiguration(profile_data_directory="here")
    op = IsTPUEmbeddingInitialized.create(
        Scope.current(), IsTPUEmbeddingInitialized.Options(config=config)
    )
    assert op.inputs.config == config.SerializeToString()
    op.op._clear_attr("config")
    assert op.inputs.config == b""


def test_every_attr_named_config_takes_the_message():
    untold = [
        name
        for name in op_names()
        if "TPUEmbedding" in name or "Dedup" in name
        for attr in op_class(name).op_def.attrs
        if attr.name == "config" and attr.message != CONFIG.DESCRIPTOR.full_name
    ]
    assert untold == []
