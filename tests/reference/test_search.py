"""Ops are found: by what they do, by name, by the function that calls them."""

from __future__ import annotations

import itertools
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
import yaml
from tensorflow.python.framework import op_callbacks

import opwright
from opwright import OpInputError, OpUnknownError
from opwright_runtime.search import described, synonyms, tf_names
from opwright_runtime.search.documents import documents
from opwright_runtime.search.words import parts_of
from support.places import environment
from support.processes import Done, run_code, run_program
from support.versions import until

LISTS = yaml.safe_load(Path(__file__).with_name("queries.yaml").read_text("utf-8"))
#: Of how many queries of a list an op that answers has to be among the first three.
FOUND = {
    "phrases": 60,
    "tuned": 60,
    "held_out": 50,
    "held_out_2": 60,
    "held_out_3": 40,
    "held_out_4": 40,
}


@pytest.mark.rotating
@pytest.mark.parametrize(("name", "enough"), FOUND.items())
def test_search_what_people_type_finds_an_op_in_three(name: str, enough: int) -> None:
    queries = LISTS[name]
    missed = {
        query: names
        for query, wanted in queries.items()
        if not {*(names := [one.name for one in opwright.search(query, 3)])} & {*wanted}
    }
    assert len(queries) - len(missed) >= enough, missed


def test_queries_of_each_list_name_ops() -> None:
    named = {name for one in LISTS.values() for names in one.values() for name in names}
    assert named <= set(opwright.op_names())


def test_synonyms_of_each_row_name_ops_or_a_function() -> None:
    ops = {"".join(parts_of(name)).lower() for name in opwright.op_names()}
    functions = {name.rpartition(".")[2].replace("_", "") for name in tf_names.names()}
    for row in synonyms.rows():
        assert set(row.ops) <= set(opwright.op_names()), row
        names = {one.replace(" ", "") for one in row.expressions}
        assert row.ops or names & (ops | functions), row
        assert len(set(row.expressions)) == len(row.expressions), row


def test_synonyms_with_ops_stand_in_one_row() -> None:
    named = [set(row.expressions) for row in synonyms.rows() if row.ops]
    assert len(named) > 500
    for row, other in itertools.combinations(named, 2):
        assert row != other, row


@pytest.mark.parametrize(
    ("query", "same"),
    [
        ("colour space", "color space"),
        ("grey image", "gray image"),
        ("batch normalisation", "batch normalization"),
        ("discretise", "discretize"),
        ("clipping", "clip"),
        ("quantization", "quantize"),
        ("2-D convolution", "2d convolution"),
        ("bit-wise xor", "bitwise xor"),
        ("log_sum_exp", "logsumexp"),
        ("hashtable", "hash table"),
        ("BatchNormalization", "batch normalization"),
        ("how do I find the unique values", "find unique values"),
    ],
)
def test_search_other_spelling_finds_the_same(query: str, same: str) -> None:
    found, expected = (opwright.search(one, 3) for one in (query, same))
    assert expected and found[0] == expected[0]


@pytest.mark.parametrize(
    ("query", "ops"),
    [
        ("np.outer", ("Mul", "Einsum")),
        ("bernoulli", ("RandomUniform",)),
        ("percentile", ("NthElement", "TopKV2")),
        ("nn.Hardtanh", ("ClipByValue",)),
    ],
)
def test_search_composed_function_puts_its_ops_first(
    query: str, ops: tuple[str, ...]
) -> None:
    found = [one.name for one in opwright.search(query, len(ops))]
    assert {*found} == {*ops}


@pytest.mark.rotating
def test_search_order_is_the_same_in_every_process() -> None:
    queries = ["sparse", "gradient of", "dataset", "variable", "tpu embedding", "sum"]
    script = f"""
import opwright
for query in {queries}:
    print([one.name for one in opwright.search(query, 40)])
"""
    printed = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(printed) == 1


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("MatMul", "MatMul"),
        ("mat_mul", "MatMul"),
        ("matmul", "MatMul"),
        ("tf.math.cumsum", "Cumsum"),
        ("math.cumsum", "Cumsum"),
        ("opwright.math.cumsum", "Cumsum"),
        ("MatrixDiagPartV2", "MatrixDiagPartV2"),
        ("SendTPUEmbeddingGradients", "SendTPUEmbeddingGradients"),
    ],
)
def test_search_name_comes_first(query: str, first: str) -> None:
    found = opwright.search(query)
    assert found[0].name == first
    assert found[0].op_class is opwright.op_class(first)


@pytest.mark.rotating
def test_search_name_of_each_op_puts_it_first() -> None:
    for name, document in documents().items():
        assert opwright.search(name, 1)[0].name == name
        assert opwright.search(document.function, 1)[0].name == name


@pytest.mark.parametrize(
    ("query", "versions"),
    [
        ("TopK", ["TopK", "TopKV2"]),
        ("BatchMatMul", ["BatchMatMul", "BatchMatMulV3", "BatchMatMulV2"]),
        ("batch_mat_mul", ["BatchMatMulV3", "BatchMatMulV2", "BatchMatMul"]),
        ("topk", ["TopKV2", "TopK"]),
    ],
)
def test_search_other_versions_of_a_name_come_newest_first(
    query: str, versions: list[str]
) -> None:
    found = opwright.search(query, len(versions))
    assert [one.name for one in found] == versions


