"""The tests of the native library; `make native` builds it, and `make test` does so."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from opwright_runtime import native


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not native.LIBRARY.exists():
        missing = pytest.mark.skip(reason="no native library: run `make native`")
        for item in items:
            if "tests/native" in item.path.as_posix():
                item.add_marker(missing)


@pytest.fixture(params=["avx512", "avx2", "portable"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set that this processor has."""
    try:
        native.use_isa(request.param)
    except ValueError as error:
        pytest.skip(str(error))
    yield request.param
    native.use_isa("")
