"""docs/*/embedding*.md: their programs run, and their tables state the facts."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from embedding.support.hosts import free_ports
from opwright import OpError, op_names, tpu
from opwright_runtime import native
from opwright_runtime.kernels import kernels
from support import pages
from support.facts import FACTS
from support.places import ROOT, environment
from support.processes import run_code

PROGRAMS = [
    pytest.param(program, id=f"{page.stem}_{number}")
    for page in pages.PAGES
    if page.stem.startswith("embedding")
    for number, program in enumerate(pages.programs(page), 1)
]
PAGE = (ROOT / "docs/reference/embedding_ops.md").read_text("utf-8")
STEPS = (ROOT / "docs/explanation/embedding_steps.md").read_text("utf-8")
#: A program of several hosts, which begins with lines of a page.
HOST = """\
import tensorflow as tf
from opwright import tpu

{lines}

@tf.function
def count():
    def one():
        context = tf.distribute.get_replica_context()
        return context.all_reduce("sum", tf.ones([]))

    return strategy.run(one)

# The line is one write, because both hosts share a pipe.
print(f"host {{resolver.task_id}} counts {{int(count())}}\\n", end="", flush=True)
"""
TABLES = runpy.run_path(str(ROOT / "docs/embedding_tables.py"))


@pytest.mark.rotating
@pytest.mark.parametrize("program", PROGRAMS)
def test_page_program_runs(program: str, tmp_path: Path) -> None:
    done = run_code(program.replace("/tmp/", f"{tmp_path}/"))
    assert done.returncode == 0, done.stderr


@pytest.mark.rotating
def test_hosts_page_shell_starts_two_hosts(tmp_path: Path) -> None:
    """The shell block runs a program that begins with the lines of the page."""
    page = (ROOT / "docs/how-to/embedding_hosts.md").read_text("utf-8")
    (lines,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    (shell,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    for shown, free in zip(("23411", "23412"), free_ports(2), strict=True):
        assert shown in shell
        shell = shell.replace(shown, str(free))
    (tmp_path / "train.py").write_text(HOST.format(lines=lines), "utf-8")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", shell],
        env={**environment(), "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    counted = sorted(re.findall(r"^host \d counts .*$", done.stdout, re.MULTILINE))
    assert counted == ["host 0 counts 2", "host 1 counts 2"], done.stderr


def test_embedding_config_error_is_shown_on_page() -> None:
    (shown,) = re.findall(r"```text\n(.*?)\n```", STEPS, re.DOTALL)
    sgd = tf.tpu.experimental.embedding.SGD()
    with pytest.raises(OpError) as raised:
        tpu.EmbeddingConfig([tpu.EmbeddingTable("films", 1000, 0, sgd)])
    assert str(raised.value) == shown


@pytest.mark.rotating
def test_page_tables_are_current() -> None:
    renewed: Callable[[str], str] = TABLES["renewed"]
    assert renewed(PAGE) == PAGE, "run docs/embedding_tables.py"


def test_op_table_lists_every_embedding_op() -> None:
    """By the registry: those that run here do, and the others say why they do not."""
    section = PAGE.partition("ops: begin")[2].partition("ops: end")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", section, re.MULTILINE))
    family = TABLES["FAMILY"]
    expected = {name for name in op_names() if family.search(name)}
    # Without it a pattern that matches less would shorten the table unseen.
    assert {name for name in op_names() if "TPUEmbedding" in name} < expected
    assert {
        name for name in op_names() if "Sparse" in name and "Xla" in name
    } < expected
    assert set(rows) == expected
    assert len(rows) == FACTS["embedding_ops"]
    # The page is about builds with CUDA as well.
    missing = set() if native.cuda() else {"GPU"}
    for name, runs in rows.items():
        ours = {row.device for row in kernels(name) if row.provider == "opwright"}
        if ours:
            assert set(runs.removeprefix("here: ").split(", ")) - missing == ours
        else:
            assert re.match(r"TPU only: \w.{20}", runs), name


def test_optimizer_table_lists_every_message_field() -> None:
    descriptor: Any = tpu.TPUEmbeddingConfiguration.TableDescriptor.DESCRIPTOR
    parameters = descriptor.fields_by_name["optimization_parameters"].message_type
    fields = [one.name for one in parameters.oneofs_by_name["parameters"].fields]
    section = PAGE.partition("optimizers: begin")[2].partition("optimizers: end")[0]
    found = re.findall(r"^\| `(\w+)`", section, re.MULTILINE)
    assert len(set(found)) == len(found)
    # Optimizers without a field are named programs.
    assert set(fields) <= set(found)
