"""The two-tower example: training, resuming and serving."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import two_tower
from two_towers import data

SMALL = ["--users", "600", "--films", "200", "--batch", "256", "--dimension", "16"]


def losses(folder: Path) -> list[list[float]]:
    found: list[list[float]] = json.loads((folder / "losses.json").read_text())
    return found


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    assert two_tower.main(["--folder", str(folder), "--epochs", "6", *SMALL]) == 0
    return folder


@pytest.mark.rotating(together="trained")
def test_two_tower_recall_exceeds_recall_of_popularity(trained: Path) -> None:
    found = losses(trained)
    assert [len(epoch) for epoch in found] == [3] * 6  # 44 steps, 20 a call
    # A model without knowledge has a loss of log(256) in a batch of 256.
    assert np.mean(found[-1]) < np.log(256) - 0.15
    drawn = data.make(600, 200, seed=1)
    served = tf.saved_model.load(str(trained / "serving"))
    history = tf.RaggedTensor.from_tensor(tf.constant(drawn.history))
    scores = served.scores(tf.range(600, dtype=tf.int64), history).numpy()
    recall = drawn.recall(scores)
    assert drawn.recall_of_popularity() * 1.3 < recall
    assert recall < drawn.recall_of_the_truth() * 1.1


@pytest.mark.rotating(together="trained")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
def test_two_tower_narrow_rows_have_losses_of_float32(
    trained: Path, tmp_path: Path, dtype: str
) -> None:
    options = ["--folder", str(tmp_path), "--epochs", "6", "--row-dtype", dtype]
    assert two_tower.main([*options, *SMALL]) == 0
    found, expected = losses(tmp_path), losses(trained)
    assert found != expected
    np.testing.assert_allclose(found, expected, rtol=0.01)


@pytest.mark.rotating
def test_two_tower_equal_seeds_give_equal_losses(tmp_path: Path) -> None:
    def run(name: str, seed: str) -> list[float]:
        options = ["--folder", str(tmp_path / name), "--epochs", "1", "--seed", seed]
        assert two_tower.main([*options, *SMALL]) == 0
        return losses(tmp_path / name)[0]

    first = run("first", "1")
    np.testing.assert_allclose(run("again", "1"), first, rtol=1e-5)
    assert abs(run("other", "2")[0] - first[0]) > 0.01


@pytest.mark.rotating(together="trained")
def test_two_tower_loss_curve_is_a_png(trained: Path) -> None:
    picture = tf.io.decode_png((trained / "loss.png").read_bytes())
    assert picture.shape == [600, 1050, 4]
    assert len(np.unique(picture)) > 50


@pytest.mark.rotating(together="trained")
def test_two_tower_user_without_history_is_served(trained: Path) -> None:
    served = tf.saved_model.load(str(trained / "serving"))
    nothing = tf.ragged.constant([[], [3]], tf.int64)
    scores = served.scores(tf.constant([0, 1], tf.int64), nothing)
    assert scores.shape == [2, 200]
    assert np.isfinite(scores).all()


@pytest.mark.rotating(together="trained")
def test_two_tower_resume_matches_uninterrupted_run(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The checkpoint of the last epoch is missing, as after a stop in that epoch."""
    folder = tmp_path / "stopped"
    shutil.copytree(trained, folder)
    shutil.rmtree(folder / "serving")
    for path in folder.glob("ckpt-6*"):
        path.unlink()
    state = 'model_checkpoint_path: "ckpt-5"\nall_model_checkpoint_paths: "ckpt-5"\n'
    (folder / "checkpoint").write_text(state)
    assert two_tower.main(["--folder", str(folder), "--resume"]) == 0
    assert "goes on after epoch 5" in capsys.readouterr().out
    np.testing.assert_allclose(losses(folder), losses(trained), rtol=1e-4)
    served = [tf.saved_model.load(str(at / "serving")) for at in (folder, trained)]
    films = [model.films.numpy() for model in served]
    np.testing.assert_allclose(*films, atol=1e-3)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training, as its first seconds leave it."""
    folder = tmp_path_factory.mktemp("begun")
    (folder / "settings.json").write_text("{}")
    return folder


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--folder", "{begun}"], "a training is in .* already"),
        (["--folder", "{empty}", "--resume"], "no training to go on with"),
        (["--folder", "{empty}", "--users", "10"], "a batch is more than all"),
    ],
)
def test_two_tower_impossible_arguments_are_refused(
    arguments: list[str],
    words: str,
    begun: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    places = {"begun": begun, "empty": tmp_path}
    assert two_tower.main([one.format(**places) for one in arguments]) == 1
    assert re.search(words, " ".join(capsys.readouterr().out.split()))
    assert not list(tmp_path.iterdir())


@pytest.mark.hosts
def test_two_tower_hosts_share_the_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two processes train; one process resumes from their checkpoint."""
    folder = ["--folder", str(tmp_path)]
    assert two_tower.main([*folder, "--epochs", "5", "--hosts", "2", *SMALL]) == 0
    said = capsys.readouterr().out
    assert re.search(r"│ gradients +│ +[\d,]{5,} +│ +[\d,]{5,} +│", said), said
    assert "by the model that is served" in said
    of_hosts = [losses(tmp_path), losses(tmp_path / "host_1")]
    np.testing.assert_allclose(*of_hosts, rtol=1e-6)
    assert np.mean(of_hosts[0][-1]) < np.mean(of_hosts[0][0]) - 0.05
    settings = tmp_path / "settings.json"
    settings.write_text(settings.read_text().replace('"epochs": 5', '"epochs": 6'))
    assert two_tower.main([*folder, "--resume"]) == 0
    assert "goes on after epoch 5" in capsys.readouterr().out


def test_two_tower_bad_argument_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        two_tower.main(["--epochs", "0"])
    assert "invalid number of at least 1 value: '0'" in capsys.readouterr().err


def test_two_tower_data_is_valid_and_reproducible() -> None:
    drawn = data.make(50, 100, seed=3)
    np.testing.assert_allclose(drawn.taste.sum(axis=1), 1)
    assert drawn.watched.shape == (50, data.WATCHED)
    # No film twice.
    assert (np.diff(np.sort(drawn.watched, axis=1)) > 0).all()
    again = data.make(50, 100, seed=3)
    np.testing.assert_array_equal(drawn.watched, again.watched)
    # Scores with the answer first have recall 1, and with the answer last recall 0.
    scores = np.zeros((50, 100))
    np.put_along_axis(scores, drawn.held_out[:, None], 1.0, axis=1)
    assert drawn.recall(scores, best=1) == 1.0
    assert drawn.recall(-scores, best=50) == 0.0
