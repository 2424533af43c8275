"""Limits on the ids that SparseCores look up: what a batch or a data set needs."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from opwright_runtime import native
from opwright_runtime._internals import nest, sparse_core_embedding, tpu_strategy
from opwright_runtime._patches import SPARSE_CORES
from opwright_runtime.embedding.custom_combiners import (
    Untyped,
    combiner_of,
    positions_of_ids,
    separate,
)
from opwright_runtime.embedding.live_tables import shown_embedding
from opwright_runtime.embedding.stacked_tables import TPUEmbeddingV2
from opwright_runtime.embedding.steps import NOT_CONFIGURED

# TensorFlow's classes have no types.
FeatureConfig: TypeAlias = Untyped
SparseCoreEmbeddingConfig: TypeAlias = Untyped
TableStacking: TypeAlias = Untyped
Optimizer: TypeAlias = Untyped
# The triples of a stack: samples, rows and gains, each by SparseCore and feature, and
# the samples and the first row of each feature.
Triples: TypeAlias = Sequence[Untyped]
# What batches need, [stacks, 3].
Needs: TypeAlias = NDArray[np.int32]

_LARGEST = 2**31 - 1  # Of int32, whose values limits are.
_ALIGNMENT = 8  # The buffers of a chip are a multiple of it.
_SECONDS = 10.0  # Between two lines of progress, outside of a terminal.


class DroppedIds(NamedTuple):
    """The ids that lookups in a stack of tables have dropped.

    Attributes:
        ids: the number of dropped ids. Equal ids of a sample count once.
        batches: the number of batches of a core that had too many ids.
        max_ids_per_chip_per_sample: the argument of `SparseCoreEmbeddingConfig` with
            which none of these batches drops an id.
    """

    ids: int
    batches: int
    max_ids_per_chip_per_sample: int


class Limits(NamedTuple):
    """The limits of a stack, with the names of `SparseCoreEmbeddingConfig`."""

    max_ids: int = _LARGEST
    max_unique_ids: int = _LARGEST
    max_ids_per_chip_per_sample: int = _LARGEST
    allow_id_dropping: bool = True


class Layout(NamedTuple):
    """Where tables and samples are in the stacks that SparseCores look up.

    Attributes:
        structure: the nested `FeatureConfig`s, whose tables have padded sizes.
        stacking: TensorFlow's record of the stacks.
        cores: the number of chips.
        sparse_cores: the number of SparseCores of a chip.
    """

    structure: Untyped
    stacking: TableStacking
    cores: int
    sparse_cores: int

    @property
    def features(self) -> list[tuple[str, FeatureConfig]]:
        found: list[tuple[str, FeatureConfig]] = nest.flatten_with_joined_string_paths(
            self.structure
        )
        return found

    @property
    def stacks(self) -> list[str]:
        return list(self.stacking.stacked_table_to_tables)


def layout_of(embedding: TPUEmbeddingV2) -> Layout:
    """The layout of a TPUEmbeddingV2."""
    return Layout(
        embedding._feature_config,
        embedding._s,
        embedding._strategy.num_replicas_in_sync,
        embedding._num_sc_per_chip,
    )


def place_of(path: str) -> str:
    """A feature in an error, by its path in the nested features."""
    return f"features at {path!r}" if path else "features"


def rows_of_ids(layout: Layout, flat: Sequence[Untyped]) -> list[Untyped]:
    """The ids of each feature as int32, which are rows of their tables when ops run.

    TensorFlow casts ids to int32, and looks up what is left. In a stack of tables, an
    id beyond its table is a row of the next one. With a custom combiner, each position
    of a sample is a row of the result.
    """
    checked = []
    for (path, feature), given in zip(layout.features, flat, strict=True):
        table, ids = feature.table, given
        if combiner_of(feature) is not None:
            ids = positions_of_ids(place_of(path), feature, given)
        padding = layout.stacking.table_to_padding_rows[table.name]
        values = ids
        if isinstance(ids, tf.RaggedTensor):
            values = ids.flat_values
        elif isinstance(ids, tf.SparseTensor):
            values = ids.values
        if values.dtype not in (tf.int32, tf.int64):
            values = tf.cast(values, tf.int64)
        rows = native.ops().opwright_sparse_core_ids(
            values,
            table_rows=table.vocabulary_size - padding,
            feature=place_of(path),
            table=table.name,
        )
        if isinstance(ids, tf.SparseTensor):
            checked.append(tf.SparseTensor(ids.indices, rows, ids.dense_shape))
        elif isinstance(ids, tf.RaggedTensor):
            checked.append(ids.with_flat_values(rows))
        else:
            checked.append(rows)
    return checked


def sort_ids(
    layout: Layout, stack: str, triples: Triples, limits: Limits
) -> tuple[tuple[list[tf.Tensor], ...], tf.Tensor]:
    """Sorts the triples of a stack by shard, and checks them against the limits.

    TensorFlow's op that sorts checks the same limits, for one SparseCore. So its error
    cannot name the numbers for all of them.

    Returns:
        The sorted samples, rows, gains and the counts of ids, each by SparseCore; and
        what the batch needs, [3], int32: ids and distinct ids of a shard, and space.
    """
    samples, rows, gains, sample_counts, offsets = triples
    tables = layout.stacking.stacked_table_to_tables[stack]
    of_cores = [
        sparse_core_embedding.xla_ops.sort_list_of_sparse_core_coo_tensors(
            row_ids_list=samples[core],
            col_ids_list=rows[core],
            gains_list=gains[core],
            sample_count_list=sample_counts,
            col_offset_list=offsets,
            num_replica=layout.cores,
            table_vocab_size=sum(table.vocabulary_size for table in tables),
            feature_width=tables[0].dim,
            num_sc_per_chip=layout.sparse_cores,
            max_ids_per_sparse_core=_LARGEST,
            max_unique_ids_per_sparse_core=_LARGEST,
            table_name=stack,
        )
        for core in range(layout.sparse_cores)
    ]
    ordered = [list(column) for column in zip(*of_cores, strict=True)]
    names = ", ".join(table.name for table in tables)
    checked = native.ops().opwright_sparse_core_limits(
        ordered[1],
        ordered[3],
        samples=layout.stacking.table_to_sample_count[stack],
        stack=stack,
        where=(
            f"the table {stack}"
            if names == stack
            else f"the stack {stack} of the tables {names}"
        ),
        **limits._asdict(),
    )
    return (*ordered[:3], list(checked.checked)), checked.needs


def sparsecore_dropped_ids() -> dict[str, DroppedIds]:
    """The ids that lookups of the present `TPUEmbeddingV2` have dropped.

    Lookups drop ids with `SparseCoreEmbeddingConfig(allow_id_dropping=True)`: those
    that do not fit into the space of `max_ids_per_chip_per_sample` ids a sample. The
    last SparseCores and shards lose theirs, as on a TPU. The counts begin with the
    construction of the `TPUEmbeddingV2`, and include lookups without an update. A step
    that is refused may have counted ids already.

    Returns:
        The counts by the name of the stack, for each stack of tables.

    Raises:
        NativeLibraryError: the native kernels are not built.
        RuntimeError: there is no `TPUEmbeddingV2`.
    """
    embedding = shown_embedding()
    if embedding is None:
        raise RuntimeError(
            f"sparsecore_dropped_ids: {NOT_CONFIGURED}. It is for TPUEmbeddingV2"
        )
    return {
        stack: DroppedIds(*native.sparse_core_dropped_ids(stack))
        for stack in layout_of(embedding).stacks
    }


def sparsecore_limits(
    dataset: tf.data.Dataset,
    tables: TPUEmbeddingV2 | FeatureConfig,
    optimizer: Optimizer = None,
    *,
    cores: int | None = None,
    sparse_cores_per_chip: int | None = None,
    sparse_core_embedding_config: SparseCoreEmbeddingConfig = None,
    progress: bool = True,
) -> SparseCoreEmbeddingConfig:
    """The least limits on ids with which no batch of a data set is refused.

    It looks up nothing, so neither a TPU nor tables are needed. Limits for a TPU pod
    are those of its number of chips.

    Args:
        dataset: batches of features, with ids of int32 or int64 as `TPUEmbeddingV2`
            takes them: dense, ragged, or sparse of rank 2. In a tuple, the first
            element is the features. A batch has the samples of `output_shape`, or of
            several cores, one after another. Weights do not change limits.
        tables: the `TPUEmbeddingV2`, or the `feature_config` that it gets.
        optimizer: the optimizer of tables without one. It decides what is stacked.
        cores: the number of chips. The default is that of the current strategy.
        sparse_cores_per_chip: the default is that of the current strategy.
        sparse_core_embedding_config: the other settings of the result.
        progress: whether a bar on stderr shows the number of batches. Without a
            terminal or without rich, it is a line every ten seconds.

    Returns:
        A `SparseCoreEmbeddingConfig` with `max_ids_per_table` and
        `max_unique_ids_per_table` by the name of the stack, and with
        `max_ids_per_chip_per_sample`. `TPUEmbeddingV2` takes it as it is.

    Raises:
        InvalidArgumentError: an id is no row of its table, or a batch has a wrong
            number of samples.
        NativeLibraryError: the native kernels are not built.
        RuntimeError: TensorFlow is not of version 2.21.
        TypeError: `dataset` is no `tf.data.Dataset`.
        ValueError: the data set is infinite, empty or of other features, or a number
            is wrong, or there is neither a number nor a strategy that has it.
    """
    if tf.__version__ not in SPARSE_CORES:
        raise RuntimeError(
            f"sparsecore_limits: it needs TensorFlow {SPARSE_CORES}; "
            f"TensorFlow {tf.__version__} is installed"
        )
    if not isinstance(dataset, tf.data.Dataset):
        raise TypeError(
            "sparsecore_limits: dataset must be a tf.data.Dataset, not "
            f"{type(dataset).__name__}; pass the one that is given to the strategy"
        )
    if isinstance(tables, sparse_core_embedding.TPUEmbeddingV2):
        given = (optimizer, cores, sparse_cores_per_chip, sparse_core_embedding_config)
        if any(one is not None for one in given):
            raise ValueError(
                "sparsecore_limits: a TPUEmbeddingV2 decides on the optimizer, the "
                "numbers and the configuration; leave these arguments out, or pass "
                "its feature_config"
            )
        layout = layout_of(tables)
        config = tables._sparse_core_embedding_config
    else:
        config = (
            sparse_core_embedding_config
            or sparse_core_embedding.SparseCoreEmbeddingConfig()
        )
        numbers = _numbers(cores, sparse_cores_per_chip)
        layout = _planned_layout(tables, optimizer, *numbers, config)
    most = _most_of(dataset, layout, progress)
    return dataclasses.replace(config, **_as_limits(layout, most))


def _numbers(cores: int | None, sparse_cores: int | None) -> tuple[int, int]:
    """The numbers of chips and of SparseCores of each, by default the strategy's."""
    strategy = tf.distribute.get_strategy()
    of_tpu = isinstance(
        strategy, (tpu_strategy.TPUStrategy, tpu_strategy.TPUStrategyV2)
    )
    if not of_tpu and (cores is None or sparse_cores is None):
        raise ValueError(
            "sparsecore_limits: there is no TPU strategy here; call it within "
            "strategy.scope(), or pass cores=... and sparse_cores_per_chip=..."
        )
    if cores is None:
        cores = int(strategy.num_replicas_in_sync)
    if sparse_cores is None:
        feature = strategy.extended.tpu_hardware_feature
        sparse_cores = int(feature.num_embedding_devices_per_chip)
    if sparse_cores not in (1, 2, 4) or isinstance(sparse_cores, bool):
        raise ValueError(
            "sparsecore_limits: sparse_cores_per_chip must be 1, 2 (as a v6e has) or "
            f"4 (as a v5p has), not {sparse_cores!r}"
        )
    if not isinstance(cores, int) or cores < 1 or cores & (cores - 1):
        raise ValueError(
            f"sparsecore_limits: cores must be a power of two, not {cores!r}"
        )
    return cores, sparse_cores


