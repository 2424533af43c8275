"""Output: a `tf.Tensor` whose dtype type checkers know; see the stub beside this."""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from typing_extensions import TypeVar

AnyDType = Any
D = TypeVar("D", default=AnyDType)


class _OutputMeta(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, tf.Tensor)


class Output(metaclass=_OutputMeta):
    """A `tf.Tensor`, to `isinstance` as in annotations; never made itself."""

    def __class_getitem__(cls, dtype: object) -> type[tf.Tensor]:
        return tf.Tensor
