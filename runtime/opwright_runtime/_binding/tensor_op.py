"""TensorOp: an op with one output, which behaves like that tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from typing_extensions import TypeVar

from opwright_runtime._binding.op import Op
from opwright_runtime._internals import TensorType, ops
from opwright_runtime.types import AnyDType, Output

D = TypeVar("D", default=AnyDType)

if TYPE_CHECKING:

    class TensorOp(Output[D], Op):
        """An op with one output. Type checkers see a subclass of the output's type."""

        def as_output(self) -> Output[D]: ...

else:

    class _TensorOpType(type):
        def __repr__(cls) -> str:
            # TensorFlow shows this text in errors if it does not accept an op in place
            # of a tensor.
            return f"{super().__repr__()}, whose as_output() is a tf.Tensor"

    class TensorOp(Op, TensorType, metaclass=_TensorOpType):
        """An op with one output. It can be used in place of that tensor in TensorFlow.

        Operators, comparison, indexing, bool(), iteration, formatting, conversion to
        NumPy and every attribute of a tensor are those of the output. TensorFlow itself
        converts objects of its class `TensorType` to tensors. Functions may therefore
        return the op, gradients with respect to it can be computed, and `tf.data`,
        `tf.nest` and control flow accept it.
        """

        __slots__ = ()
        # NumPy leaves binary operators to the operand with the higher priority. The
        # value is that of tensors.
        __array_priority__ = tf.Tensor.__array_priority__

        def __class_getitem__(cls, dtype: object) -> type:
            return cls

        def as_output(self) -> tf.Tensor:
            """The output."""
            return getattr(self, type(self).__slots__[0])

        # TensorType has `dtype` and `shape` as properties, which would hide the
        # output's.

        @property
        def dtype(self) -> tf.DType:
            return self.as_output().dtype

        @property
        def shape(self) -> tf.TensorShape:
            return self.as_output().shape

        def __getattr__(self, name: str) -> Any:
            if name in type(self).__slots__:
                raise AttributeError(f"this {type(self).__name__} has no output yet")
            output = self.as_output()
            try:
                return getattr(output, name)
            except AttributeError:
                # Libraries probe for names with an underscore, and discard the error.
                # A name of the tensor's class, such as `op` of an eager tensor, raises
                # TensorFlow's own error.
                if name.startswith("_") or hasattr(type(output), name):
                    raise
            from opwright_runtime._binding import misuse

            raise AttributeError(
                misuse.missing_attribute(type(self), name), name=name, obj=self
            )

        def __tf_tensor__(
            self, dtype: tf.DType | None = None, name: str | None = None
        ) -> tf.Tensor:
            return ops.convert_to_tensor(self.as_output(), dtype=dtype, name=name)

        def __tf_tracing_type__(self, context: Any) -> Any:
            # The body of a tf.function receives a tensor in place of the op.
            return self.as_output().__tf_tracing_type__(context)

        def __array__(
            self, dtype: npt.DTypeLike = None, copy: bool | None = None
        ) -> npt.NDArray[Any]:
            # This returns an array also for a scalar, where a tensor's own method
            # returns a number.
            array = np.asarray(self.as_output(), dtype)
            return array.copy() if copy else array

        def _as_graph_element(self) -> tf.Tensor:
            return self.as_output()

        def __repr__(self) -> str:
            return repr(self.as_output()).replace("tf.Tensor", self.OP_NAME, 1)

        def __str__(self) -> str:
            return str(self.as_output()).replace("tf.Tensor", self.OP_NAME, 1)

    def _of_the_output(name: str) -> Callable[..., Any]:
        def method(self: TensorOp, *arguments: object, **keywords: object) -> Any:
            return getattr(self.as_output(), name)(*arguments, **keywords)

        method.__name__ = name
        method.__qualname__ = f"TensorOp.{name}"
        return method

    for _name in (
        *tf.Tensor.OVERLOADABLE_OPERATORS,
        "__bool__",
        "__complex__",
        "__float__",
        "__format__",
        "__hash__",
        "__index__",
        "__int__",
        "__iter__",
        "__len__",
        "__round__",
        "__dlpack__",
        "__dlpack_device__",
    ):
        setattr(TensorOp, _name, _of_the_output(_name))
