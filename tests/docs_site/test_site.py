"""The site: a page for every op, well-formed HTML, no broken link."""

from __future__ import annotations

import html
import inspect
import re
import sys
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import opwright
from docs_site.support.built import built
from opwright_codegen import naming
from opwright_runtime import api
from support.facts import FACTS
from support.opdefs import every_op
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
        # `<meta />` ends itself.
        if tag not in VOID and (not self.open or self.open.pop() != tag):
            self.wrong.append(f"</{tag}> closes nothing, line {self.getpos()[0]}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    found = {
        path.relative_to(site).as_posix(): Page(path.read_text("utf-8"))
        for path in site.rglob("*.html")
        if "_static" not in path.parts
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
    address = address.partition("?")[0]
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
    styles = [path.read_text("utf-8") for path in site.rglob("*.css")]
    assert styles
    assert not any(re.search(r"(url\(|@import)['\" ]*(https?:)?//", s) for s in styles)


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
    assert 'href="Einsum.html#opwright.linalg.Einsum"' in text


@pytest.fixture(scope="module")
def inventory(site: Path) -> dict[str, dict[str, str]]:
    """What other projects link to: by kind of object, its name and its page."""
    content = (site / "objects.inv").read_bytes()
    assert content.startswith(b"# Sphinx inventory version 2\n")
    rows = zlib.decompress(content.split(b"\n", 4)[4]).decode().splitlines()
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        fields = re.match(r"(.+?) (\S+) -?\d+ (\S*) ", row)
        assert fields is not None, row
        name, kind, address = fields.groups()
        found.setdefault(kind, {})[name] = address.replace("$", name)
    return found


def test_site_inventory_has_every_class_function_and_options(
    inventory: dict[str, dict[str, str]],
) -> None:
    classes, functions = inventory["py:class"], inventory["py:function"]
    for op_name in opwright.op_names():
        cls = opwright.op_class(op_name)
        package = cls.__module__.rpartition(".")[0]
        name = f"{package}.{cls.__name__}"
        page = f"ops/{op_name.replace('>', '.')}.html#"
        assert classes[name].startswith(page)
        assert (f"{name}.Options" in classes) == bool(every_op()[op_name].options)
        function = naming.function_name(op_name)
        assert functions[f"{package}.{function}"].startswith(page)


def test_site_inventory_has_every_name_of_the_runtime(
    inventory: dict[str, dict[str, str]],
) -> None:
    names = set().union(*inventory.values())
    assert {f"opwright.{name}" for name in api.__all__} <= names


def _parameters(text: str, ending: str) -> list[str]:
    """The names in a signature on a page, in order."""
    entry = rf'<dt [^>]*id="[\w.]*\.{ending}">.*?</dt>'
    found = re.search(entry, text, re.DOTALL)
    assert found is not None, ending
    parameters = re.findall(r'<em class="sig-param">(.*?)</em>', found[0], re.DOTALL)
    texts = [re.sub(r"<[^>]*>", "", one).strip() for one in parameters]
    names = [re.match(r"\**(\w+)", text) for text in texts]
    return [name[1] for name in names if name]


def test_site_signatures_are_those_of_the_classes(site: Path) -> None:
    """Of each op: `create`, `Options` and the function, read from the real objects."""
    wrong = []
    for op_name in opwright.op_names():
        cls = opwright.op_class(op_name)
        module = sys.modules[cls.__module__]
        function = naming.function_name(op_name)
        text = (site / "ops" / f"{op_name.replace('>', '.')}.html").read_text("utf-8")
        expected = {
            rf"{cls.__name__}\.create": inspect.signature(cls.create),
            function: inspect.signature(getattr(module, function)),
        }
        if every_op()[op_name].options:
            expected[rf"{cls.__name__}\.Options"] = inspect.signature(cls.Options)
        for ending, signature in expected.items():
            names = [name for name in signature.parameters if name != "_unknown"]
            if _parameters(text, ending) != names:
                wrong.append((op_name, ending, _parameters(text, ending), names))
    assert not wrong


def test_site_summaries_are_those_of_the_docstrings(site: Path) -> None:
    wrong = []
    for op_name in opwright.op_names():
        doc = opwright.op_class(op_name).__doc__
        assert doc is not None
        text = (site / "ops" / f"{op_name.replace('>', '.')}.html").read_text("utf-8")
        shown = re.search(r"</h1>.*?<p[^>]*>(.*?)</p>", text, re.DOTALL)
        assert shown is not None, op_name
        words = html.unescape(re.sub(r"<[^>]*>", "", shown[1]))
        if words.split() != doc.partition("\n\n")[0].replace("`", "").split():
            wrong.append((op_name, words))
    assert not wrong


def test_site_search_index_has_what_an_op_is_called(site: Path) -> None:
    """TensorFlow's names and synonyms of an op."""
    text = (site / "searchindex.js").read_text("utf-8")
    for entry in ("tf.math.cumsum", "matrix product"):
        assert f'"{entry}"' in text, entry
