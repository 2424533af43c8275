"""Exports a model with recurrent and embedding ops; prints how to call it, and results.

`python -m native.support.served_model FOLDER`: examples/serve.c runs it.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from embedding.support.cases import Feature, System, Table
from opwright import Scope
from opwright.nn import cudnn_rnn_v3
from opwright.tpu import (
    EnqueueTPUEmbeddingArbitraryTensorBatch,
    RecvTPUEmbeddingActivations,
    configure_distributed_tpu,
    configure_tpu_embedding,
    load_tpu_embedding_stochastic_gradient_descent_parameters,
)

SYSTEM = System([Table(rows=4, dim=2)], [Feature(table=0, shape=(4,), kind="dense")])
CONFIG = SYSTEM.proto


class Model(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.params = tf.Variable(np.linspace(-0.5, 0.5, 84, dtype=np.float32))
        self.rows = tf.Variable(np.arange(8, dtype=np.float32).reshape(4, 2) / 4)

    @tf.function(input_signature=[])
    def start(self) -> dict[str, Any]:
        configure_distributed_tpu()
        configure_tpu_embedding(CONFIG)
        load_tpu_embedding_stochastic_gradient_descent_parameters(
            self.rows, 1, 0, table_id=0, config=CONFIG
        )
        return {"rows": tf.shape(self.rows)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None, 2], tf.float32),
            tf.TensorSpec([4], tf.int32),
        ]
    )
    def serve(self, x: Any, ids: Any) -> dict[str, Any]:
        batch = tf.shape(x)[1]
        states = tf.zeros([1, batch, 3])
        lengths = tf.fill([batch], tf.shape(x)[0])
        rnn = cudnn_rnn_v3(x, states, states, self.params, lengths, is_training=False)
        enqueue = EnqueueTPUEmbeddingArbitraryTensorBatch
        nothing = tf.zeros([0], tf.int32)
        enqueue.create(
            Scope.current(),
            [nothing],
            [ids],
            [tf.zeros([0])],
            "inference",
            enqueue.Options(combiners=["sum"], device_ordinal=-1),
        )
        (rows,) = RecvTPUEmbeddingActivations.create(Scope.current(), 1, CONFIG).outputs
        return {"states": rnn.output, "looked_up": rows}


def main(folder: str) -> None:
    model = Model()
    signatures = {"start": model.start, "serve": model.serve}
    tf.saved_model.save(model, folder, signatures=signatures)
    with open(f"{folder}/saved_model.pb", "rb") as file:
        meta = SavedModel.FromString(file.read()).meta_graphs[0]
    start, serve = (meta.signature_def[name] for name in ("start", "serve"))
    names = [
        start.outputs["rows"].name,
        *(serve.inputs[name].name for name in ("x", "ids")),
        *(serve.outputs[name].name for name in ("states", "looked_up")),
    ]
    model.start()
    x = tf.reshape(tf.range(10, dtype=tf.float32) * 0.1, [5, 1, 2])
    found = model.serve(x, tf.constant([3, 0, 3, 1]))
    results = [found[name].numpy().ravel().tolist() for name in ("states", "looked_up")]
    ops = {
        node.op
        for function in meta.graph_def.library.function
        for node in function.node_def
    }
    print(json.dumps({"names": names, "results": results, "ops": sorted(ops)}))


if __name__ == "__main__":
    main(sys.argv[1])
