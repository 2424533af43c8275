"""Finds an op by what it does, or by the public function that calls it.

    >>> opwright.search("running total")
    Cumsum      opwright.math.cumsum     Adds up the elements along an axis ...
    ...
    >>> opwright.for_tf("tf.nn.softmax")
    tf.nn.softmax is one op: Softmax
    >>> opwright.for_tf("tf.math.reduce_std")
    tf.math.reduce_std is composed of Mean, Sub, Square, Sqrt

The search imports no TensorFlow until it needs a class of an op or an error.

No data leave the machine. The index is built in memory at the first search, from the
docstrings of the generated classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from opwright_runtime.search import tf_names
from opwright_runtime.search.documents import documents, newest_versions, table

if TYPE_CHECKING:
    from opwright_runtime._binding.op import Op
    from opwright_runtime.errors import OpError
    from opwright_runtime.search.index import Index

__all__ = ["Behind", "Found", "Results", "for_tf", "search"]


@dataclass(frozen=True)
class Found:
    """An op that was found: its name, its function, and a line on what it does."""

    name: str
    #: The full name of the function: `opwright.math.cumsum`.
    function: str
    summary: str
    #: The newest version of the op, if that is newer and not removed.
    newer: str | None = None

    @property
    def op_class(self) -> type[Op]:
        """The class of the op. It is imported on first use."""
        return _op_class(self.name)

    @property
    def line(self) -> str:
        """What the op does, and before that the newer version of an op that has one."""
        if self.newer is None:
            return self.summary
        return f"Newer: {self.newer}. {self.summary}".rstrip()

    def __str__(self) -> str:
        return f"{self.name}  {self.function}  {self.line}"


class Results(tuple[Found, ...]):
    """Ops that were found, the best first; printed as a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self:
            return "no op found"
        names = max(len(found.name) for found in self)
        functions = max(len(found.function) for found in self)
        return "\n".join(
            f"{one.name:<{names}}  {one.function:<{functions}}  {one.line}".rstrip()
            for one in self
        )


def search(query: str, limit: int = 10) -> Results:
    """The ops that match `query` best.

    Args:
        query: what the op does, its name or a part of it, or the name of a function of
            TensorFlow: `running total`, `MatMul`, `tf.math.cumsum`.
        limit: the largest number of ops to return.

    Raises:
        OpInputError: `query` is not a text, or `limit` is not a positive number.
    """
    if not isinstance(query, str):
        raise _bad_argument("search", "query", query, "a text")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise _bad_argument("search", "limit", limit, "a positive integer")
    return Results(map(described, _index().best(query, limit)))


def described(name: str) -> Found:
    """The op of that name, with the texts that are printed."""
    document = documents()[name]
    newest = newest_versions().get(document.family, document)
    newer = newest.name if newest.version > document.version else None
    return Found(name, document.function, document.summary, newer)


class Behind(tuple["type[Op]", ...]):
    """The classes of the ops behind a function of TensorFlow; printed as a sentence.

    Attributes:
        function: the function's name, `tf.linalg.matmul`.
        ways: the sequences of ops that the function may run. Each has the OP_NAMEs in
            the order in which the ops run. The arguments of a call decide which
            sequence it runs, and rare arguments may run other ops. `ways` is empty for
            classes and methods. Their ops are those that their source code names.
    """

    function: str
    ways: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, function: str) -> Behind:
        behind = cls(map(_op_class, tf_names.ops_of(function)))
        behind.function = function
        behind.ways = tf_names.ran().get(function, ())
        return behind

    @property
    def is_one_op(self) -> bool:
        """Whether each call of it runs one op and no other."""
        return bool(self.ways) and all(len(way) == 1 for way in self.ways)

    def __repr__(self) -> str:
        return tf_names.sentence(self.function)


def for_tf(name: str) -> Behind:
    """The classes of the ops that a public function of TensorFlow runs.

    The result is a tuple of the classes. Its attribute `ways` says whether the function
    is one op or is composed of several.

    Args:
        name: the name of the function, with or without `tf.`: `tf.nn.softmax`.

    Raises:
        OpUnknownError: TensorFlow has no such function, or the function calls no op by
            itself. The error has similar names.
    """
    return Behind.of(function_of(name))


def function_of(name: str) -> str:
    """The full name of a function that runs ops; it may lack `tf.`.

    Raises:
        OpUnknownError: as `for_tf` raises it.
    """
    if not isinstance(name, str):
        raise _bad_argument("for_tf", "name", name, "a text")
    function = tf_names.full_name(name)
    if not tf_names.ops_of(function):
        raise tf_names.unknown(name, table())
    return function


def _op_class(name: str) -> type[Op]:
    found: type[Op] = import_module("opwright").op_class(name)
    return found


def _bad_argument(function: str, argument: str, given: object, allowed: str) -> OpError:
    from opwright_runtime import errors

    return errors.bad_argument(errors.OpInputError, function, argument, given, allowed)


@cache
def _index() -> Index:
    index: type[Index] = import_module("opwright_runtime.search.index").Index
    return index(documents())
