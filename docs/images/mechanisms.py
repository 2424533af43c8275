"""Draws the figures of how opwright works: boxes, and arrows between them.

`--check` compares the pictures with those in this folder, and writes nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LINE, PAD, MARGIN = 17, 10, 8
_STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328; text-anchor: middle }
  .title { font-weight: 600 }
  .ground { fill: #ffffff }
  .label { fill: #59636e; font-size: 12px }
  .aside { text-anchor: start }
  .box { fill: #f6f8fa; stroke: #d1d9e0 }
  .data { fill: #ddf4ff; stroke: #54aeff }
  .arrow { stroke: #59636e; stroke-width: 1.3; fill: none }
  .head { fill: #59636e }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .ground { fill: #0d1117 }
    .label, .head { fill: #9198a1 }
    .box { fill: #151b23; stroke: #3d444d }
    .data { fill: #121d2f; stroke: #1f6feb }
    .arrow { stroke: #9198a1 }
  }
"""


@dataclass(frozen=True)
class Box:
    """A part in a column, over a row and further ones. Its text begins with a title."""

    column: float
    row: float
    text: str
    further: float = 0
    kind: str = "box"


@dataclass(frozen=True)
class Arrow:
    """Between two named boxes: at a height in rows, or from their centres."""

    start: str
    end: str
    label: str = ""
    row: float | None = None


@dataclass(frozen=True)
class Figure:
    """Boxes by name, and arrows. Sizes are in pixels."""

    title: str
    boxes: dict[str, Box]
    arrows: tuple[Arrow, ...]
    box_width: int = 180
    column: int = 270
    row: int = 88


@dataclass(frozen=True)
class Place:
    """Where a box is drawn: its edges and its centre."""

    left: float
    top: float
    right: float
    bottom: float
    x: float
    y: float


def place(figure: Figure, box: Box) -> Place:
    height = LINE * len(box.text.split("\n")) + 2 * PAD + figure.row * box.further
    left, top = MARGIN + figure.column * box.column, MARGIN + figure.row * box.row
    right, bottom = left + figure.box_width, top + height
    return Place(left, top, right, bottom, (left + right) / 2, (top + bottom) / 2)


def route(figure: Figure, arrow: Arrow) -> list[tuple[float, float]]:
    """The corners of an arrow: a line, or an elbow whose upright part is outermost."""
    start, end = (place(figure, figure.boxes[one]) for one in (arrow.start, arrow.end))
    out, into = (start.right, end.left) if start.x < end.x else (start.left, end.right)
    if arrow.row is not None:
        y = MARGIN + figure.row * arrow.row
        return [(out, y), (into, y)]
    if start.x == end.x:
        return [(start.x, start.bottom), (end.x, end.top)]
    if start.y < end.y:
        return [(start.x, start.bottom), (start.x, end.y), (into, end.y)]
    if start.y > end.y:
        return [(out, start.y), (end.x, start.y), (end.x, end.bottom)]
    return [(out, start.y), (into, end.y)]


def draw_arrow(figure: Figure, arrow: Arrow) -> Iterator[str]:
    corners = route(figure, arrow)
    points = " L ".join(f"{x:g} {y:g}" for x, y in corners)
    yield f'<path class="arrow" marker-end="url(#head)" d="M {points}"/>'
    level = [(a, b) for a, b in pairwise(corners) if a[1] == b[1]]
    if level:
        (x, y), (to, _) = level[0]
        where = f'class="label" x="{(x + to) / 2:g}" y="{y - 6:g}"'
    else:
        (x, y), (_, to) = corners
        where = f'class="label aside" x="{x + 8:g}" y="{(y + to) / 2 + 2:g}"'
    if arrow.label:
        yield f"<text {where}>{escape(arrow.label)}</text>"


def draw_box(figure: Figure, box: Box) -> Iterator[str]:
    at = place(figure, box)
    yield (
        f'<rect class="{box.kind}" x="{at.left:g}" y="{at.top:g}" '
        f'width="{at.right - at.left:g}" height="{at.bottom - at.top:g}" rx="6"/>'
    )
    for number, line in enumerate(box.text.split("\n")):
        style = "label" if number else "title"
        y = at.top + PAD + LINE * number + 13
        yield f'<text class="{style}" x="{at.x:g}" y="{y:g}">{escape(line)}</text>'


def picture(figure: Figure) -> str:
    places = [place(figure, box) for box in figure.boxes.values()]
    width = max(at.right for at in places) + MARGIN
    height = max(at.bottom for at in places) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" height="{height:g}" role="img">',
        f"<title>{escape(figure.title)}</title>",
        f"<style>{_STYLE}</style>",
        '<rect class="ground" width="100%" height="100%"/>',
        '<marker id="head" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path class="head" d="M 0 0 L 8 4 L 0 8 z"/>'
        "</marker>",
    ]
    for box in figure.boxes.values():
        parts += draw_box(figure, box)
    for arrow in figure.arrows:
        parts += draw_arrow(figure, arrow)
    return "\n".join([*parts, "</svg>", ""])


