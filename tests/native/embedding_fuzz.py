"""Calls the ops of TPU embeddings with arguments that are right, nearly right or wild.

Whatever comes, an op must run or refuse: InvalidArgument, FailedPrecondition or another
error of TensorFlow's, never an abort, a crash or a call that nothing ends. Steps of
random systems are made and damaged; between them, ops of the family that have kernels
here are called with anything that their dtypes allow. Prints each call before it is
made, so that the last line tells which one took the process with it, and the counts of
outcomes at the end.
"""

from __future__ import annotations

import argparse
import importlib
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import embedding_reference as reference
import numpy as np
import tensorflow as tf
from embedding_cases import MAX_SLOTS, OP_NAMES, Feature, System, Table, optimizer
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)

import opwright
from opwright.tpu import (
    configure_distributed_tpu,
    configure_tpu_embedding,
    shutdown_distributed_tpu,
)
from opwright_runtime import native

FAMILY = re.compile(
    "TPUEmbedding|Dedup|SparseCore|XlaSparseDense|CooTensor|DistributedTPU"
)
REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.FailedPreconditionError,
    tf.errors.UnimplementedError,
    tf.errors.NotFoundError,
    tf.errors.AlreadyExistsError,
    tf.errors.OutOfRangeError,
    tf.errors.ResourceExhaustedError,
    tf.errors.CancelledError,
    opwright.OpError,
    ValueError,
    TypeError,
)
# A call that takes so long waits for another: ending the system ends it.
PATIENCE = 0.5
# Tables that are larger only cost time.
MOST_ELEMENTS = 10**5
NO_INTS, NO_FLOATS = tf.zeros([0], tf.int32), tf.zeros([0])


