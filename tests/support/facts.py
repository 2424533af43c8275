"""The numbers of docs/facts.json, which tools/facts.py counts in the tree."""

from __future__ import annotations

import json

from support.places import ROOT

FACTS: dict[str, int] = json.loads((ROOT / "docs" / "facts.json").read_text("utf-8"))
