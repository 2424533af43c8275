"""Finding an op: by what it does, or by the public function that calls it.

    >>> opwright.search("running total")
    Cumsum      opwright.math.cumsum     Adds up what came before, along an axis.
    ...
    >>> opwright.for_tf("tf.nn.softmax")
    (<class 'opwright.nn.softmax.Softmax'>,)

Nothing leaves the machine: the index is made of the generated classes' own docstrings,
in memory, when something is searched for the first time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from opwright_runtime import errors
from opwright_runtime.search import tf_names
from opwright_runtime.search.documents import documents, package

if TYPE_CHECKING:
    from opwright_runtime._binding.op import Op
    from opwright_runtime.search.index import Index

__all__ = ["Found", "Results", "for_tf", "search"]


@dataclass(frozen=True)
class Found:
    """An op that was found: its name, its function, what it does in a line."""

    name: str
    #: Where the function is: `opwright.math.cumsum`.
    function: str
    summary: str

    @property
    def op_class(self) -> type[Op]:
        """The class, which is imported for it."""
        found: type[Op] = package().op_class(self.name)
        return found

    def __str__(self) -> str:
        return f"{self.name}  {self.function}  {self.summary}"


class Results(tuple[Found, ...]):
    """Ops that were found, the best first; printed as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self:
            return "no op found"
        names = max(len(found.name) for found in self)
        functions = max(len(found.function) for found in self)
        return "\n".join(
            f"{one.name:<{names}}  {one.function:<{functions}}  {one.summary}".rstrip()
            for one in self
        )


def search(query: str, limit: int = 10) -> Results:
    """The ops that answer `query` best.

    Args:
        query: what the op does, its name or a part of it, or a name of TensorFlow's:
            `running total`, `MatMul`, `tf.math.cumsum`.
        limit: how many at most.

    Raises:
        OpInputError: `query` is no text, or `limit` no positive number.
    """
    if not isinstance(query, str):
        raise errors.bad_argument(
            errors.OpInputError, "search", "query", query, "a text"
        )
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        allowed = "a positive integer"
        raise errors.bad_argument(
            errors.OpInputError, "search", "limit", limit, allowed
        )
    return Results(map(described, _index().best(query, limit)))


def described(name: str) -> Found:
    """The op of that name with what is printed of it."""
    document = documents()[name]
    return Found(name, document.function, document.summary)


def for_tf(name: str) -> tuple[type[Op], ...]:
    """The classes of the ops that a public function of TensorFlow calls.

    Args:
        name: its name, `tf.nn.softmax`; with or without `tf.`.

    Raises:
        OpUnknownError: TensorFlow has no such function, or it calls no op by itself.
            The error has close names.
    """
    if not isinstance(name, str):
        raise errors.bad_argument(errors.OpInputError, "for_tf", "name", name, "a text")
    found = tf_names.ops_of(name)
    if found is None:
        raise tf_names.unknown(name)
    return tuple(map(package().op_class, found))


@cache
def _index() -> Index:
    index: type[Index] = import_module("opwright_runtime.search.index").Index
    return index(documents())
