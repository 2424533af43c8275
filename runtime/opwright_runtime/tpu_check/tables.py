"""A report as tables for people."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from opwright_runtime.tpu_check.findings import (
    CHIPS,
    Blocker,
    Comparison,
    Compilation,
    Findings,
)

# The width for files and pipes. The rows below fit into it.
WIDTH = 100

_SHOWN = 8


def text(report: Findings) -> str:
    """The report as plain text."""
    file = StringIO()
    for part in _parts(report):
        # Tables are as wide as they need, because a broken name cannot be searched for.
        unbroken = (
            isinstance(part, Table) and Console(width=10**4).measure(part).maximum
        )
        console = Console(file=file, width=max(WIDTH, unbroken), color_system=None)
        console.print(part)
    lines = file.getvalue().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def render(report: Findings, width: int) -> RenderableType:
    """The report for a `rich` console of a width.

    A table that is too wide becomes a list, because a broken name cannot be searched
    for. Print it with `crop=False`.
    """
    return Group(*(_fitting(part, width) for part in _parts(report)))


def _fitting(part: RenderableType, width: int) -> RenderableType:
    if not isinstance(part, Table):
        return part
    if Console(width=10**4).measure(part).maximum <= width:
        return part
    columns = [list(column.cells) for column in part.columns]
    headers = [str(column.header) for column in part.columns]
    lines = []
    for row in zip(*columns, strict=True):
        for header, cell in zip(headers, row, strict=True):
            text = cell if isinstance(cell, Text) else Text(str(cell))
            if text.plain:
                lines.append(Text.assemble((f"{header}: ", "bold"), text))
        lines.append(Text(""))
    listed = Text("\n").join(lines[:-1])
    listed.no_wrap, listed.overflow = True, "ignore"
    return listed


def _parts(report: Findings) -> Iterator[RenderableType]:
    yield Text.assemble((report.program, "bold"), " ", _verdict(report))

    if report.arguments:
        yield ""
        yield _arguments(report)
    if report.blockers:
        yield ""
        yield _blockers(report.blockers)
        yield from _remedies(report.blockers)
    compiled = [each for each in report.compilations if each.compiles]
    if compiled:
        yield ""
        yield _compilations(compiled)
    if report.comparison is not None:
        yield ""
        yield from map(Text, _comparison(report.comparison))
    for output in report.padded_outputs:
        yield ""
        yield Text(
            f"Values decide the size of output {output.name}: XLA pads it to"
            f" {output.dtype}{list(output.bound)}, whatever part of that is used"
        )
    for each in report.compilations:
        if each.error is not None:
            yield ""
            yield Text.assemble((each.chip, "bold"), ": ", each.error.strip())
        if each.remedy is not None:
            yield Text(f"To write instead: {each.remedy}")


def _comparison(found: Comparison) -> Iterator[str]:
    modes = _and(list(found.errors))
    failed = {mode: error for mode, error in found.errors.items() if error is not None}
    others = [mode for mode in found.errors if mode not in failed]
    for mode, error in failed.items():
        yield f"{mode} refuses the input: {error}"
    if failed and others:
        yield f"But not {_and(others)}: check the input before the program"
    if (one := found.difference) is not None:
        place = f" ({one.where})" if one.where else ""
        yield (
            f"{one.modes[0]} and {one.modes[1]} differ, first in {one.op}"
            f" {one.name}{place}: by {one.error:.3g}, and {one.allowed:.3g} is allowed"
        )
        if one.code:
            yield f"  {one.code}"
    if found.agrees and not failed:
        yield f"The same values in {modes}"
    if found.random_outputs:
        yield f"Not compared, because random: {found.random_outputs} outputs"


def _verdict(report: Findings) -> tuple[str, str]:
    """The headline after the program's name, and its style."""
    if report.blockers:
        asked = f" (asked for {_and([*report.chips])})" if report.chips else ""
        return f"does not compile for any TPU{asked}", "red"
    rows = report.compilations
    late = [each.chip for each in rows if each.timed_out]
    compiled = [each.chip for each in rows if each.compiles]
    refused = [each.chip for each in rows if not each.compiles and not each.timed_out]
    parts = []
    if refused:
        parts.append(f"does not compile for {_and(refused)}")
    elif compiled:
        parts.append(f"compiles for {_and(compiled)}")
    if late:
        parts.append(f"not known for {_and(late)} (timed out)")
    style = "red" if refused else "yellow" if late else "green"
    return "; ".join(parts), style


