"""README's programs, messages and commands are real; pages name what exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import opwright_runtime
from opwright import OpInputError
from opwright.linalg import mat_mul
from support.places import ROOT

README = (ROOT / "README.md").read_text("utf-8")
PROGRAMS = ROOT / "examples" / "readme"
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
TARGETS = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))


def test_readme_programs_equal_the_tested_files() -> None:
    shown = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert sorted(shown) == sorted(
        path.read_text("utf-8") for path in PROGRAMS.glob("*.py")
    )


def test_readme_error_message_is_the_one_raised() -> None:
    with pytest.raises(OpInputError) as raised:
        mat_mul(tf.ones([2, 4]), tf.ones([3, 5]))
    assert f"\n{raised.value}\n" in README


def test_readme_commands_exist() -> None:
    named = set(re.findall(r"\bmake ([a-z-]+)\b", README))
    assert {"ops", "test"} <= named <= TARGETS

    help_text = subprocess.run(
        [sys.executable, "-m", "opwright_codegen", "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "codegen")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for command in set(re.findall(r"opwright-codegen ([a-z]+)", README)):
        assert f"    {command} " in help_text


#: Pages whose paths are those of a reader's project, and no part of this tree.
PROJECTS = {
    "docs/how-to/adopt_library.md",
    "docs/tutorials/own_ops.md",
    "docs/how-to/change_op.md",
    "docs/how-to/libraries.md",
    "docs/how-to/publish_library.md",
}
#: Where `make site` writes pages of ops.
WRITTEN = {ROOT / "docs" / "groups", ROOT / "docs" / "ops"}
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "opdefs/*.md")
    for path in ROOT.glob(pattern)
    if path.parent not in WRITTEN
)
PAGES += [
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "runtime/native").rglob("README.md")
]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", one).lower().replace(" ", "-") for one in plain}


def test_version_is_the_same_on_all_pages() -> None:
    pages = {
        "CHANGELOG.md": r"^## (\S+)",
        "README.md": r"dist/opwright-(\S+?)-py3",
        "docs/how-to/install.md": r"dist/opwright-(\S+?)-py3",
        "docs/reference/stability.md": r"^opwright is at (\S+)\. ",
    }
    for page, pattern in pages.items():
        found = re.findall(pattern, (ROOT / page).read_text("utf-8"), re.MULTILINE)
        assert found[:1] == [opwright_runtime.__version__], page


@pytest.mark.parametrize("page", PAGES)
def test_page_links_lead_to_files_and_headings(page: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text("utf-8"))
    wrong = []
    for link in links:
        if ":" in link:
            continue
        file, _, anchor = link.partition("#")
        place = (ROOT / page).parent / file if file else ROOT / page
        headings = anchors(place) if anchor and place.suffix == ".md" else {anchor}
        if not place.exists() or anchor not in headings:
            wrong.append(link)
    assert wrong == []


@pytest.mark.parametrize("page", [page for page in PAGES if page not in PROJECTS])
def test_page_names_what_exists(page: str) -> None:
    """Paths, commands, and names in files. `foo` stands for anything."""
    text = (ROOT / page).read_text("utf-8")
    paths = re.findall(r"`([a-z]+/[\w./-]+)`", text)
    tops = {path.name for path in ROOT.iterdir()}
    places = [ROOT / path for path in paths if path.partition("/")[0] in tops]
    missing = [str(place) for place in places if not place.exists()]
    assert [place for place in missing if "foo" not in place.lower()] == []

    assert set(re.findall(r"`?make ([a-z-]+)\b(?=`|    )", text)) <= TARGETS

    for name, path in re.findall(r"`(\w+)` in\s+`([\w.]*/[\w./]+)`", text):
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8")), (name, path)


def test_architecture_page_matches_generated_mat_mul() -> None:
    """Line breaks may differ, and `...` stands for code that is left out."""
    page = (ROOT / "docs/explanation/architecture.md").read_text("utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    made = (ROOT / "generated/opwright/linalg/mat_mul.py").read_text("utf-8")
    shown, made = (
        re.sub(r"\s+", "", text).replace(",)", ")") for text in (shown, made)
    )
    assert re.search(".*?".join(map(re.escape, shown.split("..."))), made)
