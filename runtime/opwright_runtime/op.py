"""Op: the base of every op's class."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import tensorflow as tf

from opwright_runtime import dispatch, errors, kernels, opdef
from opwright_runtime.internals import ops
from opwright_runtime.view import OpInputs as OpInputs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from opwright_runtime.options import OpOptions
    from opwright_runtime.scope import Scope


class _OpDef:
    """`op_def` of an op's class: read from the registry when first asked for."""

    def __get__(self, instance: object, owner: type[Op]) -> opdef.OpInfo:
        return owner._info()


class Op:
    """An op that has been made: in a graph an operation, in eager mode its results.

    Its outputs are attributes, each a plain `tf.Tensor` or a list of them. An op with
    one output goes wherever TensorFlow takes a tensor. Two are equal if they are the
    same operation, or in eager mode hold the same tensors.
    """

    __slots__ = ("__weakref__", "_operation")

    OP_NAME: ClassVar[str]
    PYTHON_NAMES: ClassVar[Mapping[str, str]] = {}
    MESSAGES: ClassVar[Mapping[str, str]] = {}
    Inputs: ClassVar[type[OpInputs]] = OpInputs
    Options: ClassVar[type[OpOptions]]

    op_def = _OpDef()
    """The op's inputs, outputs and attrs as the installed TensorFlow has them."""

    _operation: tf.Operation
    _cached_info: ClassVar[opdef.OpInfo]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "Options" in cls.__dict__:
            cls.Options._op_class = cls
        if "as_output" in cls.__dict__:
            # TensorFlow asks whether it is there: only these ops may have it.
            cls.__tf_tensor__ = _tf_tensor  # type: ignore[attr-defined]

    @classmethod
    def from_operation(cls, operation: tf.Operation) -> Self:
        """The op that stands for `operation`, of any graph.

        Raises:
            OpInputError: it is an operation of another type.
        """
        found = getattr(operation, "type", None)
        if found != cls.OP_NAME:
            what = repr(operation) if found is None else f"a {found}"
            raise errors.make(
                errors.OpInputError,
                cls.OP_NAME,
                f"{cls.OP_NAME}.from_operation: takes an operation of type "
                f"{cls.OP_NAME}, not {what}",
                argument="operation",
                given=operation,
                allowed=cls.OP_NAME,
            )
        self = cls()
        self._operation = operation
        length = partial(opdef.length_in, operation)
        dispatch.fill(self, cls._info(), operation.outputs, length)
        return self

    @classmethod
    def kernels(cls) -> tuple[kernels.Kernel, ...]:
        """The kernels that can run the op here: on which device, with which dtypes."""
        return kernels.kernels(cls.OP_NAME)

    @classmethod
    def tensorflow_doc(cls) -> str | None:
        """What the installed TensorFlow itself says of the op; None if nothing."""
        # Not every op is in tf.raw_ops; the wrappers of others are private.
        loaded = (
            module
            for name, module in list(sys.modules.items())
            if name.startswith("tensorflow.") and ".gen_" in name
        )
        for module in (tf.raw_ops, *loaded):
            doc = getattr(getattr(module, cls.OP_NAME, None), "__doc__", None)
            if doc:
                return inspect.cleandoc(doc)
        proto = cls._info().proto
        return "\n\n".join(filter(None, (proto.summary, proto.description))) or None

    @property
    def op(self) -> tf.Operation:
        """The operation in its graph.

        Raises:
            OpModeError: the op ran eagerly, where operations leave no trace.
        """
        operation = _operation(self)
        if operation is None:
            raise errors.make(
                errors.OpModeError,
                self.OP_NAME,
                f"{self.OP_NAME}: ran eagerly, so that it is no operation of a graph; "
                "its outputs are all there is",
            )
        return operation

    @property
    def inputs(self) -> OpInputs:
        """Typed view of the operation's inputs and attrs; in graphs only."""
        return self.Inputs(self)

    def env(self) -> Any:
        """The `tf.Graph` that the op is in, or TensorFlow's eager context."""
        operation = _operation(self)
        if operation is None:
            return dispatch.context.context()
        return operation.graph

    def rebuild(self, scope: Scope, **changes: Any) -> Self:
        """A new op like this one, which is in a graph.

        Args:
            scope: where it goes.
            changes: inputs and attrs that differ, by their Python names.
        """
        info = self._info()
        view = OpInputs(self)
        names = {arg.name: arg.python_name for arg in info.inputs}
        names |= {a.name: a.python_name for a in info.attrs if not a.inferred}
        unknown = set(changes).difference(names.values())
        if unknown:
            raise errors.make(
                errors.OpInputError,
                self.OP_NAME,
                f"{self.OP_NAME}.rebuild: has no {', '.join(sorted(unknown))}",
                argument=min(unknown),
                allowed=tuple(names.values()),
            )
        values = {
            name: changes[field] if field in changes else getattr(view, field)
            for name, field in names.items()
        }
        inputs = [values.pop(arg.name) for arg in info.inputs]
        return type(self)()._build(scope, inputs, values, None)

    def _build(
        self,
        scope: Scope,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any],
        refusal: Exception | None,
    ) -> Self:
        dispatch.build(self, scope, inputs, attrs, refusal)
        return self

    @classmethod
    def _info(cls) -> opdef.OpInfo:
        info = cls.__dict__.get("_cached_info")
        if info is None:
            info = opdef.op_info(cls.OP_NAME, cls.PYTHON_NAMES, cls.MESSAGES)
            cls._cached_info = info
        return info

    def _outputs(self) -> Iterator[tf.Tensor]:
        for slot in type(self).__slots__:
            output = getattr(self, slot)
            if isinstance(output, list):
                yield from output
            else:
                yield output

    def _identity(self) -> object:
        operation = _operation(self)
        if operation is not None:
            return operation
        # Eager tensors compare by value and have no hash.
        return tuple(map(id, self._outputs())) or id(self)

    def _as_graph_element(self) -> tf.Tensor | tf.Operation:
        """What `Session.run` and `tf.control_dependencies` take for the op."""
        convert = getattr(self, "as_output", None)
        return self.op if convert is None else convert()

    if not TYPE_CHECKING:
        # Hidden from type checkers, which would let every name pass.

        def __getattr__(self, name: str) -> Any:
            # Reached for what is missing, the slots of a hollow op among them.
            cls = type(self)
            if name in cls.__slots__:
                raise AttributeError(
                    f"this {cls.__name__} is hollow: {cls.__name__}.create(...) makes "
                    f"one with outputs, not {cls.__name__}()"
                )
            raise AttributeError(f"{cls.__name__!r} object has no attribute {name!r}")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        operation = _operation(self)
        return (
            f"<{self.OP_NAME} {'eager' if operation is None else repr(operation.name)}>"
        )


def _operation(op: Op) -> tf.Operation | None:
    try:
        return op._operation
    except AttributeError:
        return None


def _tf_tensor(self: Any, dtype: Any = None, name: str | None = None) -> tf.Tensor:
    return ops.convert_to_tensor(self.as_output(), dtype=dtype, name=name)
