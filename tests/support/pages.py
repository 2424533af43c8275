"""The pages of docs/ that people write, and the programs on them."""

from __future__ import annotations

import re
from pathlib import Path

from support.places import ROOT

KINDS = ("tutorials", "how-to", "reference", "explanation")
PAGES = [page for kind in KINDS for page in sorted((ROOT / "docs" / kind).glob("*.md"))]


def programs(page: Path) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
