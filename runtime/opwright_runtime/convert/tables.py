"""Reports as tables for people."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from io import StringIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from opwright_runtime.convert.outcome import REFUSED, Conversion, Tried
from opwright_runtime.convert.rewrite import Found

# The width for files and pipes.
WIDTH = 100

_SHOWN = 12


def text(report: Conversion) -> str:
    """A report as plain text."""
    return _text(render(report))


def findings_text(findings: Tried) -> str:
    """The outcome of a check as plain text."""
    return _text(render_findings(findings))


def _text(renderable: RenderableType) -> str:
    file = StringIO()
    Console(file=file, width=WIDTH, color_system=None).print(renderable, crop=False)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def render(report: Conversion) -> RenderableType:
    """A report for a `rich` console."""
    return Group(*_parts(report))


def _parts(report: Conversion) -> Iterator[RenderableType]:
    yield Text.assemble(
        (report.source, "bold"), " -> ", (report.target, "bold"), f" ({report.format})"
    )
    if report.found:
        yield ""
        yield _found(report.found, "became")
    yield ""
    yield _numbers(report)
    for note in report.notes:
        yield Text(f"note: {note}")


def _found(found: tuple[Found, ...], became_title: str) -> Table:
    table = _table("op", "layers", became_title, "source nodes")
    counted = Counter((one.op, one.layers, one.became) for one in found)
    for (op, layers, became), count in [*counted.items()][:_SHOWN]:
        table.add_row(op, layers, became, str(count))
    if len(counted) > _SHOWN:
        table.add_row(f"and {len(counted) - _SHOWN} more", "", "", "")
    return table


def _numbers(report: Conversion) -> Table:
    table = _table("", "source", "result")
    table.add_row("size", _size(report.source_bytes), _size(report.result_bytes))
    for name, one in report.comparisons.items():
        times = [f"{ms:.2f} ms" for ms in (one.source_ms, one.result_ms)]
        table.add_row(f"a call of {name} on this machine", *times)
        table.add_row(
            "largest difference",
            f"values up to {one.scale:.2g}",
            f"{one.difference:.2g} (allowed: {one.allowed:.2g}, {one.calls} calls)",
        )
    if not report.comparisons:
        table.add_row("largest difference", "", "not compared")
    return table


def render_findings(findings: Tried) -> RenderableType:
    """The outcome of a check for a `rich` console."""
    table = _table("runtime", "ops that it lacks")
    # A command can be copied if it is in one line.
    table.add_column("conversion", no_wrap=True)
    for one in findings.verdicts:
        barred = ", ".join(f"{op} ({count})" for op, count in one.barred.items())
        verdict = (
            Text(f"yes: opwright-convert {one.command} MODEL TARGET", "green")
            if one.works
            else Text(REFUSED, "red")
        )
        table.add_row(one.runtime, barred or "none that are known here", verdict)
    head = Text.assemble((findings.source, "bold"), f": {findings.ops:,} nodes")
    parts: list[RenderableType] = [head, ""]
    if findings.found:
        parts += [_found(findings.found, "becomes"), ""]
    parts.append(table)
    if findings.others:
        parts.append(
            "recurrent nodes that no call of the signatures runs, such as those of "
            f"other functions or of gradients: {findings.others}"
        )
    for one in findings.verdicts:
        if not one.works:
            parts.append(_paragraph(f"{one.runtime}: refused: {one.refusal}"))
    return Group(*parts)


def _paragraph(text: str) -> Text:
    """A text in lines that break between words alone, so that names can be copied."""
    lines = textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return Text("\n".join(lines), "red", no_wrap=True, overflow="ignore")


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _size(count: float) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
