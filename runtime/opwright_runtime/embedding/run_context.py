"""The control flow context of `strategy.run`.

In it, TensorFlow applies the same checks as to a program for a TPU.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

import tensorflow as tf

from opwright_runtime._internals import (
    AttrValue,
    control_flow,
    in_xla_context,
    nest,
    ops,
    tpu_replication,
)
from opwright_runtime._patches import wrap_variable_conversion
from opwright_runtime.embedding.compiled_functions import is_kept_from_xla

T = TypeVar("T")
Arguments: TypeAlias = tuple[Sequence[object], Mapping[str, object]]


def jit_compile_error(what: str) -> NotImplementedError:
    """The error for a step in a function that XLA compiles. Its text names a remedy."""
    return NotImplementedError(
        f"{what} stands in a tf.function with jit_compile=True. On a TPU the whole "
        "step is compiled; here the tables lie beside the program, and XLA cannot "
        "reach them. Leave jit_compile away from the function around strategy.run, "
        "from the one that it runs, and from Keras's compile(); put it on a function "
        "that the step calls with activations, such as the dense layers, which then "
        "compiles as it does elsewhere."
    )


def is_embedding_op(text: str) -> bool:
    """Whether a text names an op of TPU embeddings or of SparseCores."""
    return "TPUEmbedding" in text or "SparseCore" in text


class Run(tpu_replication.TPUReplicateContext):  # type: ignore[misc]
    """The control flow context in which `strategy.run` traces ops.

    It passes each op to the context around it. Control dependencies, gradients and
    loops are therefore the same as without it. TPUEmbedding looks for this base class:
    inside such a context TPUEmbedding works for one replica, outside for all replicas.

    Attributes:
        strict: whether TPUEmbedding refuses here what it refuses on a TPU.
    """

    # The parts of the base class that have nothing to do with TPUs.
    _context: Any = control_flow.ControlFlowContext
    outer_context: Any

    def __init__(self, strict: bool) -> None:
        self._context.__init__(self)
        self.strict = strict
        self._in_xla = in_xla_context(ops.get_default_graph())
        # TensorFlow counts the parts of a program that run outside compilation here.
        self._outside_compilation_counter = 0

    def AddOp(self, op: tf.Operation) -> None:
        refused = self._in_xla and is_embedding_op(op.type)
        if refused and not is_kept_from_xla(op.graph):
            raise jit_compile_error(op.type)
        outer = self.outer_context
        op._set_control_flow_context(outer)
        if outer is not None:
            outer.AddOp(op)

    def AddInnerOp(self, op: tf.Operation) -> None:
        if self.outer_context is not None:
            self.outer_context.AddInnerOp(op)

    def AddValue(self, value: tf.Tensor) -> tf.Tensor:
        outer = self.outer_context
        return value if outer is None else outer.AddValue(value)

    def Enter(self) -> None:
        self._context.Enter(self)

    def EnterGradientColocation(self, op: tf.Operation, uid: str) -> None:
        self._context.EnterGradientColocation(self, op, uid)

    def ExitGradientColocation(self, op: tf.Operation, uid: str) -> None:
        self._context.ExitGradientColocation(self, op, uid)

    def IsXLAContext(self) -> bool:
        return False

    def RequiresUniqueFunctionRetracing(self) -> bool:
        return False

    def _EnterOutsideCompilationScope(self, *args: object, **kwargs: object) -> None:
        """Does nothing: no part is compiled, so none is outside compilation."""

    def _ExitOutsideCompilationScope(self) -> None: ...

    def get_replicated_var_handle(
        self, name: str, handle_id: str, values: Sequence[tf.Variable], *_: object
    ) -> tf.Tensor:
        """The handle of this replica's part of a variable of TPUEmbeddingV2."""
        if len(values) == 1:
            return values[0].handle
        replica = tf.distribute.get_replica_context()
        return values[int(replica.replica_id_in_sync_group)].handle

    @property
    def grad_state(self) -> object:
        return None if self.outer_context is None else self.outer_context.grad_state

    @property
    def back_prop(self) -> bool:
        return self.outer_context is not None and self.outer_context.back_prop

    def to_control_flow_context_def(self, *arguments: object) -> None:
        raise NotImplementedError


def enclosing_run() -> Run | None:
    """The context of the `strategy.run` that this thread is in, or None."""
    graph = ops.get_default_graph()
    while graph is not None:
        context = graph._get_control_flow_context()
        while context is not None:
            if isinstance(context, Run):
                return context
            context = context.outer_context
        graph = getattr(graph, "outer_graph", None)
    return None


@contextmanager
def run_context(
    strict: bool, args: Sequence[object], kwargs: Mapping[str, object]
) -> Iterator[Arguments]:
    """Enters a `Run` context for the body of `strategy.run`.

    In an eager call it affects the functions that are traced during the call.
    TensorFlow makes no checks in a session's graph, so the context is not strict there.

    Yields:
        The arguments for the function that `strategy.run` calls.
    """
    eager_or_function = tf.executing_eagerly() or tf.inside_function()
    run = Run(strict and eager_or_function)
    if run.strict and tf.inside_function():
        args, kwargs = as_inputs((tuple(args), dict(kwargs)))
    run.Enter()
    try:
        yield args, kwargs
    finally:
        run.Exit()


def as_inputs(values: T) -> T:
    """Copies of the values, marked as inputs of the function of `strategy.run`."""

    def mark(value: object) -> object:
        if not isinstance(value, tf.Tensor) or isinstance(value, ops.EagerTensor):
            return value
        with tf.device(value.device):
            marked = tf.identity(value)
        marked.op._set_attr("_tpu_input_identity", AttrValue(b=True))
        return marked

    parts = nest.flatten(values, expand_composites=True)
    marked = [mark(part) for part in parts]
    packed: T = nest.pack_sequence_as(values, marked, expand_composites=True)
    return packed


def adapt_variables() -> None:
    """Makes a variable cast itself in `run` for an op of another dtype, as on a TPU."""
    wrap_variable_conversion(_casting_in_run)


def _casting_in_run(convert: Callable[..., tf.Tensor]) -> Callable[..., tf.Tensor]:
    @functools.wraps(convert)
    def to_tensor(
        self: tf.Variable,
        dtype: tf.DType | None = None,
        name: str | None = None,
        as_ref: bool = False,
    ) -> tf.Tensor:
        try:
            return convert(self, dtype, name, as_ref)
        except ValueError:
            if dtype is None or enclosing_run() is None:
                raise
            return tf.cast(self.read_value(), dtype)

    return to_tensor
