"""What TensorFlow's own restore does with tables; run by test_table_moves.py.

docs/how-to/embedding_checkpoints.md says it. In a process of its own: the CPU is
divided into logical devices before the first op.
"""

from __future__ import annotations

import tempfile

import numpy as np
import tensorflow as tf

from embedding.support.moved_tables import (
    Training,
    Values,
    embedding,
    features,
    optimizer_named,
    start,
)

OPTIMIZER = "adagrad"
ALL, ROWS, NOTHING = "rows and slots", "rows", "nothing"
ERROR, PERMUTED = "an error", "rows in another order"
#: By tables that TensorFlow stacks, and one that it does not stack.
STACKED, ALONE = ("films", "people"), ("places",)
#: By source, target and whether the target is built first: what arrives of both.
EXPECTED = {
    ("v1", "v1", True): (ALL, ALL),
    ("v1", "v2 1", False): (ROWS, ROWS),
    ("v1", "v2 2", False): (ROWS, ROWS),
    ("v1", "v2 1", True): (NOTHING, ERROR),
    ("v2 1", "v2 1", True): (ALL, ALL),
    ("v2 1", "v2 1", False): (ALL, ALL),
    ("v2 1", "v2 2", False): (ROWS, ROWS),
    ("v2 1", "v2 4", False): (ROWS, ROWS),
    ("v2 1", "v2 2", True): (ERROR, PERMUTED),
    ("v2 1", "v1", True): (NOTHING, ERROR),
}


def arrived(got: Values, wanted: Values) -> str:
    def same(part: str) -> bool:
        return all(np.array_equal(got[x][part], wanted[x][part]) for x in got)

    if same("rows"):
        return ALL if same("accumulators") else ROWS
    rows = {row.tobytes() for x in got for row in wanted[x]["rows"]}
    rows -= {row.tobytes() for x in got for row in start(x)}  # All begin with these.
    found = [row.tobytes() in rows for x in got for row in got[x]["rows"]]
    return PERMUTED if any(found) else NOTHING


def check(names: tuple[str, ...], column: int) -> None:
    saved: dict[str, tuple[str, Values]] = {}
    for (source, target, built), expected in EXPECTED.items():
        if source not in saved:
            made = Training(source, OPTIMIZER, names)
            made.train(0)
            checkpoint = tf.train.Checkpoint(tables=made.embedding)
            path = checkpoint.save(tempfile.mkdtemp() + "/trained")
            saved[source] = path, made.values()
        path, wanted = saved[source]
        other = Training(target, OPTIMIZER, names, build=built)
        if built:
            other.train(50, 1)  # Its rows are no longer the first ones.
        try:
            tf.train.Checkpoint(tables=other.embedding).restore(path)
            other.embedding.build()
            got = arrived(other.values(), wanted)
        except tf.errors.InvalidArgumentError:
            got = ERROR
        what = f"{source} to {target}, built: {built}, {names}: {got}"
        assert got == expected[column], what
    for source, (path, wanted) in saved.items():
        check_serving(source, path, names, wanted)


def check_serving(
    source: str, path: str, names: tuple[str, ...], wanted: Values
) -> None:
    """Rows arrive, and slots if they are of TPUEmbedding."""
    made = embedding.TPUEmbeddingForServing(
        features(None, names), optimizer_named(OPTIMIZER)
    )
    tf.train.Checkpoint(tables=made).restore(path)
    made.build()
    for name in names:
        variables = dict(made._variables[name])
        rows = variables.pop("parameters")
        np.testing.assert_array_equal(rows, wanted[name]["rows"])
        assert bool(variables) == (source == "v1")
        for slot, values in variables.items():
            np.testing.assert_array_equal(values, wanted[name][slot])


if __name__ == "__main__":
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0],
        [tf.config.LogicalDeviceConfiguration()] * 4,
    )
    check(STACKED, 0)
    check(ALONE, 1)
    print("done")
