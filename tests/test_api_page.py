"""Pages in docs/reference write some signatures by hand; they are the real ones."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

from opwright_runtime import api
from support import pages
from support.places import ROOT

SIGNATURES = [
    signature
    for page in ("api", "embedding_api")
    for signature in re.findall(
        r"^\.\. py:function:: (\w+)\.(\w+)\((.*)\)$",
        (ROOT / f"docs/reference/{page}.rst").read_text("utf-8"),
        re.MULTILINE,
    )
]


@pytest.mark.parametrize(("module", "name", "shown"), SIGNATURES)
def test_api_page_signature_is_that_of_the_function(
    module: str, name: str, shown: str
) -> None:
    function = getattr(importlib.import_module(f"opwright.{module}"), name)
    real = inspect.signature(function)
    plain = [
        one.replace(annotation=inspect.Parameter.empty)
        for one in real.parameters.values()
    ]
    bare = inspect.Signature(plain)
    assert str(bare).replace("'", '"') == f"({shown})"


#: Pages for users. Those in `explanation/` are about the runtime itself.
FOR_USERS = [
    *(page for page in pages.PAGES if page.parent.name != "explanation"),
    *sorted((ROOT / "docs" / "reference").glob("*.rst")),
]


@pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: page.stem)
def test_page_shows_public_names_under_opwright(page: Path) -> None:
    """A name that `opwright` exports is not shown as one of the runtime."""
    shown = re.findall(r"\bopwright_runtime\.([\w.]+)", page.read_text("utf-8"))
    modules = {"convert", "keras", "native"}
    wrong = [
        name
        for name in shown
        if name.split(".")[-1] in api.__all__ or name.split(".")[0] in modules
    ]
    assert wrong == []
