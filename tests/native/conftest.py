"""The tests of the native library, which `make test` builds first."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from opwright_runtime import native

if not native.LIBRARY.exists():
    raise pytest.UsageError("tests/native need the native library: run `make native`")


@pytest.fixture(params=["avx512", "avx2", "portable"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set that this processor has."""
    try:
        native.use_isa(request.param)
    except ValueError as error:
        pytest.skip(str(error))
    yield request.param
    native.use_isa("")
