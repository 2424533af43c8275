"""Output, a `tf.Tensor` whose dtype type checkers know, and the types of operands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, overload

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from typing_extensions import TypeVar

from opwright_runtime.types.dtypes import TBool, TInexact, TString

AnyDType: TypeAlias = Any
"""A dtype that is known at run time only."""

D = TypeVar("D", default=AnyDType)
F = TypeVar("F", bound=TInexact)

if TYPE_CHECKING:

    class Operators(Generic[D]):
        """Python's operators of an output."""

        def __getitem__(self, key: object) -> Output[D]: ...
        def __iter__(self) -> Iterator[Output[D]]: ...
        def __abs__(self) -> tf.Tensor: ...
        def __neg__(self) -> Output[D]: ...
        def __invert__(self) -> Output[D]: ...
        def __add__(self, other: Operand[D]) -> Output[D]: ...
        def __radd__(self, other: Operand[D]) -> Output[D]: ...
        def __sub__(self, other: Operand[D]) -> Output[D]: ...
        def __rsub__(self, other: Operand[D]) -> Output[D]: ...
        def __mul__(self, other: Operand[D]) -> Output[D]: ...
        def __rmul__(self, other: Operand[D]) -> Output[D]: ...
        def __floordiv__(self, other: Operand[D]) -> Output[D]: ...
        def __rfloordiv__(self, other: Operand[D]) -> Output[D]: ...
        def __mod__(self, other: Operand[D]) -> Output[D]: ...
        def __rmod__(self, other: Operand[D]) -> Output[D]: ...
        def __pow__(self, other: Operand[D]) -> Output[D]: ...
        def __rpow__(self, other: Operand[D]) -> Output[D]: ...
        def __matmul__(self, other: Operand[D]) -> Output[D]: ...
        def __rmatmul__(self, other: Operand[D]) -> Output[D]: ...
        def __and__(self, other: Operand[D]) -> Output[D]: ...
        def __rand__(self, other: Operand[D]) -> Output[D]: ...
        def __or__(self, other: Operand[D]) -> Output[D]: ...
        def __ror__(self, other: Operand[D]) -> Output[D]: ...
        def __xor__(self, other: Operand[D]) -> Output[D]: ...
        def __rxor__(self, other: Operand[D]) -> Output[D]: ...

        # The quotient of integers is a float.
        @overload
        def __truediv__(self: Operators[F], other: Operand[F]) -> Output[F]: ...
        @overload
        def __truediv__(self, other: Operand[D]) -> tf.Tensor: ...
        def __truediv__(self, other: object) -> tf.Tensor: ...
        @overload
        def __rtruediv__(self: Operators[F], other: Operand[F]) -> Output[F]: ...
        @overload
        def __rtruediv__(self, other: Operand[D]) -> tf.Tensor: ...
        def __rtruediv__(self, other: object) -> tf.Tensor: ...
        def __lt__(self, other: Operand[D]) -> Output[TBool]: ...
        def __le__(self, other: Operand[D]) -> Output[TBool]: ...
        def __gt__(self, other: Operand[D]) -> Output[TBool]: ...
        def __ge__(self, other: Operand[D]) -> Output[TBool]: ...

        # Returns a tensor, not a bool.
        def __eq__(self, other: object) -> Any: ...
        def __ne__(self, other: object) -> Any: ...
        def __hash__(self) -> int: ...

    # mypy reads TensorFlow as Any where it has no stubs, and a class derived from Any
    # is compatible with any type. `_tensorflow` has a class for mypy to use then.
    MYPY = False
    if MYPY:
        from opwright_runtime.types._tensorflow import Tensor

        class Output(  # pyright: ignore[reportRedeclaration]
            Operators[D], Tensor
        ):  # type: ignore[misc, unused-ignore]
            __dlpack__: None

            def consumers(  # type: ignore[override, unused-ignore]
                self,
            ) -> Sequence[tf.Operation]: ...

    else:

        class Output(Operators[D], tf.Tensor):
            """A `tf.Tensor` whose dtype the type checker knows."""

            # Without this, type checkers would accept an output as an array of any
            # dtype.
            __dlpack__: None

            # It returns no list, so that type checkers do not accept an output as a
            # PlainTensor.
            def consumers(self) -> Sequence[tf.Operation]: ...  # type: ignore[override]

