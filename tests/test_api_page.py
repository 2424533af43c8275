"""docs/reference/api.rst writes some signatures by hand; they are the real ones."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from support.places import ROOT

PAGE = (ROOT / "docs/reference/api.rst").read_text("utf-8")
SIGNATURES = re.findall(
    r"^\.\. py:function:: (\w+)\.(\w+)\((.*)\)$", PAGE, re.MULTILINE
)


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
