"""Options: the optional attrs of an op, frozen and checked."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast

from typing_extensions import dataclass_transform

from opwright_runtime import errors
from opwright_runtime._binding.fast_path import native
from opwright_runtime._binding.signatures import SourceSignature
from opwright_runtime.types import TType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from typing_extensions import Self

    from opwright_runtime._binding.protocol import OpLike

V = TypeVar("V")


class _Default:
    """Marks the value of a parameter as the op's default."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"default({self.value!r})"


def default(value: V) -> V:
    """`value`, marked as a default: merging ignores it."""
    return cast("V", _Default(_plain(value)))


# This makes type checkers refuse assignments to fields.
@dataclass_transform(frozen_default=True, eq_default=False)
class OpOptions:
    """Values of an op's optional attrs, each either explicit or the op's default.

    Equal when the same op's options have equal values, explicit or not.

    Attributes:
        explicit: names of the fields that the caller set.
    """

    __slots__ = ("explicit",)

    explicit: frozenset[str]

    # The class of the op sets these two when Python creates that class, after this one.
    _op_name: ClassVar[str]
    _op_class: ClassVar[type[OpLike]]

    def __init_subclass__(cls) -> None:
        if "__init__" in vars(cls):
            initializer: Any = cls.__init__
            initializer.__signature__ = SourceSignature.of(initializer)

    def _set(self, **values: Any) -> None:
        put = object.__setattr__
        explicit = []
        for name, value in values.items():
            if type(value) is _Default:
                value = value.value
            else:
                explicit.append(name)
                value = self._checked(name, value)
            put(self, name, value)
        put(self, "explicit", frozenset(explicit) if explicit else _NONE)

    def _with(self, **values: Any) -> Self:
        new = object.__new__(type(self))
        put = object.__setattr__
        for name in self.__slots__:
            put(new, name, getattr(self, name))
        for name, value in values.items():
            put(new, name, self._checked(name, value))
        put(new, "explicit", self.explicit.union(values))
        return new

    @classmethod
    def merge(cls, options: Sequence[Self]) -> Self:
        """Merges `options`: the last explicit value of each field wins.

        Raises:
            OpOptionError: one of them is not of this class.
        """
        if len(options) == 1 and type(options[0]) is cls:
            return options[0]
        merged: Self | None = None
        for one in options:
            if type(one) is not cls:
                from opwright_runtime._binding import misuse

                raise misuse.not_options(cls._op_class, one)
            if merged is None or merged.explicit <= one.explicit:
                merged = one
            elif one.explicit:
                new = object.__new__(cls)
                put = object.__setattr__
                for name in cls.__slots__:
                    source = one if name in one.explicit else merged
                    put(new, name, getattr(source, name))
                put(new, "explicit", merged.explicit | one.explicit)
                merged = new
        return cls() if merged is None else merged

    @classmethod
    def _refused(
        cls, keywords: Mapping[str, object], *surplus: object
    ) -> errors.OpError:
        """The error for keywords that are not fields, and for `surplus` arguments."""
        from opwright_runtime._binding import misuse

        return misuse.option_arguments(cls._op_class, keywords, surplus)

    @classmethod
    def _defaults(cls) -> dict[str, object]:
        """Every field's default by its name."""
        marked: dict[str, _Default] = inspect.unwrap(cls.__init__).__kwdefaults__
        return {name: default.value for name, default in marked.items()}

    def as_dict(self) -> dict[str, Any]:
        """Every field's value by its name."""
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def _checked(cls, name: str, value: Any) -> Any:
        # It is imported here because options at their defaults do not need it.
        from opwright_runtime._binding import attrs

        try:
            return attrs.checked(cls._op_class._info().attr_in_python[name], value)
        except attrs.BadValueError as refused:
            raise errors.bad_argument(
                errors.OpOptionError, cls._op_name, name, value, refused.allowed
            ) from None

    if not TYPE_CHECKING:
        # Hidden from type checkers, which would let every name pass.

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"{type(self).__qualname__} has no {name}; it has "
                f"{', '.join(self.__slots__)}, and a with_...() of each"
            )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"{type(self).__qualname__} is frozen; with_{name}() makes a changed copy"
        )

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__qualname__} is frozen")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            getattr(self, name) == getattr(other, name) for name in self.__slots__
        )

    def __hash__(self) -> int:
        values = (getattr(self, name) for name in self.__slots__)
        return hash((type(self), *map(_hashable, values)))

    def __repr__(self) -> str:
        given = (
            f"{name}={getattr(self, name)!r}"
            for name in self.__slots__
            if name in self.explicit
        )
        return f"{type(self).__qualname__}({', '.join(given)})"

    def __reduce__(self) -> tuple[Any, ...]:
        given = {name: getattr(self, name) for name in self.explicit}
        return _rebuild, (type(self), given)


_NONE: frozenset[str] = frozenset()

Made = TypeVar("Made", bound=OpOptions)


def merging(options: type[Made]) -> Callable[[Sequence[Made]], Made]:
    """`options.merge`, which generated code calls."""
    return native(options.merge, cls=options)


def _rebuild(cls: type[OpOptions], given: dict[str, Any]) -> OpOptions:
    return cls(**given)


def _plain(value: Any) -> Any:
    """A default in the runtime's form: `TFloat32` as `tf.float32`, lists as tuples."""
    if isinstance(value, type) and issubclass(value, TType):
        return value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    return value


def _hashable(value: Any) -> Any:
    # A protocol buffer is compared by content and has no hash.
    try:
        hash(value)
    except TypeError:
        return type(value)
    return value
