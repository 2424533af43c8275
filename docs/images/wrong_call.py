"""Draws docs/images/wrong_call.svg: one wrong call, with tf.raw_ops and with opwright.

Both programs are real: one runs until TensorFlow refuses the call, and mypy reads the
other. The picture has their own words. `--check` compares and writes nothing.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

PICTURE = Path(__file__).resolve().parent / "wrong_call.svg"
PREFIX = """\
import tensorflow as tf
from opwright import TFloat32
from opwright.dtypes import cast
from opwright.math import segment_sum

prices = cast([4.0, 2.5, 1.0], TFloat32)
shops = cast([0, 0, 1], TFloat32)
"""
#: The code that the picture shows, and the part of it that is wrong.
RAW = """\
prices = tf.constant([4.0, 2.5, 1.0])
shops = tf.constant([0.0, 0.0, 1.0])

tf.raw_ops.SegmentSum(
    data=prices, segment_ids=shops)
"""
OURS = """\
prices = cast([4.0, 2.5, 1.0], TFloat32)
shops = cast([0, 0, 1], TFloat32)

segment_sum(
    prices, shops)
"""
WRONG = "shops)"
WIDTH, GAP, LINE, PAD, CHAR = 400, 20, 20, 16, 7.85
_STYLE = """
  text { font: 13px ui-monospace, SFMono-Regular, Menlo, monospace; fill: #1f2328;
         white-space: pre }
  .title { font: 600 15px system-ui, sans-serif }
  .ground { fill: #ffffff }
  .when { font: 13px system-ui, sans-serif; fill: #59636e }
  .box { fill: #f6f8fa; stroke: #d1d9e0 }
  .error { fill: #d1242f }
  .wave { stroke: #d1242f; stroke-width: 1.5; fill: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .ground { fill: #0d1117 }
    .when { fill: #9198a1 }
    .box { fill: #151b23; stroke: #3d444d }
    .error { fill: #ff7b72 }
    .wave { stroke: #ff7b72 }
  }
"""


@dataclass(frozen=True)
class Panel:
    """A program, when its mistake shows, and in which words."""

    title: str
    code: str
    when: str
    error: str
    underlined: bool


def run(program: str, *command: str) -> str:
    """What a command says of a program."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.py"
        path.write_text(program, "utf-8")
        done = subprocess.run(
            [sys.executable, *command, str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
    return done.stdout + done.stderr


def panels() -> tuple[Panel, Panel]:
    said = run(f"import tensorflow as tf\n{RAW}")
    error = re.search(r"errors_impl\.(\w+: .*)", said)
    typed = run(PREFIX + OURS.partition("\n\n")[2], "-m", "mypy", "--strict")
    finding = re.search(r"error: (.*?)  \[", typed)
    if error is None or finding is None:
        raise SystemExit(f"the programs are not refused:\n{said}\n{typed}")
    return (
        Panel("tf.raw_ops", RAW, "when it runs:", error[1], False),
        Panel("opwright", OURS, "before it runs, in the editor:", finding[1], True),
    )


def draw(panel: Panel, left: int) -> Iterator[str]:
    """The elements of a panel."""
    code = panel.code.splitlines()
    box = 2 * PAD + LINE * len(code) - 6
    yield f'<text class="title" x="{left}" y="22">{escape(panel.title)}</text>'
    yield (
        f'<rect class="box" x="{left}" y="34" width="{WIDTH}" height="{box}" rx="6"/>'
    )
    for number, line in enumerate(code):
        y = 34 + PAD + 12 + LINE * number
        yield f'<text x="{left + PAD}" y="{y}">{escape(line)}</text>'
        if panel.underlined and WRONG in line:
            start = left + PAD + CHAR * line.index(WRONG)
            waves = "q 2 -3 4 0 t 4 0 " * 5
            yield f'<path class="wave" d="M {start:.1f} {y + 5} {waves.strip()}"/>'
    y = 34 + box + 24
    yield f'<text class="when" x="{left}" y="{y}">{escape(panel.when)}</text>'
    for line in textwrap.wrap(panel.error, 50):
        y += LINE - 2
        yield f'<text class="error" x="{left}" y="{y}">{escape(line)}</text>'


def picture() -> str:
    width, height = 2 * WIDTH + GAP + 2, 250
    both = panels()
    title = "One wrong call, with tf.raw_ops and with opwright"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img">',
        f"<title>{title}</title>",
        f"<style>{_STYLE}</style>",
        '<rect class="ground" width="100%" height="100%"/>',
    ]
    for panel, left in zip(both, (1, WIDTH + GAP + 1), strict=True):
        parts += draw(panel, left)
    return "\n".join([*parts, "</svg>", ""])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="exit with 1 if it differs"
    )
    check = parser.parse_args().check
    drawn = picture()
    same = PICTURE.exists() and PICTURE.read_text("utf-8") == drawn
    if not same and not check:
        PICTURE.write_text(drawn, "utf-8")
    return 1 if check and not same else 0


if __name__ == "__main__":
    sys.exit(main())
