"""Checkpoints: to serving and back, into a new process, and through a kill."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from embedding.support.program import Program, rows, table, tpu_embedding
from embedding.support.trainings import (
    COLUMNS,
    ROWS,
    SAVED,
    STEPS,
    Training,
    counted,
    optimizers,
)
from support.places import environment
from support.processes import run_program

WEIGHTS = np.random.default_rng(2).normal(size=(9, 4)).astype(np.float32)
BAGS = rows([1, 1, 4], [8], [], [0, 3])


def features(weights: Any = WEIGHTS) -> dict[str, Any]:
    films = table(weights, "films", combiner="mean")
    return {
        "seen": tpu_embedding.FeatureConfig(films, name="seen"),
        "watched": tpu_embedding.FeatureConfig(films, max_sequence_length=2),
    }


def trained(optimizer: Any) -> Program:
    program = Program(features(), optimizer)
    gradients = {"seen": tf.ones([4, 4]), "watched": tf.ones([4, 2, 4])}
    program.train({"seen": BAGS, "watched": BAGS}, gradients)
    return program


@pytest.mark.rotating
def test_checkpoint_through_serving_keeps_tables(tmp_path: Path) -> None:
    program = trained(tpu_embedding.Adagrad(0.5))
    tables = program.tables()
    assert np.abs(tables["films"] - WEIGHTS).max() > 0.1
    ids = {"seen": BAGS, "watched": BAGS}
    expected = program.look_up(ids)
    path = tf.train.Checkpoint(embedding=program.embedding).save(tmp_path / "trained")

    # Serving has no slots: it takes no optimizer.
    serving = tpu_embedding.TPUEmbeddingForServing(features(WEIGHTS * 0), None)
    tf.train.Checkpoint(embedding=serving).restore(path).expect_partial()
    for name, activations in serving(ids).items():
        np.testing.assert_allclose(activations, expected[name], rtol=1e-6)
    (weights,) = serving.embedding_tables.values()
    np.testing.assert_array_equal(weights, tables["films"])

    # An instance without a TPU has them, and hands them on.
    plain = tpu_embedding.TPUEmbedding(
        features(WEIGHTS * 0), tpu_embedding.Adagrad(0.5)
    )
    plain.build()
    tf.train.Checkpoint(embedding=plain).restore(path).assert_consumed()
    path = tf.train.Checkpoint(embedding=plain).save(tmp_path / "plain")

    again = Program(features(WEIGHTS * 0), tpu_embedding.Adagrad(0.5))
    tf.train.Checkpoint(embedding=again.embedding).restore(path)
    for name, activations in again.look_up(ids).items():
        np.testing.assert_array_equal(activations, expected[name])
    found = again.tables()
    assert found.keys() == tables.keys()
    for name in tables:
        np.testing.assert_array_equal(found[name], tables[name])


def test_checkpoint_restored_over_training_gives_saved_tables(tmp_path: Path) -> None:
    program = trained(tpu_embedding.Adagrad(0.5))
    checkpoint = tf.train.Checkpoint(embedding=program.embedding)
    path = checkpoint.save(tmp_path / "first")
    first = program.tables()
    gradients = {"seen": tf.ones([4, 4]), "watched": tf.ones([4, 2, 4])}
    program.train({"seen": BAGS, "watched": BAGS}, gradients)
    assert (program.tables()["films"] != first["films"]).any()
    checkpoint.restore(path).assert_consumed()
    for name, values in program.tables().items():
        np.testing.assert_array_equal(values, first[name])


def test_checkpoint_saved_asynchronously_has_tables(tmp_path: Path) -> None:
    program = trained(tpu_embedding.Adagrad(0.5))
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    checkpoint = tf.train.Checkpoint(embedding=program.embedding)
    path = checkpoint.save(tmp_path / "async", options=options)
    checkpoint.sync()
    saved = tf.train.load_checkpoint(path)
    names = [name for name in saved.get_variable_to_shape_map() if "films" in name]
    found = [saved.get_tensor(name) for name in names]
    for expected in program.tables().values():
        assert any(np.array_equal(values, expected) for values in found)


@pytest.mark.rotating
def test_checkpoint_in_new_process_continues_bit_by_bit(tmp_path: Path) -> None:
    """As if nothing had happened: every table, every slot, pipelined as well."""
    expected = {}
    for pipelined in (False, True):
        training = Training(pipelined)
        training.train(SAVED)
        training.checkpoint.save(tmp_path / str(pipelined) / "saved")
        training.train(STEPS)
        expected[pipelined] = training.program.tables()
        slots = [len(one._slot_names()) for one in optimizers().values()]
        assert len(expected[pipelined]) == len(slots) + sum(slots)
    done = run_program(
        "embedding.support.trainings", "continue", tmp_path, "False", "True"
    )
    assert done.returncode == 0, done.stderr
    for pipelined, tables in expected.items():
        found = np.load(tmp_path / f"{pipelined}.npz")
        assert set(found) == set(tables)
        for name, values in tables.items():
            np.testing.assert_array_equal(found[name], values, name)


@pytest.mark.rotating
@pytest.mark.parametrize("midst", [False, True], ids=["as it begins", "in its midst"])
def test_checkpoint_killed_while_saving_keeps_previous(
    midst: bool, tmp_path: Path
) -> None:
    """The checkpoint before stays complete, and is the latest."""
    command = [sys.executable, "-m", "embedding.support.trainings", "save", tmp_path]
    with subprocess.Popen(
        command, env=environment(), text=True, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "saving 3\n":
                break
        while midst and not list(tmp_path.glob("ckpt-3*")):
            assert process.poll() is None
            time.sleep(0.0005)
        process.send_signal(signal.SIGKILL)
        left = process.stdout.read()
    # On a busy machine the kill comes late. The last checkpoint whose line was printed
    # is there. The next may be there too, if the kill came before its line was printed.
    saved = int(["2", *re.findall(r"^saved (\d+)$", left, re.MULTILINE)][-1])
    program, step, checkpoint = counted()
    checkpoint.restore(tf.train.latest_checkpoint(tmp_path))
    assert int(step) in (saved, saved + 1)
    found = program.look_up({"all": tf.range(ROWS)})["all"]
    np.testing.assert_array_equal(found, np.full([ROWS, COLUMNS], step, np.float32))
