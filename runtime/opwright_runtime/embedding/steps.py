"""Steps of training: which of them count, and what becomes of those that fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from opwright_runtime import native

T = TypeVar("T")

_thread = threading.local()


@contextmanager
def embedding_step() -> Iterator[None]:
    """A step of several calls, which stand or fall together.

    What a call of one `tf.function` or session has begun with TPU embeddings is undone
    by itself when the call fails. A step that enqueues in one call and trains in
    another, or that runs its ops eagerly, is one step only to its program, which says
    so::

        with tpu.embedding_step():
            embedding.enqueue(features, training=True)
            strategy.run(train)

    When an exception leaves the block, batches that it enqueued are dropped, and so are
    those that it received without sending their gradients: the next step gets its own.
    Gradients that all cores have sent stay, and update the tables.

    A step is what its thread does until it is left, so asyncio's tasks, which share a
    thread, must not be in one at once. Steps may nest; an inner one that fails alone
    undoes what is its own.

    Raises:
        NativeLibraryError: the native kernels are not built.
        RuntimeError: it was left in another thread, or an outer one was left before it.
    """
    library = native.library()
    library.opwright_embedding_begin_step()
    step = object()
    _steps().append(step)
    failed = True
    try:
        yield
        failed = False
    finally:
        steps = _steps()
        if step not in steps:
            raise RuntimeError(
                "embedding_step: leave it in the thread that entered it, and before "
                "the steps around it"
            )
        while steps.pop() is not step:
            library.opwright_embedding_end_step(True)
        library.opwright_embedding_end_step(failed)


def in_embedding_step() -> bool:
    """Whether this thread is in an `embedding_step`."""
    return bool(_steps())


def in_step_of_this_thread(fn: Callable[..., T]) -> Callable[..., T]:
    """The same function, for another thread that is waited for.

    What it runs eagerly belongs to the step that the calling thread is in, if any. Once
    that thread has left the step, such ops are refused.
    """
    library = native.library()
    step = library.opwright_embedding_step_of_thread()
    if not step:
        return fn

    def joined(*args: Any, **kwargs: Any) -> T:
        library.opwright_embedding_join_step(step)
        try:
            return fn(*args, **kwargs)
        finally:
            library.opwright_embedding_leave_step()

    return joined


def embedding_step_count() -> int:
    """How many training steps have updated the embedding tables.

    A step counts once all cores have sent its gradients. Where lookups overlap with
    updates, the last one may not have reached the tables yet. It reaches them before
    they are next read, saved or looked up without overlap. A step that failed before
    that is never seen in the tables, and does not count.

    Raises:
        NativeLibraryError: the native kernels are not built.
        RuntimeError: no embeddings are configured.
    """
    return _of_the_system(native.library().opwright_embedding_step_count())


def drop_embedding_batches() -> int:
    """Drops batches that are enqueued, and those received without gradients so far.

    It is for programs that catch an exception, and go on, without `embedding_step`.
    What belongs to runs that have not ended stays, and so do the tables and complete
    steps.

    Returns:
        How many batches were dropped, of all cores.

    Raises:
        NativeLibraryError: the native kernels are not built.
        RuntimeError: no embeddings are configured.
    """
    return _of_the_system(native.library().opwright_embedding_abandon(False))


def drop_batches_of_failed_step() -> None:
    """The same; the next op says so if it was more than a step has."""
    native.library().opwright_embedding_abandon(True)


def _steps() -> list[object]:
    """Those that this thread is in, the innermost last."""
    if not hasattr(_thread, "steps"):
        _thread.steps = []
    steps: list[object] = _thread.steps
    return steps


def _of_the_system(count: int) -> int:
    if count < 0:
        raise RuntimeError(
            "no embeddings are configured; make a TPUEmbedding, or run "
            "ConfigureTPUEmbedding"
        )
    return count
