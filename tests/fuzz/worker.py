"""Makes calls, and says on a pipe which one is next.

A process that has TensorFlow and the library and makes no calls itself: for each
command it forks another one that does, so that a call may end it and the next command
find TensorFlow loaded. Run by main.py: `python -m fuzz.worker DESCRIPTOR`.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import re
import resource
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")

import tensorflow as tf
from tensorflow.python.eager import context, execute

from opwright_runtime import native
from opwright_runtime._internals import kernel_registry

from . import draws
from .calls import Call, Scenario, from_plain, to_plain
from .oracles import SANITIZED, Memory, Oracles
from .ways import KIND, NotMadeError, Prepared, make

# An allocation beyond this fails, as on a smaller machine.
MOST_MEMORY = 2 << 30


class Reports:
    """Lines for main.py."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __call__(self, kind: str, *words: Any) -> None:
        line = " ".join([kind, *map(str, words)]).replace("\n", " ")
        data = line.encode(errors="replace") + b"\n"
        while data:
            data = data[os.write(self.descriptor, data) :]


class CallTimeout:
    """Ends the embedding system if a call waits for its turn for too long."""

    SECONDS = 3.0

    def __init__(self, call: Call) -> None:
        self.ended = False
        self.timer = None
        if re.search("Recv|Enqueue", call.op):
            self.timer = threading.Timer(self.SECONDS, self.end)

    def end(self) -> None:
        self.ended = True
        execute.quick_execute("ShutdownDistributedTPU", 0, [], (), context.context())

    def __enter__(self) -> CallTimeout:
        if self.timer:
            self.timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.timer:
            self.timer.cancel()


def run(scenario: Scenario, memory: Memory, folder: Path, report: Reports) -> int:
    """Makes the calls; how many."""
    made = 0
    oracles = Oracles(memory)
    outputs: list[list[tf.Tensor] | None] = []
    prepared = error = None
    for i, call in enumerate(scenario.calls):
        outputs.append(None)
        try:
            prepared = Prepared(call, outputs)
        except NotMadeError:
            continue
        if oracles.may_wait(prepared):
            continue
        report("c", i, call.op, KIND[call.way], "bad" if call.damage else "good")
        made += 1
        oracles.begin(prepared)
        error = None
        with CallTimeout(call) as timeout:
            try:
                outputs[i] = make(prepared, folder)
            except Exception as one:
                error = one
        if timeout.ended:
            report(
                "f", json.dumps([i, "hang", f"ended by shutting down: {error}"[:200]])
            )
            report("r", "waited")
            break
        found = oracles.end(prepared, outputs[i], error)
        for kind, words in found:
            report("f", json.dumps([i, kind, words[:2000]]))
        report("r", type(error).__name__ if error else "ran")
    report("c", len(scenario.calls), "end", "eager", "good")
    del prepared, error
    outputs.clear()
    for kind, words in oracles.finish():
        report("f", json.dumps([len(scenario.calls), kind, words[:2000]]))
    report("d")
    return made


def prepare() -> Memory:
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * 2
    )
    tf.constant(0)
    if not SANITIZED:
        limit_memory(MOST_MEMORY)
    return Memory()


def limit_memory(more: int) -> None:
    """Bounds the address space to what the process has, and as many bytes more."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def native_ops() -> dict[str, list[str]]:
    """The ops that the library has kernels for, and the kinds of ways to call them."""
    ops: dict[str, set[str]] = {}
    for row in kernel_registry.get_all_registered_kernels().kernel:
        if row.priority == native.KERNEL_PRIORITY:
            ways = ops.setdefault(row.op, {"eager", "graph", "saved"})
            ways |= {"compiled"} if row.device_type == "XLA_CPU_JIT" else set()
    return {op: sorted(ways) for op, ways in sorted(ops.items())}


def obey(command: dict[str, Any], report: Reports) -> None:
    choice = draws.Choice(**command.get("choice", {"families": [], "kinds": []}))
    if "show" in command:
        report("j", json.dumps(to_plain(draws.draw(command["show"], choice))))
        return
    if "list" in command:
        report("j", json.dumps(native_ops()))
        return
    memory = prepare()
    with tempfile.TemporaryDirectory(dir=command["folder"]) as folder:
        for plain in command.get("replay", []):
            report("s", -1)
            run(from_plain(plain), memory, Path(folder), report)
        left, end = (
            command.get("calls", 0),
            command.get("seconds", 0.0) + time.monotonic(),
        )
        for seed in range(*command.get("seeds", (0, 0))):
            if left <= 0 or time.monotonic() > end:
                break
            report("s", seed)
            left -= run(draws.draw(seed, choice), memory, Path(folder), report)


def serve(obey: Callable[[dict[str, Any], Reports], None]) -> None:
    """Forks a process for each command that is read, which obeys it."""
    report = Reports(int(sys.argv[1]))
    native.load()
    faulthandler.enable()
    # A child then copies no page of the parent's objects where it collects garbage.
    gc.freeze()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                report("p", os.getpid())
                obey(json.loads(line), report)
                status = 0
            except BaseException as error:  # The fuzzer's own.
                import traceback

                report("x", json.dumps("".join(traceback.format_exception(error))))
            os._exit(status)
        _, status = os.waitpid(child, 0)
        report("e", os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    serve(obey)
