"""The attributes and methods by which libraries take a strategy for a TPU system."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from opwright_runtime._internals import one_device, tpu_strategy
from opwright_runtime.embedding.fetched_data import Distributed, fetched
from opwright_runtime.embedding.run_context import run_context
from opwright_runtime.types import AnyDTypeLike

Options: TypeAlias = tf.distribute.InputOptions | None


_Feature = tf.tpu.experimental.HardwareFeature.EmbeddingFeature


@dataclass(frozen=True)
class HardwareFeature:
    """The hardware feature by which libraries choose TPUEmbedding or TPUEmbeddingV2.

    Attributes:
        sparse_cores: the SparseCores of a chip; None: TPUs without SparseCores.
    """

    sparse_cores: int | None = None

    @property
    def embedding_feature(self) -> object:
        return _Feature.V1 if self.sparse_cores is None else _Feature.V2

    @property
    def num_embedding_devices_per_chip(self) -> int:
        if self.sparse_cores is None:
            raise NotImplementedError(
                "this software_strategy is a TPU without SparseCores, which "
                "TPUEmbeddingV2 is for: make it with embedding_feature='v2'; or make a "
                "tf.tpu.experimental.embedding.TPUEmbedding with the same features and "
                "optimizer"
            )
        return self.sparse_cores


def core_names(cores: int) -> tuple[str, ...]:
    """The device names that TPUEmbedding uses for the cores.

    No such devices exist. Soft placement puts the ops of a core on a device that has
    kernels for these ops: the CPU, or the one GPU.
    """
    return tuple(
        f"/job:localhost/replica:0/task:0/device:TPU:{core}" for core in range(cores)
    )


class TPUSystem:
    """A mixin for a strategy's extension, which adds the attributes of a TPU system."""

    num_hosts = 1
    steps_per_run = 1  # The steps of a loop within the TPU. tf_keras reads it.
    tpu_hardware_feature = HardwareFeature()
    row_dtypes: Mapping[str, AnyDTypeLike] = MappingProxyType({})  # By table.
    _device_assignment = None
    _tpu_cluster_resolver = None
    _strict: bool

    @property
    def num_replicas_per_host(self) -> int:
        return 1

    @property
    def _tpu_devices(self) -> NDArray[np.str_]:
        """The names of the cores, [replicas, cores of a replica]."""
        return np.array(core_names(self.num_replicas_per_host)).reshape(-1, 1)

    def call_for_each_replica(
        self,
        fn: Callable[..., object],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Any:
        """Runs `fn` on each core. `strategy.run` calls it, and so do older programs."""
        with run_context(self._strict, args, kwargs or {}) as (args, kwargs):
            return super().call_for_each_replica(fn, args, kwargs)  # type: ignore[misc]

    def _create_variable(
        self, next_creator: Callable[..., tf.Variable], **kwargs: object
    ) -> tf.Variable:
        # TPUStrategy has the same argument: with it, the next creator makes a variable
        # that is not mirrored. TPUEmbedding passes it for tables.
        if kwargs.pop("skip_mirrored_creator", False):
            return next_creator(**kwargs)
        made: tf.Variable = super()._create_variable(  # type: ignore[misc]
            next_creator, **kwargs
        )
        return made

    def _validate_colocate_with_variable(self, variable: tf.Variable) -> None:
        # Like TPUStrategy, it also accepts a table, because slots are colocated with
        # tables.
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
        """Marks data as fetched to the TPU, unless the options turn that off."""
        fetches = not options or options.experimental_fetch_to_device
        if not self._strict or not fetches:
            return dataset
        tpu_strategy.TPUExtended._check_spec(self, element_spec)
        return fetched(dataset)


class OneCore(TPUSystem, one_device.OneDeviceExtended):  # type: ignore[misc]
    """A strategy's extension for one device. Variables and layers are plain ones."""

    worker_devices = core_names(1)

    def __init__(
        self, strategy: tf.distribute.Strategy, strict: bool, device: str = "/cpu:0"
    ) -> None:
        one_device.OneDeviceExtended.__init__(self, strategy, device)
        self._strict = strict
