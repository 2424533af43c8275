"""Hosts: processes that share the rows of tables, the tasks of a TensorFlow cluster.

Each process runs its own client program, as under MultiWorkerMirroredStrategy. Parts of
that strategy are used: its servers carry the messages between hosts, and its
collectives sum the gradients of variables. The engine of each process has a shard of
every table (hosts.cc).
"""

from __future__ import annotations

import atexit
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime import native
from opwright_runtime._internals import (
    CoordinatedJob,
    collective_all_reduce,
    context,
    distribute_lib,
    multi_worker_util,
)
from opwright_runtime._patches import replace_call_time_values
from opwright_runtime.embedding.cluster_addresses import warn_of_public_addresses
from opwright_runtime.embedding.tpu_system import TPUSystem

Resolver: TypeAlias = tf.distribute.cluster_resolver.ClusterResolver
# The stacklevel of a warning from Host's constructor that shows the caller of
# software_strategy.
_CALLER = 4
# How many group keys of collectives each strategy may use. It uses only a few.
_GROUPS = 1000
# The counters of the native library, in the order in which it returns them.
_SENT = (
    *("counts", "ids", "rows", "gradients", "tables", "errors", "configurations"),
    "messages",
)


class Host(TPUSystem, collective_all_reduce.CollectiveAllReduceExtended):  # type: ignore[misc]
    """This process's part of a cluster: one replica, on its CPU."""

    def __init__(
        self,
        strategy: tf.distribute.Strategy,
        resolver: Resolver,
        timeout: float,
        strict: bool,
    ) -> None:
        tasks, own = _tasks(resolver)
        warn_of_public_addresses(_addresses(resolver), _CALLER)
        replace_call_time_values(_of_the_function_around)
        self._strict = strict
        self._std_server_started = _Cluster.server_started
        _configure_heartbeats(resolver, timeout)
        # TensorFlow keeps the shapes of the collectives of a group key. A later
        # strategy of the program has other shapes, so it gets group keys of its own.
        strategy._collective_key_base = _Cluster.strategies * _GROUPS
        _Cluster.strategies += 1
        try:
            collective_all_reduce.CollectiveAllReduceExtended.__init__(
                self,
                strategy,
                resolver,
                tf.distribute.experimental.CommunicationOptions(),
            )
        except RuntimeError as error:
            if "at program startup" not in str(error):
                raise
            raise RuntimeError(
                "software_strategy: a program of several hosts makes its strategy "
                "first, before any other call of TensorFlow that runs an op or asks "
                "for devices"
            ) from error
        if not _Cluster.server_started:
            # Hosts send each other heartbeats through TensorFlow's server. These
            # heartbeats must stop before TensorFlow is shut down.
            atexit.register(forget_hosts)
        _Cluster.server_started = True
        native.library().opwright_embedding_set_hosts(
            "\n".join(tasks).encode(), own, timeout
        )

    def _reduce_to(
        self,
        reduce_op: tf.distribute.ReduceOp,
        value: object,
        destinations: object,
        options: object,
    ) -> object:
        # TPUStrategy also returns such a value unchanged. Keras 3 requests the mean of
        # a dict or tuple that has all results of a batch.
        if reduce_op == tf.distribute.ReduceOp.MEAN and isinstance(value, dict | tuple):
            return value
        return super()._reduce_to(reduce_op, value, destinations, options)


def meet(strategy: tf.distribute.Strategy) -> None:
    """Waits for all hosts. Afterwards each host has the list of the others' devices."""
    strategy.reduce(tf.distribute.ReduceOp.SUM, tf.constant(1.0), axis=None)


class _Cluster:
    """State of the process, which all its strategies share."""

    server_started = False
    strategies = 0


def _tasks(resolver: Resolver) -> tuple[list[str], int]:
    """The task names of all hosts, and the index of this process in that list."""
    spec = resolver.cluster_spec()
    job, task = resolver.task_type, resolver.task_id
    if not spec.as_dict() or job is None or task is None:
        raise ValueError(
            "software_strategy: the resolver must name the cluster, and the job and "
            "task in it that this process is; it has the cluster "
            f"{spec.as_dict()}, the job {job!r} and the task {task!r}. With TF_CONFIG, "
            "that is its 'cluster' and its 'task'."
        )
    if job not in ("chief", "worker"):
        raise ValueError(
            "software_strategy: hosts are the tasks of the jobs 'chief' and 'worker'; "
            f"this process is task {task} of {job!r}"
        )
    tasks = [
        f"/job:{name}/replica:0/task:{index}"
        for name in ("chief", "worker")
        if name in spec.jobs
        for index in range(spec.num_tasks(name))
    ]
    return tasks, multi_worker_util.id_in_cluster(spec, job, task)


def _addresses(resolver: Resolver) -> list[str]:
    """ "host:port" of each task that has one."""
    spec = resolver.cluster_spec()
    tasks = [task for job in spec.jobs for task in spec.job_tasks(job)]
    return [address for address in tasks if address]


def _configure_heartbeats(resolver: Resolver, timeout: float) -> None:
    """Configures the heartbeats of TensorFlow's tasks.

    Their timeout is that of the messages between hosts.
    """
    current = context.context()
    if current.coordination_service is not None:
        return
    spec = resolver.cluster_spec()
    current.configure_coordination_service(
        service_type="standalone",
        service_leader=multi_worker_util.coordination_leader(spec),
        heartbeat_timeout_in_ms=int(timeout * 1000),
        coordinated_jobs=[
            CoordinatedJob(name=name, num_tasks=spec.num_tasks(name))
            for name in ("chief", "worker")
            if name in spec.jobs
        ],
    )


def _of_the_function_around(graph: Any, *args: object, **kwargs: object) -> object:
    """Captures a value that is known only when the enclosing function is called.

    The instance key of a collective is such a value. TensorFlow passes it from a
    caller to the function. In a branch between the two, TensorFlow loses it, with the
    error "You must feed a value for placeholder". Here the graph of the branch
    or loop takes the value from the graph around it. Keras 3 needs this: with several
    steps per execution it calls a function in a branch in a loop.
    """
    return graph.outer_graph.capture_call_time_value(*args, **kwargs)


class OneHost(distribute_lib.Strategy):  # type: ignore[misc]
    """A view of a strategy that has only the replicas of this process."""

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._extended = strategy.extended

    @property
    def num_replicas_in_sync(self) -> int:
        return len(self._extended.worker_devices)


def forget_hosts() -> None:
    """Ends the cluster: from now on tables belong to this process alone."""
    native.library().opwright_embedding_set_hosts(b"", 0, 0.0)


def embedding_bytes_sent() -> dict[str, int]:
    """How many bytes this host has sent to others for the embedding tables in use.

    Returns:
        bytes by kind, and the number of `messages`. The kinds are: `counts` of ids,
        `ids`, `rows`, `gradients`, `tables` that were read, `errors` that refused a
        batch, and `configurations` that are compared before the first step. All are 0
        if there is only one host.

    Raises:
        NativeLibraryError: the native kernels are not built.
    """
    return dict(zip(_SENT, native.sent_by_embeddings(len(_SENT)), strict=True))
