"""Several cores of one process: replicas on logical CPU devices, over one engine.

The engine serves the core whose number an op's device has. What else N replicas take,
TensorFlow's MirroredStrategy has: a trace of the function for each, variables that are
mirrored, data that are handed out. Values are reduced on one device and in the order of
the cores, so that sums are the same each time; there are no collectives, whose members
would wait for one that has failed.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

from opwright_runtime import native
from opwright_runtime._internals import function_class, mirrored, ops
from opwright_runtime.embedding.steps import in_step_of_this_thread
from opwright_runtime.embedding.sums import SumsOnOneCore
from opwright_runtime.embedding.tpu_system import TPUSystem, core_names


def need_logical_cpus(cores: int) -> None:
    """Divides the CPU into as many logical devices, unless it is so already.

    Raises:
        RuntimeError: TensorFlow has begun to work with fewer.
    """
    cpu = tf.config.list_physical_devices("CPU")[0]
    there = len(tf.config.get_logical_device_configuration(cpu) or [None])
    if there >= cores:
        return
    try:
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * cores
        )
    except RuntimeError as error:
        raise RuntimeError(
            f"software_strategy: {cores} cores need as many logical CPU devices, there "
            f"{'is' if there == 1 else 'are'} {there}, and TensorFlow has run ops "
            "already: it takes no more. Make the strategy before the program's first "
            "op, or write at its beginning:\n"
            '    cpu = tf.config.list_physical_devices("CPU")[0]\n'
            "    tf.config.set_logical_device_configuration(\n"
            f"        cpu, [tf.config.LogicalDeviceConfiguration()] * {cores}\n"
            "    )"
        ) from error


def leave_threads_to_replicas(cores: int) -> None:
    """Has TensorFlow give each op one thread where replicas keep all processors busy.

    It would cut ops into parts for all threads, although each is one replica's: to wake
    the threads costs more than it saves. Ops of the native library, which work for all
    replicas, keep as many threads as there are processors.

    What the program has said of threads itself stays, and so do those that TensorFlow
    has begun to work with.
    """
    processors = len(os.sched_getaffinity(0))
    if cores == 1 or cores < processors:
        return
    if os.environ.get("TF_NUM_INTRAOP_THREADS") or (
        tf.config.threading.get_intra_op_parallelism_threads()
    ):
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(1)
    except RuntimeError:
        return
    native.use_own_threads(processors)


class Cores(TPUSystem, mirrored.MirroredExtended):  # type: ignore[misc]
    """N logical CPU devices, which show themselves as N cores of a TPU."""

    def __init__(
        self, strategy: tf.distribute.Strategy, cores: int, strict: bool
    ) -> None:
        self._strict = strict
        self._names = core_names(cores)
        self._thread = threading.local()
        self._functions: Any = weakref.WeakKeyDictionary()
        mirrored.MirroredExtended.__init__(
            self,
            strategy,
            devices=[f"/cpu:{core}" for core in range(cores)],
            cross_device_ops=SumsOnOneCore(),
        )

    @property
    def num_replicas_per_host(self) -> int:
        return len(self._names)

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """Names of the cores; to the code that makes replicas, their CPU devices."""
        if getattr(self._thread, "makes_replicas", False):
            devices: tuple[str, ...] = self._devices
            return devices
        return self._names

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        devices: tuple[str, ...] = self._devices
        return devices

    def _call_for_each_replica(
        self, fn: Callable[..., object], args: Any, kwargs: Any
    ) -> Any:
        if isinstance(fn, function_class):
            return self._around(fn)(*args, **kwargs)
        if tf.executing_eagerly():
            with self._making_replicas():
                fn = in_step_of_this_thread(fn)
                return super()._call_for_each_replica(fn, args, kwargs)
        graph = ops.get_default_graph()
        first = len(graph.get_operations())
        with self._making_replicas():
            made = super()._call_for_each_replica(fn, args, kwargs)
        _keep_cores_apart(graph, first)
        return made

    def _around(self, fn: Any) -> Any:
        """A function as `fn`, with the replicas in it: they meet within one graph."""
        if fn not in self._functions:
            within = fn.python_function
            self._functions[fn] = fn._clone(
                python_function=lambda *args, **kwargs: self._call_for_each_replica(
                    within, args, kwargs
                )
            )
        return self._functions[fn]

    @contextmanager
    def _making_replicas(self) -> Iterator[None]:
        """In this thread: each replica has its own."""
        before = getattr(self._thread, "makes_replicas", False)
        self._thread.makes_replicas = True
        try:
            yield
        finally:
            self._thread.makes_replicas = before


def _keep_cores_apart(graph: Any, first: int) -> None:
    """Lets what the cores do in a step go on side by side.

    TensorFlow chains ops that have side effects as they were traced, a core after the
    other: all of one core's steps would come before the next one's, for which they may
    have to wait. Which steps of a core follow each other, the native library sees to;
    here they are put behind what else has side effects on their core, such as asserts.

    Args:
        first: the number of ops that were there before the replicas.
    """
    chains = getattr(graph, "experimental_acd_manager", None)
    if chains is None:  # A session's graph, whose program says what comes after what.
        return
    last: dict[str, tf.Operation] = {}
    for op in graph.get_operations()[first:]:
        if not op.op_def.is_stateful or any(
            one.dtype == tf.resource for one in op.inputs
        ):
            continue
        if _waits_for_cores(graph, op.node_def):
            chains.run_independently(op)
            if op.device in last:
                op._add_control_input(last[op.device])
        else:
            last[op.device] = op


def _waits_for_cores(graph: Any, node: Any) -> bool:
    """Whether an op, or one in a branch, loop or function of it, is of a step."""
    if node.op in ("RecvTPUEmbeddingActivations", "SendTPUEmbeddingGradients"):
        return True
    called = {
        function.name
        for value in node.attr.values()
        for function in (value.func, *value.list.func)
        if function.name
    }
    functions = filter(None, map(graph._get_function, called))
    return any(
        _waits_for_cores(graph, inner)
        for function in functions
        for inner in function.cached_definition.node_def
    )