def test_search_op_with_a_newer_version_names_the_newest() -> None:
    older, newest = opwright.search("TopK", 2)
    assert (older.newer, newest.newer) == ("TopKV2", None)
    assert "opwright.nn.top_k  Newer: TopKV2. " in repr(opwright.search("TopK", 1))
    assert "Newer" not in repr(opwright.search("TopKV2", 1))


def test_search_newer_version_is_newer_and_not_removed() -> None:
    known = documents()
    newer = {name: described(name).newer for name in known}
    assert newer["FusedBatchNorm"] == newer["FusedBatchNormV2"] == "FusedBatchNormV3"
    assert newer["BiasAdd"] is None  # BiasAddV1 is the first version, too.
    for name, by in newer.items():
        if by is not None:
            assert known[by].family == known[name].family
            assert known[by].version > known[name].version
            assert not known[by].is_removed


@pytest.mark.parametrize(
    ("query", "older", "newer"),
    [
        ("concat", "Concat", "ConcatV2"),
        ("look up rows", "Gather", "GatherV2"),
        ("top k", "TopK", "TopKV2"),
        ("stack", "Stack", "StackV2"),
        ("add", "Add", "AddV2"),
        ("contrast", "AdjustContrast", "AdjustContrastv2"),
    ],
)
def test_search_superseded_op_stands_behind_its_successor(
    query: str, older: str, newer: str
) -> None:
    found = [one.name for one in opwright.search(query, 100)]
    assert found.index(newer) < found.index(older)


def test_search_results_print_table() -> None:
    found = opwright.search("MatMul", 2)
    first, second = repr(found).split("\n")
    assert first.startswith("MatMul") and "opwright.linalg.mat_mul" in first
    assert "Multiplies two matrices." in first
    assert len(found) == 2 and second
    assert repr(opwright.search("!?")) == "no op found"


@pytest.mark.parametrize(
    "query",
    [
        "",
        " ",
        '"',
        "a AND (b",
        "name:x",
        "*",
        "NOT x",
        "é日本",
        "\0",
        "x " * 10_000,
        "^~[]",
    ],
)
def test_search_any_text_returns_at_most_ten(query: str) -> None:
    assert len(opwright.search(query)) <= 10


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ((3,), "query"),
        (("x", 0), "limit"),
        (("x", True), "limit"),
        (("x", "3"), "limit"),
    ],
)
def test_search_bad_query_is_refused(
    arguments: tuple[object, ...], argument: str
) -> None:
    with pytest.raises(OpInputError) as refused:
        opwright.search(*arguments)  # type: ignore[arg-type]  # pyright: ignore
    assert refused.value.argument == argument


def test_search_from_many_threads_finds_equal_results() -> None:
    found: list[str] = []

    def look() -> None:
        found.append(opwright.search("running total", 1)[0].name)

    threads = [threading.Thread(target=look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["Cumsum"] * 8


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("tf.nn.softmax", {"Softmax"}),
        ("nn.softmax", {"Softmax"}),
        ("tf.reduce_sum", {"Sum"}),
        ("tf.linalg.matmul", {"MatMul", "BatchMatMulV2"}),
        ("tf.data.Dataset.batch", {"BatchDatasetV2", "ParallelBatchDataset"}),
        ("tf.Variable.assign_add", {"AssignAddVariableOp"}),
        ("tf.queue.FIFOQueue", {"FIFOQueueV2"}),
    ],
)
def test_for_tf_function_lists_its_ops(name: str, ops: set[str]) -> None:
    assert {cls.OP_NAME for cls in opwright.for_tf(name)} == ops


def test_for_tf_function_of_two_kinds_of_argument_lists_the_ops_of_both() -> None:
    """With several `repeats`, tf.repeat makes a mask; with one, it only tiles."""
    masked, tiled = opwright.for_tf("tf.repeat").ways
    assert {"Range", "Less", "Where"} <= {*masked}
    assert not {"Range", "Less", "Where"} & {*tiled}


