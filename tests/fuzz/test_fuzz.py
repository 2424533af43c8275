"""The fuzzer: random calls of every kind, and the corpus of calls that did harm."""

from __future__ import annotations

import io
import re
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import yaml
from tensorflow.core.protobuf.tpu.tpu_embedding_configuration_pb2 import (
    TPUEmbeddingConfiguration,
)

from opwright_runtime import native
from support import tiers
from support.processes import run_code

from . import draws, references
from .calls import Call, Literal, Value
from .main import main
from .oracles import Memory, Oracles, array_of
from .reduce import reduced, without
from .supervisor import Worker
from .ways import Prepared, tensorflow_takes
from .worker import native_ops

CALLS = 1500 if tiers.FULL else 250
SPARSE_CORE_OPS = re.compile(
    "SparseCore|XlaSparseDense|CooTensor|Minibatch|TPU.*DynamicShape"
)
CORPUS = sorted((Path(__file__).parent / "corpus").glob("*.yaml"))


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker()
    yield made
    made.close()


@pytest.mark.rotating
def test_corpus_calls_do_no_harm(worker: Worker) -> None:
    assert CORPUS
    left = [yaml.safe_load(path.read_text("utf-8")) for path in CORPUS]
    failed = []
    while left:
        ended = worker.do({"replay": left})
        failed += [f"{one.signature}, {one.words[:200]}" for one in ended.findings]
        left = left[ended.begun :] if ended.died_at is not None else []
    assert not failed, "\n".join(failed)


@pytest.fixture(scope="module")
def some_calls() -> tuple[int, str]:
    """The status and the output of a run."""
    said = io.StringIO()
    with redirect_stdout(said):
        status = main([str(CALLS), "--seed", "0", "--seconds", "150"])
    return status, said.getvalue()


@pytest.mark.rotating(together="calls")
@pytest.mark.partial
def test_fuzzer_random_calls_find_nothing(some_calls: tuple[int, str]) -> None:
    status, said = some_calls
    assert status == 0, said
    assert "SendTPUEmbeddingGradients" in said and "CudnnRNNBackpropV3" in said


@pytest.mark.rotating(together="calls")
@pytest.mark.partial
def test_fuzzer_saved_and_compiled_shares_hold(some_calls: tuple[int, str]) -> None:
    """Counts the ops that XLA compiles."""
    _, said = some_calls
    assert re.search(r"^ +eager +graph +saved +compiled$", said, re.M), said
    rows = re.findall(r"^CudnnRNN\w* +(\d+) +(\d+) +(\d+) +(\d+)$", said, re.M)
    assert len(rows) > 5, said
    *_, saved, compiled = (sum(map(int, way)) for way in zip(*rows, strict=True))
    total = sum(int(number) for row in rows for number in row)
    # A short run may have fewer than a hundred of these calls, in drawn ways.
    least = 10 if tiers.FULL else 30
    assert saved >= total / least, said
    assert compiled >= max(total / 100, 1), said


def test_draw_calls_are_of_each_sparse_core_op_and_a_fifth_of_all() -> None:
    """So that 100,000 calls have 20,000 of SparseCore ops."""
    native.load()
    kinds = ["eager", "graph", "saved", "compiled"]
    choice = draws.Choice(list(draws.FAMILIES), kinds)
    drawn = Counter(
        one.op for seed in range(800) for one in draws.draw(seed, choice).calls
    )
    ops = {op for op in native_ops() if SPARSE_CORE_OPS.search(op)}
    assert {"XlaSparseDenseMatmulWithCsrInput", "OpwrightSparseCoreUpdate"} < ops
    assert ops <= drawn.keys()
    assert sum(drawn[op] for op in ops) > drawn.total() / 5


@pytest.mark.rotating
def test_fuzzer_calls_of_variables_find_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = main(["200", "--families", "variables", "--jobs", "1"])
    said = capsys.readouterr().out
    assert status == 0, said
    assert "OpwrightSparseCoreUpdate" in said


