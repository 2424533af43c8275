"""A TPU strategy without a TPU: programs with `TPUEmbedding` run on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime import native
from opwright_runtime._internals import (
    distribute_lib,
    one_device,
    tpu_strategy,
)
from opwright_runtime.embedding.feature_names import name_features
from opwright_runtime.embedding.fetched_data import Distributed, fetched
from opwright_runtime.embedding.run_context import (
    as_inputs,
    jit_compile_error,
    run_context,
)
from opwright_runtime.embedding.steps import (
    drop_batches_of_failed_step,
    embedding_step,
    in_embedding_step,
)

Options: TypeAlias = tf.distribute.InputOptions | None
# What TPUEmbedding takes for the only core. There is no such device: its ops are placed
# on the CPU, the only one that they have kernels for.
_CORE = "/job:localhost/replica:0/task:0/device:TPU:0"


class _HardwareFeature:
    """What libraries ask before they choose between TPUEmbedding and later kinds."""

    embedding_feature = tf.tpu.experimental.HardwareFeature.EmbeddingFeature.V1

    @property
    def num_embedding_devices_per_chip(self) -> int:
        raise NotImplementedError(
            "software_strategy is a TPU without SparseCores, which TPUEmbeddingV2 is "
            "for: make a tf.tpu.experimental.embedding.TPUEmbedding with the same "
            "features and optimizer. The SparseCore ops run through their classes in "
            "opwright.tpu, and opwright.tpu.table shows a table as it is."
        )


class _SoftwareExtended(one_device.OneDeviceExtended):  # type: ignore[misc]
    """One CPU device, which shows itself as a TPU system of one host and one core."""

    num_hosts = 1
    num_replicas_per_host = 1
    worker_devices = (_CORE,)
    tpu_hardware_feature = _HardwareFeature()
    _device_assignment = None
    _tpu_cluster_resolver = None

    def __init__(self, strategy: SoftwareTPUStrategy, strict: bool) -> None:
        super().__init__(strategy, "/cpu:0")
        self._strict = strict

    def _create_variable(
        self, next_creator: Callable[..., tf.Variable], **kwargs: object
    ) -> tf.Variable:
        # As TPUStrategy: what is no replica's business is its creator's, who takes what
        # else there is. A table is no variable that another could lie beside.
        if kwargs.pop("skip_mirrored_creator", False):
            return next_creator(**kwargs)
        return super()._create_variable(next_creator, **kwargs)

    def _experimental_distribute_dataset(
        self, dataset: tf.data.Dataset, options: Options
    ) -> Distributed:
        made = super()._experimental_distribute_dataset(dataset, options)
        return self._fetched(made, dataset.element_spec, options)

    def _distribute_datasets_from_function(
        self, dataset_fn: Callable[..., tf.data.Dataset], options: Options
    ) -> Distributed:
        made = super()._distribute_datasets_from_function(dataset_fn, options)
        return self._fetched(made, made.element_spec, options)

    def _fetched(
        self, dataset: Distributed, element_spec: object, options: Options
    ) -> Distributed:
        """Data go to the TPU where the program does not say otherwise."""
        fetches = not options or options.experimental_fetch_to_device
        if not self._strict or not fetches:
            return dataset
        tpu_strategy.TPUExtended._check_spec(self, element_spec)
        return fetched(dataset)


class SoftwareTPUStrategy(tpu_strategy.TPUStrategyV2):  # type: ignore[misc]
    """A `tf.distribute.TPUStrategy` of one core, which is this machine's CPU.

    Functions run as they are: nothing is replicated, nothing compiled with XLA.
    """

    def __init__(self, strict: bool = True) -> None:
        # Not TPUStrategyV2's, which looks for TPUs.
        distribute_lib.Strategy.__init__(self, _SoftwareExtended(self, strict))
        self._strict = strict

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

        Raises:
            NotImplementedError: ops of TPU embeddings, here or in `fn`, stand in a
                function with `jit_compile=True`.
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
        if not tf.executing_eagerly() and not tf.inside_function():
            # A session's graph, which TensorFlow's checks are not made for.
            return distribute_lib.Strategy.run(self, fn, args, kwargs)
        if self._strict and tf.inside_function():
            args, kwargs = as_inputs((tuple(args), dict(kwargs or {})))
        try:
            with run_context(self._strict):
                return distribute_lib.Strategy.run(self, fn, args, kwargs)
        except (tf.errors.InvalidArgumentError, RuntimeError) as error:
            # XLA found an op of ours; or TensorFlow found enqueue in a function, which
            # Keras 2 makes of what it has compiled.
            said = str(error)
            in_xla = "XLA_CPU_JIT" in said and "TPUEmbedding" in said
            within = getattr(fn, "_jit_compile", False) and "TPUReplicate" in said
            if in_xla or within:
                raise jit_compile_error("a step with TPU embeddings") from error
            raise


def software_strategy(*, strict: bool = True) -> SoftwareTPUStrategy:
    """A strategy under which `tf.tpu.experimental.embedding.TPUEmbedding` runs here.

    It stands where `tf.distribute.TPUStrategy(resolver)` stands, and the program stays
    as it is. Like initialising a TPU system, making one clears what was configured:
    another `TPUEmbedding` is made under it. One made before must not be used any more:
    it has no tables, or, configured alike, those of the other.

    Args:
        strict: refuse what TensorFlow refuses on a TPU, in its words: `enqueue` within
            control flow or a `tf.function` that `run` calls, or with inputs that are
            not those of the function which `run` calls; ids of a data set that was
            distributed without `experimental_fetch_to_device=False`, and ragged or
            sparse ones already when it is distributed.

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
    name_features(SoftwareTPUStrategy)
    return SoftwareTPUStrategy(strict)
