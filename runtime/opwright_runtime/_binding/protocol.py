"""OpLike: a protocol for `Op`, for modules that the module of `Op` itself imports."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    import tensorflow as tf

    from opwright_runtime._binding.op_info import OpInfo


class OpLike(Protocol):
    """The members of `Op` that are used by modules which the module of `Op` imports."""

    __slots__: ClassVar[tuple[str, ...]]
    _operation: tf.Operation

    @property
    def op(self) -> tf.Operation: ...
    @classmethod
    def _info(cls) -> OpInfo: ...
