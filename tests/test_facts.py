"""docs/facts.json has the numbers of the tree, and pages state these numbers."""

from __future__ import annotations

import re

import facts
import pytest

from support.facts import FACTS
from support.opdefs import every_op
from support.places import ROOT

#: By page: what it states. A number of the file stands where its name is in braces.
STATEMENTS = {
    "README.md": [
        "All {tensorflow_ops:,} public ops",
        "in [{groups} packages]",
        "{embedding_ops_on_cpu} of the {embedding_ops} TPU-embedding ops",
        "for {embedding_ops_on_gpu} of them is experimental",
        "TensorFlow has removed {removed_ops} ops",
    ],
    "CHANGELOG.md": [
        "the {tensorflow_ops:,} public ops",
        "in {groups} packages",
        "{embedding_optimizers} optimizers are supported",
        "{embedding_ops_on_cpu} of the family's {embedding_ops} ops",
        "{removed_ops} ops that TensorFlow removed",
    ],
    "docs/reference/embedding_ops.md": [
        "{embedding_ops} ops, of which {embedding_ops_on_cpu} run here"
    ],
    "docs/reference/groups.md": ["The {ops:,} ops are in {groups} groups"],
}


def test_facts_file_equals_counts_of_the_tree() -> None:
    assert facts.facts(every_op().values()) == FACTS, "run tools/facts.py"


@pytest.mark.parametrize("page", STATEMENTS)
def test_page_states_numbers_of_facts_file(page: str) -> None:
    text = " ".join((ROOT / page).read_text("utf-8").split())
    stated = [statement.format_map(FACTS) for statement in STATEMENTS[page]]
    assert [one for one in stated if one not in text] == []


def test_number_of_ops_stands_in_no_other_file() -> None:
    """A page with it has a row above; a test takes it from `support.facts`."""
    counts = [FACTS["ops"], FACTS["tensorflow_ops"]]
    number = re.compile("|".join(rf"\b(?:{n}|{n:,}|{n:_})\b" for n in counts))
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    stating = [
        path.relative_to(ROOT).as_posix()
        for path in [*pages, *(ROOT / "tests").rglob("*.py")]
        if number.search(path.read_text("utf-8"))
    ]
    assert set(stating) - set(STATEMENTS) == set()
