"""Drawn models, converted to all formats, against the kernels and NumPy in float64.

The conversions hold the results against the kernels too, on other inputs than these,
with other batches and numbers of steps where they may vary.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from convert.support.drawn import Drawn, convert_drawn
from convert.support.models import CONVERSIONS, barred, ops_of
from opwright.convert import to_plain
from support.tiers import part_of

pytestmark = pytest.mark.partial
SEEDS = part_of(range(500), 250)


@pytest.fixture(autouse=True, scope="module")
def frozen_heap() -> Iterator[None]:
    """TFLite's converter collects garbage: of all that is imported in 0.7 seconds."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Saves the model of a seed once for all conversions."""

    @lru_cache(maxsize=1)
    def save(seed: int) -> Path:
        folder = tmp_path_factory.mktemp("drawn") / "source"
        Drawn(seed).save(folder)
        return folder

    return save


@pytest.mark.parametrize("convert", CONVERSIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_conversion_of_a_drawn_model_matches_kernel_and_reference(
    seed: int, convert: Any, saved: Callable[[int], Path], tmp_path: Path
) -> None:
    drawn = Drawn(seed)
    shutil.copytree(saved(seed), tmp_path / "source")
    made = convert_drawn(drawn, convert, tmp_path)
    assert not made.faults, f"{'; '.join(made.faults)}: {drawn}"
    if convert is to_plain:
        assert not barred(ops_of(tmp_path / "target"))
