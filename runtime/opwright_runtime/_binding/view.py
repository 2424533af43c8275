"""OpInputs: the inputs and attrs of an operation in a graph, by name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import tensorflow as tf

    from opwright_runtime._binding.protocol import OpLike


class OpInputs:
    """The inputs and attrs of an operation in a graph, by name.

    Inputs are tensors, or lists of them. Attrs are Python values: `tf.DType`,
    `tf.TensorShape`, the protos `TensorProto` and `NameAttrList`, tuples of these. A
    string is a `str` if it is UTF-8, else `bytes`. A serialized message is `bytes`.

    Raises:
        OpModeError: the op ran eagerly, so there is no operation.
    """

    def __init__(self, op: OpLike) -> None:
        from opwright_runtime._binding.op_info import grouped, length_in

        self._operation = op.op
        self._info = info = type(op)._info()
        flat = self._operation.inputs
        length = partial(length_in, self._operation)
        for arg, value in zip(
            info.inputs, grouped(info.inputs, flat, length), strict=True
        ):
            self.__dict__[arg.python_name] = value

    @property
    def op(self) -> tf.Operation:
        """The operation that has these inputs and attrs."""
        return self._operation

    if not TYPE_CHECKING:
        # Hidden from type checkers, which would let every name pass.

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                # The module `copy` reads such names before the copy has any fields.
                raise AttributeError(name)
            attr = self._info.attr_in_python.get(name)
            if attr is None:
                from opwright_runtime._binding import misuse

                raise AttributeError(misuse.missing_field(self._info, name))
            value = self.attribute_value(attr.name)
            self.__dict__[name] = value
            return value

    def attribute_names(self) -> tuple[str, ...]:
        """Names of all attrs, as the OpDef spells them."""
        return tuple(attr.name for attr in self._info.attrs)

    def attribute_value(self, name: str) -> Any:
        """The value of an attr, by the OpDef's name for it.

        Raises:
            ValueError: the operation has no such attr.
        """
        attr = self._info.attr.get(name) or self._info.absent.get(name)
        try:
            value = self._operation.get_attr(name)
        except ValueError:
            # A graph from before the attr was added lacks it. TensorFlow then uses the
            # default.
            if attr is None or attr.default is None:
                raise
            default = attr.default
            return default.encode() if attr.message is not None else default
        if attr is None or attr.why_absent is not None:
            return value
        from opwright_runtime._binding import attrs

        return attrs.from_operation(attr.kind, value, attr.message)

    def as_dict(self) -> dict[str, Any]:
        """Every input and attr by its Python name."""
        info = self._info
        names = [arg.python_name for arg in info.inputs]
        names += [attr.python_name for attr in info.attrs]
        return {name: getattr(self, name) for name in names}

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={value!r}" for name, value in self.as_dict().items()
        )
        return f"{type(self).__name__}({fields})"
