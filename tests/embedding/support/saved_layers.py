"""A model with a library's layer, saved and loaded by Keras, on two cores.

Run with a folder and "tensorflow-recommenders", with TF_USE_LEGACY_KERAS=1, or
"keras-rs". Prints, by file, the loss and the table before and after, or the error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from opwright import tpu

OPTIMIZER = "adagrad"


def built(library: Any, strategy: Any) -> tuple[Any, Any]:
    with strategy.scope():
        layer = library.of_the_library(OPTIMIZER)
        return layer, library.model_of(layer, OPTIMIZER)


def state(library: Any, strategy: Any, model: Any) -> list[Any]:
    data = strategy.experimental_distribute_dataset(
        library.data(2), options=library.ON_HOST
    )
    loss = model.evaluate(data, steps=library.BATCHES, verbose=0)
    rows, slots = tpu.table("films")
    return [loss, rows.numpy().tolist(), slots["accumulators"].numpy().tolist()]


def around(library: Any, save: Callable[[Any], None], load: Callable[[], Any]) -> Any:
    """What a trained model is, and what one that was loaded is."""
    strategy = tpu.software_strategy(cores=2)
    _, model = built(library, strategy)
    data = strategy.experimental_distribute_dataset(
        library.data(1), options=library.ON_HOST
    )
    model.fit(data, steps_per_epoch=library.BATCHES, verbose=0)
    before = state(library, strategy, model)
    try:
        save(model)
        strategy = tpu.software_strategy(cores=2)
        with strategy.scope():
            loaded = load()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return [before, state(library, strategy, loaded)]


def by_file(library: Any, folder: str) -> dict[str, Any]:
    load_model = library.keras.models.load_model

    def with_weights(path: str) -> Any:
        _, model = built(library, tf.distribute.get_strategy())
        model.load_weights(path)
        return model

    found = {}
    for name in ("model.keras", "model.h5"):
        path = str(Path(folder, name))
        found[name] = around(
            library, lambda m, p=path: m.save(p), lambda p=path: load_model(p)
        )
    for name in ("model.weights.h5", "weights", "weights.h5"):
        path = str(Path(folder, name))
        found[name] = around(
            library, lambda m, p=path: m.save_weights(p), lambda p=path: with_weights(p)
        )
    return found


def of_another_kind(library: Any, folder: str) -> str:
    """Weights that do not fit are refused, and the tables stay."""
    strategy = tpu.software_strategy(cores=2)
    _, model = built(library, strategy)
    path = str(Path(folder, "other.weights.h5"))
    model.save_weights(path)
    strategy = tpu.software_strategy(cores=2)
    rows = library.ROWS
    library.ROWS = rows // 2
    library.WEIGHTS = {name: one[: rows // 2] for name, one in library.WEIGHTS.items()}
    _, smaller = built(library, strategy)
    before = tpu.table("films").rows.numpy()
    try:
        smaller.load_weights(path)
    except Exception as error:
        assert (tpu.table("films").rows.numpy() == before).all()
        return str(error)
    return "loaded"


def main(folder: str, name: str) -> None:
    if name == "keras-rs":
        from embedding.support import keras_rs_layers as library
    else:
        from embedding.support import tfrs_layers as library  # type: ignore[no-redef]
    tpu.software_strategy(cores=2)
    found = by_file(library, folder)
    if name == "keras-rs":
        layer, _ = built(library, tpu.software_strategy(cores=2))
        tables = layer.get_embedding_tables()
        equal = {one: (tables[one] == library.WEIGHTS[one]).numpy() for one in tables}
        found["tables"] = {one: bool(same.all()) for one, same in equal.items()}
    found["other"] = of_another_kind(library, folder)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
