"""Training steps: how many were completed, and how to undo those that fail."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from opwright_runtime import native

T = TypeVar("T")

NOT_CONFIGURED = (
    "no embeddings are configured; build a TPUEmbedding, or run ConfigureTPUEmbedding"
)

_thread = threading.local()


@contextmanager
def embedding_step() -> Iterator[None]:
    """Combines several calls into one step: if one of them fails, all are undone.

    If a step is one call of a `tf.function` or session, it does not need this: a call
    that fails undoes its own step. Some steps consist of several calls: they enqueue in
    one call and train in another, or run their ops eagerly. Put such a step into a
    block::

        with tpu.embedding_step():
            embedding.enqueue(features, training=True)
            strategy.run(train)

    When an exception leaves the block, the batches that it enqueued are dropped. So are
    those that it received and whose gradients it did not send. The next step therefore
    gets its own batches. Gradients that all cores have sent stay, and update the
    tables.

    All that the thread does within the block belongs to the step. Tasks of asyncio
    share a thread, so no two of them may be in such a block at once. Blocks may be
    nested. If only an inner block fails, only what it did itself is undone.

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
    """A version of `fn` for another thread, for which the calling thread waits.

    Ops that `fn` runs eagerly belong to the `embedding_step` that the calling thread is
    in, if any. After that thread has left the step, such ops raise an error.
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
    """How many training steps have updated the embedding tables, or will.

    A step counts once all cores have sent its gradients. If lookups overlap with
    updates, the last update may not be in the tables yet. It is applied before the
    tables are next read, saved or looked up without overlap. A step that fails before
    all cores have sent its gradients never changes the tables, and does not count.

    Raises:
        NativeLibraryError: the native kernels are not built.
        RuntimeError: no embeddings are configured.
    """
    return _of_the_system(native.library().opwright_embedding_step_count())


def queued_batches(core: int) -> int:
    """How many batches are enqueued for a core; -1 if no embeddings are configured."""
    count: int = native.library().opwright_embedding_queued_batches(core)
    return count


def drop_embedding_batches() -> int:
    """Drops enqueued batches, and received ones whose gradients are not sent yet.

    It is for programs that catch an exception and continue, and that do not use
    `embedding_step`. Batches of calls that are still running are not dropped. The
    tables and complete steps do not change.

    Returns:
        How many batches of all cores were dropped.

    Raises:
        NativeLibraryError: the native kernels are not built.
        RuntimeError: no embeddings are configured.
    """
    return _of_the_system(native.library().opwright_embedding_abandon(False))


def drop_batches_of_failed_step() -> None:
    """Drops the same batches as `drop_embedding_batches`.

    If these are more batches than one step has, the next op raises an error.
    """
    native.library().opwright_embedding_abandon(True)


def _steps() -> list[object]:
    """The embedding steps that this thread is in, the innermost last."""
    if not hasattr(_thread, "steps"):
        _thread.steps = []
    steps: list[object] = _thread.steps
    return steps


def _of_the_system(count: int) -> int:
    if count < 0:
        raise RuntimeError(NOT_CONFIGURED)
    return count