else:

    class _OutputMeta(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, tf.Tensor)

    class Output(metaclass=_OutputMeta):
        """A `tf.Tensor`, for `isinstance` and annotations; has no instances."""

        def __class_getitem__(cls, dtype: object) -> type[tf.Tensor]:
            return tf.Tensor


class PlainTensor(Protocol):
    """A tensor without a static dtype: `tf.Tensor`, `tf.Variable`.

    `Output` differs from it on purpose, in what `consumers` returns: every operand
    accepts a plain tensor, but an output only if its dtype fits.
    """

    @property
    def shape(self) -> Any: ...
    def consumers(self) -> list[Any]: ...


X = TypeVar("X")


class Settled(Generic[X]):
    """Makes mypy check an argument after the others; has no instances.

    mypy defers a parameter whose type contains a callable with a type variable. The
    variable is solved by then, so that the error names the argument with another
    dtype. If mypy checks all arguments together, its error says only that there is no
    solution.
    """


class DLPack(Protocol):
    """An array of another library that shares its memory by DLPack."""

    def __dlpack__(self) -> Any: ...
    def __dlpack_device__(self) -> Any: ...


# Lists are spelled out to a depth of six. A text is a sequence of texts, so that a
# sequence of any depth would include texts. A tuple in the last alias makes the aliases
# recursive: mypy names only recursive aliases in its messages.

Number: TypeAlias = npt.NDArray[Any] | np.generic | complex | DLPack
"""An array of numbers, or one number."""

ArrayLike: TypeAlias = Number | Sequence["Numbers"]
"""Numbers that TensorFlow converts to a tensor: arrays, scalars, nested lists."""
Numbers: TypeAlias = Number | Sequence["Numbers2"]
Numbers2: TypeAlias = Number | Sequence["Numbers3"]
Numbers3: TypeAlias = Number | Sequence["Numbers4"]
Numbers4: TypeAlias = Number | Sequence["Numbers5"]
Numbers5: TypeAlias = Number | Sequence[Number] | tuple["ArrayLike", ...]

if TYPE_CHECKING:
    TensorOperand: TypeAlias = Output[D] | PlainTensor
    """A tensor, or an op with one output."""

    Operand: TypeAlias = TensorOperand[D] | Number | Sequence["Operand1[D]"]
    """A tensor, an op with one output, or numbers, or nested lists of them."""
    Operand1: TypeAlias = TensorOperand[D] | Number | Sequence["Operand2[D]"]
    Operand2: TypeAlias = TensorOperand[D] | Number | Sequence["Operand3[D]"]
    Operand3: TypeAlias = TensorOperand[D] | Number | Sequence["Operand4[D]"]
    Operand4: TypeAlias = TensorOperand[D] | Number | Sequence["Operand5[D]"]
    Operand5: TypeAlias = (
        TensorOperand[D]
        | Number
        | Sequence[TensorOperand[D] | Number]
        | tuple["Operand[D]", ...]
    )

    SameOperand: TypeAlias = Operand[D] | Settled[Callable[[D], D]]
    """An `Operand` with the dtype of an operand before it."""

    StringOperand: TypeAlias = (
        TensorOperand[TString]
        | npt.NDArray[Any]
        | str
        | bytes
        | np.generic
        | Sequence["StringOperand"]
    )
    """A tensor of strings, or a text, bytes, an array, or nested lists of them."""

    AnyOperand: TypeAlias = (
        TensorOperand[D] | Number | str | bytes | Sequence["AnyOperand[D]"]
    )
    """An `Operand` or text, for ops whose dtype may be that of strings."""

    SameAnyOperand: TypeAlias = AnyOperand[D] | Settled[Callable[[D], D]]
    """An `AnyOperand` with the dtype of an operand before it."""

else:

    class Operand:
        """An operand, in annotations; has no instances."""

        def __class_getitem__(cls, dtype: object) -> type:
            return cls

    TensorOperand = StringOperand = AnyOperand = Operand
    SameOperand = SameAnyOperand = Operand
