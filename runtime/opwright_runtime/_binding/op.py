"""Op: the base of every op's class."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import tensorflow as tf

from opwright_runtime import errors
from opwright_runtime._binding import gradients
from opwright_runtime._binding.fast_path import native
from opwright_runtime._binding.scope import HERE, Scope, named
from opwright_runtime._binding.signatures import describe_missing_args
from opwright_runtime._binding.view import OpInputs
from opwright_runtime._internals import context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from typing_extensions import Self

    from opwright_runtime._binding.op_info import OpInfo
    from opwright_runtime._binding.options import OpOptions
    from opwright_runtime.kernels import Kernel
    from opwright_runtime.runs_on import RunsOn

gradients.explain_on_tapes()

NewOp = TypeVar("NewOp", bound="Op")


class _OpDef:
    """`op_def` of an op's class: read from the registry on first use."""

    def __get__(self, instance: object, owner: type[Op]) -> OpInfo:
        return owner._info()


class Op:
    """An op. In a graph it stands for an operation, in eager mode for its results.

    Its outputs are attributes, each a plain `tf.Tensor` or a list of tensors. It can be
    unpacked into them: `values, indices = TopKV2.create(...)`. An op with one output is
    a `TensorOp`. Other ops are equal if they are the same operation, or in eager mode
    if they have the same tensors.
    """

    __slots__ = ("__weakref__", "_operation")

    OP_NAME: ClassVar[str]
    PYTHON_NAMES: ClassVar[Mapping[str, str]] = {}
    MESSAGES: ClassVar[Mapping[str, str]] = {}
    SHAPES: ClassVar[Mapping[str, str]] = {}
    TRUNCATED: ClassVar[Mapping[str, str]] = {}
    REQUIRES: ClassVar[tuple[str, ...]] = ()
    NATIVE: ClassVar[tuple[str, ...]] = ()
    SINCE: ClassVar[Mapping[str, str]] = {}
    DROPPED_IN: ClassVar[Mapping[str, str]] = {}
    SCHEMA: ClassVar[Mapping[str, str]] = {}
    Outputs: ClassVar[Any]
    Inputs: ClassVar[type[OpInputs]] = OpInputs
    Options: ClassVar[type[OpOptions]]

    op_def = _OpDef()
    """The op's inputs, outputs and attrs as the installed TensorFlow has them."""

    _operation: tf.Operation
    _cached_info: ClassVar[OpInfo]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "Options" in cls.__dict__:
            cls.Options._op_name = cls.OP_NAME
            cls.Options._op_class = cls
        if "Outputs" in cls.__dict__:
            # tf.nest compares the names of named tuples. TensorFlow's named tuple for
            # this op has this name.
            cls.Outputs.__name__ = cls.__name__
        if "create" in cls.__dict__:
            describe_missing_args(cls.__dict__["create"].__func__)
            if cls.SCHEMA:
                # It is imported here because the ops of TensorFlow do not need it.
                from opwright_runtime._binding import compatibility

                compatibility.check_on_first_call(
                    cls.__dict__["create"].__func__, cls._info
                )

    def __init__(self, *arguments: object, **options: object) -> None:
        from opwright_runtime._binding import misuse

        raise misuse.constructor_error(type(self), arguments)

    @classmethod
    def from_operation(cls, operation: tf.Operation) -> Self:
        """The op for `operation`, which may be in any graph.

        Raises:
            OpInputError: it is an operation of another type.
        """
        if getattr(operation, "type", None) != cls.OP_NAME:
            from opwright_runtime._binding import misuse

            raise misuse.not_operation(cls, operation)
        from opwright_runtime._binding import dispatch

        self = new(cls)
        self._fill(operation, dispatch.outputs_of(cls._info(), operation))
        return self

    @classmethod
    def kernels(cls) -> tuple[Kernel, ...]:
        """The kernels that can run the op here: on which device, with which dtypes."""
        from opwright_runtime.kernels import kernels

        return kernels(cls.OP_NAME)

    @classmethod
    def runs_on(cls) -> RunsOn:
        """Whether the op's example compiles with XLA, and for which TPUs."""
        from opwright_runtime.runs_on import runs_on

        found = runs_on(cls.OP_NAME)
        if not found.refused_dtypes:
            return found
        rows = [row.dtypes for row in cls.kernels() if row.device == "XLA"]
        served = {
            attr: tuple(
                dict.fromkeys(one.name for row in rows for one in row.get(attr, ()))
            )
            for attr in found.refused_dtypes
        }
        return replace(found, xla_dtypes=served)

    @classmethod
    def tensorflow_doc(cls) -> str | None:
        """The installed TensorFlow's documentation of the op; None if it has none."""
        # Some ops are missing in tf.raw_ops but have private wrappers.
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
            OpModeError: the op ran eagerly, so there is no operation.
        """
        operation = _operation(self)
        if operation is None:
            raise errors.make(
                errors.OpModeError,
                self.OP_NAME,
                f"{self.OP_NAME}: ran eagerly, so that it is no operation of a graph; "
                "its outputs are all there is; create it in a tf.Graph or a "
                "tf.function to get an operation",
            )
        return operation

    @property
    def inputs(self) -> OpInputs:
        """A typed view of the operation's inputs and attrs, in graphs only."""
        return self.Inputs(self)

    def env(self) -> Any:
        """The `tf.Graph` that the op is in, or TensorFlow's eager context."""
        operation = _operation(self)
        if operation is None:
            return context.context()
        return operation.graph

    def rebuild(self, scope: Scope, **changes: Any) -> Self:
        """A new op like this one, which is in a graph.

        Control inputs and the device are those of the scope, not of this op.

        Args:
            scope: where the new op goes.
            changes: inputs and attrs that differ, by their Python names.
        """
        info = self._info()
        view = OpInputs(self)
        names = {arg.name: arg.python_name for arg in info.inputs}
        names |= {a.name: a.python_name for a in info.attrs if not a.inferred}
        unknown = {n: one for n, one in changes.items() if n not in names.values()}
        if unknown:
            from opwright_runtime._binding import misuse

            raise misuse.rebuild_arguments(type(self), (*names.values(),), unknown)
        values = {
            name: changes[field] if field in changes else getattr(view, field)
            for name, field in names.items()
        }
        inputs = [values.pop(arg.name) for arg in info.inputs]
        return new(type(self))._build(scope, inputs, values, None)

    def _build(
        self,
        scope: Scope,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any],
        fast_path_error: Exception | None,
    ) -> Self:
        if not isinstance(scope, Scope):
            from opwright_runtime._binding import misuse

            raise misuse.scope_error(type(self), scope)
        # It is imported here because the first eager calls do not need it.
        from opwright_runtime._binding import dispatch

        self._fill(*dispatch.make(self._info(), scope, inputs, attrs, fast_path_error))
        return self

    @classmethod
    def _call(
        cls,
        name: str | None,
        inputs: Sequence[Any],
        attrs: Mapping[str, Any],
        fast_path_error: Exception | None,
    ) -> Any:
        """The result of the op's function, which is tensors and not an op."""
        from opwright_runtime._binding import dispatch

        scope = HERE if name is None else named(name)
        operation, outputs = dispatch.make(
            cls._info(), scope, inputs, attrs, fast_path_error
        )
        if len(outputs) == 1:
            return outputs[0]
        return cls.Outputs._make(outputs) if outputs else operation

    @classmethod
    def _refused(
        cls, surplus: Sequence[object], keywords: Mapping[str, object]
    ) -> errors.OpError:
        """The error for arguments that the op's function does not have."""
        from opwright_runtime._binding import misuse

        return misuse.function_arguments(cls, surplus, keywords)

    @classmethod
    def _create_refused(
        cls, surplus: Sequence[object], keywords: Mapping[str, object]
    ) -> errors.OpError:
        """The error for arguments that `create` does not have."""
        from opwright_runtime._binding import misuse

        return misuse.create_arguments(cls, surplus, keywords)

    def _fill(self, operation: tf.Operation | None, outputs: Sequence[Any]) -> None:
        """Stores the outputs in the op's slots, which are in the same order."""
        if operation is not None:
            self._operation = operation
        for slot, output in zip(type(self).__slots__, outputs, strict=True):
            setattr(self, slot, output)

    @classmethod
    def _info(cls) -> OpInfo:
        info = cls.__dict__.get("_cached_info")
        if info is None:
            from opwright_runtime._binding import op_info

            if cls.SCHEMA:
                from opwright_runtime._binding import compatibility

                compatibility.check(cls.OP_NAME, cls.SCHEMA, cls.__module__)
            info = op_info.read_op_info(
                cls.OP_NAME,
                cls.PYTHON_NAMES,
                cls.MESSAGES,
                cls.NATIVE,
                cls.SHAPES,
                cls.TRUNCATED,
                cls.REQUIRES,
                cls.SINCE,
                cls.DROPPED_IN,
                defaults=cls.Options._defaults() if hasattr(cls, "Options") else {},
            )
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
        """`Session.run` and `tf.control_dependencies` use it in place of the op."""
        return self.op

    def __iter__(self) -> Iterator[Any]:
        outputs = [getattr(self, slot) for slot in type(self).__slots__]
        # A single output that is a list unpacks into its elements.
        return iter(outputs[0] if len(outputs) == 1 else outputs)

    # An op with several outputs cannot be used as a tensor, so these raise an error.

    def __bool__(self) -> bool:
        raise self._no_tensor("has no truth value")

    if not TYPE_CHECKING:
        # Hidden from type checkers, because they would accept the op as an array.

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
            # Without this method, NumPy would create an array with one object.
            raise self._no_tensor("is no array")

    def _no_tensor(self, what: str) -> errors.OpError:
        from opwright_runtime._binding import misuse

        return misuse.not_a_tensor(type(self), what)

    if not TYPE_CHECKING:
        # Hidden from type checkers, which would let every name pass.

        def __getattr__(self, name: str) -> Any:
            # Python calls this for missing attributes, and for slots without a value.
            cls = type(self)
            if name in cls.__slots__:
                raise AttributeError(f"this {cls.__name__} has no outputs yet")
            from opwright_runtime._binding import misuse

            raise AttributeError(
                misuse.missing_attribute(cls, name), name=name, obj=self
            )

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def __repr__(self) -> str:
        operation = _operation(self)
        parts = ["eager" if operation is None else repr(operation.name)]
        parts += (f"{slot}={getattr(self, slot)!r}" for slot in type(self).__slots__)
        return f"<{self.OP_NAME} {', '.join(parts)}>"


if TYPE_CHECKING:

    def new(cls: type[NewOp]) -> NewOp:
        """An op without outputs; `cls(...)` raises an error that says what to call."""
        ...

else:
    new = native(object.__new__, "new")


def _operation(op: Op) -> tf.Operation | None:
    try:
        return op._operation
    except AttributeError:
        return None
