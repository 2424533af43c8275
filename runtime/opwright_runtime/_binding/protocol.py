"""OpLike: an op, to those modules that its base class is built of."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    import tensorflow as tf

    from opwright_runtime._binding.opdef import OpInfo


class OpLike(Protocol):
    """What `Op` is to the modules that it imports."""

    __slots__: ClassVar[tuple[str, ...]]
    _operation: tf.Operation

    @property
    def op(self) -> tf.Operation: ...
    @classmethod
    def _info(cls) -> OpInfo: ...
