"""Makes Keras save the tables of layers of other libraries that have a TPUEmbedding.

Such a layer's tables are not variables of Keras, so Keras would save the model without
them. This module imports neither Keras nor those libraries: when a layer creates a
TPUEmbedding, the layer's library is already imported.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from opwright_runtime._internals import (
    sparse_core_embedding,
    tpu_embedding_class,
)
from opwright_runtime._patches import wrap_if_present
from opwright_runtime.embedding.live_tables import table
from opwright_runtime.embedding.stacked_tables import (
    PARAMETERS,
    read_table,
    slot_names,
    table_names,
    table_shape,
    write_table,
)
from opwright_runtime.embedding.table_values import Array
from opwright_runtime.embedding.tpu_system import TPUSystem

Layer: TypeAlias = Any
Tables: TypeAlias = Any  # A TPUEmbedding or a TPUEmbeddingV2.
Method: TypeAlias = Callable[..., Any]

_LAYERS = {
    "keras_rs": "layers.DistributedEmbedding",
    "tensorflow_recommenders": "layers.embedding.TPUEmbedding",
}
# The modules that write the legacy HDF5 format. They do not call the layer's method
# `save_own_variables`, so tables would be missing.
_H5_WRITERS = (
    "keras.src.legacy.saving.legacy_h5_format",
    "tf_keras.src.saving.legacy.hdf5_format",
)
# The prefix of the keys of tables and slots. The keys of other variables are numbers.
_KEY = "tables"


def adapt_layers() -> None:
    """Wraps the methods of the layers of those libraries that are imported."""
    for module, path in _LAYERS.items():
        layer: Layer = sys.modules.get(module)
        for name in path.split("."):
            layer = getattr(layer, name, None)
        for method in (
            save_own_variables,
            load_own_variables,
            _sparsecore_get_embedding_tables,
        ):
            wrap_if_present(
                layer, method.__name__, functools.partial(_wrapped, method=method)
            )
    for module in _H5_WRITERS:
        wrap_if_present(
            sys.modules.get(module), "save_weights_to_hdf5_group", _without_tables
        )


def _without_tables(write: Method) -> Method:
    @functools.wraps(write)
    def checked(file: Any, model: Any) -> None:
        for layer in model._flatten_layers():
            if _has_tables(layer):
                raise NotImplementedError(
                    f"an .h5 file of the old kind cannot hold the tables of layer "
                    f"{layer.name!r}. Save the weights in a file whose name ends in "
                    ".weights.h5, the whole model in one that ends in .keras, or use "
                    "tf.train.Checkpoint(model=model, tables=layer._tpu_embedding)"
                )
        write(file, model)

    return checked


def _has_tables(layer: Layer) -> bool:
    tables = getattr(layer, "_tpu_embedding", None)
    extended = getattr(getattr(tables, "_strategy", None), "extended", None)
    kinds = (tpu_embedding_class, sparse_core_embedding.TPUEmbeddingV2)
    return isinstance(tables, kinds) and isinstance(extended, TPUSystem)


def _wrapped(original: Method, method: Method) -> Method:
    @functools.wraps(original)
    def call(self: Layer, *args: Any, **kwargs: Any) -> Any:
        if _has_tables(self):
            return method(self, functools.partial(original, self), *args, **kwargs)
        return original(self, *args, **kwargs)

    return call


# Each of these functions replaces the layer's method of the same name. `original` is
# the method of the library.


def save_own_variables(self: Layer, original: Method, store: Any) -> None:
    original(store)
    if self._tpu_embedding._built:
        for key, values in _saved_parts(self._tpu_embedding).items():
            store[key] = values


def load_own_variables(self: Layer, original: Method, store: Any) -> None:
    """Loads all tables and slots. If it raises an error, no table has changed."""
    tables = self._tpu_embedding
    if not tables._built:
        raise ValueError(
            f"layer {self.name!r} has no tables yet to load into; build the model first"
        )
    shapes = dict(_shapes(tables))
    saved = {key: np.asarray(store[key]) for key in list(store.keys())}
    for key, shape in shapes.items():
        found = saved[key].shape if key in saved else None
        if found != shape:
            raise ValueError(
                f"layer {self.name!r}: what was saved has "
                f"{'nothing' if found is None else list(found)} for "
                f"{_name_of(tables, key)!r}, which has the shape {list(shape)}. "
                "Make the layer with the tables and optimizers that it was saved with; "
                "a model that was saved without tables takes "
                "tf.train.Checkpoint(model=model, tables=layer._tpu_embedding)"
            )
    original({key: value for key, value in saved.items() if key not in shapes})
    _load_parts(tables, saved)


def _sparsecore_get_embedding_tables(self: Layer, original: Method) -> dict[str, Any]:
    del original  # It works with a TPUEmbeddingV2 whose tables are not stacked.
    names = table_names(self._tpu_embedding)
    return {name: table(name).rows for name in names}


# Both classes, with any number of cores, save the same values by the same keys.


def _saved_parts(tables: Tables) -> dict[str, Array]:
    """The values of tables and slots, by the keys under which they are saved."""
    if not _has_sparse_cores(tables):
        tables._retrieve_variables()
        return {key: variable.numpy() for key, variable in _parts(tables)}
    return {
        key: values[slot]
        for name, keys in _keys(tables)
        for values in [read_table(tables, name)]
        for slot, key in keys.items()
    }


def _shapes(tables: Tables) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The shapes of tables and slots, with their keys."""
    if not _has_sparse_cores(tables):
        yield from ((key, tuple(variable.shape)) for key, variable in _parts(tables))
        return
    for name, keys in _keys(tables):
        yield from ((key, table_shape(tables, name)) for key in keys.values())


def _load_parts(tables: Tables, saved: Mapping[str, Array]) -> None:
    if not _has_sparse_cores(tables):
        for key, variable in _parts(tables):
            variable.assign(saved[key])
        tables._load_variables()
        return
    for name, keys in _keys(tables):
        write_table(tables, name, {slot: saved[key] for slot, key in keys.items()})


def _keys(tables: Tables) -> Iterator[tuple[str, dict[str, str]]]:
    """The tables of a TPUEmbeddingV2, and the keys of their slots."""
    for index, name in enumerate(table_names(tables)):
        yield name, {
            slot: f"{_KEY}.{index}.{slot}" for slot in slot_names(tables, name)
        }


def _has_sparse_cores(tables: Tables) -> bool:
    return isinstance(tables, sparse_core_embedding.TPUEmbeddingV2)


def _name_of(tables: Tables, key: str) -> str:
    """The table and the slot of a key."""
    _, index, slot = key.split(".")
    name = table_names(tables)[int(index)]
    return name if slot == PARAMETERS else f"{name}/{slot}"


def _parts(tables: Tables) -> Iterator[tuple[str, Any]]:
    """The variables of a TPUEmbedding, with the keys under which they are saved.

    The variables are the copies of the tables on the host.
    """
    for index, config in enumerate(tables._table_config):
        for slot, variable in sorted(tables._variables[config.name].items()):
            yield f"{_KEY}.{index}.{slot}", variable.variables[0]
