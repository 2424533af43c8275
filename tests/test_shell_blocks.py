"""Commands on pages: their options exist, and those that need no file run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from opwright_codegen import cli as codegen_cli
from opwright_runtime import cli, convert_cli
from opwright_runtime.tpu_check import cli as tpu_check_cli
from support import pages
from support.places import ROOT, environment

PARSERS = {
    "opwright": cli._parser,
    "opwright-codegen": codegen_cli._parser,
    "opwright-convert": convert_cli._parser,
    "opwright-tpu-check": tpu_check_cli._parser,
}
README = ROOT / "README.md"
TABLES = (README, ROOT / "docs/how-to/tpu.md")


def lines(page: Path) -> list[str]:
    """The lines of the shell blocks of a page."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    return "".join(blocks).replace("\\\n", " ").splitlines()


def commands(page: Path) -> list[str]:
    """The commands of opwright in shell blocks, and those in tables of a page."""
    found = [line for line in lines(page) if re.match(r"opwright[\w-]* ", line)]
    if page in TABLES:
        rows = re.findall(r"^\|.*$", page.read_text("utf-8"), re.MULTILINE)
        found += re.findall(r"`(opwright(?:-\w+)* [^`]+)`", "".join(rows))
    return found


COMMANDS = [
    pytest.param(command, id=f"{page.stem}_{number}")
    for page in (README, *pages.PAGES)
    for number, command in enumerate(commands(page), 1)
]


@pytest.mark.parametrize("command", COMMANDS)
def test_page_command_has_known_options(command: str) -> None:
    program, *arguments = shlex.split(command, comments=True)
    PARSERS[program]().parse_args(arguments)


#: By page: a line of a shell block, and what it prints.
PRINTED = {
    "docs/how-to/cudnn_lstm.md": [("python -c", "<Kernel CPU, ")],
    "docs/how-to/guide.md": [("opwright search running total", "Cumsum ")],
    "docs/how-to/troubleshooting.md": [
        ('python -c "import opwright, tensorflow', "2."),
        ('python -c "import opwright; print(opwright.native', "libopwright.so"),
    ],
    "docs/how-to/upgrade.md": [("opwright-codegen diff 2.20 2.21", "DecodeJxl")],
    "docs/reference/environment.md": [("OPWRIGHT_ISA=portable", "portable\n")],
    "docs/tutorials/first_graph.md": [
        ('opwright search "count', "Bincount "),
        ('opwright search "largest', "TopKV2 "),
    ],
}
LINES = [
    pytest.param(page, *each, id=f"{Path(page).stem}_{number}")
    for page, rows in PRINTED.items()
    for number, each in enumerate(rows, 1)
]


@pytest.mark.rotating
@pytest.mark.parametrize(("page", "start", "printed"), LINES)
def test_page_command_prints_what_the_page_says(
    page: str, start: str, printed: str, tmp_path: Path
) -> None:
    (line,) = [one for one in lines(ROOT / page) if one.startswith(start)]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line],
        env={**environment(), "PATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert printed in done.stdout, done.stderr


OLD_PROGRAM = """import os
import tensorflow as tf

total = tf.raw_ops.MatMul(a=[[1.0]], b=[[2.0]]) + tf.raw_ops.Sum(input=[3.0], axis=0)
assert int(tf.squeeze(total)) == 5
assert "opwright" in tf.raw_ops.MatMul.__code__.co_filename
"""


@pytest.mark.rotating
def test_page_on_raw_ops_ports_a_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(OLD_PROGRAM, "utf-8")
    port = [
        line
        for line in lines(ROOT / "docs/how-to/raw_ops.md")
        if line.startswith("sed ")
    ]
    subprocess.run(["bash", "-c", "\n".join(port)], cwd=tmp_path, check=True)
    ported = program.read_text("utf-8")
    assert "tf.raw_ops" not in ported
    assert ported.count("from opwright import raw_ops") == 1
    subprocess.run(
        [sys.executable, str(program)], env=environment(), cwd=tmp_path, check=True
    )
