"""Several cores in one process: replicas on logical CPU devices, which share an engine.

The number of an op's device says for which core the engine runs it. All else that N
replicas need comes from TensorFlow's MirroredStrategy: a trace of the function for each
replica, mirrored variables, and the distribution of data. Values are reduced on one
device and in the order of the cores, so that sums are reproducible. No collectives are
used, because their members would wait for a member that has failed.
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
    """Divides the CPU into `cores` logical devices, unless it has as many already.

    Raises:
        RuntimeError: TensorFlow is already initialized with fewer logical devices.
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
    """Sets TensorFlow's intra-op threads to 1 if the replicas keep all CPU cores busy.

    Otherwise TensorFlow would divide each op over all threads, although each op belongs
    to one replica, and waking the threads costs more time than they save. Ops of the
    native library work for all replicas at once, so they use one thread for each
    processor.

    Nothing changes if the program has set the number of threads itself, or if
    TensorFlow is already initialized.
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
    """N logical CPU devices, which the strategy presents as N cores of a TPU."""

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
        """The names of the TPU cores, or their CPU devices while replicas are created.

        MirroredExtended places the replicas on these devices, so it needs real ones.
        """
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
        """A `tf.function` that runs `fn` for all replicas.

        The replicas must be in one graph, because ops of one core wait for those of
        others.
        """
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
        """While it is entered, `worker_devices` returns CPU devices in this thread.

        Replicas run in threads of their own, and there it returns names of TPU cores.
        """
        before = getattr(self._thread, "makes_replicas", False)
        self._thread.makes_replicas = True
        try:
            yield
        finally:
            self._thread.makes_replicas = before


def _keep_cores_apart(graph: Any, first: int) -> None:
    """Removes control dependencies on other cores from ops that wait for these cores.

    TensorFlow chains ops with side effects in the order in which they were traced,
    which is core after core. All steps of one core would then come before those of the
    next core, although a step may have to wait for the next core. The native library
    keeps the order of each core's steps. Here an op that waits for other cores gets at
    most one control dependency. It is on the last op with side effects on the same core
    that does not wait, such as an assert.

    Args:
        first: the number of ops that the graph had before the replicas were traced.
    """
    chains = getattr(graph, "experimental_acd_manager", None)
    if chains is None:  # A session's graph has no automatic control dependencies.
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
    """Whether an op, or an op in a function that it calls, waits for other cores."""
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
