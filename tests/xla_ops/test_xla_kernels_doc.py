"""docs/reference/xla_kernels.md lists the compiled ops."""

from __future__ import annotations

import re

from support.places import ROOT
from xla_ops.support.every_kind import KINDS

PAGE = (ROOT / "docs/reference/xla_kernels.md").read_text("utf-8")
ROWS = re.findall(r"^\| (`.*?) \| ?(.*?) ?\| ?(.*?) ?\|$", PAGE, re.MULTILINE)


def names(cell: str) -> list[str]:
    return re.findall(r"`(\w+)`", cell)


def test_xla_kernels_page_lists_each_op_once() -> None:
    listed = [name for ops, _, _ in ROWS for name in names(ops)]
    assert sorted(listed) == sorted(KINDS)


def test_xla_kernels_page_names_what_must_be_known() -> None:
    for ops, known, _ in ROWS:
        for name in names(ops):
            assert set(names(known)) == set(KINDS[name].known), name
