"""What must hold of every call, whatever it was given.

It is refused with an error that is documented, or runs. A refused call changes nothing:
tables are the same bit for bit, and the queue serves. Numbers that come out are finite
where those that went in are. Memory is bounded by what went in and came out. What an
independent reference can tell of the outputs is so.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections import defaultdict, deque
from contextlib import suppress
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration as Config,
)
from tensorflow.python.eager import context, execute

from opwright_runtime import native

from .references import CHECKS
from .references_sparse_core import Statistics
from .ways import KIND, Prepared

REFUSALS = (
    tf.errors.InvalidArgumentError,
    tf.errors.FailedPreconditionError,
    tf.errors.ResourceExhaustedError,
    tf.errors.UnimplementedError,
    tf.errors.NotFoundError,
    tf.errors.AlreadyExistsError,
    tf.errors.OutOfRangeError,
    # From TensorFlow's Python, before there is a call.
    ValueError,
    TypeError,
    OverflowError,
)
# Checks of TensorFlow's own shape functions, which it tells as errors of its own.
TENSORFLOWS = re.compile("RET_CHECK failure .tensorflow/core/tpu/ops")
MEMORY = 96 << 20  # Bytes that a call may take besides a multiple of its tensors.
# Bytes that a scenario may leave. Gradients of up to 16 steps of a core wait
# for the other cores: 192 MiB of the largest that are drawn.
KEPT = 320 << 20
# A snapshot of larger tables is not made.
MOST_ELEMENTS = 1 << 20
# More than the ids of any sample that is drawn.
MOST_IDS = 1 << 10
NUMPYS_DIMENSIONS = 32
FINITE = re.compile(
    "SparseCore|XlaSparseDense|CooTensor|RecvTPU|RetrieveTPU|RetrieveAll"
)
STATE = re.compile("TPU")
# Which keeps what is freed.
SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")
Finding = tuple[str, str]


def array_of(tensor: tf.Tensor) -> Any:
    """NumPy has smaller limits of sizes and of dimensions."""
    if 0 in tensor.shape:
        shape = [min(size, 1) for size in tensor.shape]
        if len(shape) > NUMPYS_DIMENSIONS:
            shape = [0]
        return np.empty(shape, tensor.dtype.as_numpy_dtype)
    if len(tensor.shape) > NUMPYS_DIMENSIONS:
        tensor = tf.reshape(tensor, [-1])
    return tensor.numpy()


def is_of_a_function(op: str, output: int) -> bool:
    """Whether an output is what a function of the call returned."""
    if op == "XlaSparseDenseMatmulCustomCombinerOnTcWithCsrInput":
        return output == 0
    # The weights follow the tables, of which there is one.
    return (
        output == 0 and op == "XlaSparseDenseMatmulCustomCombinerOnTcGradWithCsrInput"
    )


def variables_of(prepared: Prepared) -> list[Any]:
    """The values of the call's variables; None of another resource or dtype."""
    found: list[Any] = []
    attrs = ("dtype", tf.float32.as_datatype_enum)
    for handle in prepared.tensors:
        if handle.dtype != tf.resource or "SparseCore" not in prepared.call.op:
            continue
        try:
            (value,) = execute.quick_execute(
                "ReadVariableOp", 1, [handle], attrs, context.context()
            )
            found.append(np.array(value.numpy()))
        except tf.errors.OpError:
            found.append(None)
    return found


class Memory:
    """The peak memory of the process since the last query."""

    def __init__(self) -> None:
        self.refs = open("/proc/self/clear_refs", "w")  # noqa: SIM115
        self.status = open("/proc/self/status", "rb")  # noqa: SIM115

    def begin(self) -> None:
        self.refs.write("5")
        self.refs.flush()
        self.before = self.read(b"VmRSS")

    def read(self, name: bytes) -> int:
        self.status.seek(0)
        text = self.status.read()
        at = text.index(name) + len(name) + 1
        return int(text[at : text.index(b"kB", at)]) << 10

    def grown(self) -> int:
        return self.read(b"VmHWM") - self.before


