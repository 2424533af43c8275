"""Tables over several hosts, which are processes of one cluster on this machine."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import numpy as np
import pytest

from support.processes import run_program
from support.tiers import KILLS


@pytest.mark.equivalence
def test_hosts_tables_equal_one_host(tmp_path: Path) -> None:
    """1, 2 and 4 processes; and from a checkpoint that another number of them wrote.

    SGD with a learning rate that changes, Adagrad, Adam and FTRL, 100 steps.
    """
    done = run_program("embedding.support.hosts", tmp_path, "equal", timeout=900)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "whole_1_0.npz") as one:
        wanted = dict(one)
    assert {"dense", "sgd", "adagrad/accumulators", "ftrl/linears"} < set(wanted)
    ended = {
        "whole_1_0",
        "whole_2_0",
        "whole_2_1",
        *(f"whole_4_{host}" for host in range(4)),
        "resumed_1_0",
        *(f"resumed_4_{host}" for host in range(4)),
    }
    assert {path.stem for path in tmp_path.glob("*.npz")} == ended, done.stderr
    for name in ended:
        with np.load(tmp_path / f"{name}.npz") as found:
            for key, value in wanted.items():
                # Sums in float32, the last bit of the largest of them.
                least = 1e-6 * max(1.0, float(np.abs(value).max()))
                np.testing.assert_allclose(
                    found[key], value, 1e-6, least, err_msg=f"{key} of {name}"
                )
    sent = re.findall(r"^sent (\d) (\d) (\d+) (\d+)", done.stdout, re.MULTILINE)
    assert len(sent) == 7, done.stdout
    for hosts, _, number, by_formula in sent:
        assert number == by_formula
        assert (int(number) > 0) == (hosts != "1")


@pytest.mark.rotating
def test_hosts_step_refused_by_one_is_taken_by_none(tmp_path: Path) -> None:
    """No host applies it, all get the error, and the next one goes on.

    An id that is no row, a gradient that is not finite, and an assert between the two.
    """
    done = run_program("embedding.support.hosts", tmp_path, "refusing", timeout=320)
    told = [json.loads((tmp_path / f"told_{h}.json").read_text()) for h in range(2)]
    assert [len(one) for one in told] == [3, 3], done.stdout + done.stderr
    said, own = told
    no_row = "feature 1 ('adam') of table 1 ('adam'): id at position 0 is 7; ids must"
    assert no_row in own[0]
    assert "gradients must be finite" in own[1]
    for refused in said:
        assert "host 1 (/job:worker/replica:0/task:1) refuses the batch" in refused
    assert no_row in said[0]
    assert "gradients must be finite" in said[1]
    assert "the step that it is part of has failed there" in said[2]
    with np.load(tmp_path / "refusing_1_0.npz") as one:
        wanted = dict(one)
    for host in range(2):
        with np.load(tmp_path / f"refusing_2_{host}.npz") as found:
            for key, value in wanted.items():
                least = 1e-6 * max(1.0, float(np.abs(value).max()))
                np.testing.assert_allclose(found[key], value, 1e-6, least, err_msg=key)


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("what", "mine", "others"),
    [
        (
            "rate",
            "learning rate of table 0 ('adagrad') is 0.25 on {1} and 0.5 on {0}",
            "learning rate of table 0 ('adagrad') is 0.5 on {0} and 0.25 on {1}",
        ),
        (
            "combiner",
            "{1} combines feature 0 ('adagrad') of table 0 ('adagrad') by 'sum' and "
            "{0} by 'sqrtn'",
            "{0} combines feature 0 ('adagrad') of table 0 ('adagrad') by 'sqrtn' and "
            "{1} by 'sum'",
        ),
    ],
)
def test_hosts_with_other_programs_are_refused_by_name(
    tmp_path: Path, what: str, mine: str, others: str
) -> None:
    done = run_program(
        "embedding.support.hosts", tmp_path, "differing", what, timeout=200
    )
    assert "differing [0, 0]" in done.stdout, done.stdout + done.stderr
    hosts = [f"host {h} (/job:worker/replica:0/task:{h})" for h in range(2)]
    for host, words in enumerate((mine, others)):
        told = (tmp_path / f"told_{host}").read_text("utf-8")
        assert words.format(*hosts) in told
        assert "all hosts must run the same program" in told


@pytest.mark.rotating
def test_hosts_stopped_host_is_named(tmp_path: Path) -> None:
    """It is stopped, for more than the 5 s that the others wait for it."""
    done = run_program("embedding.support.hosts", tmp_path, "stopped", timeout=200)
    ((_, others, named, told, seconds),) = blows(done.stdout)
    assert (others, named, told) == ("[0, 0]", "2", "2"), done.stdout + done.stderr
    assert float(seconds) < 30


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("blow", "hosts", "what"),
    [
        ("SIGKILL", 2, "training"),
        ("SIGSTOP", 2, "training"),
        ("SIGSTOP", 2, "summing"),
        # The two reach the first one, where TensorFlow's own heartbeat server is.
        ("SIGSTOP", 3, "summing"),
    ],
)
def test_hosts_lost_connection_names_peer(
    tmp_path: Path, blow: str, hosts: int, what: str
) -> None:
    """What passes on all that two hosts send each other ends; or it stands still."""
    arguments = [tmp_path, "severed", blow, str(hosts), what]
    done = run_program("embedding.support.hosts", *arguments, timeout=200)
    ((_, codes, named, told, seconds),) = blows(done.stdout)
    wanted = (str([0] * hosts), "2", str(hosts))
    assert (codes, named, told) == wanted, done.stdout + done.stderr
    assert float(seconds) < 30


@pytest.mark.rotating(part=6)
@pytest.mark.partial
def test_hosts_killed_at_random_training_continues_from_checkpoint(
    tmp_path: Path,
) -> None:
    """Some are killed; those that go on from the last checkpoint may be 2 or 4.

    More than five kills draw a new seed each time.
    """
    seed = random.randrange(10**9) if KILLS > 5 else 1
    arguments = [tmp_path, "killed", str(KILLS), str(seed)]
    timeout = 120 + 60 * KILLS
    done = run_program("embedding.support.hosts", *arguments, timeout=timeout)
    said = f"seed {seed}\n{done.stdout}{done.stderr}"
    found = blows(done.stdout)
    assert len(found) == KILLS, said
    for hosts, others, named, told, seconds in found:
        # No process had to be killed. One whose training was over reports nothing.
        assert others == str([0] * (int(hosts) - 1)), said
        assert named == told, said
        assert float(seconds) < 30, said
    with np.load(tmp_path / "whole_1_0.npz") as one:
        wanted = dict(one)
    finals = list(tmp_path.glob("final_*.npz"))
    assert finals, said  # How many it is depends on how far each got.
    for path in finals:
        with np.load(path) as last:
            for key, value in wanted.items():
                least = 2e-6 * max(1.0, float(np.abs(value).max()))
                np.testing.assert_allclose(last[key], value, 2e-6, least, err_msg=said)


def blows(said: str) -> list[tuple[str, ...]]:
    """Of each: hosts, how the others ended, who named it, who told, after how long."""
    return re.findall(
        r"^SIG\w+ to \d of (\d) (\[.*\]) named by (\d) of (\d) .*after ([0-9.]+)$",
        said,
        re.MULTILINE,
    )
