"""Makes Keras save the tables of layers of other libraries that have a TPUEmbedding.

Such a layer's tables are not variables of Keras, so Keras would save the model without
them. This module imports neither Keras nor those libraries: when a layer creates a
TPUEmbedding, the layer's library is already imported.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from opwright_runtime._internals import tpu_embedding_class
from opwright_runtime._patches import wrap_if_present
from opwright_runtime.embedding.live_tables import table
from opwright_runtime.embedding.tpu_system import TPUSystem

Layer: TypeAlias = Any
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
    return isinstance(tables, tpu_embedding_class) and isinstance(extended, TPUSystem)


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
        self._tpu_embedding._retrieve_variables()
        for key, variable in _parts(self._tpu_embedding):
            store[key] = variable.numpy()


def load_own_variables(self: Layer, original: Method, store: Any) -> None:
    """Loads all tables and slots. If it raises an error, no table has changed."""
    tables = self._tpu_embedding
    if not tables._built:
        raise ValueError(
            f"layer {self.name!r} has no tables yet to load into; build the model first"
        )
    parts = dict(_parts(tables))
    saved = {key: np.asarray(store[key]) for key in list(store.keys())}
    for key, variable in parts.items():
        found = saved[key].shape if key in saved else None
        if found != tuple(variable.shape):
            raise ValueError(
                f"layer {self.name!r}: what was saved has "
                f"{'nothing' if found is None else list(found)} for {variable.name!r}, "
                f"which has the shape {variable.shape.as_list()}. Make the layer with "
                "the tables and optimizers that it was saved with; a model that was "
                "saved without tables takes "
                "tf.train.Checkpoint(model=model, tables=layer._tpu_embedding)"
            )
    original({key: value for key, value in saved.items() if key not in parts})
    for key, variable in parts.items():
        variable.assign(saved[key])
    tables._load_variables()


def _sparsecore_get_embedding_tables(self: Layer, original: Method) -> dict[str, Any]:
    del original  # It works with TPUEmbeddingV2 only.
    configured = self._tpu_embedding._table_config
    return {one.name: table(one.name).rows for one in configured}


def _parts(tables: Any) -> Iterator[tuple[str, Any]]:
    """The variables of tables and slots, with the keys under which they are saved.

    The variables are the copies of the tables on the host.
    """
    for index, config in enumerate(tables._table_config):
        for slot, variable in sorted(tables._variables[config.name].items()):
            yield f"{_KEY}.{index}.{slot}", variable.variables[0]
