"""Makes bent calls of any op, and says in shared memory which one is next.

Run by ops.py, as worker.py is by main.py: `python -m fuzz.ops_worker DESCRIPTOR`.
"""

from __future__ import annotations

import json
import os
import re
import resource
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
from tensorflow.python.framework import error_interpolation

from opwright_runtime import errors
from opwright_runtime._binding import diagnosis
from opwright_runtime._internals import core
from support.equivalence.registry import op_defs, ops_with_cpu_kernel
from support.grouped import ops

from .bends import info_of
from .ops_bends import Bend, Plan, applied, draw
from .ops_calls import (
    MODES,
    Arguments,
    Base,
    Example,
    has_handles,
    make,
    tensors,
)
from .ops_left_out import NATIVE, why_left_out
from .ops_settings import Settings
from .ops_state import EXAMPLE, State
from .ops_text import before, call_text
from .worker import Reports, limit_memory, serve

#: What a call may have of address space, beyond what the process has at first.
ADDRESS_SPACE = 12 << 30
# Calls of an op after which its handles are made anew.
RENEWED = 20
# Times that a call is made which is tried alone.
REPEATED = 3
# Of so many calls that TensorFlow refuses, opwright explains one. Its text takes as
# long as several calls, and `fuzz.diagnosis` judges it.
EXPLAINED = 8

# What opwright says of an attr that TensorFlow would truncate.
TRUNCATED = re.compile("must be an int of 32 bits")


class Explainer:
    """Finds out why TensorFlow refused a call, for some of the calls."""

    def __init__(self) -> None:
        self.explain = diagnosis.explain
        self.number = 0

    def install(self) -> None:
        diagnosis.explain = self

    def __call__(self, error: Exception, *call: Any) -> Exception:
        # A text is also made where Python refuses an argument: the call may be one that
        # TensorFlow takes.
        if isinstance(error, core._NotOkStatusException) and self.number % EXPLAINED:
            return core._status_to_exception(error)
        return self.explain(error, *call)


def shorten_errors() -> None:
    """Leaves out of errors where in the code a graph's op was added.

    Its text takes as long as hundreds of calls.
    """
    tf.debugging.disable_traceback_filtering()
    error_interpolation.parse_message = lambda message: (message, [], [])


# Of each call of an example.
Modes = list[list[str]]


class Caller:
    """The calls of one op."""

    def __init__(
        self,
        name: str,
        index: int,
        state: State,
        side: str,
        explainer: Explainer | None = None,
    ) -> None:
        self.explainer = explainer
        self.index = index
        self.state = state
        self.side = side
        self.example = Example(name)
        self.info = self.example.info
        self.bases: list[Base] = []
        self.modes: Modes = []
        self.made = 0

    def prepare(self, modes: Modes | None) -> bool:
        """Runs the example; whether it has a call that can be made again.

        Args:
            modes: the modes of the example's calls, if they are known.
        """
        self.state.begin(self.index, EXAMPLE, "")
        made = self.example.calls()
        if modes is not None and len(modes) == len(made):
            for base, known in zip(made, modes, strict=True):
                base.modes = tuple(known)
        else:
            for base in made:
                base.modes = tuple(self.find_modes(base))
        self.modes = [list(one.modes) for one in made]
        self.bases = [one for one in made if one.modes]
        self.state.end(self.index, EXAMPLE, "ran" if self.bases else "unmade")
        return bool(self.bases)

    def find_modes(self, base: Base) -> Iterator[str]:
        """The modes that TensorFlow takes a call in."""
        given = tensors(base.arguments)
        for mode in MODES:
            try:
                make(self.info, "raw", "function", mode, given)
            except Exception:
                continue
            yield mode

    def renew(self) -> None:
        """Makes handles anew, which calls change."""
        self.made += 1
        if self.made % RENEWED or not any(
            has_handles(one.arguments) for one in self.bases
        ):
            return
        fresh = self.example.calls()
        if len(fresh) == len(self.modes):
            for base, modes in zip(fresh, self.modes, strict=True):
                base.modes = tuple(modes)
            self.bases = [one for one in fresh if one.modes]

    def draw(self, settings: Mapping[str, Any], number: int) -> tuple[Plan, Arguments]:
        """The call with a number. To make its handles may end the process too."""
        self.state.begin(self.index, number, "")
        return draw(self.info, self.bases, Settings(**settings), number)

    def call(self, made: Plan, number: int, arguments: Arguments) -> Exception | None:
        """Makes a call; what refuses it."""
        self.state.begin(self.index, number, made.keys)
        if self.explainer is not None:
            self.explainer.number = number
        try:
            given = tensors(arguments)
        except Exception as error:
            self.state.end(self.index, number, "unmade")
            return error
        try:
            make(self.info, self.side, made.entry, made.mode, given)
        except Exception as error:
            self.state.end(self.index, number, "refused")
            return error
        self.state.end(self.index, number, "ran")
        return None

    def text(self, made: Plan, arguments: Arguments) -> str:
        said = call_text(self.info, made.mode, arguments)
        return before(self.example.parts, self.info, said) + said


