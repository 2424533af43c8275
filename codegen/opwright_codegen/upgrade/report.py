"""Writes the report of an upgrade: Markdown, for the terminal and a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opwright_codegen.problems import Problem, one_line
from opwright_codegen.upgrade.steps import Done

#: What the sections of the report say of the lines of a step, by the step's name.
_SECTIONS = {
    "changes": "What is different for users",
    "dropped": "Opdefs with a mark for what is dropped",
    "facts": "Imported opdefs",
    "dates": "Opdefs with a mark for what is new",
    "stubs": "Opdefs with new stubs",
}
#: How many lines of a step the report has at most.
_MOST = 200


@dataclass(frozen=True)
class Left:
    """What is left for a person.

    `stubs`: the texts to write. `homeless`: opdefs of new ops for which the import
    knows no group.
    """

    stubs: tuple[Problem, ...] = ()
    homeless: tuple[Path, ...] = ()


def text(
    version: str,
    done: Sequence[Done],
    failure: Sequence[str],
    left: Left,
    total: float,
) -> str:
    """The report as Markdown.

    Args:
      version: the version of TensorFlow.
      done: the finished steps.
      failure: why a step failed, and what to do; empty if none did.
      left: what is left for a person.
      total: how long the run took, in seconds.
    """
    rows = [f"# Upgrade to TensorFlow {version}", ""]
    rows += ["| step | result | time |", "|---|---|---|"]
    for one in done:
        cell = one_line(one.result.summary).replace("|", "\\|")
        rows.append(f"| {one.step.name} | {cell} | {seconds(one)} |")
    rows += ["", f"The run took {total:.1f} s.", ""]
    if failure:
        rows += ["## Failed", "", "```", *map(one_line, failure), "```", ""]
    for one in done:
        title = _SECTIONS.get(one.step.name)
        if title is not None and one.result.lines:
            rows += [f"## {title}", ""]
            lines = one.result.lines
            rows += [f"- `{one_line(line)}`" for line in lines[:_MOST]]
            if len(lines) > _MOST:
                rows.append(f"- and {len(lines) - _MOST:,} more, which the log has")
            rows.append("")
    rows += ["## To do", ""]
    for number, (task, items) in enumerate(_tasks(left, failed=bool(failure)), 1):
        rows.append(f"{number}. {task}")
        rows += [f"   - `{one_line(item)}`" for item in items]
    return "\n".join(rows) + "\n"


def _tasks(left: Left, *, failed: bool) -> Iterator[tuple[str, list[str]]]:
    """What is left to do: sentences, each with a list."""
    if failed:
        yield "Do what the section above says, and run the command again.", []
        return
    if left.homeless:
        task = "Choose the group of each new op: move its opdef, and change `group`."
        yield task, [*map(str, left.homeless)]
    if left.stubs:
        files = len({stub.path for stub in left.stubs})
        task = (
            f"Write the {count(len(left.stubs), 'text')} that {_is(left.stubs)} `TODO`,"
            f" in {count(files, 'opdef')}. opdefs/WRITING.md says how."
            " `opwright-codegen lint` lists those that are left."
        )
        yield task, [f"{one.path}:{one.line}: {one.message}" for one in left.stubs]
        yield "Run the command again: it generates the classes and runs the tests.", []
    yield "Read `git diff --text`. Run `make ops docs tpu-ops`, then `make test`.", []
    yield "Follow the rest of the recipe in CONTRIBUTING.md.", []


def _is(stubs: Sequence[Problem]) -> str:
    return "is" if len(stubs) == 1 else "are"


def show(markdown: str) -> None:
    """Prints the report: laid out on a terminal, as it is elsewhere."""
    if not sys.stdout.isatty():
        sys.stdout.write(markdown)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console().print(Markdown(markdown))


def seconds(one: Done) -> str:
    """How long a step took."""
    took = f"{one.seconds:.1f} s"
    return took if one.ran else f"finished before, in {took}"


def count(number: int, what: str) -> str:
    """`1 op`, `2 ops`."""
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
