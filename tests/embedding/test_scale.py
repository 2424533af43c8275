"""What benchmarks/embedding_scale.py measures holds at a size that tests can have."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.places import ROOT

SCRIPT = ROOT / "benchmarks" / "embedding_scale.py"


@pytest.mark.rotating
def test_no_copy_of_a_table() -> None:
    """Half a GiB of table and slot, of which what a step needs is more than 1 %.

    Nothing is timed: that is for a machine that does nothing else.
    """
    size = ["--rows", "4000000", "--shards", "100", "--steps", "0", "--spare", "0.05"]
    done = subprocess.run(
        [sys.executable, SCRIPT, *size, "--check"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