def test_oracle_finds_variable_that_a_refused_call_changed() -> None:
    oracles = Oracles(Memory())
    variable = tf.Variable(tf.ones([8, 4]))
    inputs: dict[str, Any] = {"tables": [Literal("float32", [1], [0.0])]}
    prepared = Prepared(
        Call("OpwrightSparseCoreLookup", lookup_of_no_ids() | inputs, LOOKUP), []
    )
    prepared.call.damage.append("tables")
    prepared.tensors[-1] = variable.handle
    oracles.begin(prepared)
    error = tf.errors.InvalidArgumentError(None, None, "no")
    assert not oracles.end(prepared, None, error)
    variable.assign_add(tf.ones([8, 4]))
    ((kind, _),) = oracles.end(prepared, None, error)
    assert kind == "state"


def test_array_of_empty_tensor_of_many_dimensions_has_one() -> None:
    assert array_of(tf.zeros([1] * 250 + [0])).shape == (0,)
    assert array_of(tf.zeros([1 << 40, 0])).shape == (1, 0)


LOOKUP = {
    "input_size": 4,
    "max_ids_per_sparse_core": 8,
    "max_unique_ids_per_sparse_core": 8,
}


def lookup_of_no_ids() -> dict[str, Any]:
    names = ("row_pointers", "sorted_sample_ids", "sorted_token_ids")
    return {
        **{name: Literal("int32", [0], []) for name in names},
        "sorted_gains": Literal("float32", [0], []),
        "num_minibatches_per_physical_sparse_core": Literal("int32", [], [1]),
    }


