"""The programs that README shows print what it says."""

from __future__ import annotations

import pytest

from support.places import ROOT
from support.processes import Done, run_code

PROGRAMS = ROOT / "examples" / "readme"


def run(name: str) -> Done:
    done = run_code((PROGRAMS / f"{name}.py").read_text("utf-8"))
    assert done.returncode == 0, done.stderr
    return done


def test_readme_ops_print_the_same_product_in_each_form() -> None:
    assert run("ops").stdout.count("[[ 5. 11.]\n [11. 25.]]") == 3


@pytest.mark.slow  # It needs the native library.
def test_readme_rnn_runs_on_the_kernels() -> None:
    done = run("rnn")
    assert done.stdout.strip() == "(32, 64)"
    assert "opwright.keras run Keras's own" not in done.stderr


@pytest.mark.slow  # It needs the native library.
def test_readme_embedding_looks_up_rows() -> None:
    assert run("embedding").stdout.strip() == "(4, 16)"