class Fuzzer:
    def __init__(self, seed: int, cores: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.cores = cores
        self.outcomes: dict[str, int] = {}
        self.ops: dict[str, int] = {}
        self.family = self.find_family()
        # Outputs of earlier calls, by dtype.
        self.seen: dict[tf.DType, list[tf.Tensor]] = {}
        self.system = System([Table(3, 2)], [Feature(0, (2,))])
        self.proto = self.system.proto
        self.queued: list[str] = []
        self.unsent = 0
        self.waited = False

    @staticmethod
    def find_family() -> dict[str, Any]:
        """The ops that run here, as functions with keywords."""
        functions = {}
        for name in opwright.op_names():
            if not FAMILY.search(name):
                continue
            op: Any = opwright.op_class(name)
            module = importlib.import_module(op.__module__)
            if any(
                k.device == "CPU" and k.provider == "opwright" for k in op.kernels()
            ):
                (function,) = (one for one in module.__all__ if one != op.__name__)
                functions[name] = getattr(module, function)
        return functions

    def pick(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    # Systems and their steps.

    def new_system(self) -> None:
        tables = []
        for _ in range(self.pick(1, 2, 3)):
            name = self.pick(*OP_NAMES, "lion")
            rate = None if name == "frequency_estimator" else self.pick(0.1, 1e30, None)
            parameters = optimizer(name, rate)
            for field, *_ in self.fields(getattr(parameters, name)):
                if isinstance(getattr(getattr(parameters, name), field), bool):
                    value: Any = self.chance(0.5)
                else:
                    value = self.pick(0.5, 0.9, 1.0, 2.0)
                    value = -value if field == "lr_power" else value
                setattr(getattr(parameters, name), field, value)
            parameters.gradient_accumulation_status = self.pick(0, 1, 2)
            size = self.rng.integers(1, 12, 2).tolist()
            tables.append(
                Table(size[0], size[1], parameters, self.pick("sum", "mean", "sqrtn"))
            )
        features = [
            Feature(
                i % len(tables),
                tuple(self.rng.integers(1, 4, self.pick(1, 1, 2)).tolist()),
                self.pick("dense", "sparse", "ragged"),
            )
            for i in range(len(tables) + self.pick(0, 1))
        ]
        settings = {
            "num_tensor_cores": self.pick(1, 1, 1, 1, self.cores),
            "pipeline_execution_with_tensor_core": self.chance(0.3),
            "sharding_strategy": self.pick(0, 1),
        }
        self.system = System(tables, features, settings)
        self.proto = self.config()
        self.queued, self.unsent = [], 0
        shutdown_distributed_tpu()
        configure_distributed_tpu()
        if self.call("ConfigureTPUEmbedding", {"config": self.proto}) is None:
            self.proto = self.system.proto
            configure_tpu_embedding(self.proto)

    @staticmethod
    def fields(message: Any) -> Iterator[tuple[str, Any]]:
        for field in message.DESCRIPTOR.fields:
            if field.message_type is None:
                yield field.name, field

    def config(self) -> bytes:
        """The system's, mostly; or with a field changed, or a few bytes."""
        config = self.system.config
        kind = self.pick("good", "good", "good", "good", "field", "bytes", "legacy")
        if kind == "legacy":
            del config.feature_descriptor[:]
            config.batch_size_per_tensor_core = self.pick(2, 3, 0)
            for table in config.table_descriptor:
                table.num_features = self.pick(1, 1, 2, 0)
        if kind == "field":
            every = [config, *config.table_descriptor, *config.feature_descriptor]
            every += [
                table.optimization_parameters for table in config.table_descriptor
            ]
            message = self.pick(*every)
            name, field = self.pick(*self.fields(message))
            if self.chance(0.3):
                message.ClearField(name)
            elif name == "input_shape":
                message.input_shape.append(self.pick(0, -1, 2**31 - 1))
            elif field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64):
                setattr(message, name, self.pick(0, -1, 1, 2, 7))
            elif field.cpp_type == field.CPPTYPE_FLOAT:
                setattr(message, name, self.pick(0.0, -1.0, float("nan"), float("inf")))
        proto = bytes(config.SerializeToString())
        return self.damaged_bytes(proto) if kind == "bytes" else proto

    def damaged_bytes(self, value: bytes) -> bytes:
        raw = bytearray(value)
        for _ in range(self.pick(1, 2, 5)):
            if raw and self.chance(0.8):
                raw[self.rng.integers(len(raw))] = self.rng.integers(256)
            elif raw:
                del raw[self.rng.integers(len(raw)) :]
        return bytes(raw) if self.small(bytes(raw)) else value

    @staticmethod
    def small(proto: bytes) -> bool:
        """Whether a configuration is none, or one of little work."""
        try:
            config = TPUEmbeddingConfiguration.FromString(proto)
        except DecodeError:
            return True
        sizes = [t.vocabulary_size * t.dimension for t in config.table_descriptor]
        sizes += [int(np.prod(f.input_shape)) for f in config.feature_descriptor]
        sizes += [t.num_features for t in config.table_descriptor]
        sizes += [config.batch_size_per_tensor_core, config.num_tensor_cores * 1000]
        return max(sizes, default=0) < MOST_ELEMENTS

    def mode(self) -> str:
        return str(self.pick("train", "train", "inference", "unspecified", "x"))

    def damaged(self, tensor: tf.Tensor) -> tf.Tensor:
        """Other values, or another shape."""
        kind = self.pick("value", "value", "size", "rank", "empty", "seen")
        values = np.array(tensor)
        if kind == "seen":
            return self.pick(tensor, *self.seen.get(tensor.dtype, []))
        if kind == "value" and values.size and tensor.dtype != tf.string:
            wild: tuple[float, ...] = (-1, 2**31 - 1, -(2**31), 7, 100)
            if tensor.dtype.is_floating:
                wild = (float("nan"), float("inf"), -1e38, 0.0, 1e-38)
            values.reshape(-1)[self.rng.integers(values.size)] = self.pick(*wild)
            return tf.constant(values, tensor.dtype)
        if kind == "rank":
            return self.pick(tensor[None], tf.reshape(tensor, [-1]), tensor[..., None])
        if kind == "size" and values.ndim:
            return self.pick(tensor[:-1], tf.concat([tensor, tensor], 0))
        return tensor[:0] if values.ndim else tensor

    def damage(self, arguments: dict[str, Any], share: float = 0.5) -> dict[str, Any]:
        """One argument, or element of one, is something else."""
        if not self.chance(share) or not arguments:
            return arguments
        name = self.pick(*arguments)
        value = arguments[name]
        if isinstance(value, tf.Tensor):
            value = self.damaged(value)
        elif isinstance(value, list) and value:
            at = self.rng.integers(len(value))
            kind = self.pick("one", "one", "one", "fewer", "more")
            if kind == "one" and isinstance(value[at], tf.Tensor):
                value = [*value[:at], self.damaged(value[at]), *value[at + 1 :]]
            elif kind == "one" and isinstance(value[at], int):
                value = [*value[:at], self.pick(-1, 7, 2**40), *value[at + 1 :]]
            else:
                value = value[:-1] if kind == "fewer" else [*value, value[at]]
        elif isinstance(value, bytes):
            value = self.damaged_bytes(value)
        elif isinstance(value, bool):
            value = not value
        elif isinstance(value, int):
            value = self.pick(-1, 0, 1, 2, 5, 1000, 2**62)
        elif isinstance(value, str):
            value = self.pick("", "x", "mean", "table0")
        return {**arguments, name: value}

    def enqueue(self) -> None:
        """A batch as one of the enqueue ops takes it."""
        op = self.pick(
            "EnqueueTPUEmbeddingArbitraryTensorBatch",
            "DynamicEnqueueTPUEmbeddingArbitraryTensorBatch",
            "EnqueueTPUEmbeddingRaggedTensorBatch",
            "DynamicEnqueueTPUEmbeddingRaggedTensorBatch",
            "EnqueueTPUEmbeddingSparseTensorBatch",
            "EnqueueTPUEmbeddingSparseBatch",
            "EnqueueTPUEmbeddingIntegerBatch",
        )
        features = list(self.system.features)
        kind = "ragged" if "Ragged" in op else "dense" if "Integer" in op else ""
        if kind:
            features = [Feature(one.table, one.shape, kind) for one in features]
        lookups = System(self.system.tables, features).draw(self.rng)
        where, ids, weights = (
            list(column)
            for column in zip(*(one.tensors for one in lookups), strict=True)
        )
        mode = self.mode()
        arguments: dict[str, Any] = {
            "embedding_indices": ids,
            "aggregation_weights": weights,
            "mode_override": mode,
            "combiners": [table.combiner for table in self.system.tables],
        }
        if "Arbitrary" in op:
            arguments["sample_indices_or_row_splits"] = where
        elif "Ragged" in op:
            arguments["sample_splits"] = where
        else:
            arguments["sample_indices"] = [tf.constant(one.bags) for one in lookups]
        if "Ragged" in op or "SparseTensor" in op:
            arguments["table_ids"] = [one.table for one in features]
            if self.chance(0.2):
                arguments["max_sequence_lengths"] = [self.pick(0, 3) for _ in features]
        if "Integer" in op:
            arguments = {"batch": ids, "mode_override": mode}
        core = int(self.pick(-1, 0, 0, 0, 0, 0, 1))
        arguments["device_ordinal"] = tf.constant(core) if "Dynamic" in op else core
        if self.call(op, self.damage(arguments)) is not None:
            self.queued.append(mode)

    def receive(self) -> None:
        # What is known to wait is not asked for, mostly.
        if (not self.queued or self.unsent) and self.chance(0.99):
            return
        outputs = len(self.system.features)
        arguments = {"num_outputs": outputs, "config": self.proto}
        name = "RecvTPUEmbeddingActivations"
        if self.call(name, self.damage(arguments, 0.2)) is not None and self.queued:
            self.unsent += self.queued.pop(0) != "inference"

    def send(self) -> None:
        if not self.unsent and self.chance(0.9):
            return
        gradients = [
            tf.constant(
                self.rng.standard_normal(
                    (*feature.shape, self.system.tables[feature.table].dim)
                ),
                tf.float32,
            )
            for feature in self.system.features
        ]
        dynamic = any(
            table.parameters.learning_rate.HasField("dynamic")
            for table in self.system.tables
        )
        arguments = {
            "inputs": gradients,
            "learning_rates": [tf.constant(0.1)] * dynamic,
            "config": self.proto,
        }
        name = "SendTPUEmbeddingGradients"
        if self.call(name, self.damage(arguments)) is not None:
            self.unsent = max(0, self.unsent - 1)

    def state(self) -> None:
        i = int(self.rng.integers(len(self.system.tables)))
        table = self.system.tables[i]
        optimizer = table.optimizer if self.chance(0.8) else self.pick(*OP_NAMES)
        shard = {"num_shards": self.pick(1, 1, 1, 2), "shard_id": self.pick(0, 0, 0, 1)}
        kind = self.pick("Load", "Retrieve")
        rows = table.rows // shard["num_shards"]
        tensor = tf.ones([rows, table.dim])
        if optimizer == "lion" or self.chance(0.2):
            arguments: dict[str, Any] = {**shard, "config": self.proto}
            if kind == "Retrieve":
                arguments["NumTables"] = len(self.system.tables)
            else:
                columns: list[list[tf.Tensor]] = [[] for _ in range(MAX_SLOTS + 1)]
                for one in self.system.tables:
                    slots = len(reference.RULES[one.optimizer].slots)
                    for n, column in enumerate(columns):
                        column.append(
                            tf.ones([one.rows, one.dim]) if n <= slots else NO_FLOATS
                        )
                names = ["parameters"]
                names += [f"auxiliary{n + 1}" for n in range(MAX_SLOTS)]
                arguments |= dict(zip(names, columns, strict=True))
            self.call(f"{kind}AllTPUEmbeddingParameters", self.damage(arguments))
            return
        arguments = {**shard, "table_id": i, "config": self.proto}
        if kind == "Load":
            slots_ = reference.RULES[optimizer].slots
            arguments |= dict.fromkeys(("parameters", *slots_), tensor)
        name = f"{kind}TPUEmbedding{OP_NAMES[optimizer]}Parameters"
        self.call(name, self.damage(arguments))

    # Anything.

    def wild_tensor(self, dtype: tf.DType) -> tf.Tensor:
        if self.chance(0.5) and self.seen.get(dtype):
            return self.pick(*self.seen[dtype])
        shape = self.rng.integers(0, 7, self.pick(0, 1, 1, 1, 2, 2, 3)).tolist()
        if dtype == tf.string:
            return tf.fill(shape, self.pick(b"", b"train", self.proto, b"\x00\xff"))
        if dtype == tf.variant:
            return tf.raw_ops.EmptyTensorList(
                element_shape=NO_INTS, max_num_elements=1, element_dtype=tf.float32
            )
        if dtype.is_floating:
            values = self.rng.standard_normal(shape)
        else:
            values = self.rng.integers(self.pick(0, 0, -2), 9, shape)
            if self.chance(0.3) and shape:
                values = np.sort(values, -1)
        return tf.cast(values, dtype)

    def wild_attr(self, attr: Any, counts: dict[str, int]) -> Any:
        kind = attr.kind
        if attr.allowed and not kind.startswith("list"):
            return self.pick(*attr.allowed)
        one = {
            "int": lambda: self.pick(-1, 0, 1, 2, 3, 8, 100, 2**62),
            "float": lambda: self.pick(0.0, 0.5, -1.0, 1e30, float("nan")),
            "bool": lambda: self.chance(0.5),
            "string": lambda: self.pick(self.proto, "", "sum", "mean", "table0", "x"),
            "type": lambda: self.pick(tf.float32, tf.int32),
            "shape": lambda: tf.TensorShape(self.pick([], [2], [3, 4], None)),
        }
        if kind.startswith("list"):
            inner = one.get(kind[5:-1])
            if inner is None:
                return []
            return [inner() for _ in range(self.pick(0, *counts.values(), 1, 2))]
        return one[kind]()

    def anything(self) -> None:
        """An op with arguments of the right dtypes and nothing else right."""
        name = self.pick(*self.family)
        if name in ("RecvTPUEmbeddingActivations",) and not self.queued:
            return
        info = opwright.op_class(name).op_def
        if any(attr.kind == "func" for attr in info.attrs):
            return
        counts = {attr.name: int(self.pick(1, 2, 3)) for attr in info.attrs}
        types: dict[str, tf.DType] = {}
        arguments: dict[str, Any] = {}
        for attr in info.attrs:
            if attr.kind == "type":
                types[attr.name] = self.pick(*(attr.allowed or (tf.float32, tf.int32)))
            if not attr.inferred and (attr.default is None or self.chance(0.5)):
                arguments[attr.python_name] = self.wild_attr(attr, counts)
        for arg in info.inputs:
            dtype = arg.dtype or types.get(arg.type_attr or "", tf.float32)
            if arg.is_list:
                count = counts.get(arg.count or "", 1)
                value: Any = [self.wild_tensor(dtype) for _ in range(count)]
            else:
                value = self.wild_tensor(dtype)
            arguments[arg.python_name] = value
        if self.call(name, arguments) is None:
            return
        if "Enqueue" in name:
            self.queued.append("train")
        if name == "ShutdownDistributedTPU":
            configure_tpu_embedding(self.proto)
            self.queued, self.unsent = [], 0

    # Calls.

    @contextmanager
    def patience(self) -> Iterator[None]:
        """Ends the system if what is done meanwhile takes too long."""
        self.waited = False
        done = threading.Event()

        def watch() -> None:
            while not done.wait(PATIENCE):
                self.waited = True
                shutdown_distributed_tpu()

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """The outputs; None if the op is refused or has no kernel."""
        function = self.family.get(name)
        if function is None:
            return None
        words = {key: in_words(value) for key, value in arguments.items()}
        print(name, words, flush=True)
        made = None
        try:
            if name.startswith(("Recv", "Enqueue", "Dynamic")):
                with self.patience():
                    made = function(**arguments)
            else:
                made = function(**arguments)
        except REFUSALS as error:
            outcome = type(error).__mro__[1].__name__
        else:
            outcome = "ran"
        if self.waited:
            outcome, made, self.waited = "waited", None, False
            self.queued, self.unsent = [], 0
            configure_distributed_tpu()
            configure_tpu_embedding(self.system.proto)
            self.proto = self.system.proto
        if made is not None:
            self.keep(made)
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        self.ops[name] = self.ops.get(name, 0) + 1
        return made

    def keep(self, made: Any) -> None:
        for arg in type(made).op_def.outputs:
            for tensor in tf.nest.flatten(getattr(made, arg.python_name)):
                kept = self.seen.setdefault(tensor.dtype, [])
                kept.append(tensor)
                del kept[:-10]

    def run(self, calls: int) -> None:
        acts = [self.enqueue, self.receive, self.receive, self.send, self.send]
        acts += [self.state, self.anything, self.anything]
        while sum(self.outcomes.values()) < calls:
            self.new_system()
            for _ in range(25):
                self.pick(*acts)()
        shutdown_distributed_tpu()


def in_words(value: Any) -> Any:
    if isinstance(value, list):
        return [in_words(one) for one in value]
    if isinstance(value, tf.Tensor):
        return f"{value.dtype.name}{value.shape.as_list()}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("calls", type=int, nargs="?", default=500)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--cores", type=int, default=2, help="1 for tables on a GPU")
    options = parser.parse_args()
    native.load()
    fuzzer = Fuzzer(options.seed, options.cores)
    fuzzer.run(options.calls)
    missed = set(fuzzer.family) - set(fuzzer.ops)
    assert not missed or options.calls < 5000, missed
    assert fuzzer.outcomes["ran"] > options.calls // 10, fuzzer.outcomes
    print(fuzzer.ops)
    print(fuzzer.outcomes)


if __name__ == "__main__":
    main()
