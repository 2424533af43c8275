"""Systems of tables and calls of their ops: enqueue, receive, send, load."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)

from opwright_runtime import native

from .calls import Call, Literal, Made, Scenario
from .damage import Draw, damage, varint

MAX_SLOTS = 7
POSITIVE = ("accumulators", "updates", "ms", "velocities", "v")
Config = TPUEmbeddingConfiguration


@cache
def traits() -> dict[str, native.OptimizerTraits]:
    """Optimizers whose tables can be made."""
    found = native.embedding_optimizers()
    return {
        one["field"]: one for one in found if one["field"] != "user_defined_program"
    }


@cache
def trained() -> list[str]:
    """Those whose rule is known."""
    return [name for name, one in traits().items() if one["formula"]]


@dataclass
class Table:
    rows: int
    dim: int
    optimizer: str
    combiner: str
    # In a num_features configuration: by input, how long sequences are; 0: one feature.
    sequences: list[int] = field(default_factory=list)

    @property
    def features(self) -> int:
        return sum(max(1, length) for length in self.sequences)


@dataclass
class System:
    tables: list[Table]
    # Tables and shapes; none: a num_features configuration.
    features: list[tuple[int, list[int]]]
    batch: int
    config: Config

    @property
    def proto(self) -> bytes:
        return bytes(self.config.SerializeToString())

    @property
    def outputs(self) -> list[tuple[int, list[int]]]:
        """By output of Recv: its table, and the shape of its samples."""
        if self.features:
            return self.features
        return [(i, [self.batch * t.features]) for i, t in enumerate(self.tables)]


def system(rng: Draw) -> System:
    legacy = rng.chance(0.5)
    tables = []
    for _ in range(rng.pick(1, 2, 3)):
        sequences = [rng.pick(0, 0, 1, 2, 3) for _ in range(rng.pick(1, 3, 4, 5))]
        tables.append(
            Table(
                rng.int(2, 12),
                rng.int(1, 6),
                rng.pick(*(traits() if rng.chance(0.15) else trained())),
                rng.pick("sum", "sum", "mean", "sqrtn"),
                sequences,
            )
        )
    features: list[tuple[int, list[int]]] = []
    batch = rng.pick(2, 3)
    if not legacy:
        for i in range(len(tables) + rng.pick(0, 1)):
            shape = [rng.int(1, 3) for _ in range(rng.pick(1, 1, 2))]
            features.append((i % len(tables), shape))
    config = Config(
        mode=rng.pick(
            Config.TRAINING,
            Config.TRAINING,
            Config.TRAINING,
            Config.UNSPECIFIED,
            Config.INFERENCE,
            Config.BACKWARD_PASS_ONLY,
        ),
        num_hosts=1,
        num_tensor_cores=rng.pick(1, 1, 1, rng.cores),
        pipeline_execution_with_tensor_core=rng.chance(0.2),
        sharding_strategy=rng.pick(0, 1),
    )
    if legacy:
        config.batch_size_per_tensor_core = batch
    for i, table in enumerate(tables):
        descriptor = config.table_descriptor.add(
            name=f"table{i}", vocabulary_size=table.rows, dimension=table.dim
        )
        if legacy:
            descriptor.num_features = table.features
        optimizer(rng, descriptor.optimization_parameters, table.optimizer)
    for i, (at, shape) in enumerate(features):
        config.feature_descriptor.add(
            name=f"feature{i}", table_id=at, input_shape=shape
        )
    return System(tables, features, batch, config)


def rule(rng: Draw, parameters: Any, name: str) -> None:
    """A message, or a program that stands for one, with hyperparameters."""
    keys = traits()[name]["hyper"]
    if name not in parameters.DESCRIPTOR.fields_by_name:
        program = parameters.user_defined_program.program
        program.name = f"opwright.{name}"
        for key in keys:
            program.frontend_attributes.map[key] = str(rng.pick(0.5, 0.9, 1.0))
        return
    message = getattr(parameters, name)
    message.SetInParent()
    for key in keys:
        if isinstance(getattr(message, key), bool):
            setattr(message, key, rng.chance(0.5))
        else:
            value = rng.pick(0.5, 0.9, 1.0)
            setattr(message, key, -value if key == "lr_power" else value)


def optimizer(rng: Draw, parameters: Any, name: str) -> None:
    if name == "frequency_estimator" or rng.chance(0.2):
        parameters.learning_rate.dynamic.tag = 0
    else:
        parameters.learning_rate.constant = rng.pick(0.1, 0.5)
    rule(rng, parameters, name)
    parameters.gradient_accumulation_status = rng.pick(0, 1, 2)
    if rng.chance(0.2):
        parameters.clipping_limits.lower.value = -1.0
        parameters.clipping_limits.upper.value = 1.0
    if rng.chance(0.2):
        quantization = parameters.simulated_quantization
        quantization.enabled = True
        quantization.num_buckets = rng.pick(2, 5, 255)
        quantization.clipping_limits.lower.value = -1.0
        quantization.clipping_limits.upper.value = 1.0


def scalar(value: Any) -> Literal:
    dtype = "string" if isinstance(value, bytes) else "int32"
    return Literal(dtype, [], [value])


def floats(rng: Draw, *shape: int) -> Literal:
    return Literal("float32", list(shape), normal=rng.seed32())


class Steps:
    """A system's calls; some of them damaged."""

    def __init__(self, rng: Draw) -> None:
        self.rng = rng
        self.system = system(rng)
        self.proto = self.system.proto
        # Other ops get the configuration, or an empty string.
        self.config = rng.pick(self.proto, b"")
        self.calls: list[Call] = []
        self.all_good = False

    def add(
        self,
        op: str,
        inputs: dict[str, Any] | None = None,
        attrs: dict[str, Any] | None = None,
        bad: float = 0.4,
        device: int = 0,
    ) -> int:
        """The number of the good call; before it, perhaps, comes a damaged one."""
        good = Call(op, inputs or {}, attrs or {}, device=device)
        if not self.all_good and self.rng.chance(bad) and (good.inputs or good.attrs):
            self.calls.append(damage(self.rng, copy.deepcopy(good)))
            if not op.startswith("Configure") and self.rng.chance(0.3):
                return len(self.calls) - 1  # And it is made in place of the good one.
        self.calls.append(good)
        return len(self.calls) - 1

    def core(self) -> int:
        return self.rng.int(0, min(2, self.system.config.num_tensor_cores) - 1)

    # Setting up.

    def set_up(self) -> None:
        rng, config = self.rng, {"config": self.proto}
        kind = rng.pick("one", "one", "system", "chain", "chain")
        if kind == "one":
            self.add("ConfigureTPUEmbedding", attrs=config)
        elif kind == "system":
            self.configure_system()
        else:
            self.chain()
        self.add(
            "IsTPUEmbeddingInitialized", attrs={"config": rng.pick(b"", self.proto)}
        )

    def configure_system(self) -> None:
        attrs = {
            "embedding_config": b"",
            "tpu_embedding_config": self.proto,
            "is_global_init": False,
            "enable_whole_mesh_compilations": False,
            "compilation_failure_closes_chips": True,
            "tpu_cancellation_closes_chips": 0,
        }
        self.add("ConfigureDistributedTPU", attrs=attrs)

    def chain(self) -> None:
        config = {"config": self.proto}
        bad = 0.15
        common = self.add("ExecuteTPUEmbeddingPartitioner", attrs=config, bad=bad)
        given = {"common_config": Made(common, 0)}
        memory = self.add("ConfigureTPUEmbeddingMemory", given, bad=bad)
        merged = self.add(
            "CollateTPUEmbeddingMemory", {"memory_configs": [Made(memory, 0)]}, bad=bad
        )
        both = {**given, "memory_config": Made(merged, 0)}
        network = self.add("ConfigureTPUEmbeddingHost", both, config, bad=bad)
        self.add(
            "ConnectTPUEmbeddingHosts", {"network_configs": [Made(network, 0)]}, bad=bad
        )
        op = self.rng.pick("FinalizeTPUEmbedding", "FinalizeTPUEmbeddingV2")
        self.add(op, both, bad=bad)

    # State.

    def slots(self, table: Table) -> list[str]:
        return ["parameters", *traits()[table.optimizer]["slots"]]

    def slot(self, name: str, table: Table) -> Literal:
        row_wise = name != "parameters" and traits()[table.optimizer]["row_wise"]
        shape = [table.rows, 1 if row_wise else table.dim]
        if name in POSITIVE:
            return Literal("float32", shape, fill=self.rng.pick(0.1, 1.0))
        if name == "last_hit_step":
            return Literal("float32", shape, fill=-3.0)
        return floats(self.rng, *shape)

    def which(self, at: int) -> dict[str, Any]:
        by_name = self.rng.chance(0.3)
        return {
            "table_id": -1 if by_name else at,
            "table_name": f"table{at}".encode() if by_name else b"",
            "config": self.config,
            "num_shards": 1,
            "shard_id": 0,
        }

    def load(self, at: int | None = None) -> None:
        at = self.rng.int(0, len(self.system.tables) - 1) if at is None else at
        table = self.system.tables[at]
        name = traits()[table.optimizer]["op_name"]
        if self.rng.chance(0.2):
            self.load_all()
            return
        inputs = {slot: self.slot(slot, table) for slot in self.slots(table)}
        if name is None or self.rng.chance(0.1):
            of_any = {"parameters": inputs.pop("parameters")}
            of_any["slots"] = list(inputs.values())
            self.add("OpwrightLoadEmbeddingTable", of_any, self.which(at))
            return
        self.add(f"LoadTPUEmbedding{name}Parameters", inputs, self.which(at))

    def load_all(self) -> None:
        columns: list[list[Literal]] = [[] for _ in range(MAX_SLOTS + 1)]
        for table, of in zip(
            self.system.tables, self.system.config.table_descriptor, strict=True
        ):
            names = self.slots(table)
            tensors = [self.slot(name, table) for name in names]
            if of.optimization_parameters.gradient_accumulation_status != 2:
                tensors.append(Literal("float32", [table.rows, table.dim], fill=0.0))
            tensors += [Literal("float32", [0], [])] * (MAX_SLOTS + 1 - len(tensors))
            for column, tensor in zip(columns, tensors, strict=False):
                column.append(tensor)
        inputs = {"parameters": columns[0]}
        inputs |= {f"auxiliary{i}": columns[i] for i in range(1, MAX_SLOTS + 1)}
        attrs = {"config": self.config, "num_shards": 1, "shard_id": 0}
        self.add("LoadAllTPUEmbeddingParameters", inputs, attrs)

    def retrieve(self) -> None:
        at = self.rng.int(0, len(self.system.tables) - 1)
        of = traits()[self.system.tables[at].optimizer]
        if of["op_name"] is None or self.rng.chance(0.1):
            attrs = {**self.which(at), "N": len(of["slots"])}
            self.add("OpwrightRetrieveEmbeddingTable", attrs=attrs)
            return
        if self.rng.chance(0.3):
            attrs = {
                "NumTables": len(self.system.tables),
                "config": self.config,
                "num_shards": 1,
                "shard_id": 0,
            }
            self.add("RetrieveAllTPUEmbeddingParameters", attrs=attrs)
            return
        name = f"RetrieveTPUEmbedding{of['op_name']}Parameters"
        self.add(name, attrs=self.which(at))

    def any_optimizer(self) -> None:
        """The ops of an optimizer that the table may not have."""
        table = self.rng.pick(*self.system.tables)
        other = self.rng.pick(*[one for one in traits().values() if one["op_name"]])
        name, attrs = other["op_name"], self.which(self.system.tables.index(table))
        if self.rng.chance(0.5):
            self.add(f"RetrieveTPUEmbedding{name}Parameters", attrs=attrs)
            return
        inputs = {
            slot: self.slot(slot, table) for slot in ["parameters", *other["slots"]]
        }
        self.add(f"LoadTPUEmbedding{name}Parameters", inputs, attrs)

    # Steps.

    def mode(self) -> bytes:
        rng = self.rng
        if self.system.config.mode == Config.INFERENCE:
            return bytes(rng.pick(b"inference", b"unspecified"))
        return bytes(rng.pick(b"unspecified", b"unspecified", b"train", b"inference"))

    def bags(self, samples: int) -> list[int]:
        return [self.rng.pick(0, 1, 1, 2, 3) for _ in range(samples)]

    def ids(self, count: int, table: Table, dtype: str) -> Literal:
        return Literal(
            dtype, [count], [self.rng.int(0, table.rows - 1) for _ in range(count)]
        )

    def enqueue(self, one: str = "") -> None:
        rng = self.rng
        op = one or rng.pick(
            "EnqueueTPUEmbeddingArbitraryTensorBatch",
            "DynamicEnqueueTPUEmbeddingArbitraryTensorBatch",
            "EnqueueTPUEmbeddingRaggedTensorBatch",
            "DynamicEnqueueTPUEmbeddingRaggedTensorBatch",
            "EnqueueTPUEmbeddingSparseTensorBatch",
            "EnqueueTPUEmbeddingSparseBatch",
            "EnqueueTPUEmbeddingIntegerBatch",
            "EnqueueTPUEmbeddingBatch",
        )
        inputs: dict[str, Any] = {"mode_override": scalar(self.mode())}
        attrs: dict[str, Any] = {}
        ordinal = self.core()
        if op.startswith("Dynamic"):
            inputs["device_ordinal"] = scalar(ordinal)
        else:
            attrs["device_ordinal"] = ordinal
        if "Integer" not in op:
            combiners = [t.combiner.encode() for t in self.system.tables]
            attrs["combiners"] = rng.pick(combiners, combiners, [])
        if "Integer" in op or op == "EnqueueTPUEmbeddingBatch":
            inputs["batch"] = [
                self.whole(op, *output) for output in self.system.outputs
            ]
            self.add(op, inputs, attrs)
            return
        form = (
            "ragged"
            if "Ragged" in op
            else "samples" if op.endswith("SparseBatch") else "any"
        )
        where_name = {
            "ragged": "sample_splits",
            "any": "sample_indices_or_row_splits",
        }.get(form, "sample_indices")
        places: list[tuple[int, list[int]]] = self.system.outputs
        if "Ragged" in op or "SparseTensor" in op:
            form = "ragged" if "Ragged" in op else rng.pick("samples", "indices")
            where_name = "sample_splits" if "Ragged" in op else "sample_indices"
            places = self.by_table(attrs)
        types = {k: rng.pick("int32", "int32", "int64") for k in ("where", "ids")}
        weights_type = rng.pick("float32", "float32", "float64")
        weighted = rng.chance(0.3)
        columns: list[list[Literal]] = [[], [], []]
        for at, shape in places:
            table = self.system.tables[at]
            kind = rng.pick("dense", "ragged", "indices") if form == "any" else form
            row = self.triple(kind, shape, table, types, weights_type, weighted)
            for column, tensor in zip(columns, row, strict=True):
                column.append(tensor)
        names = (where_name, "embedding_indices", "aggregation_weights")
        inputs |= dict(zip(names, columns, strict=True))
        attrs |= {"T1": types["where"], "T2": types["ids"], "T3": weights_type}
        self.add(op, inputs, attrs)

    def by_table(self, attrs: dict[str, Any]) -> list[tuple[int, list[int]]]:
        """Inputs that name their tables."""
        if self.system.features:
            attrs["table_ids"] = [at for at, _ in self.system.features]
            attrs["max_sequence_lengths"] = self.rng.pick(
                [], [0] * len(self.system.features)
            )
            attrs["num_features"] = []
            return self.system.features
        ids, lengths = [], []
        for i, table in enumerate(self.system.tables):
            ids += [i] * len(table.sequences)
            lengths += table.sequences
        attrs["table_ids"] = ids
        if any(lengths) or self.rng.chance(0.5):
            attrs["max_sequence_lengths"] = lengths
            attrs["num_features"] = self.rng.pick([], [1] * len(ids))
        else:
            attrs["max_sequence_lengths"] = []
            attrs["num_features"] = [1] * len(ids)
        return [(at, [self.system.batch]) for at in ids]

    def triple(
        self,
        kind: str,
        shape: list[int],
        table: Table,
        types: dict[str, str],
        weights_type: str,
        weighted: bool,
    ) -> tuple[Literal, Literal, Literal]:
        samples = 1
        for size in shape:
            samples *= size
        lengths = [1] * samples if kind == "dense" else self.bags(samples)
        count = sum(lengths)
        bag = [i for i, length in enumerate(lengths) for _ in range(length)]
        if kind == "dense":
            where = Literal(types["where"], [0], [])
        elif kind == "ragged":
            splits = [sum(lengths[:i]) for i in range(samples + 1)]
            where = Literal(types["where"], [samples + 1], splits)
        elif kind == "samples":
            where = Literal(types["where"], [count], bag)
        else:
            rows = []
            for b in bag:
                place = []
                for size in reversed(shape):
                    b, rest = divmod(b, size)
                    place.insert(0, rest)
                rows += [*place, 0]
            where = Literal(types["where"], [count, len(shape) + 1], rows)
        weights = Literal(weights_type, [0], [])
        if weighted and kind != "dense":
            values = [self.rng.pick(0.5, 1.0, 2.0) for _ in range(count)]
            weights = Literal(weights_type, [count], values)
        return where, self.ids(count, table, types["ids"]), weights

    def whole(self, op: str, at: int, shape: list[int]) -> Literal:
        """The arguments of the ops with one tensor a feature."""
        samples = 1
        for size in shape:
            samples *= size
        table = self.system.tables[at]
        if "Integer" in op:
            return self.ids(samples, table, "int32")
        strings = []
        for length in self.bags(samples):
            ids = b"".join(
                varint(self.rng.int(0, table.rows - 1)) for _ in range(length)
            )
            strings.append(b"\x0a" + varint(len(ids)) + ids if ids else b"")
        return Literal("string", [samples], strings)

    def receive(self, core: int) -> None:
        attrs = {"num_outputs": len(self.system.outputs), "config": self.config}
        self.add("RecvTPUEmbeddingActivations", attrs=attrs, bad=0.2, device=core)

    def send(self, core: int) -> None:
        rng = self.rng
        gradients = [
            Literal(
                "float32",
                [*shape, self.system.tables[at].dim],
                fill=rng.pick(0.0, 0.5, -1.0),
            )
            for at, shape in self.system.outputs
        ]
        dynamic = any(
            t.optimization_parameters.learning_rate.HasField("dynamic")
            for t in self.system.config.table_descriptor
        )
        inputs: dict[str, Any] = {
            "inputs": gradients,
            "learning_rates": [Literal("float32", [], [rng.pick(0.1, 0.5)])] * dynamic,
        }
        self.add(
            "SendTPUEmbeddingGradients",
            inputs,
            {"config": self.config},
            device=core,
        )

    def step(self) -> None:
        core = self.core()
        self.enqueue()
        self.receive(core)
        self.send(core)

    def look_up(self) -> None:
        """Of no step: all features' ids in one piece."""
        rng = self.rng
        ids_type, splits_type = (rng.pick("int32", "int64") for _ in range(2))
        samples, split = rng.int(0, 4), rng.chance(0.7)
        rows: list[int] = []
        splits = [0]
        for at, _ in self.system.outputs:
            for length in self.bags(samples) if split else [1] * samples:
                rows += self.ids(length, self.system.tables[at], ids_type).values
                splits.append(len(rows))
        weights = [rng.pick(0.5, 1.0, 2.0) for _ in rows] if rng.chance(0.3) else []
        combiners = [t.combiner.encode() for t in self.system.tables]
        self.add(
            "OpwrightEmbeddingLookup",
            {
                "ids": Literal(ids_type, [len(rows)], rows),
                "row_splits": (
                    Literal(splits_type, [len(splits)], splits)
                    if split
                    else Literal(splits_type, [0], [])
                ),
                "weights": Literal("float32", [len(weights)], weights),
            },
            {"combiners": rng.pick(combiners, []), "Tids": ids_type}
            | {"Tsplits": splits_type},
        )

    def about_config(self) -> None:
        name = self.rng.pick("ComputeDedupDataSize", "ComputeDedupDataTupleMask")
        attrs = {"config": self.proto}
        if self.rng.chance(0.5):
            name += "V2"
            attrs |= dict.fromkeys(
                ("embedding_partitions", "hbm_buffers_config", "tpu_topology"), b""
            )
        self.add(name, attrs=attrs, bad=0.7)

    def activations(self) -> None:
        inputs = {
            "embedding_variable": floats(self.rng, 3, 2),
            "sliced_activations": floats(self.rng, 2, 2),
        }
        self.add("TPUEmbeddingActivations", inputs, {"table_id": 0, "lookup_id": 0})

    def shut_down(self) -> None:
        self.add(self.rng.pick("ShutdownDistributedTPU", "ShutdownTPUSystem"))