class Engine:
    """The state of the embedding system, from the accepted calls."""

    def __init__(self) -> None:
        self.config: Config | None = None
        self.good = True  # No damaged call changed it.
        self.queue: dict[int, deque[str]] = defaultdict(deque)
        self.begun: dict[int, int] = defaultdict(int)
        self.sent: dict[int, int] = defaultdict(int)
        self.unsent: dict[int, int] = defaultdict(int)

    def serves(self, core: int) -> bool:
        """Whether a Recv must not wait."""
        if self.config is None or not self.queue[core]:
            return False
        least = min(
            self.sent[core] for core in range(min(3, self.config.num_tensor_cores))
        )
        return least >= self.begun[core]

    def accepted(self, prepared: Prepared) -> None:
        op, call = prepared.call.op, prepared.call
        if op.startswith("Shutdown"):
            self.__init__()  # type: ignore[misc]
        elif op in ("ConfigureTPUEmbedding", "ConfigureDistributedTPU"):
            attr = "config" if op == "ConfigureTPUEmbedding" else "tpu_embedding_config"
            proto = prepared.attrs[attr]
            if attr != "config":
                self.__init__()  # type: ignore[misc]
            if proto:
                self.configured(proto, bool(call.damage))
        elif op.startswith("FinalizeTPU"):
            self.configured(
                prepared.tensors[0].numpy().split(b"\n", 1)[1], bool(call.damage)
            )
        elif self.config is None:
            return
        elif "Enqueue" in op:
            ordinal = prepared.attrs.get("device_ordinal")
            core = ordinal
            if ordinal is None:
                core = int(prepared.tensors[-1].numpy().reshape(-1)[0])
            names = [arg.name for arg in prepared.definition.input_arg]
            mode = prepared.grouped[names.index("mode_override")]
            word = np.reshape(mode, -1)[0].decode()  # type: ignore[arg-type]
            if word == "unspecified":
                word = {1: "inference", 3: "backward"}.get(self.config.mode, "train")
            self.queue[call.device if core == -1 else core].append(word)
        elif op.startswith("Recv"):
            core = call.device
            if self.queue[core].popleft() != "inference":
                self.begun[core] += 1
                self.unsent[core] += 1
        elif op.startswith("SendTPU"):
            core = call.device
            self.sent[core] += 1
            if self.unsent[core]:
                self.unsent[core] -= 1
            elif self.queue[core]:
                self.queue[core].popleft()
                self.begun[core] += 1

    def configured(self, proto: bytes, damaged: bool) -> None:
        self.__init__()  # type: ignore[misc]
        with suppress(DecodeError):
            self.config = Config.FromString(proto)
            self.good = not damaged

    def elements(self) -> int:
        assert self.config is not None
        tables = self.config.table_descriptor
        return sum(t.vocabulary_size * t.dimension * 4 for t in tables)

    def tables(self) -> list[bytes] | str | None:
        """The bits of all tables, or the error's text; None: there are none."""
        if self.config is None or self.elements() > MOST_ELEMENTS:
            return None
        count = len(self.config.table_descriptor)
        attrs = ("NumTables", count, "config", b"", "num_shards", 1, "shard_id", 0)
        try:
            found = execute.quick_execute(
                "RetrieveAllTPUEmbeddingParameters",
                8 * count,
                [],
                attrs,
                context.context(),
            )
        except tf.errors.OpError as error:
            return error.message
        self.found = [tensor.numpy() for tensor in found]
        return [array.tobytes() for array in self.found]

    def ends_well(self) -> str | None:
        """Takes what is queued, and one more; what goes wrong with it."""
        config = self.config
        if config is None or not self.good or config.num_tensor_cores != 1:
            return None
        if config.mode == Config.BACKWARD_PASS_ONLY or self.elements() > MOST_ELEMENTS:
            return None
        shapes = [
            (feature.table_id, list(feature.input_shape))
            for feature in config.feature_descriptor
        ] or [
            (i, [config.batch_size_per_tensor_core * table.num_features])
            for i, table in enumerate(config.table_descriptor)
        ]
        ctx = context.context()

        def call(op: str, count: int, inputs: list[Any], *attrs: Any) -> list[Any]:
            return list(execute.quick_execute(op, count, inputs, attrs, ctx) or [])

        zeros = [
            tf.zeros([*shape, config.table_descriptor[at].dimension])
            for at, shape in shapes
        ]
        tags = {
            t.optimization_parameters.learning_rate.dynamic.tag
            for t in config.table_descriptor
            if t.optimization_parameters.learning_rate.HasField("dynamic")
        }
        recv = ("RecvTPUEmbeddingActivations", len(shapes), [])
        recv_attrs = ("num_outputs", len(shapes), "config", b"")
        send = ("N", len(zeros), "NN", len(tags), "config", b"")

        def gradients() -> None:
            rates = [tf.constant(0.1)] * len(tags)
            with suppress(tf.errors.UnimplementedError):  # There is no public rule.
                call("SendTPUEmbeddingGradients", 0, [*zeros, *rates], *send)
                return
            raise NotImplementedError

        try:
            while self.unsent[0]:
                gradients()
                self.unsent[0] -= 1
            while self.queue[0]:
                call(*recv, *recv_attrs)
                if self.queue[0].popleft() == "train":
                    gradients()
            ids = [tf.zeros([int(np.prod(shape))], tf.int32) for _, shape in shapes]
            attrs = ("N", len(ids), "device_ordinal", 0)
            inputs = [*ids, tf.constant("inference")]
            call("EnqueueTPUEmbeddingIntegerBatch", 0, inputs, *attrs)
            outputs = call(*recv, *recv_attrs)
            if [tuple(x.shape) for x in outputs] != [tuple(x.shape) for x in zeros]:
                return "activations have other shapes"
        except NotImplementedError:
            return None
        except tf.errors.OpError as error:
            return f"{type(error).__name__}: {error.message}"
        return None