def is_own(error: Exception | None) -> bool:
    """Whether opwright refuses a call, and TensorFlow did not.

    A condition of `requires` refuses it with an error of TensorFlow's class that has no
    cause. A result beyond the limit of memory is refused, whether TensorFlow has room
    or not. So is an integer that TensorFlow would truncate. The text of an error of
    TensorFlow's that is no UTF-8 is an error of Python's.
    """
    return (
        isinstance(error, errors.OpError)
        and not isinstance(error, errors.OpMemoryError)
        and not (isinstance(error, tf.errors.OpError) and error.__cause__ is not None)
        and not isinstance(error.__cause__, UnicodeDecodeError)
        and not TRUNCATED.search(str(error))
    )


def make_calls(command: Mapping[str, Any], state: State, report: Reports) -> None:
    """Makes the calls of several ops, from one of them on."""
    end = time.monotonic() + command["seconds"]
    names, (first, last) = command["ops"], command["calls"]
    index, number = command["at"]
    explainer = Explainer()
    explainer.install()
    while index < len(names):
        caller = Caller(names[index], index, state, command["side"], explainer)
        muted = [(set(keys), period) for keys, period in command["muted"][names[index]]]
        is_called = caller.prepare(command["modes"].get(names[index]))
        report("m", json.dumps([index, caller.modes]))
        for one in range(number, last) if is_called else ():
            if time.monotonic() > end:
                return
            try:
                made, arguments = caller.draw(command["settings"], one)
            except Exception as error:  # The fuzzer's own.
                report("w", json.dumps(f"{names[index]} {one}: {error!r}"))
                state.end(index, one, "unmade")
                continue
            # A few are made all the same, with other values.
            keys = {bend.key for bend in made.bends}
            if any(one % period for few, period in muted if few <= keys):
                state.end(index, one, "left out")
                continue
            error = caller.call(made, one, arguments)
            if command["side"] == "opwright" and is_own(error):
                report("q", json.dumps([index, one, str(error)[:300]]))
            caller.renew()
        report("o", index)
        index, number = index + 1, first


def judge(command: Mapping[str, Any], state: State, report: Reports) -> None:
    """Says which calls TensorFlow takes."""
    callers: dict[str, Caller] = {}
    for place, (name, number) in enumerate(command["judge"]):
        if name not in callers:
            callers[name] = Caller(name, place, state, "raw")
            callers[name].prepare(command["modes"].get(name))
        caller = callers[name]
        caller.index = place
        if not caller.bases:
            continue
        try:
            made, arguments = caller.draw(command["settings"], number)
        except Exception:  # It was drawn before.
            continue
        if caller.call(made, number, arguments) is None:
            report("a", json.dumps([place, described(caller, made, arguments)]))


def described(caller: Caller, made: Plan, arguments: Arguments) -> dict[str, Any]:
    """A call as data."""
    return {
        "op": made.op,
        "base": made.base,
        "mode": made.mode,
        "entry": made.entry,
        "bends": [[one.place, one.at, one.kind, one.seed] for one in made.bends],
        "code": caller.text(made, arguments),
    }


def replay(command: Mapping[str, Any], state: State, report: Reports) -> None:
    """Makes one call alone, which is given by its number or as data."""
    data = command["replay"]
    caller = Caller(data["op"], 0, state, command["side"])
    if not caller.prepare(command.get("modes")):
        return
    if "bends" in data:
        bends = tuple(Bend(*one) for one in data["bends"])
        made = Plan(data["op"], data["base"], data["mode"], data["entry"], bends)
        base = caller.bases[made.base % len(caller.bases)]
        state.begin(0, 0, made.keys)
        arguments = applied(caller.info, base.arguments, bends)
    else:
        made, arguments = caller.draw(command["settings"], data["number"])
    report("j", json.dumps(described(caller, made, arguments)))
    for _ in range(REPEATED):
        error = caller.call(made, 0, arguments)
    report("t", json.dumps(None if error is None else str(error)))


def listed(chosen: list[str] | None) -> dict[str, Any]:
    """The ops to call, those with kernels that oneDNN replaces, and those left out.

    Args:
        chosen: the ops to call, whatever they are; None for all.
    """
    called, left_out = chosen or [], {}
    every = () if chosen else (name for group in ops().values() for name in group)
    for name in sorted(every):
        if name not in ops_with_cpu_kernel():
            continue
        reason = why_left_out(name)
        if reason is None and info_of(name).native:
            reason = NATIVE
        if reason is None:
            called.append(name)
        else:
            left_out[name] = reason
    registered = op_defs()
    replaced = [
        name
        for name in called
        if f"_Mkl{name}" in registered or f"_MklNative{name}" in registered
    ]
    return {"ops": called, "onednn": replaced, "left out": left_out}


def obey(command: dict[str, Any], report: Reports) -> None:
    if "list" in command:
        report("j", json.dumps(listed(command["list"])))
        return
    tf.get_logger().setLevel("ERROR")
    os.chdir(command["folder"])  # Where files go.
    shorten_errors()
    tf.constant(0)  # What TensorFlow needs once is no call's own.
    limit_memory(ADDRESS_SPACE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    state = State(Path(command["state"]))
    if "replay" in command:
        replay(command, state, report)
    elif "judge" in command:
        judge(command, state, report)
    else:
        make_calls(command, state, report)


if __name__ == "__main__":
    tf.constant  # noqa: B018  Loaded before the first fork.
    serve(obey)