FIGURES = {
    "call": Figure(
        "What a call of an op does",
        {
            "call": Box(0, 0, "create, function\nof an op"),
            "fast": Box(1, 0, "execute\nTensorFlow's fast path"),
            "done": Box(2, 0, "outputs\ntensors", kind="data"),
            "build": Box(1, 1, "_build, _call\nconverts, or adds a node"),
            "why": Box(1, 2, "diagnosis\nraises an OpError"),
        },
        (
            Arrow("call", "fast", "eager"),
            Arrow("fast", "done"),
            Arrow("call", "build", "in a graph"),
            Arrow("fast", "build", "exception"),
            Arrow("build", "done", "retried, or built"),
            Arrow("build", "why", "refused"),
        ),
    ),
    "embedding_step": Figure(
        "A step of TPU embeddings, from enqueue to the updated table",
        {
            "program": Box(0, 0, "program\na tf.function", 2.5),
            "ops": Box(1, 0, "ops\ncheck arguments", 2.5),
            "engine": Box(2, 0, "engine\norders the work", 2.5),
            "tables": Box(3, 0, "tables\non a CPU or GPU", 2.5, kind="data"),
        },
        (
            Arrow("program", "ops", "enqueue: ids", 0.9),
            Arrow("ops", "engine", "copied batch", 0.9),
            Arrow("engine", "tables", "early lookup", 0.9),
            Arrow("program", "ops", "dequeue", 1.5),
            Arrow("ops", "engine", "continuation", 1.5),
            Arrow("engine", "tables", "lookup, if stale", 1.5),
            Arrow("tables", "engine", "rows", 2.0),
            Arrow("engine", "ops", "activations", 2.0),
            Arrow("ops", "program", "activations", 2.0),
            Arrow("program", "ops", "gradients", 2.6),
            Arrow("ops", "engine", "if finite", 2.6),
            Arrow("engine", "tables", "one update", 2.6),
        ),
        box_width=116,
        column=222,
    ),
    "hosts": Figure(
        "Tables that two hosts share: what a step sends for the batch of host A",
        {
            "A": Box(0, 0, "host A\nits batch: ids 4, 7, 9", 2.1),
            "B": Box(1, 0, "host B\nreceives ids 7, 9", 2.1),
            "rows of A": Box(0, 3.1, "rows 0 to 4\nshard of host A", kind="data"),
            "rows of B": Box(1, 3.1, "rows 5 to 9\nshard of host B", kind="data"),
        },
        (
            Arrow("A", "B", "1. counts of ids", 0.9),
            Arrow("A", "B", "2. ids 7, 9", 1.4),
            Arrow("B", "A", "3. rows 7, 9, or sums of them", 1.9),
            Arrow("A", "B", "4. gradients, learning rates", 2.4),
            Arrow("A", "rows of A", "row 4"),
            Arrow("B", "rows of B", "rows 7, 9"),
        ),
        column=440,
    ),
    "wheel": Figure(
        "What is in a wheel, and where it comes from",
        {
            "opdefs": Box(0, 0, "opdefs/\none YAML file an op"),
            "codegen": Box(0, 1, "codegen/\nthe generator"),
            "runtime": Box(0, 2, "runtime/\nPython"),
            "native": Box(0, 3, "runtime/native/\nC++"),
            "opwright": Box(1, 0, "opwright/\nclasses, functions", kind="data"),
            "generator": Box(1, 1, "opwright_codegen/\nwith the opdefs", kind="data"),
            "Python": Box(1, 2, "opwright_runtime/\nopwright_notation/", kind="data"),
            "library": Box(
                1, 3, "opwright_runtime/\n_lib/2.21/libopwright.so", kind="data"
            ),
            "wheel": Box(
                2, 0, "wheel 0.1.0\nfor each TensorFlow\nand each Python", 2.8
            ),
        },
        (
            Arrow("opdefs", "opwright", "make ops"),
            Arrow("codegen", "generator"),
            Arrow("runtime", "Python"),
            Arrow("native", "library", "make native"),
            Arrow("opwright", "wheel", row=0.3),
            Arrow("generator", "wheel", row=1.3),
            Arrow("Python", "wheel", row=2.3),
            Arrow("library", "wheel", row=3.3),
        ),
    ),
}


def main() -> int:
    check = sys.argv[1:] == ["--check"]
    drawn = {FOLDER / f"{name}.svg": picture(one) for name, one in FIGURES.items()}
    stale = [p for p in drawn if not p.exists() or p.read_text("utf-8") != drawn[p]]
    for path in () if check else stale:
        path.write_text(drawn[path], "utf-8")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