class Oracles:
    """Watches the calls of a scenario."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.engine = Engine()
        self.statistics = Statistics()
        self.before: list[bytes] | str | None = None
        execute.quick_execute("ShutdownDistributedTPU", 0, [], (), context.context())
        self.at_first = memory.read(b"VmRSS")
        self.compiled = (
            False  # Something was: XLA keeps programs, and memory to make them.
        )

    def may_wait(self, prepared: Prepared) -> bool:
        """Whether it is right if the call never ends."""
        call = prepared.call
        return call.op.startswith("Recv") and not self.engine.serves(call.device)

    def begin(self, prepared: Prepared) -> None:
        self.stateful = bool(STATE.search(prepared.call.op))
        if self.stateful and prepared.call.damage:
            self.before = self.engine.tables()
        else:
            self.before = None
        self.variables = variables_of(prepared)
        self.memory.begin()

    def end(
        self,
        prepared: Prepared,
        outputs: list[tf.Tensor] | None,
        error: Exception | None,
    ) -> list[Finding]:
        found: list[Finding] = []
        grown = self.memory.grown()
        tensors = [*prepared.tensors, *(outputs or [])]
        size = sum(
            int(np.prod(x.shape)) * x.dtype.size
            for x in tensors
            if x.dtype != tf.variant
        )
        compiled = KIND[prepared.call.way] == "compiled"
        self.compiled |= compiled
        if not SANITIZED and not compiled and grown > MEMORY + 16 * size:
            found.append(
                ("memory", f"took {grown >> 20} MiB for tensors of {size} bytes")
            )
        if error is not None:
            if not isinstance(error, REFUSALS) and not TENSORFLOWS.search(str(error)):
                found.append(("error", f"{type(error).__name__}: {error}"))
            if isinstance(self.before, list):
                after = self.engine.tables()
                if after != self.before:
                    words = after if isinstance(after, str) else "the tables are others"
                    found.append(("state", f"{words}; after: {error}"))
                    self.engine.config = None
            if prepared.call.damage and not self.same_variables(prepared):
                found.append(("state", f"variables are others after: {error}"))
            return found
        assert outputs is not None
        if self.stateful:
            self.engine.accepted(prepared)
            if re.match("Load|SendTPU", prepared.call.op):
                found += self.tables_are_finite()
        if FINITE.search(prepared.call.op) and not self.nonfinite(prepared.tensors):
            found += self.variables_are_finite(prepared)
            found += [
                ("finite", f"output {i} has {kind}")
                for i, x in enumerate(outputs)
                if (kind := self.kind_of(x))
                and not self.overflows(prepared, x)
                and not self.bags_overflow(prepared)
                and not is_of_a_function(prepared.call.op, i)
            ]
        if prepared.call.op == "StoreMinibatchStatisticsInFdo":
            numbers = [int(x) for x in prepared.tensors[1:]]
            self.statistics.store(prepared.attrs["table_name"], numbers)
        check = CHECKS.get(prepared.call.op)
        if check:
            attrs = self.all_attrs(prepared)
            attrs["limits"] = self.statistics.limits(attrs.get("table_name", b""))
            grouped = [
                [array_of(x) for x in one] if isinstance(one, list) else array_of(one)
                for one in prepared.grouped
            ]
            arrays = [array_of(x) for x in outputs]
            wrong = check(grouped, attrs, arrays)
            if wrong:
                found.append(("reference", wrong[:500]))
        return found

    def same_variables(self, prepared: Prepared) -> bool:
        """Whether a refused call left its variables as they were, bit for bit."""
        pairs = zip(self.variables, variables_of(prepared), strict=True)
        return all(
            (before is None and after is None) or before.tobytes() == after.tobytes()
            for before, after in pairs
        )

    def variables_are_finite(self, prepared: Prepared) -> list[Finding]:
        return [
            ("finite", f"variable {i} has NaN or infinities")
            for i, one in enumerate(variables_of(prepared))
            if one is not None and not np.isfinite(one).all()
        ]

    @staticmethod
    def all_attrs(prepared: Prepared) -> dict[str, Any]:
        defaults = {
            a.name: a.default_value.i
            for a in prepared.definition.attr
            if a.type == "int"
        }
        return defaults | prepared.attrs

    def tables_are_finite(self) -> list[Finding]:
        if not isinstance(self.engine.tables(), list):
            return []
        assert self.engine.config is not None
        tables = len(self.engine.config.table_descriptor)
        for i, array in enumerate(self.engine.found):
            if not np.isfinite(array).all():
                what = "parameters" if i < tables else "slots"
                return [("finite", f"a table's {what} have NaN or infinities")]
        return []

    @staticmethod
    def kind_of(tensor: tf.Tensor) -> str:
        if not tensor.dtype.is_floating:
            return ""
        if 0 in tensor.shape:
            return ""
        array = array_of(tensor)
        return (
            ""
            if np.isfinite(array).all()
            else "NaN" if np.isnan(array).any() else "infinities"
        )

    @staticmethod
    def overflows(prepared: Prepared, activations: tf.Tensor) -> bool:
        """Whether the numbers that are not finite are sums that may leave float32."""
        of_variables = prepared.call.op == "OpwrightSparseCoreLookup"
        if not of_variables and not re.match(
            "XlaSparseDenseMatmulWith", prepared.call.op
        ):
            return False
        names = [arg.name for arg in prepared.definition.input_arg]
        samples, gains = (
            prepared.tensors[names.index(name)].numpy()
            for name in ("sorted_sample_ids", "sorted_gains")
        )
        if of_variables:
            table = np.concatenate(variables_of(prepared))
        else:
            table = prepared.tensors[names.index("embedding_table")].numpy()
        # A core's samples have numbers of its own.
        cores = Oracles.all_attrs(prepared)["num_sparsecores_per_device"]
        each = max(1, activations.shape[0] // (4 if cores == -1 else cores))
        real = (samples >= 0) & (samples < each)
        weights = np.abs(gains[real].astype(np.float64))
        sums = np.bincount(samples[real], weights, each)
        with np.errstate(over="ignore"):
            most = sums * np.abs(table.astype(np.float64)).max(initial=0)
        wrong = np.flatnonzero(~np.isfinite(activations.numpy()).all(axis=1))
        return bool((most[wrong % each] > np.finfo(np.float32).max).all())

    def bags_overflow(self, prepared: Prepared) -> bool:
        """Whether activations may leave float32, as sums of the rows of tables."""
        if prepared.call.op != "RecvTPUEmbeddingActivations":
            return False
        if not isinstance(self.engine.tables(), list):
            return False
        assert self.engine.config is not None
        rows = self.engine.found[: len(self.engine.config.table_descriptor)]
        most = max((np.abs(table).max(initial=0) for table in rows), default=0)
        return float(most) * MOST_IDS > np.finfo(np.float32).max

    def nonfinite(self, tensors: list[tf.Tensor]) -> bool:
        tables = [x for x in self.variables if x is not None]
        return any(self.kind_of(x) for x in tensors if len(x.shape)) or not all(
            np.isfinite(one).all() for one in tables
        )

    def kept(self) -> int:
        return self.memory.read(b"VmRSS") - self.at_first

    def finish(self) -> list[Finding]:
        found: list[Finding] = []
        if self.kept() > KEPT and not SANITIZED and not self.compiled:
            # Freed memory that malloc keeps does not count.
            ctypes.CDLL(None).malloc_trim(0)
            if (kept := self.kept()) > KEPT:
                found.append(("kept", f"{kept >> 20} MiB are kept after the calls"))
        weights = native.weight_cache_usage()
        if weights.bytes > weights.limit:
            found.append(("kept", f"weights of {weights.bytes} of {weights.limit}"))
        wrong = self.engine.ends_well()
        return [*found, ("queue", wrong)] if wrong else found
