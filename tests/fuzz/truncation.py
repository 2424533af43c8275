"""Finds the inputs and attrs of 64 bits of which a kernel reads the lower 32.

`PYTHONPATH=tests python -m fuzz.truncation` goes through the examples of all ops. Each
integer of a call gets 2**32 more, and 2**32 less. A result that stays the same, where
other integers change it, is one of a truncated integer.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

from opwright_codegen.model import Op
from support.versions import installed_ops

from .supervisor import LEFT_OUT, Worker

#: The number of a place is that of its op, times this, and its own.
PLACES = 1000
#: Commands for a worker: ops in each.
OPS = 20
#: Dtypes of what may be an index or a size, and no element of a tensor.
_INDICES = frozenset({"int16", "int32", "int64"})
#: A generator may use as many bits of a seed as it likes.
SEEDS = frozenset({"seed", "seed2"})
#: What a period of 2**32 does not change, by what is computed.
PERIODIC = frozenset(
    {
        # Modulo a power of two, or by definition.
        "BitwiseAnd.x",
        "BitwiseAnd.y",
        "Cast.x",
        "DataFormatDimMap.x",
        # One element alone is truncated: the batch, or the size that is split.
        "SparseCountSparseOutput.dense_shape",
        "SparseSplit.shape",
        # The example shows errors alone, and no sizes.
        "SparseTensorToCSRSparseMatrix.dense_shape",
    }
)


def candidates(op: Op) -> Iterator[str]:
    """Inputs and attrs that may be integers of 64 bits."""
    for arg in op.inputs:
        if arg.is_list or arg.is_ref:
            continue
        attr = op.attr(arg.type_attr) if arg.type_attr else None
        allowed = {arg.dtype} if attr is None else {*(attr.allowed or ())}
        if "int64" in allowed and allowed <= _INDICES and arg.name not in SEEDS:
            yield arg.name
    attrs = (attr.name for attr in op.given if attr.kind == "int")
    yield from (name for name in attrs if name not in SEEDS)


def ops() -> list[Op]:
    """The ops that have candidates, in the order of their names."""
    found = (op for op in installed_ops().values() if op.name not in LEFT_OUT)
    kept = (op for op in found if any(candidates(op)) and not _waits(op))
    return sorted(kept, key=lambda op: op.name)


def _waits(op: Op) -> bool:
    """Whether calls wait for others, or for compilation."""
    return op.group == "xla" or op.name.startswith(
        ("Collective", "DataService", "MapUnstage", "OrderedMapUnstage", "Rpc")
    )


def find(names: Sequence[str], seconds: float) -> tuple[set[str], set[str]]:
    """Truncated arguments as `op.argument`, and those that were tried.

    Args:
        names: ops, whose examples are called.
        seconds: after which no other ops are begun.
    """
    truncated, tried = set[str](), set[str]()
    end = time.monotonic() + seconds

    def seen(place: str, way: str, goodness: str, outcome: str) -> None:
        if goodness == "bad":
            tried.add(place)
        if outcome == "truncated":
            truncated.add(place)

    worker = Worker("fuzz.truncation_worker")
    try:
        for start in range(0, len(names), OPS):
            command: dict[str, Any] = {"ops": names[start : start + OPS], "first": 0}
            while time.monotonic() < end:
                died = worker.do(command, seen).died_at
                if died is None:
                    break
                command["first"] = _after(died)
    finally:
        worker.close()
    return truncated - PERIODIC, tried


def _after(died: int) -> int:
    """The next place, or the next op where the example itself ends the process."""
    return died + (1 if died % PLACES else PLACES)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz.truncation", description=__doc__
    )
    parser.add_argument("--seconds", type=float, default=86_400, help="at most")
    parser.add_argument("--ops", nargs="+", help="these alone")
    options = parser.parse_args(arguments)
    every = ops()
    stated = {f"{op.name}.{name}" for op in every for name, _ in op.truncated}
    found, tried = find(options.ops or [op.name for op in every], options.seconds)
    for one in sorted(found):
        print(one, "" if one in stated else "  which its opdef does not state")
    print(f"{len(found)} truncated of {len(tried)} arguments")
    return 1 if found - stated else 0


if __name__ == "__main__":
    sys.exit(main())
