"""Reads the tables of embeddings from checkpoints, out of their stacks and shards.

A checkpoint can come from anywhere. Its shapes and layouts are checked before memory is
allocated for them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._internals import TrackableObjectGraph, sparse_core_embedding
from opwright_runtime.embedding.stacked_tables import PARAMETERS, Layout, rows_in_stack
from opwright_runtime.embedding.table_values import Array, TableValues
from opwright_runtime.errors import OpInputError

# The keys of variables by slot, among them PARAMETERS; by table or stack.
Keys: TypeAlias = Mapping[str, Mapping[str, str]]
Node: TypeAlias = Any  # A node of TensorFlow's TrackableObjectGraph.

_WANTED = (
    "the path of a tf.train.Checkpoint that was saved with a TPUEmbedding, a "
    "TPUEmbeddingV2 or a TPUEmbeddingForServing, such as 'folder/ckpt-1'"
)
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_LAYOUTS = "_sparse_core_table_layouts"
_FLOAT_BYTES = 4
# What TensorFlow raises when it cannot read a file; which one, its binding settles.
_UNREADABLE = (tf.errors.OpError, IndexError, RuntimeError, ValueError)


def tables_from_checkpoint(path: str | os.PathLike[str]) -> dict[str, TableValues]:
    """The tables of a checkpoint and their slots, by the names of the tables.

    The checkpoint may be one of `TPUEmbedding`, of `TPUEmbeddingV2` with any number of
    cores and any stacks, or of `TPUEmbeddingForServing`, from any machine. Where in the
    checkpoint the embedding is, does not matter.

    Args:
        path: what `tf.train.Checkpoint.save` has returned; or a folder, for its latest
            checkpoint.

    Raises:
        OpInputError: there is no such checkpoint, it is damaged, it has no tables, or
            two of its embeddings have a table of the same name.
    """
    file = _File(os.fspath(path))
    found: dict[str, TableValues] = {}
    for keys, layouts in _embeddings(file):
        file.check_size(keys)
        tables = (
            _plain_tables(file, keys)
            if layouts is None
            else _stacked_tables(file, keys, layouts)
        )
        for name, table in tables:
            if name in found:
                raise file.refused(
                    f"it has several embeddings with a table {name!r}; save each "
                    "embedding in a checkpoint of its own"
                )
            found[name] = table
    if not found:
        raise file.refused(
            "it has no tables; build the embedding before it is saved, and pass it to "
            "tf.train.Checkpoint(tables=embedding)"
        )
    return found


class _File:
    """A checkpoint, whose variables are read by their keys."""

    def __init__(self, path: str) -> None:
        self._path = path
        prefix = path
        if tf.io.gfile.isdir(path):
            prefix = tf.train.latest_checkpoint(path) or ""
            if not prefix:
                raise self.refused("the folder has no checkpoint")
        if not tf.io.gfile.exists(f"{prefix}.index"):
            raise self.refused(f"there is no file {prefix}.index")
        try:
            self._reader = tf.train.load_checkpoint(prefix)
            self._shapes = self._reader.get_variable_to_shape_map()
            self._dtypes = self._reader.get_variable_to_dtype_map()
        except _UNREADABLE as error:
            raise self.refused(f"{prefix}.index is damaged: {error}", error) from error
        folder, name = os.path.split(prefix)
        self._data_bytes = sum(
            tf.io.gfile.stat(os.path.join(folder, one)).length
            for one in tf.io.gfile.listdir(folder or ".")
            if one.startswith(f"{name}.data-")
        )

    def refused(self, why: str, cause: Exception | None = None) -> errors.OpError:
        return errors.make(
            OpInputError,
            "tables_from_checkpoint",
            f"tables_from_checkpoint: path must be {_WANTED}, not {self._path!r}: "
            f"{why}",
            argument="path",
            given=self._path,
            allowed=_WANTED,
            cause=cause,
        )

    def shape(self, key: str) -> tuple[int, int]:
        """The rows and columns of a variable, which must be a matrix of float32."""
        shape, dtype = self._shapes.get(key), self._dtypes.get(key)
        if shape is None:
            raise self.refused(f"it is damaged: it has no variable {key}")
        if len(shape) != 2 or min(shape) < 1 or dtype != tf.float32:
            raise self.refused(
                f"variable {key} must be a matrix of float32, not "
                f"{dtype.name}{list(shape)}"
            )
        rows, columns = shape
        return rows, columns

    def check_size(self, variables: Keys) -> None:
        """Refuses variables that take more memory than the files of data have."""
        keys = [key for slots in variables.values() for key in slots.values()]
        needed = sum(math.prod(self.shape(key)) for key in keys) * _FLOAT_BYTES
        if needed > self._data_bytes:
            raise self.refused(
                f"it is damaged: the tables take {needed} bytes, and its files of data "
                f"have {self._data_bytes}"
            )

    def matrix(self, key: str) -> Array:
        self.shape(key)
        values: Array = self._read(key)
        return values

    def text(self, key: str) -> bytes | None:
        """The value of a variable that is a string, or None without it."""
        if key not in self._shapes:
            return None
        if self._shapes[key] or self._dtypes[key] != tf.string:
            raise self.refused(f"variable {key} must be a string")
        value: bytes = self._read(key)
        return value

    def _read(self, key: str) -> Any:
        try:
            return self._reader.get_tensor(key)
        except _UNREADABLE as error:
            raise self.refused(
                f"it is damaged: variable {key} cannot be read: {error}", error
            ) from error

    def message(self, kind: Any, key: str) -> Any:
        """The message of protocol buffers in a variable, or None without it."""
        text = self.text(key)
        if text is None:
            return None
        try:
            return kind.FromString(text)
        except Exception as error:  # DecodeError, of one or another implementation.
            raise self.refused(f"it is damaged: {key}: {error}") from error


def _embeddings(file: _File) -> Iterator[tuple[Keys, list[Layout] | None]]:
    """The variables of each embedding, and the layouts of its tables in stacks.

    An embedding of any class has an attribute `_table_config`, and `_variables`, by
    table and by slot. Only TPUEmbeddingV2 has stacks.
    """
    graph = file.message(TrackableObjectGraph, _GRAPH)
    if graph is None:
        raise file.refused(
            "it is not of tf.train.Checkpoint, but of tf.compat.v1.train.Saver or of "
            "another writer"
        )
    nodes = graph.nodes

    def children(node: Node) -> dict[str, Node]:
        found = {}
        for child in node.children:
            if not 0 <= child.node_id < len(nodes):
                raise file.refused("it is damaged: its object graph has open ends")
            found[child.local_name] = nodes[child.node_id]
        return found

    for node in nodes:
        parts = children(node)
        if not {"_table_config", "_variables"} <= parts.keys():
            continue
        keys = {
            name: {slot: _key(file, one) for slot, one in children(table).items()}
            for name, table in children(parts["_variables"]).items()
        }
        for name, slots in keys.items():
            if PARAMETERS not in slots:
                raise file.refused(f"it is damaged: table {name!r} has no rows")
        if "_stacked_table_to_tables" not in parts:
            yield keys, None
            continue
        if _LAYOUTS not in parts:
            raise file.refused(
                "it has stacks of tables without their layouts; save it with "
                "TensorFlow 2.21"
            )
        kind = sparse_core_embedding.sparse_core_layout_pb2.SparseCoreTableLayouts
        yield keys, list(file.message(kind, _key(file, parts[_LAYOUTS])).tables)


def _key(file: _File, node: Node) -> str:
    for attribute in node.attributes:
        if attribute.name == "VARIABLE_VALUE":
            key: str = attribute.checkpoint_key
            return key
    raise file.refused("it is damaged: a table or slot is no variable")


def _plain_tables(file: _File, keys: Keys) -> Iterator[tuple[str, TableValues]]:
    for name, slots in keys.items():
        rows, dimension = file.shape(slots[PARAMETERS])
        for slot, key in slots.items():
            shape = file.shape(key)
            if shape not in ((rows, dimension), (rows, 1)):
                raise file.refused(
                    f"it is damaged: table {name!r} is {[rows, dimension]}, and its "
                    f"slot {slot!r} is {list(shape)}"
                )
        yield name, _values({slot: file.matrix(key) for slot, key in slots.items()})


def _stacked_tables(
    file: _File, keys: Keys, layouts: list[Layout]
) -> Iterator[tuple[str, TableValues]]:
    for one in layouts:
        if one.stacked_table_name not in keys:
            raise file.refused(
                f"it is damaged: stack {one.stacked_table_name!r} of table "
                f"{one.table_name!r} is missing"
            )
    for stack, slots in keys.items():
        shape = file.shape(slots[PARAMETERS])
        for slot, key in slots.items():
            if file.shape(key) != shape:
                raise file.refused(
                    f"it is damaged: stack {stack!r} is {list(shape)}, and its slot "
                    f"{slot!r} is {list(file.shape(key))}"
                )
        inside = [one for one in layouts if one.stacked_table_name == stack]
        _check_layouts(file, stack, shape, inside)
        found: dict[str, dict[str, Array]] = {one.table_name: {} for one in inside}
        for slot, key in slots.items():
            whole = file.matrix(key)  # One at a time: a stack can be large.
            for one in inside:
                values = whole[rows_in_stack(one), : one.unsharded_shape[1]]
                found[one.table_name][slot] = values
        for name, of_slots in found.items():
            yield name, _values(of_slots)


def _check_layouts(
    file: _File, stack: str, shape: tuple[int, int], layouts: list[Layout]
) -> None:
    """Refuses layouts that do not fit into a stack, or not beside each other."""

    def need(fits: bool, what: str) -> None:
        if not fits:
            raise file.refused(
                f"it is damaged: in the layouts of stack {stack!r}, which is "
                f"{list(shape)}, {what}"
            )

    need(bool(layouts), "there is no table")
    names = {one.table_name for one in layouts}
    need(len(names) == len(layouts), "a table is there more than once")
    end = 0
    for one in sorted(layouts, key=lambda one: one.sparse_core_shard_row_offset):
        table, shards = one.table_name, one.num_sparse_cores
        need(
            shards >= 1 and 0 <= one.sparse_core_shard_rotation < shards,
            f"table {table!r} has {shards} shards, with a rotation of "
            f"{one.sparse_core_shard_rotation}",
        )
        whole = [one.total_rows_per_sparse_core_shard * shards]
        need(
            whole[0] == shape[0],
            f"table {table!r} has {shards} shards of "
            f"{one.total_rows_per_sparse_core_shard} rows",
        )
        inner = list(one.unsharded_shape)
        need(
            len(inner) == 2 and min(inner) >= 1 and inner[1] <= shape[1],
            f"table {table!r} is {inner}",
        )
        first, rows = one.sparse_core_shard_row_offset, -(-inner[0] // shards)
        need(
            end <= first and first + rows <= one.total_rows_per_sparse_core_shard,
            f"table {table!r} has rows {first} to {first + rows} of each shard",
        )
        end = first + rows


def _values(of_slots: dict[str, Array]) -> TableValues:
    return TableValues(of_slots.pop(PARAMETERS), dict(sorted(of_slots.items())))
