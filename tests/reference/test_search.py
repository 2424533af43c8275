"""Ops are found: by what they do, by name, by the function that calls them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml

import opwright
from opwright import OpInputError, OpUnknownError
from opwright_runtime.search import tf_names

LISTS = yaml.safe_load(Path(__file__).with_name("queries.yaml").read_text("utf-8"))
QUERIES = LISTS["phrases"]
#: How many queries have to find an op of theirs among the first three.
FOUND = 55


def test_what_people_type() -> None:
    assert len(QUERIES) == 60
    missed = {
        query: names
        for query, wanted in QUERIES.items()
        if not {*(names := [one.name for one in opwright.search(query, 3)])} & {*wanted}
    }
    assert len(QUERIES) - len(missed) >= FOUND, missed


def test_queries_name_ops() -> None:
    named = {name for names in QUERIES.values() for name in names}
    assert named <= set(opwright.op_names())


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("MatMul", "MatMul"),
        ("mat_mul", "MatMul"),
        ("matmul", "MatMul"),
        ("tf.math.cumsum", "Cumsum"),
        ("math.cumsum", "Cumsum"),
        ("opwright.math.cumsum", "Cumsum"),
        ("MatrixDiagPart", "MatrixDiagPart"),
        ("SendTPUEmbeddingGradients", "SendTPUEmbeddingGradients"),
    ],
)
def test_names_come_first(query: str, first: str) -> None:
    found = opwright.search(query)
    assert found[0].name == first
    assert found[0].op_class is opwright.op_class(first)


def test_every_op_is_found_by_its_name() -> None:
    for name in opwright.op_names():
        assert opwright.search(name, 1)[0].name == name


def test_results_are_printed_as_a_table() -> None:
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
def test_any_text_is_a_query(query: str) -> None:
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
def test_what_is_no_query_is_refused(
    arguments: tuple[object, ...], argument: str
) -> None:
    with pytest.raises(OpInputError) as refused:
        opwright.search(*arguments)  # type: ignore[arg-type]  # pyright: ignore
    assert refused.value.argument == argument


def test_from_many_threads() -> None:
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
        ("tf.linalg.matmul", {"MatMul", "BatchMatMulV3", "BatchMatMulV2"}),
        ("tf.data.Dataset.batch", {"BatchDatasetV2", "ParallelBatchDataset"}),
        ("tf.Variable.assign_add", {"AssignAddVariableOp"}),
        ("tf.queue.FIFOQueue", {"FIFOQueueV2"}),
    ],
)
def test_ops_behind_a_function(name: str, ops: set[str]) -> None:
    assert {cls.OP_NAME for cls in opwright.for_tf(name)} == ops


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(OpUnknownError, match=r"tf\.nn\.softmax") as unknown:
        opwright.for_tf("tf.nn.softmx")
    assert unknown.value.given == "tf.nn.softmx"
    with pytest.raises(OpInputError):
        opwright.for_tf(3)  # type: ignore[arg-type]  # pyright: ignore


def test_functions_that_are_there() -> None:
    """The table is of this TensorFlow, and of ops that there are."""
    import tensorflow as tf

    named = {op for ops in tf_names.names().values() for op in ops}
    assert named <= set(opwright.op_names())
    for name in tf_names.names():
        owner: object = tf
        for part in name.split(".")[1:]:
            owner = getattr(owner, part)
        assert callable(owner), name


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "opwright", *arguments],
        env={**os.environ, "COLUMNS": "60"},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_command_line() -> None:
    done = run("search", "--limit", "2", "running", "total")
    rows = done.stdout.splitlines()
    assert done.returncode == 0 and len(rows) == 2
    assert rows[0].startswith("Cumsum") and max(map(len, rows)) <= 60
    done = run("for-tf", "tf.nn.softmx")
    assert done.returncode == 1 and "tf.nn.softmax" in done.stderr
    done = run("search", "--limit", "0", "x")
    assert done.returncode == 2 and "'0' is no positive number" in done.stderr
