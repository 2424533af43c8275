"""Builds the site: a page an op, an index by group, the guides, and a search.

    python docs/site/build.py [--output build/site] [--jobs 2]

Pages are made of the opdefs, of the signatures in the generated classes, and of what
the installed TensorFlow says of kernels and gradients. Nothing on them is loaded from
elsewhere; Pagefind makes the search, as files beside them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import facts
import guides
import markup
import pages
import yaml
from layout import HERE, template
from rich.console import Console
from rich.progress import Progress

from opwright_codegen import load

ROOT = HERE.parents[1]
OPDEFS = ROOT / "opdefs"
_CHUNK = 64


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "site")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    console = Console(stderr=True)
    if not (options.output.name and _is_ours(options.output)):
        console.print(f"{options.output} is no site that this has built; not replaced")
        return 2
    began = time.perf_counter()
    options.output.parent.mkdir(parents=True, exist_ok=True)
    # The old site stays until the new one is whole.
    with tempfile.TemporaryDirectory(dir=options.output.parent) as folder:
        site = Path(folder) / "site"
        count = build(site, options.jobs, console)
        if options.output.exists():
            shutil.rmtree(options.output)
        site.rename(options.output)
    seconds = time.perf_counter() - began
    print(f"{options.output}: {count} pages in {seconds:.0f} s; open index.html there")
    return 0


def _is_ours(output: Path) -> bool:
    return not output.exists() or (output / "pagefind").is_dir()


def build(site: Path, jobs: int, console: Console) -> int:
    """Writes every page below `site`; returns how many."""
    paths = load.find(OPDEFS)
    groups: Mapping[str, str] = yaml.safe_load((OPDEFS / "groups.yaml").read_text())[
        "groups"
    ]
    chunks = [paths[at : at + _CHUNK] for at in range(0, len(paths), _CHUNK)]
    written: list[tuple[str, str, str]] = []
    with Progress(console=console) as progress, ProcessPoolExecutor(jobs) as pool:
        task = progress.add_task("pages of ops", total=len(paths))
        for found in pool.map(_write_ops, [site] * len(chunks), chunks):
            written += found
            progress.advance(task, len(found))
        task = progress.add_task("other pages", total=1)
        others = [*_groups(written, groups), *guides.pages(ROOT)]
        for path, page in others:
            _write(site / path, page)
        styles = (HERE / "style.css").read_text("utf-8")
        _write(site / "style.css", f"{styles}\n{markup.highlight_styles()}")
        progress.advance(task)
        task = progress.add_task("search", total=1)
        _index(site)
        progress.advance(task)
    return len(written) + len(others)


def _write_ops(site: Path, paths: Sequence[Path]) -> list[tuple[str, str, str]]:
    """Writes pages of ops: their names, groups and summaries."""
    known = frozenset(map(load.op_name_of, load.find(OPDEFS)))
    layout = template("op.html.jinja")
    written = []
    for path in paths:
        op, problems = load.load_text(path.read_bytes(), path, known)
        if op is None:
            raise SystemExit("\n".join(map(str, problems)))
        page = pages.op_page(op, known, facts.of(op))
        _write(site / page.path, layout.render(page=page, root="../"))
        written.append((op.name, op.group, op.summary or ""))
    return written


def _groups(
    written: Sequence[tuple[str, str, str]], lines: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """The pages that list ops."""
    by_group: dict[str, list[pages.Row]] = {group: [] for group in lines}
    for name, group, summary in sorted(written):
        by_group.setdefault(group, []).append(pages.row(name, summary))
    groups = [
        pages.Group(group, lines.get(group, ""), rows)
        for group, rows in by_group.items()
    ]
    for one in groups:
        yield one.path, template("group.html.jinja").render(group=one, root="../")
    yield "index.html", template("index.html.jinja").render(
        groups=groups, count=len(written), guides=guides.menu(), root=""
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def _index(site: Path) -> None:
    """Has Pagefind make its files."""
    command = [sys.executable, "-m", "pagefind", "--site", str(site), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"pagefind failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    sys.exit(main())
