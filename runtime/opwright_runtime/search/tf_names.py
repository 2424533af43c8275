"""Which ops the public functions of TensorFlow run: data from calls of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Container, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

if TYPE_CHECKING:
    from opwright_runtime.errors import OpError

#: The ops of a call, in the order in which they run.
Way: TypeAlias = tuple[str, ...]

_Table: TypeAlias = Mapping[str, Mapping[str, Any]]

#: If a function runs several ops, the share of the one that fewest functions run.
_COMPOSED: Final = 0.7
#: If no example calls a function and its source names more ops than this, the function
#: is ignored, because its name does not describe any one of the ops.
_FEW: Final = 4


@cache
def _table() -> _Table:
    found: _Table = json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))
    return found


@cache
def ran() -> Mapping[str, tuple[Way, ...]]:
    """The ops that calls of a function ran. A function may have several ways."""
    return {name: tuple(map(tuple, ways)) for name, ways in _table()["ran"].items()}


@cache
def read() -> Mapping[str, Way]:
    """The ops in the source code of functions that no example calls."""
    return {name: tuple(ops) for name, ops in _table()["read"].items()}


@cache
def names() -> Mapping[str, tuple[str, ...]]:
    """All ops of a function, by its name."""
    found = dict(read())
    for name, ways in ran().items():
        found[name] = tuple(dict.fromkeys(op for way in ways for op in way))
    return found


@cache
def callers() -> Mapping[str, Mapping[str, float]]:
    """For each op, the functions that run it, each with the op's share of it.

    The share is 1 if the function runs no other op. If it runs several, an op that few
    other functions run has a larger share.
    """
    common = Counter(op for ops in names().values() for op in ops)
    few = {name: (ops,) for name, ops in read().items() if len(ops) <= _FEW}
    found: dict[str, dict[str, float]] = {}
    for name, ways in (*ran().items(), *few.items()):
        for way in ways:
            rarest = min(common[op] for op in way)
            for op in way:
                share = 1.0 if len(way) == 1 else _COMPOSED * rarest / common[op]
                known = found.setdefault(op, {})
                known[name] = max(share, known.get(name, 0.0))
    return found


def full_name(name: str) -> str:
    """The name of a function with `tf.`, which `name` may lack."""
    name = name.strip().removeprefix("tensorflow.").removeprefix("tf.")
    return f"tf.{name.rstrip('()')}"


def ops_of(name: str) -> tuple[str, ...]:
    """The ops of a function; none if it is unknown."""
    return names().get(full_name(name), ())


def function_named(name: str) -> str | None:
    """The function with a name without its module, in any case; None if none has it."""
    asked = name.replace("_", "").lower()
    last = ((one, one.rpartition(".")[2].replace("_", "").lower()) for one in names())
    # A function that has several names has the shortest one in `tf`.
    return min((one for one, plain in last if plain == asked), key=len, default=None)


def sentence(function: str) -> str:
    """A sentence that says whether a function is one op or is composed of several."""
    ways = ran().get(function)
    if ways is None:
        named = ", ".join(read()[function])
        return f"{function} calls {named}, by its source; it may run others"
    one = " or ".join(way[0] for way in ways if len(way) == 1)
    several = [f"is composed of {', '.join(way)}" for way in ways if len(way) > 1]
    said = [f"is one op: {one}"] if one else []
    return f"{function} {'; or '.join([*said, *several])}"


def unknown(name: str, ops: Container[str]) -> OpError:
    """The error for a name that is not in the data; `ops` has the names of all ops."""
    # It imports TensorFlow, which the search does without.
    from opwright_runtime import errors

    asked = full_name(name)
    last = asked.removeprefix("tf.raw_ops.")
    if last != asked and last in ops:
        return errors.make(
            errors.OpUnknownError,
            "for_tf",
            f"{asked} is the op {last}; its class is opwright.op_class({last!r})",
            given=name,
            allowed=(last,),
        )
    close = get_close_matches(asked, names(), n=3)
    hint = f"; close to it: {', '.join(close)}" if close else ""
    return errors.make(
        errors.OpUnknownError,
        "for_tf",
        f"no function called {name!r} of TensorFlow's calls an op by itself{hint}; "
        "opwright.search() looks ops up by what they do",
        given=name,
        allowed=tuple(close) or None,
    )
