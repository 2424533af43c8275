"""What a strategy shows of itself to be taken for a TPU system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime._internals import one_device, tpu_strategy
from opwright_runtime.embedding.fetched_data import Distributed, fetched
from opwright_runtime.embedding.run_context import run_context

Options: TypeAlias = tf.distribute.InputOptions | None


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


def core_names(cores: int) -> tuple[str, ...]:
    """What TPUEmbedding takes for the cores. There are no such devices: their ops are
    placed where they have kernels, on the CPU or else on the one GPU."""
    return tuple(
        f"/job:localhost/replica:0/task:0/device:TPU:{core}" for core in range(cores)
    )


class TPUSystem:
    """What a TPU adds to a strategy's own extension: one host, and its TPU system."""

    num_hosts = 1
    steps_per_run = 1  # Of a loop within the TPU; tf_keras reads it.
    tpu_hardware_feature = _HardwareFeature()
    _device_assignment = None
    _tpu_cluster_resolver = None
    _strict: bool

    def call_for_each_replica(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """What `strategy.run` comes to, and older programs call themselves."""
        with run_context(self._strict, args, kwargs or {}) as (args, kwargs):
            return super().call_for_each_replica(fn, args, kwargs)  # type: ignore[misc]

    def _create_variable(
        self, next_creator: Callable[..., tf.Variable], **kwargs: object
    ) -> tf.Variable:
        # As TPUStrategy: the next creator makes a variable that is not one of replicas.
        # A table is no variable that another could be colocated with.
        if kwargs.pop("skip_mirrored_creator", False):
            return next_creator(**kwargs)
        made: tf.Variable = super()._create_variable(  # type: ignore[misc]
            next_creator, **kwargs
        )
        return made

    def _validate_colocate_with_variable(self, variable: tf.Variable) -> None:
        # As TPUStrategy: also a table, with which slots are colocated.
        tpu_strategy.TPUExtended._validate_colocate_with_variable(self, variable)

    def _experimental_distribute_dataset(
        self, dataset: tf.data.Dataset, options: Options
    ) -> Distributed:
        made = super()._experimental_distribute_dataset(  # type: ignore[misc]
            dataset, options
        )
        return self._fetched(made, dataset.element_spec, options)

    def _distribute_datasets_from_function(
        self, dataset_fn: Callable[..., tf.data.Dataset], options: Options
    ) -> Distributed:
        made = super()._distribute_datasets_from_function(  # type: ignore[misc]
            dataset_fn, options
        )
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


class OneCore(TPUSystem, one_device.OneDeviceExtended):  # type: ignore[misc]
    """A device as it is. Variables and layers are plain ones."""

    num_replicas_per_host = 1
    worker_devices = core_names(1)

    def __init__(
        self, strategy: tf.distribute.Strategy, strict: bool, device: str = "/cpu:0"
    ) -> None:
        one_device.OneDeviceExtended.__init__(self, strategy, device)
        self._strict = strict
