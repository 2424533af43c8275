"""A Sphinx extension: writes a page for each op and each group before Sphinx reads.

The pages are MyST in `ops/` and `groups/` below the folder of sources. They are made
of the opdefs, of the signatures in the generated classes, and of what the installed
TensorFlow says of kernels and gradients. A page that did not change keeps its time, so
that Sphinx builds it once.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import markup
import yaml
from sphinx.errors import ExtensionError
from sphinx.util.display import status_iterator

from opwright_codegen import load

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from view import Row

HERE = Path(__file__).resolve().parent
OPDEFS = HERE.parents[1] / "opdefs"
#: Pages that a process writes at a time.
_CHUNK = 32


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_pages(app: Sphinx) -> None:
    """Writes every page, and removes those of ops and groups that are gone."""
    sources = Path(app.srcdir)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    paths = load.find(OPDEFS)
    chunks = [paths[at : at + _CHUNK] for at in range(0, len(paths), _CHUNK)]
    rows: list[Row] = []
    # TensorFlow is imported in these processes only: Sphinx forks its own.
    with ProcessPoolExecutor(app.parallel) as pool:
        found = pool.map(_write_ops, [sources] * len(chunks), chunks)
        said = "writing pages of ops... "
        for written in status_iterator(found, said, "purple", len(chunks)):
            rows += written
    pages = {Path(row.file) for row in rows} | _write_groups(sources, rows)
    for folder in ("ops", "groups"):
        for stale in {*(sources / folder).iterdir()} - {sources / p for p in pages}:
            stale.unlink()


def _write_ops(sources: Path, paths: Sequence[Path]) -> list[Row]:
    """Writes pages of ops; returns what lists say of them."""
    import facts
    import view

    groups = {load.op_name_of(path): path.parent.name for path in load.find(OPDEFS)}
    rows = []
    for path in paths:
        op, problems = load.load_text(path.read_bytes(), path, frozenset(groups))
        if op is None:
            raise ExtensionError("\n".join(map(str, problems)))
        row = view.row(op)
        page = view.op_page(op, groups, facts.of(op))
        _write(sources / row.file, _template("op.md.jinja").render(page=page))
        rows.append(row)
    return rows


def _write_groups(sources: Path, rows: Sequence[Row]) -> set[Path]:
    """Writes the pages that list ops; returns their files."""
    lines: Mapping[str, str] = yaml.safe_load((OPDEFS / "groups.yaml").read_text())[
        "groups"
    ]
    by_group: dict[str, list[Row]] = {group: [] for group in lines}
    for row in rows:
        by_group.setdefault(row.group, []).append(row)
    layout = _template("group.md.jinja")
    for group, ops in by_group.items():
        text = layout.render(name=group, line=lines.get(group, ""), rows=ops)
        _write(sources / "groups" / f"{group}.md", text)
    text = _template("groups.md.jinja").render(groups=by_group, lines=lines)
    _write(sources / "groups" / "index.md", text)
    return {Path("groups", f"{name}.md") for name in (*by_group, "index")}


def _write(path: Path, text: str) -> None:
    """Writes a file, unless it has this text."""
    content = text.encode()
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)


@cache
def _template(name: str) -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["text"] = markup.escape
    return environment.get_template(name)
