"""The site: a page for every op, well-formed HTML, no broken link."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import opwright
from support.facts import FACTS
from support.places import ROOT

#: Elements without an end.
VOID = {"br", "hr", "img", "input", "link", "meta", "col", "wbr"}


class Page(HTMLParser):
    """The links, ids and mistakes of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.ids: list[str] = []
        self.wrong: list[str] = []
        self.titles = 0
        self.feed(text)
        self.close()
        if self.open:
            self.wrong.append(f"not closed: {self.open}")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        facts = {name: value or "" for name, value in attrs}
        if tag not in VOID:
            self.open.append(tag)
        if "id" in facts:
            self.ids.append(facts["id"])
        for name in ("href", "src"):
            if name in facts:
                self.links.append((tag, facts[name]))
        if tag == "img" and "alt" not in facts:
            self.wrong.append("an image without words")
        self.titles += tag == "h1"

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> closes nothing, line {self.getpos()[0]}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("built") / "site"
    command = [
        sys.executable,
        str(ROOT / "docs/site/build.py"),
        "--output",
        str(output),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\d+ pages in \d+ s", done.stdout)
    return output


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    found = {
        path.relative_to(site).as_posix(): Page(path.read_text("utf-8"))
        for path in site.rglob("*.html")
        if "pagefind" not in path.parts
    }
    assert len(found) > FACTS["ops"]
    return found


def test_site_has_a_page_for_every_op(pages: dict[str, Page]) -> None:
    expected = {f"ops/{name.replace('>', '.')}.html" for name in opwright.op_names()}
    assert expected == {name for name in pages if name.startswith("ops/")}


def test_site_pages_are_well_formed(pages: dict[str, Page]) -> None:
    wrong = {name: page.wrong for name, page in pages.items() if page.wrong}
    assert not wrong
    assert {name for name, page in pages.items() if page.titles != 1} == set()
    twice = {
        name for name, page in pages.items() if len(page.ids) != len(set(page.ids))
    }
    assert not twice


def test_site_links_all_resolve(site: Path, pages: dict[str, Page]) -> None:
    dead = {
        (name, link)
        for name, page in pages.items()
        for _, link in page.links
        if not re.match(r"https?:|mailto:|data:", link)
        if not _leads(site, pages, name, link)
    }
    assert not dead


def _leads(site: Path, pages: dict[str, Page], name: str, link: str) -> bool:
    address, anchor = urldefrag(unquote(link))
    path = (site / name).parent / address if address else site / name
    found = path.resolve().relative_to(site.resolve()).as_posix()
    if found in pages:
        return not anchor or anchor in pages[found].ids
    return path.is_file() and not anchor


def test_site_loads_no_external_resource(site: Path, pages: dict[str, Page]) -> None:
    loaded = {
        link
        for page in pages.values()
        for tag, link in page.links
        if tag in ("link", "script", "img") and re.match(r"(https?:)?//", link)
    }
    assert not loaded
    assert not re.search(r"url\(|@import", (site / "style.css").read_text("utf-8"))


def _sources(links: list[tuple[str, str]]) -> Iterator[str]:
    for _, link in links:
        found = re.match(
            r"https://github.com/opwright/opwright/blob/main/([^#]*)", link
        )
        if found:
            yield found[1]


def test_site_source_links_exist(pages: dict[str, Page]) -> None:
    sources = {source for page in pages.values() for source in _sources(page.links)}
    assert len(sources) > FACTS["ops"]
    assert {source for source in sources if not (ROOT / source).exists()} == set()


def test_site_page_of_mat_mul_shows_the_opdef(site: Path) -> None:
    text = (site / "ops" / "MatMul.html").read_text("utf-8")
    plain = re.sub(r"<[^>]*>", "", text)
    for words in (
        "from opwright.linalg import MatMul, mat_mul",
        "Multiplies two matrices.",
        "m k if not transpose_a else k m",
        "mat_mul(a, a, transpose_b=True)",
        "tf.linalg.matmul",
        "Gradient: registered",
    ):
        assert words in plain, words
    assert 'href="Einsum.html"' in text


def test_site_build_into_foreign_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("three years")
    command = [sys.executable, str(ROOT / "docs/site/build.py")]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 2 and "not replaced" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "three years"