def _planned_layout(
    feature_config: Untyped,
    optimizer: Optimizer,
    cores: int,
    sparse_cores: int,
    config: SparseCoreEmbeddingConfig,
) -> Layout:
    """The layout that a TPUEmbeddingV2 of these features has."""
    # The stacking changes the tables.
    clone = sparse_core_embedding._clone_feature_config(separate(feature_config))
    for path, feature in nest.flatten_with_joined_string_paths(clone):
        shape = feature.output_shape
        if not shape.is_fully_defined() or shape.num_elements() % sparse_cores:
            raise ValueError(
                f"sparsecore_limits: output_shape of the feature at {path!r} must be "
                f"fully defined, a multiple of {sparse_cores} samples, not {shape}"
            )
    base = sparse_core_embedding.tpu_embedding_base.TPUEmbeddingBase(clone, optimizer)
    stacking = sparse_core_embedding._stack_tables_with_same_table_dim_and_optimizer(
        base._table_config,
        nest.flatten_with_joined_string_paths(clone),
        cores,
        sparse_cores,
        config,
    )
    return Layout(clone, stacking, cores, sparse_cores)


def _most_of(dataset: tf.data.Dataset, layout: Layout, progress: bool) -> Needs:
    """What the largest batches need, [stacks, 3], int32."""
    count = int(dataset.cardinality())
    if count == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "sparsecore_limits: the data set is infinite; pass dataset.take(batches)"
        )
    in_tuple = _features_in_tuple(dataset.element_spec, layout)

    def measured(*parts: Untyped) -> tf.Tensor:
        features = parts[0] if in_tuple or len(parts) == 1 else parts
        return _needs_of_cores(layout, nest.flatten(features))

    needs = dataset.map(measured, tf.data.AUTOTUNE, deterministic=False)
    most: Needs | None = None
    with _shown(progress, None if count < 0 else count) as show:
        for number, one in enumerate(needs.as_numpy_iterator(), 1):
            most = one if most is None else np.maximum(most, one)
            show(number)
    if most is None:
        raise ValueError("sparsecore_limits: the data set has no batches")
    return most