def steps(rng: Draw) -> Scenario:
    """A system's life."""
    made = Steps(rng)
    made.set_up()
    for at in range(len(made.system.tables)):
        if rng.chance(0.7):
            made.load(at)
    acts: list[Callable[[], None]] = [made.step, made.step, made.step, made.enqueue]
    acts += [made.load, made.retrieve, made.any_optimizer, made.about_config]
    acts += [made.activations, made.look_up, made.look_up]
    for _ in range(rng.int(2, 7)):
        rng.pick(*acts)()
    if rng.chance(0.3):
        made.configure_system()
    if rng.chance(0.3):
        made.shut_down()
    return Scenario("embedding", made.calls)


def many_sends(rng: Draw) -> Scenario:
    """Gradients of one core of two: they wait for the other's."""
    while True:
        made = Steps(rng)
        if made.system.features and not any(
            t.optimization_parameters.learning_rate.HasField("dynamic")
            for t in made.system.config.table_descriptor
        ):
            break
    dim = 4096
    made.system.config.num_tensor_cores = rng.cores
    made.system.config.mode = rng.pick(Config.BACKWARD_PASS_ONLY, Config.TRAINING)
    for table, descriptor in zip(
        made.system.tables, made.system.config.table_descriptor, strict=True
    ):
        table.dim = descriptor.dimension = dim
    made.system.features = [(at, [256]) for at, _ in made.system.features]
    for feature in made.system.config.feature_descriptor:
        feature.input_shape[:] = [256]
    made.proto, made.config = made.system.proto, b""
    made.calls.append(Call("ConfigureTPUEmbedding", attrs={"config": made.proto}))
    made.core = lambda: 0  # type: ignore[method-assign]
    made.mode = lambda: b"unspecified"  # type: ignore[method-assign]
    made.all_good = True
    for _ in range(60):
        made.enqueue("EnqueueTPUEmbeddingIntegerBatch")
        if made.system.config.mode != Config.BACKWARD_PASS_ONLY:
            made.receive(0)
        made.send(0)
    return Scenario("embedding sends", made.calls)
