"""A TPU strategy without a TPU: programs with `TPUEmbedding` run on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from opwright_runtime import native
from opwright_runtime._internals import (
    TPUHardwareFeature,
    distribute_lib,
    one_device,
    tpu_strategy,
)
from opwright_runtime.embedding.steps import (
    drop_batches_of_failed_step,
    embedding_step,
    in_embedding_step,
)

# What TPUEmbedding takes for the only core. There is no such device: its ops are placed
# on the CPU, the only one that they have kernels for.
_CORE = "/job:localhost/replica:0/task:0/device:TPU:0"


class _SoftwareExtended(one_device.OneDeviceExtended):  # type: ignore[misc]
    """One CPU device, which shows itself as a TPU system of one host and one core."""

    num_hosts = 1
    num_replicas_per_host = 1
    worker_devices = (_CORE,)
    # What libraries ask before they choose between TPUEmbedding and its later kinds.
    tpu_hardware_feature = tf.tpu.experimental.HardwareFeature(
        TPUHardwareFeature(embedding_feature=TPUHardwareFeature.V1)
    )
    _device_assignment = None
    _tpu_cluster_resolver = None

    def _create_variable(
        self, next_creator: Callable[..., tf.Variable], **kwargs: object
    ) -> tf.Variable:
        # A TPUStrategy's word for what no variable needs here.
        kwargs.pop("skip_mirrored_creator", None)
        return super()._create_variable(next_creator, **kwargs)


class SoftwareTPUStrategy(tpu_strategy.TPUStrategyV2):  # type: ignore[misc]
    """A `tf.distribute.TPUStrategy` of one core, which is this machine's CPU.

    Functions run as they are: nothing is replicated, nothing compiled with XLA.
    """

    def __init__(self) -> None:
        # Not TPUStrategyV2's, which looks for TPUs.
        distribute_lib.Strategy.__init__(self, _SoftwareExtended(self, "/cpu:0"))

    def run(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
        options: object = None,
    ) -> Any:
        """Calls `fn` in a replica's context, on the CPU.

        Eagerly it is one step. When `fn` raises, batches that are enqueued are dropped,
        and so are those that were received without sending their gradients; where that
        is more than a step has, the next op is refused and says so. Within
        `embedding_step` only what belongs to the step is dropped.

        Args:
            fn: what to call; a `tf.function` traces as it does elsewhere.
            args: its arguments.
            kwargs: its keyword arguments.
            options: taken, and of no effect: they are about XLA.
        """
        if tf.inside_function() or in_embedding_step():
            return distribute_lib.Strategy.run(self, fn, args, kwargs, options)
        try:
            with embedding_step():
                return distribute_lib.Strategy.run(self, fn, args, kwargs, options)
        except BaseException:
            drop_batches_of_failed_step()
            raise


def software_strategy() -> SoftwareTPUStrategy:
    """A strategy under which `tf.tpu.experimental.embedding.TPUEmbedding` runs here.

    It stands where `tf.distribute.TPUStrategy(resolver)` stands, and the program stays
    as it is. Like initialising a TPU system, making one clears what was configured:
    another `TPUEmbedding` is made under it. One made before must not be used any more:
    it has no tables, or, configured alike, those of the other.

    Raises:
        NativeLibraryError: the native kernels are not built.
        RuntimeError: soft device placement is off, a graph is being built, or a GPU is
            visible to a library with kernels for GPUs.
    """
    native.load()
    if not tf.executing_eagerly():
        raise RuntimeError("software_strategy: call it eagerly, not in a graph")
    if not tf.config.get_soft_device_placement():
        raise RuntimeError(
            "software_strategy: ops that TPUEmbedding places on TPUs must fall back to "
            "the CPU; call tf.config.set_soft_device_placement(True)"
        )
    if native.cuda() and tf.config.get_visible_devices("GPU"):
        raise RuntimeError(
            "software_strategy: TensorFlow would spread its ops over the CPU and a "
            "GPU, which this build of opwright has kernels for; call "
            'tf.config.set_visible_devices([], "GPU") first'
        )
    with tf.device("/cpu:0"):
        tf.raw_ops.ShutdownDistributedTPU()
        tf.raw_ops.ConfigureDistributedTPU()
    return SoftwareTPUStrategy()
