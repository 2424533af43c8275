from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from support.equivalence.workers import processes


@pytest.fixture(scope="session")
def pool() -> Iterator[ProcessPoolExecutor]:
    pool = processes()
    yield pool
    pool.shutdown(cancel_futures=True)
