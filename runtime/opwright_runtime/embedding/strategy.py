"""A TPU strategy without a TPU: programs with `TPUEmbedding` run on CPU or GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from opwright_runtime import native
from opwright_runtime._internals import distribute_lib, tpu_strategy
from opwright_runtime.embedding.cores import (
    Cores,
    leave_threads_to_replicas,
    need_logical_cpus,
)
from opwright_runtime.embedding.hosts import (
    Host,
    Resolver,
    forget_hosts,
    meet,
)
from opwright_runtime.embedding.live_tables import show_tables_of
from opwright_runtime.embedding.row_dtypes import check_row_dtypes
from opwright_runtime.embedding.run_context import (
    adapt_variables,
    is_embedding_op,
    jit_compile_error,
)
from opwright_runtime.embedding.sparse_core_embedding import (
    adapt_sparse_core_embedding,
)
from opwright_runtime.embedding.steps import (
    drop_batches_of_failed_step,
    embedding_step,
    in_embedding_step,
)
from opwright_runtime.embedding.tpu_embedding import adapt_tpu_embedding
from opwright_runtime.embedding.tpu_system import HardwareFeature, OneCore
from opwright_runtime.types import AnyDTypeLike


class SoftwareTPUStrategy(tpu_strategy.TPUStrategyV2):  # type: ignore[misc]
    """A `tf.distribute.TPUStrategy` whose cores are this machine's CPU, or a GPU.

    With one core, `run` calls a function once. With several cores, `run` calls it once
    for each core, within one graph. In a cluster, each host has one core. XLA compiles
    nothing.
    """

    _collective_key_base = 0  # Mirrored and collective strategies read it.

    def __init__(
        self,
        cores: int = 1,
        strict: bool = True,
        resolver: Resolver | None = None,
        timeout: float = 60.0,
        device: str = "/cpu:0",
    ) -> None:
        extended: Host | OneCore | Cores
        if resolver is not None:
            extended = Host(self, resolver, timeout, strict)
        elif cores == 1:
            extended = OneCore(self, strict, device)
        else:
            extended = Cores(self, cores, strict)
        # Not TPUStrategyV2's, which looks for TPUs.
        distribute_lib.Strategy.__init__(self, extended)

    def run(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        options: object = None,
    ) -> Any:
        """Calls `fn` in each replica's context, on the strategy's device.

        An eager call is one step. If `fn` raises an exception, two kinds of batches are
        dropped: those that are still enqueued, and those that were received and whose
        gradients were not sent. If these are more batches than one step has, the next
        op of TPU embeddings raises an error that says so. Within `embedding_step`, only
        the batches of that step are dropped.

        Args:
            fn: the function to call. A `tf.function` is traced as usual.
            args: its arguments.
            kwargs: its keyword arguments. If `args` or `kwargs` contain a
                `tf.distribute.DistributedValues`, each replica gets its own value.
            options: ignored, because they concern XLA.

        Returns:
            What `fn` returns. With several cores, each tensor is a `PerReplica` of the
            tensors of all cores.

        Raises:
            NotImplementedError: ops of TPU embeddings are in a function with
                `jit_compile=True`. A `TPUEmbeddingV2` may be in one that calls `run`.
        """
        if tf.inside_function() or in_embedding_step():
            return self._run(fn, args, kwargs)
        try:
            with embedding_step():
                return self._run(fn, args, kwargs)
        except BaseException:
            drop_batches_of_failed_step()
            raise

    def _run(
        self,
        fn: Callable[..., object],
        args: Sequence[object],
        kwargs: Mapping[str, object] | None,
    ) -> Any:
        try:
            return distribute_lib.Strategy.run(self, fn, args, kwargs)
        except (tf.errors.InvalidArgumentError, RuntimeError) as error:
            # Either XLA found one of opwright's ops, or TensorFlow found an enqueue op
            # in a function. Keras 2 compiles a training step to such a function.
            said = str(error)
            in_xla = "XLA_CPU_JIT" in said and is_embedding_op(said)
            within = getattr(fn, "_jit_compile", False) and "TPUReplicate" in said
            if in_xla or within:
                raise jit_compile_error("a step with TPU embeddings") from error
            raise


def _one_device_a_replica(name: str) -> Callable[..., Any]:
    """Replaces a method of TPUStrategy that is for replicas of several cores.

    The replacement raises NotImplementedError.
    """

    def refuse(self: SoftwareTPUStrategy, *args: object, **kwargs: object) -> Any:
        raise NotImplementedError(
            f"{name}: a replica of software_strategy is one device. Several cores a "
            "replica, among which XLA divides a program (SPMD), take a TPU. Leave the "
            "call away: the value is whole on its replica's device; cores=... gives "
            "more replicas"
        )

    return refuse


for _name in (
    "experimental_assign_to_logical_device",
    "experimental_replicate_to_logical_devices",
    "experimental_split_to_logical_devices",
):
    setattr(SoftwareTPUStrategy, _name, _one_device_a_replica(_name))


def _need_one_gpu(cores: int, resolver: Resolver | None) -> None:
    """Refuses arguments that do not work with tables on the GPU "/gpu:0".

    TPUEmbedding places ConfigureTPUEmbedding on a TPU. Without TPUs, TensorFlow moves
    the op to the first GPU. Only with one visible GPU is this certain to be "/gpu:0".
    """
    if cores != 1:
        raise ValueError(
            f"software_strategy: a GPU is one core, not {cores}; leave cores out, or "
            "device, to have several on the CPU"
        )
    if resolver is not None:
        raise ValueError(
            "software_strategy: tables on a GPU are not shared out over hosts; leave "
            "resolver out, or device"
        )
    if not native.cuda():
        raise RuntimeError(
            f"software_strategy: {native.LIBRARY} has no kernels for GPUs; build it "
            "with `make native CUDA=ON`"
        )
    gpus = tf.config.get_visible_devices("GPU")
    if not gpus:
        raise RuntimeError(
            "software_strategy: TensorFlow sees no GPU; "
            'tf.config.list_physical_devices("GPU") says which it could see'
        )
    if len(gpus) > 1:
        raise RuntimeError(
            "software_strategy: tables lie on one GPU, and TensorFlow sees "
            f"{len(gpus)}; choose one, at the program's beginning: "
            'tf.config.set_visible_devices(tf.config.list_physical_devices("GPU")[:1], '
            '"GPU")'
        )


def _sparse_cores(
    feature: object, count: object, device: str, resolver: Resolver | None
) -> int | None:
    """The SparseCores of a chip; None without any. Refuses what does not fit them."""
    if feature not in ("v1", "v2"):
        raise ValueError(
            f"software_strategy: embedding_feature must be 'v1', for TPUEmbedding, or "
            f"'v2', for TPUEmbeddingV2, not {feature!r}"
        )
    if feature == "v1":
        return None
    if count not in (1, 2, 4) or isinstance(count, bool):
        raise ValueError(
            "software_strategy: sparse_cores_per_chip must be 1, 2 (as a v6e has) or 4 "
            f"(as a v5p has), not {count!r}"
        )
    for argument, refused in (
        ("device='/gpu:0'", device != "/cpu:0"),
        ("resolver", resolver is not None),
    ):
        if refused:
            raise ValueError(
                "software_strategy: SparseCores run on the CPU of one host; leave "
                f"{argument} out, or embedding_feature"
            )
    return int(count)


def software_strategy(
    resolver: Resolver | None = None,
    *,
    device: str = "/cpu:0",
    cores: int = 1,
    strict: bool = True,
    timeout: float = 60.0,
    embedding_feature: str = "v1",
    sparse_cores_per_chip: int = 4,
    row_dtypes: Mapping[str, AnyDTypeLike] | None = None,
) -> SoftwareTPUStrategy:
    """A strategy under which `tf.tpu.experimental.embedding.TPUEmbedding` runs here.

    Use it in place of `tf.distribute.TPUStrategy(resolver)`. The rest of the program
    does not change. The call clears all tables, as initialising a TPU system does. A
    new `TPUEmbedding` is then created under the new strategy. An earlier `TPUEmbedding`
    must not be used any more: it has no tables, or, with the same configuration, uses
    the tables of the new one.

    Args:
        resolver: the resolver of a cluster, each of whose tasks has a part of the rows
            of every table. Each task is a process that runs the program with its part
            of a batch, as under `tf.distribute.MultiWorkerMirroredStrategy`. The call
            waits for all tasks. TensorFlow's server of a task listens on all interfaces
            of its machine, without authentication or encryption, even if the address is
            `localhost:23411`. Anyone who reaches the port can read and change tables,
            write files and end the training. Run hosts in a private network, behind a
            firewall, or through a tunnel (WireGuard, ssh): SECURITY.md. A warning names
            addresses that are neither loopback nor private.
        device: "/gpu:0" puts tables and steps on the one GPU that TensorFlow sees. The
            library must have kernels for GPUs: docs/how-to/gpu.md.
        cores: how many replicas `run` has. TPUEmbedding treats each as a TPU core, with
            its own batch. All cores share the tables, and a step updates these by the
            gradients of all cores. Cores are logical CPU devices. The call creates
            several such devices. It can do so only before TensorFlow runs its first op.
        strict: whether to refuse what TensorFlow refuses on a TPU, with the same
            errors. This is `enqueue` within control flow, within a `tf.function` that
            `run` calls, or with tensors that are not inputs of the function that `run`
            calls. It is also `enqueue` with ids of a data set that was distributed
            without `experimental_fetch_to_device=False`. Such a data set with ragged or
            sparse ids is refused when it is distributed.
        timeout: after how many seconds a host that does not answer counts as failed.
            The steps of all other hosts then end with an error that names it.
        embedding_feature: "v2" is a TPU with SparseCores, on which
            `tf.tpu.experimental.embedding.TPUEmbeddingV2` runs:
            docs/how-to/embedding_v2.md. Libraries choose the class by it.
        sparse_cores_per_chip: the SparseCores of each core with "v2": 4 as a v5p has,
            or 2 as a v6e has. It decides how tables are sharded.
        row_dtypes: by the name of a table, the dtype in which its rows are stored:
            float32 (the default), float16, bfloat16 or int8. Narrow rows of many
            columns take a half or a quarter of the engine's memory for them:
            docs/how-to/embedding_narrow.md.

    Raises:
        NativeLibraryError: the native kernels are not built.
        TypeError: `row_dtypes` is no mapping.
        ValueError: `cores` is not an int of at least 1, or is not 1 with a cluster or a
            GPU; the resolver does not have this process's task; `device` is neither
            "/cpu:0" nor "/gpu:0", or is a GPU with a cluster; `embedding_feature` or
            `sparse_cores_per_chip` is none of the values above, or there are
            SparseCores and a cluster or a GPU; `row_dtypes` has another dtype, or
            comes with SparseCores or a GPU. A `TPUEmbedding` raises it when it is
            built, for a name in `row_dtypes` that none of its tables has.
        RuntimeError: a strategy for a cluster comes after the program's first op;
            TensorFlow runs with fewer logical CPU devices than `cores`; soft device
            placement is off; a graph is being built; the device is the CPU, and a GPU
            is visible to a library with kernels for GPUs; or the device is a GPU, and
            TensorFlow sees none, or several, or the library has no kernels; or there
            are SparseCores, and TensorFlow is older than 2.21.
    """
    if not isinstance(cores, int) or isinstance(cores, bool) or cores < 1:
        raise ValueError(
            f"software_strategy: cores must be an int of at least 1, not {cores!r}"
        )
    if resolver is not None and cores != 1:
        raise ValueError(
            f"software_strategy: a host of a cluster has one core, not {cores}; start "
            "as many tasks as there shall be replicas"
        )
    if not timeout > 0:
        raise ValueError(
            f"software_strategy: timeout must be seconds, more than 0, not {timeout}"
        )
    if device not in ("/cpu:0", "/gpu:0"):
        raise ValueError(
            f"software_strategy: device must be '/cpu:0' or '/gpu:0', not {device!r}; "
            "the GPU that TensorFlow is left with by tf.config.set_visible_devices is "
            "'/gpu:0', whichever it is"
        )
    sparse_cores = _sparse_cores(
        embedding_feature, sparse_cores_per_chip, device, resolver
    )
    narrow = check_row_dtypes(row_dtypes, device, embedding_feature)
    native.load()
    if not tf.executing_eagerly():
        raise RuntimeError("software_strategy: call it eagerly, not in a graph")
    if not tf.config.get_soft_device_placement():
        raise RuntimeError(
            "software_strategy: ops that TPUEmbedding places on TPUs must fall back to "
            "the devices that there are; call tf.config.set_soft_device_placement(True)"
        )
    if device != "/cpu:0":
        _need_one_gpu(cores, resolver)
    elif native.cuda() and tf.config.get_visible_devices("GPU"):
        raise RuntimeError(
            "software_strategy: TensorFlow would spread its ops over the CPU and a "
            "GPU, which this build of opwright has kernels for; say device='/gpu:0', "
            'or call tf.config.set_visible_devices([], "GPU") first'
        )
    need_logical_cpus(cores)
    leave_threads_to_replicas(cores)
    forget_hosts()
    show_tables_of(None)
    strategy = SoftwareTPUStrategy(cores, strict, resolver, timeout, device)
    strategy.extended.row_dtypes = narrow
    with tf.device(device):
        tf.raw_ops.ShutdownDistributedTPU()
        tf.raw_ops.ConfigureDistributedTPU()
    adapt_tpu_embedding()
    adapt_variables()
    if sparse_cores is not None:
        adapt_sparse_core_embedding()
        strategy.extended.tpu_hardware_feature = HardwareFeature(sparse_cores)
    if resolver is not None:
        meet(strategy)
    return strategy
