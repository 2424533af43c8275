"""Work in processes of its own: the tests' survives a kernel that ends its process."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Generic, TypeVar

import tensorflow as tf

T = TypeVar("T")

# Rather a failure than tests that hang.
TIMEOUT = 300


def processes() -> ProcessPoolExecutor:
    """Two, or one where files of tests run side by side already."""
    count = 1 if "PYTEST_XDIST_WORKER" in os.environ else 2
    return ProcessPoolExecutor(count, get_context("spawn"), _configure)


def _configure() -> None:
    # On one thread, a kernel adds up its numbers in the same order each time; without
    # graph optimizers, every op of a function reaches its kernel.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})


class Ahead(Generic[T]):
    """What a function gives for each of many arguments, worked out a little ahead."""

    count = 64

    def __init__(
        self,
        pool: ProcessPoolExecutor,
        function: Callable[..., T],
        arguments: Sequence[tuple[Any, ...]],
    ) -> None:
        self._pool = pool
        self._function = function
        self._arguments = arguments
        self._places = {each: place for place, each in enumerate(arguments)}
        self._futures: dict[tuple[Any, ...], Future[T]] = {}

    def __getitem__(self, arguments: tuple[Any, ...]) -> T:
        place = self._places[arguments]
        for each in self._arguments[place : place + self.count]:
            if each not in self._futures:
                self._futures[each] = self._pool.submit(self._function, *each)
        return self._futures[arguments].result(TIMEOUT)
