"""Every C++ exception of a kernel becomes a TensorFlow status."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from support.places import NATIVE, environment

SOURCE = Path(__file__).parent / "support" / "guard_ops.cc"
EXHAUSTED = tf.errors.ResourceExhaustedError
KINDS = {
    "bad_alloc": (EXHAUSTED, "no memory for "),
    "length_error": (EXHAUSTED, "no memory for "),
    "logic_error": (tf.errors.InternalError, ": not logical"),
    "int": (tf.errors.InternalError, ": an unknown exception"),
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("guard") / "guard_ops.so"
    flags = [*tf.sysconfig.get_compile_flags(), *tf.sysconfig.get_link_flags()]
    command = ["c++", "-std=c++17", "-shared", "-fPIC", "-w", f"-I{NATIVE}"]
    command += [str(SOURCE), "-o", str(path), *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-4000:]
    return path


def raised(call: Callable[[], Any]) -> tuple[type[Exception], str]:
    try:
        call()
    except tf.errors.OpError as error:
        return type(error), error.message
    return Exception, "nothing"


def make_calls(path: str) -> None:
    """Runs in a process of its own: an exception that is not caught ends it."""
    ops = tf.load_op_library(path)
    for op, name in (
        (ops.opwright_throws, "OpwrightThrows"),
        (ops.opwright_throws_async, "OpwrightThrowsAsync"),
    ):
        for what, (kind, words) in KINDS.items():
            wheres = ["construction", "work"]
            if name == "OpwrightThrows":
                wheres.append("task")
            for where in wheres:

                def call(op: Any = op, what: str = what, where: str = where) -> Any:
                    return op(1.0, what=what, where=where)

                for way in (call, tf.function(call, autograph=False)):
                    found, message = raised(way)
                    assert found is kind, (name, what, where, message)
                    assert words in message, message
                    assert name in message, message
            assert op(1.0, what=what, where="nowhere").numpy() == 1
    # After the op is done, an exception is dropped.
    after = ops.opwright_throws_async(2.0, what="bad_alloc", where="after")
    assert after.numpy() == 2
    print("all refused")


@pytest.mark.rotating(together="library", part=0)
def test_kernel_guard_exception_becomes_a_status(library: Path) -> None:
    done = subprocess.run(
        [sys.executable, __file__, library],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.endswith("all refused\n")


if __name__ == "__main__":
    make_calls(sys.argv[1])
