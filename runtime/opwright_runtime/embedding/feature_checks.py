"""Checks of the arguments of a TPUEmbedding. Their errors name the table at fault.

TensorFlow accepts a class in place of an object. It then fails later, with an error
that does not name the table.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from opwright_runtime._internals import nest
from opwright_runtime.embedding.optimizers import optimizer_wanted, rate_wanted
from opwright_runtime.errors import OpAttrError, bad_argument

_refused = partial(bad_argument, OpAttrError, "TPUEmbedding")
_FeatureConfig = tf.tpu.experimental.embedding.FeatureConfig
_TableConfig = tf.tpu.experimental.embedding.TableConfig
# TensorFlow has no tables of other combiners in a TPUEmbedding.
_NAMES = ("mean", "sum", "sqrtn")


def check_features(
    feature_config: Any, optimizer: Any, combiner_classes: tuple[type, ...] = ()
) -> None:
    """Checks each feature, its table, and the optimizer for tables that have none.

    A combiner is a name or of one of `combiner_classes`.

    Raises:
        OpAttrError: one is of the wrong kind. It names the feature or the table.
    """
    tables: list[Any] = []
    for path, feature in nest.flatten_with_joined_string_paths(feature_config):
        where = f"feature_config at {path!r}" if path else "feature_config"
        if not isinstance(feature, _FeatureConfig):
            raise _refused(where, feature, _feature_wanted(feature))
        if not any(feature.table is table for table in tables):
            tables.append(feature.table)
    for index, table in enumerate(tables):
        name = f"table_{index}" if table.name is None else table.name
        if not isinstance(table.combiner, (str, *combiner_classes)):
            what = f"combiner of table {name!r}"
            raise _refused(what, table.combiner, _NAMES)
        _check_table(name, table, optimizer)


def _feature_wanted(feature: object) -> str:
    wanted = "a tf.tpu.experimental.embedding.FeatureConfig"
    if isinstance(feature, _TableConfig):
        return f"{wanted}, such as FeatureConfig(table)"
    return wanted


def _check_table(name: object, table: Any, optimizer: Any) -> None:
    if not isinstance(name, str) or not name:
        raise _refused("name of a table", name, "text, and not empty")
    what = f"of table {name!r}"
    if isinstance(table.initializer, type):
        allowed = f"an instance, such as {table.initializer.__name__}(...)"
        raise _refused(f"initializer {what}", table.initializer, allowed)
    if getattr(table, "dtype", tf.float32) != tf.float32:
        raise _refused(f"dtype {what}", table.dtype, "float32")
    if isinstance(table.quantization_config, type):
        allowed = f"an instance, such as {table.quantization_config.__name__}(...)"
        raise _refused(
            f"quantization_config {what}", table.quantization_config, allowed
        )
    used = optimizer if table.optimizer is None else table.optimizer
    wanted = optimizer_wanted(used)
    if wanted:
        raise _refused(f"optimizer {what}", used, wanted)
    wanted = rate_wanted(used.learning_rate)
    if wanted:
        raise _refused(f"learning_rate {what}", used.learning_rate, wanted)
