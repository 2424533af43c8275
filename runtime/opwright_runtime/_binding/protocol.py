"""OpLike: the protocol of an op, for the modules that its base class imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    import tensorflow as tf

    from opwright_runtime._binding.op_info import OpInfo


class OpLike(Protocol):
    """The members of `Op` that the modules it imports use."""

    __slots__: ClassVar[tuple[str, ...]]
    _operation: tf.Operation

    @property
    def op(self) -> tf.Operation: ...
    @classmethod
    def _info(cls) -> OpInfo: ...