def _features_in_tuple(spec: Untyped, layout: Layout) -> bool:
    """Whether features are the first element of a tuple. Refuses other features."""
    for in_tuple, part in ((False, spec), (True, spec)):
        if in_tuple:
            if not isinstance(spec, tuple) or not spec:
                break
            part = spec[0]
        try:
            nest.assert_same_structure(layout.structure, part)
        except (TypeError, ValueError):
            continue
        for (path, _), one in zip(layout.features, nest.flatten(part), strict=True):
            if not one.dtype.is_integer:
                raise ValueError(
                    f"sparsecore_limits: ids of the feature at {path!r} must be of "
                    f"int32 or int64, not {one.dtype.name}"
                )
        return in_tuple
    names = ", ".join(path for path, _ in layout.features)
    raise ValueError(
        "sparsecore_limits: elements of dataset must be the features of the "
        f"configuration ({names}), or a tuple that begins with them, not {spec}"
    )


def _needs_of_cores(layout: Layout, flat: Sequence[Untyped]) -> tf.Tensor:
    """What the largest part of a batch needs, [stacks, 3], int32; one part a core."""
    rows = rows_of_ids(layout, flat)
    samples = [
        int(feature.output_shape.num_elements()) for _, feature in layout.features
    ]
    parts = []
    for (path, _), ids, of_core in zip(layout.features, rows, samples, strict=True):
        all_samples = _sample_count(ids)
        parts.append(all_samples // of_core)
        whole = [
            tf.debugging.assert_equal(
                all_samples,
                parts[0] * of_core,
                f"sparsecore_limits: a batch must have {of_core} samples of the "
                f"feature at {path!r}, as its output_shape says, or those of several "
                "cores, as many as of other features; batch with drop_remainder=True",
            )
        ]
        with tf.control_dependencies(whole):
            parts[-1] = tf.identity(parts[-1])

    def measure(core: tf.Tensor, most: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        of_core = [
            _samples_of(ids, core * count, count)
            for ids, count in zip(rows, samples, strict=True)
        ]
        return core + 1, tf.maximum(most, _needs(layout, of_core))

    with tf.control_dependencies(parts):
        start = tf.zeros([len(layout.stacks), 3], tf.int32)
    _, most = tf.while_loop(
        lambda core, _: core < parts[0], measure, (tf.constant(0, tf.int64), start)
    )
    found: tf.Tensor = most
    return found


def _sample_count(ids: Untyped) -> tf.Tensor:
    if isinstance(ids, tf.RaggedTensor):
        return ids.nrows(tf.int64)
    if isinstance(ids, tf.SparseTensor):
        return ids.dense_shape[0]
    return tf.size(ids, tf.int64)


def _samples_of(ids: Untyped, first: tf.Tensor, count: int) -> Untyped:
    if isinstance(ids, tf.RaggedTensor):
        return ids[first : first + count]
    if isinstance(ids, tf.SparseTensor):
        rest = tf.cast(ids.dense_shape[1:], tf.int64)
        begin = tf.concat([[first], tf.zeros_like(rest)], 0)
        return tf.sparse.slice(
            ids, begin, tf.concat([[tf.constant(count, tf.int64)], rest], 0)
        )
    return tf.reshape(ids, [-1])[first : first + count]


def _needs(layout: Layout, flat: Sequence[Untyped]) -> tf.Tensor:
    """What the batch of one core needs, [stacks, 3], int32."""
    stacking = layout.stacking
    preprocess = (
        sparse_core_embedding.TPUEmbeddingV2._preprocess_inputs_and_weights_to_list_of_coo_tensors
    )
    triples: Mapping[str, Triples] = preprocess(
        flat,
        [None] * len(flat),
        layout.features,
        stacking.stacked_table_to_tables,
        stacking.table_to_stacked_table_offset,
        stacking.feature_to_sample_offset,
        layout.sparse_cores,
        stacking.table_to_sample_count,
        layout.cores * layout.sparse_cores,
    )
    return tf.stack(
        [
            sort_ids(layout, stack, triples[stack], Limits())[1]
            for stack in layout.stacks
        ]
    )


def _as_limits(layout: Layout, most: Needs) -> dict[str, Untyped]:
    """The arguments of SparseCoreEmbeddingConfig. A limit is at least 1."""
    ids, distinct, spaces = (
        {stack: int(need) for stack, need in zip(layout.stacks, column, strict=True)}
        for column in most.T
    )
    samples = layout.stacking.table_to_sample_count
    # One number for all stacks makes the space of each a multiple of the alignment.
    step = max(_ALIGNMENT // math.gcd(count, _ALIGNMENT) for count in samples.values())
    least = max(1, *(-(-spaces[stack] // samples[stack]) for stack in layout.stacks))
    return {
        "max_ids_per_table": {stack: max(1, need) for stack, need in ids.items()},
        "max_unique_ids_per_table": {
            stack: max(1, need) for stack, need in distinct.items()
        },
        "max_ids_per_chip_per_sample": -(-least // step) * step,
    }


@contextmanager
def _shown(progress: bool, total: int | None) -> Iterator[Callable[[int], object]]:
    """Yields a function that shows how many batches are done."""
    if not progress:
        yield lambda _: None
        return
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield _Lines(total).show
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sparsecore_limits: batches", total=total)
        yield lambda done: bar.update(task, completed=done)


class _Lines:
    """Progress as a line every ten seconds."""

    def __init__(self, total: int | None) -> None:
        self._of_total = "" if total is None else f" of {total}"
        self._last = time.monotonic()

    def show(self, done: int) -> None:
        now = time.monotonic()
        if now - self._last >= _SECONDS:
            self._last = now
            line = f"sparsecore_limits: {done}{self._of_total} batches"
            print(line, file=sys.stderr, flush=True)