@pytest.mark.rotating
@pytest.mark.parametrize("family", ["sends", "kept"])
def test_fuzzer_repeated_calls_take_no_more_memory(
    family: str, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main(["150", "--families", family, "--jobs", "1"])
    assert status == 0, capsys.readouterr().out


def call(op: str, **attrs: Any) -> dict[str, Any]:
    return {"family": "test", "calls": [{"op": op, "attrs": attrs, "way": "args"}]}


def test_worker_call_that_aborts_is_found(worker: Worker) -> None:
    good = call("ShutdownDistributedTPU")
    abort = call("Abort", error_msg="on purpose", exit_without_error=False)
    ended = worker.do({"replay": [good, abort, good]})
    (found,) = ended.findings
    assert (found.op, found.kind) == ("Abort", "SIGABRT")
    assert "on purpose" in found.words
    assert ended.begun == 2
    # The next command works.
    assert not worker.do({"replay": [good]}).findings


def test_worker_call_that_exits_is_found(worker: Worker) -> None:
    stop = call("Abort", error_msg="", exit_without_error=True)
    (found,) = worker.do({"replay": [stop]}).findings
    assert found.kind == "exit 0"


def test_reference_list_of_coo_finds_wrapped_numbers() -> None:
    inputs = [np.array([0, 1], np.int32), np.array([5], np.int32), np.float32(1)]
    attrs = {
        "sample_count": 1,
        "num_sc_per_chip": 1,
        "num_sc_shards": 1,
        "row_offset": 0,
        "col_shift": 0,
        "stacked_table_sample_count": 1,
    }
    outputs = [np.array([0], np.int32), np.array([12], np.int32)]
    check = references.list_of_coo
    assert check(inputs, {**attrs, "col_offset": 7}, outputs) is None
    assert check(inputs, {**attrs, "col_offset": 8}, outputs)
    assert check(inputs, {**attrs, "col_offset": 7 + 2**32}, outputs)


def test_reference_keras_rnn_finds_weights_of_other_call() -> None:
    one, bias = np.ones([1, 1], np.float32), np.zeros([0, 1], np.float32)
    inputs = [one[None], one, one, one, one, bias, np.array([1], np.int32)]
    y = np.tanh(2 * one)
    outputs = [y[None], y, np.zeros([], np.float32)]
    attrs = {"rnn_mode": b"rnn_tanh"}
    assert references.keras_rnn(inputs, attrs, outputs) is None
    inputs[3] = 2 * one
    assert references.keras_rnn(inputs, attrs, outputs)


def test_oracle_overflows_accepts_infinity_of_overflowed_sum_only() -> None:
    def overflows(value: float, wrong: int) -> bool:
        inputs: dict[str, Value | list[Value]] = {
            "row_pointers": Literal("int32", [8], fill=0),
            "sorted_sample_ids": Literal("int32", [3], [0, 0, 1]),
            "sorted_token_ids": Literal("int32", [3], [0, 0, 0]),
            "sorted_gains": Literal("float32", [3], fill=1.0),
            "embedding_table": Literal("float32", [1, 1], fill=value),
            "num_minibatches_per_physical_sparse_core": Literal("int32", [], [1]),
        }
        op = "XlaSparseDenseMatmulWithStaticBufferSize"
        prepared = Prepared(Call(op, inputs, {"num_sparsecores_per_device": 1}), [])
        activations = np.zeros([2, 1], np.float32)
        activations[wrong] = np.inf
        return Oracles.overflows(prepared, tf.constant(activations))

    assert overflows(3e38, 0)
    assert not overflows(3e38, 1)
    assert not overflows(1e38, 0)


SHAPE_FUNCTION = """
import tensorflow as tf
graph = tf.compat.v1.GraphDef()
graph.versions.producer = tf.version.GRAPH_DEF_VERSION
node = graph.node.add(name="input", op="Placeholder")
node.attr["dtype"].type = tf.variant.as_datatype_enum
node = graph.node.add(name="op", op="SplitDedupData", input=["input"])
node.attr["integer_type"].type = tf.int32.as_datatype_enum
node.attr["float_type"].type = tf.float32.as_datatype_enum
node.attr["tuple_mask"].s = tf.make_tensor_proto(1).SerializeToString()
node.attr["config"].s = b""
with tf.Graph().as_default():
    tf.graph_util.import_graph_def(graph)
"""


ACTIVATIONS = """
import tensorflow as tf
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2 as messages
config = messages.TPUEmbeddingConfiguration(num_hosts=1, num_tensor_cores=1)
for _ in range(2):
    config.table_descriptor.add(vocabulary_size=4, dimension=5)
config.feature_descriptor.add(table_id=TABLE, input_shape=[3])
with tf.Graph().as_default():
    tf.raw_ops.RecvTPUEmbeddingActivations(
        num_outputs=1, config=config.SerializeToString()
    )
"""


@pytest.mark.rotating
@pytest.mark.parametrize("table", [1, 1 << 30])
def test_tensorflow_takes_missing_table_that_crashes_tensorflow_is_false(
    table: int,
) -> None:
    config = TPUEmbeddingConfiguration()
    config.table_descriptor.add()
    config.table_descriptor.add()
    config.feature_descriptor.add(table_id=table)
    attrs = {"num_outputs": 1, "config": config.SerializeToString()}
    op = "RecvTPUEmbeddingActivations"
    assert tensorflow_takes(Call(op, {}, attrs, "args")) == (table == 1)
    assert tensorflow_takes(Call(op, {}, attrs, "eager"))
    ended = run_code(ACTIVATIONS.replace("TABLE", str(table))).returncode
    assert ended == (0 if table == 1 else -signal.SIGSEGV)


def test_tensorflow_takes_bad_tuple_mask_that_crashes_tensorflow_is_false() -> None:
    attrs = {"tuple_mask": tf.make_tensor_proto(1).SerializeToString()}
    assert not tensorflow_takes(Call("SplitDedupData", {}, attrs, "saved"))
    assert tensorflow_takes(Call("SplitDedupData", {}, attrs, "args"))
    assert run_code(SHAPE_FUNCTION).returncode == -signal.SIGSEGV


def test_reduced_scenario_keeps_only_failing_calls() -> None:
    calls = [{"op": f"op{i}", "inputs": {}} for i in range(6)]
    calls[4]["inputs"] = {"x": {"call": 2, "output": 0}}
    plain = {"family": "test", "calls": calls}

    def fails(one: dict[str, Any]) -> bool:
        ops = [c["op"] for c in one["calls"]]
        return "op4" in ops and "op1" in ops

    small = reduced(plain, fails, 10)
    assert [c["op"] for c in small["calls"]] == ["op1", "op2", "op4"]
    assert small["calls"][2]["inputs"]["x"]["call"] == 1
    assert [c["op"] for c in without(plain, {2})["calls"]] == [
        "op0",
        "op1",
        "op3",
        "op5",
    ]
