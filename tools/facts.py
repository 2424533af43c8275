"""Writes docs/facts.json: the numbers that pages and tests state, counted in the tree.

Needs neither TensorFlow nor the native library.
"""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "codegen")]

from opwright_codegen import load
from opwright_codegen.left_out import TEST_OPS
from opwright_codegen.model import Op, is_in

DOCS = ROOT / "docs"
OUTPUT = DOCS / "facts.json"


def facts(ops: Iterable[Op]) -> dict[str, int]:
    """Each number by its name. `ops` are the tree's.

    `ops` counts all of them, which have classes. `tensorflow_ops` counts those that the
    newest TensorFlow has that wheels are for.
    """
    ops = list(ops)
    family = runpy.run_path(str(DOCS / "embedding_tables.py"))["FAMILY"]
    embeddings = [op for op in ops if family.search(op.name)]
    return {
        "ops": len(ops),
        "tensorflow_ops": sum(is_in(op, newest_version()) for op in ops),
        "groups": len({op.group for op in ops}),
        "removed_ops": sum(op.deprecation is not None for op in ops),
        "tensorflow_test_ops": len(TEST_OPS),
        "embedding_ops": len(embeddings),
        "embedding_ops_on_cpu": sum(bool(op.kernels) for op in embeddings),
        "embedding_ops_on_gpu": sum(
            ("GPU", "opwright") in op.kernels for op in embeddings
        ),
        "embedding_optimizers": trained_optimizers(),
    }


def newest_version() -> str:
    """The newest TensorFlow that wheels are for, by the Makefile."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    (versions,) = re.findall(r"^VERSIONS \?= (.*)$", makefile, re.MULTILINE)
    return str(versions).split()[-1]


def trained_optimizers() -> int:
    """How many optimizers have a formula, by the table of embedding_ops.md."""
    page = (DOCS / "reference" / "embedding_ops.md").read_text("utf-8")
    table = page.partition("optimizers: begin")[2].partition("optimizers: end")[0]
    rows = re.findall(r"^\| `\w+`.*$", table, re.MULTILINE)
    return sum("| load and retrieve only |" not in row for row in rows)


if __name__ == "__main__":
    counted = facts(load.read(ROOT / "opdefs"))
    OUTPUT.write_text(json.dumps(counted, indent=2) + "\n", "utf-8")
