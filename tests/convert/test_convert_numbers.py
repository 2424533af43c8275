"""Drawn models, converted to all formats, against the kernels and NumPy in float64.

The conversions hold the results against the kernels too, on other inputs than these,
with other batches and numbers of steps where they may vary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from convert.support.drawn import Drawn, convert_drawn
from convert.support.models import CONVERSIONS, barred, ops_of
from opwright.convert import to_plain
from support.tiers import part_of

pytestmark = pytest.mark.partial
SEEDS = part_of(range(500), 250)


@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_conversion_of_a_drawn_model_matches_kernel_and_reference(
    seed: int, convert: Any, tmp_path: Path
) -> None:
    drawn = Drawn(seed)
    made = convert_drawn(drawn, convert, tmp_path)
    assert not made.faults, f"{'; '.join(made.faults)}: {drawn}"
    if convert is to_plain:
        assert not barred(ops_of(tmp_path / "target"))