@pytest.mark.parametrize(
    ("name", "is_one_op", "printed"),
    [
        ("tf.nn.softmax", True, "tf.nn.softmax is one op: Softmax"),
        ("nn.softmax()", True, "tf.nn.softmax is one op: Softmax"),
        (
            "tf.linalg.matmul",
            True,
            "tf.linalg.matmul is one op: MatMul or BatchMatMulV2",
        ),
        (
            "tf.math.reduce_std",
            False,
            "tf.math.reduce_std is composed of Mean, Sub, Square, Sqrt",
        ),
    ],
)
def test_for_tf_function_says_whether_it_is_one_op(
    name: str, is_one_op: bool, printed: str
) -> None:
    behind = opwright.for_tf(name)
    assert (behind.is_one_op, repr(behind), str(behind)) == (
        is_one_op,
        printed,
        printed,
    )
    assert behind.function in printed
    assert {cls.OP_NAME for cls in behind} == {op for way in behind.ways for op in way}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("math.reduce_std", [[1.0, 2.0]]),
        ("math.reduce_variance", [[1.0, 2.0]]),
        ("nn.l2_normalize", [[1.0, 2.0]]),
        ("nn.softmax", [[1.0, 2.0]]),
        ("math.logical_xor", [[True], [False]]),
        pytest.param("boolean_mask", [[1, 2], [True, False]], marks=until("2.22")),
    ],
)
def test_for_tf_composed_function_names_what_a_call_runs(
    name: str, arguments: list[object]
) -> None:
    function: Any = tf
    for part in name.split("."):
        function = getattr(function, part)
    ran: list[str] = []

    def record(op_type: str | bytes, *_: object, **__: object) -> None:
        ran.append(op_type if isinstance(op_type, str) else op_type.decode())

    given = [tf.constant(one) for one in arguments]
    op_callbacks.add_op_callback(record)
    try:
        function(*given)
    finally:
        op_callbacks.remove_op_callback(record)
    wanted = [op for op in dict.fromkeys(ran) if op != "Const"]
    assert wanted in [list(way) for way in opwright.for_tf(name).ways]


def test_for_tf_unknown_name_suggests_close_one() -> None:
    with pytest.raises(OpUnknownError, match=r"tf\.nn\.softmax") as unknown:
        opwright.for_tf("tf.nn.softmx")
    assert unknown.value.given == "tf.nn.softmx"
    with pytest.raises(OpUnknownError, match=r"is opwright\.op_class\('TopKV2'\)$"):
        opwright.for_tf("tf.raw_ops.TopKV2")
    with pytest.raises(OpInputError):
        opwright.for_tf(3)  # type: ignore[arg-type]  # pyright: ignore


def test_functions_that_are_there() -> None:
    """The table is of this TensorFlow, and of ops that there are."""
    named = {op for ops in tf_names.names().values() for op in ops}
    assert named <= set(opwright.op_names())
    for name in tf_names.names():
        owner: object = tf
        for part in name.split(".")[1:]:
            owner = getattr(owner, part)
        assert callable(owner), name


def run(*arguments: str) -> Done:
    return run_program("opwright", *arguments, timeout=120, COLUMNS="60")


def test_cli_search_in_a_pipe_prints_whole_rows() -> None:
    done = run("search", "--limit", "2", "running", "total")
    assert done.returncode == 0
    assert done.stdout == f"{opwright.search('running total', 2)!r}\n"
    assert max(map(len, done.stdout.splitlines())) > 60


@pytest.mark.rotating
@pytest.mark.parametrize(
    "command", ["opwright search softmax", "opwright_codegen diff 2.20 2.21"]
)
def test_cli_whose_reader_has_ended_prints_no_traceback(command: str) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        env=environment(PYTHONUNBUFFERED=""),
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.rotating
def test_cli_search_in_a_terminal_cuts_rows_to_its_width() -> None:
    program = """
import os, runpy, sys
os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_NOCTTY), 1)
sys.argv[1:] = ["search", "--limit", "2", "MatMul"]
runpy.run_module("opwright", run_name="__main__", alter_sys=True)
"""
    ours, theirs = pty.openpty()
    with open(ours, "rb", buffering=0) as terminal:
        done = run_code(program, os.ttyname(theirs), COLUMNS="60")
        assert done.returncode == 0, done.stderr
        printed = terminal.read(10_000).decode()
        os.close(theirs)
    rows = printed.splitlines()
    assert len(rows) == 2 and rows[0].startswith("MatMul")
    assert max(map(len, rows)) == 60 and rows[0].endswith("...")


def test_cli_for_tf_composed_function_prints_that_and_the_ops() -> None:
    done = run("for-tf", "math.reduce_std")
    first, *rows = done.stdout.splitlines()
    assert done.returncode == 0
    assert first == "tf.math.reduce_std is composed of Mean, Sub, Square, Sqrt"
    assert [row.split()[0] for row in rows] == ["Mean", "Sub", "Square", "Sqrt"]


def test_cli_wrong_call_is_refused() -> None:
    done = run("for-tf", "tf.nn.softmx")
    assert done.returncode == 1 and "tf.nn.softmax" in done.stderr
    done = run("search", "--limit", "0", "x")
    assert done.returncode == 2 and "'0' is no positive number" in done.stderr


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("--help", 0),
        ("search running total", 0),
        ("search zzzz", 1),
        ("for-tf tf.math.reduce_std", 0),
    ],
)
def test_cli_help_and_search_need_no_tensorflow(command: str, status: int) -> None:
    """The installed command: `python -m opwright` imports the package first."""
    script = """
import sys
from opwright_runtime.cli import main
try:
    status = main(sys.argv[1:])
except SystemExit as done:
    status = done.code
print(status, {"tensorflow", "numpy", "opwright"} & sys.modules.keys())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, *command.split()],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.endswith(f"\n{status} set()\n") and not done.stderr
