"""Operations of a graph that read what a handle stands for, to find out its dtype."""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from opwright_runtime._binding import attrs as attr_values
from opwright_runtime._binding.resources import apply_stale_gradient
from opwright_runtime._internals import register_read_only_op

#: The op that reads variables; TensorFlow has no function for it.
_READ = "_ReadVariablesOp"
register_read_only_op(_READ)


@dataclass
class Reads:
    """Adds operations that fail if a handle holds another dtype.

    Args:
        added: takes the operations.
        of_accumulators: whether handles are those of accumulators, not of variables.
        compiled: whether XLA may compile them.
    """

    added: list[tf.Operation]
    of_accumulators: bool
    compiled: bool

    def add(self, handle: tf.Tensor, dtype: str) -> tf.Tensor | None:
        """Adds an operation for a variable or an accumulator.

        Returns:
            The value of a variable.
        """
        with tf.control_dependencies(self.added):
            return self._read(handle, dtype)

    def _read(self, handle: tf.Tensor, dtype: str) -> tf.Tensor | None:
        if self.of_accumulators:
            self.added.append(apply_stale_gradient(handle, dtype))
            return None
        if self.compiled:
            # XLA compares the dtypes when it compiles the op, and has no other such op.
            read = tf.raw_ops.ReadVariableOp(resource=handle, dtype=dtype)
            self.added.append(read.op)
            return read
        # ReadVariableOp ends the process if a variable of another dtype is in the mode
        # in which each read copies it. This op compares the dtypes before it copies.
        graph = tf.compat.v1.get_default_graph()
        kinds = {"N": ("int", 1), "dtypes": ("list(type)", (tf.as_dtype(dtype),))}
        operation = graph._create_op_internal(
            _READ,
            [handle],
            name="ReadVariable",
            attrs={name: attr_values.proto(*found) for name, found in kinds.items()},
        )
        self.added.append(operation)
        return operation.outputs[0]

    def look_up(self, table: tf.Tensor, keys: str, values: str) -> None:
        """Adds a lookup of no key, which fails if the table has other dtypes."""
        with tf.control_dependencies(self.added):
            found = tf.raw_ops.LookupTableFindV2(
                table_handle=table,
                keys=tf.zeros([0], keys),
                default_value=tf.zeros([], values),
            )
        self.added.append(found.op)