def _arguments(report: Findings) -> Table:
    table = _table()
    table.add_column("argument", overflow="fold")
    table.add_column("kind")
    table.add_column("dtype")
    table.add_column("shape")
    table.add_column("size", justify="right")
    rows = report.arguments
    if len(rows) > _SHOWN:
        # The table shows only the largest arguments. The report has all of them.
        rows = tuple(sorted(rows, key=lambda row: -row.bytes)[: _SHOWN - 1])
    for row in rows:
        shape = "x".join(map(str, row.shape)) or "scalar"
        table.add_row(Text(row.name), row.kind, row.dtype, shape, size(row.bytes))
    if rows is not report.arguments:
        rest = sum(row.bytes for row in report.arguments) - sum(r.bytes for r in rows)
        more = len(report.arguments) - len(rows)
        table.add_row(f"{more} smaller ones", "", "", "", size(rest))
    return table


def _blockers(blockers: tuple[Blocker, ...]) -> Table:
    table = _table()
    for header in ("op", "name"):
        table.add_column(header, overflow="fold")
    table.add_column("why", overflow="fold", max_width=45)
    table.add_column("where", overflow="fold")
    for each in blockers:
        where = Text(each.where or "")
        if each.code:
            where.append(f"\n  {each.code}", "dim")
        table.add_row(Text(each.op), Text(each.name), Text(_why(each)), where)
    return table


def _why(blocker: Blocker) -> str:
    """The reason, with the arguments and dtypes that it leaves out."""
    if blocker.cause != "dtype":
        return blocker.reason
    of = ", ".join(f"`{name}`" for name in blocker.arguments)
    others = ", ".join(blocker.dtypes)
    return "".join(
        [
            blocker.reason,
            f", of {of}" if of else "",
            f"; it has {others}" if others else "",
        ]
    )


def _remedies(blockers: tuple[Blocker, ...]) -> Iterator[RenderableType]:
    """What to write instead, a line for each remedy, with the ops that it is for."""
    ops: dict[str, dict[str, None]] = {}
    for each in blockers:
        if each.remedy is not None:
            # In its lower case the kind of an argument, which has a name.
            name = f"{each.op} {each.name}" if each.op.islower() else each.op
            ops.setdefault(each.remedy, {})[name or "it"] = None
    if ops:
        yield ""
    for remedy, names in ops.items():
        yield Text(f"Instead of {', '.join(names)}: {remedy}")


def _compilations(compilations: list[Compilation]) -> Table:
    table = _table()
    table.add_column("chip")
    for header in (
        "memory",
        "arguments",
        "outputs",
        "in place",
        "temporaries",
        "code",
        "FLOPs",
        "accessed",
        "took",
    ):
        table.add_column(header, justify="right")
    for each in compilations:
        table.add_row(
            each.chip,
            size(CHIPS[each.chip].hbm),
            size(each.argument_bytes),
            size(each.output_bytes),
            size(each.alias_bytes),
            size(each.temporary_bytes),
            size(each.code_bytes),
            count(each.flops),
            size(each.bytes_accessed),
            f"{each.seconds:.1f} s",
        )
    return table


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)


def size(number: float | None) -> str:
    """A number of bytes in a suitable unit."""
    return _scaled(number, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def count(number: float | None) -> str:
    """A count in a suitable unit: thousands, millions, ..."""
    return _scaled(number, 1000, ("", "k", "M", "G", "T", "P"))


def _scaled(number: float | None, step: int, units: tuple[str, ...]) -> str:
    # XLA returns -1 for a number that it cannot estimate.
    if number is None or number < 0:
        return "unknown"
    power = 0
    while number >= step and power + 1 < len(units):
        number /= step
        power += 1
    digits = f"{number:.1f}".removesuffix(".0") if number < 100 else f"{number:.0f}"
    return f"{digits} {units[power]}".rstrip()


def _and(words: list[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
