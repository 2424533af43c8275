"""Programs in processes of their own.

TensorFlow takes seconds to import. So `run_code` and `run_program` fork a process that
has imported it, and nothing else: no op has run there, and opwright is not imported.
A program that settles how TensorFlow is imported starts afresh instead. Programs that
need no TensorFlow name what else the process has imported.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from support.places import ROOT, environment

Done = subprocess.CompletedProcess[str]
TENSORFLOW = ("tensorflow",)


def run_code(
    code: str,
    *arguments: str | Path,
    timeout: float = 300,
    cwd: Path = ROOT,
    **changes: str,
) -> Done:
    """`python -c code arguments`, in an environment with these changes."""
    server = _started(TENSORFLOW)
    return server.run({"code": code}, arguments, timeout, cwd, changes)


def run_program(
    name: str,
    *arguments: str | Path,
    timeout: float = 300,
    cwd: Path = ROOT,
    afresh: bool = False,
    imported: tuple[str, ...] = TENSORFLOW,
    **changes: str,
) -> Done:
    """`python -m name arguments`, in an environment with these changes.

    Args:
        afresh: in a process that has imported nothing.
        imported: the modules that the process has imported otherwise.
    """
    if not afresh:
        server = _started(imported)
        return server.run({"module": name}, arguments, timeout, cwd, changes)
    return subprocess.run(
        [sys.executable, "-m", name, *map(str, arguments)],
        env=environment(**changes),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class _Server:
    """A process with imported modules, which forks one after the other."""

    def __init__(self, imported: tuple[str, ...]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "support.processes", *imported],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # Or `select` would not see what was read already.
            # Ctrl-C is for who asked; at the end of its input the server ends.
            start_new_session=True,
        )

    def answer(self, timeout: float | None = None) -> Any:
        """The next line of the server's, or None if there is none in time."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            return None
        line = self.process.stdout.readline()
        assert line, "the process that others are forked from has ended"
        return json.loads(line)

    def run(
        self,
        what: dict[str, str],
        arguments: tuple[str | Path, ...],
        timeout: float,
        cwd: Path,
        changes: dict[str, str],
    ) -> Done:
        assert self.process.stdin is not None
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            request = {
                **what,
                "arguments": list(map(str, arguments)),
                "environment": environment(**changes),
                "cwd": str(cwd),
                "out": str(out),
                "err": str(err),
            }
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            pid = self.answer()
            status = self.answer(timeout)
            if in_vain := status is None:
                os.kill(pid, signal.SIGKILL)
                status = self.answer()
            said = [path.read_text(errors="replace") for path in (out, err)]
        command = [*what.values(), *request["arguments"]]
        if in_vain:
            raise subprocess.TimeoutExpired(command, timeout, *said)
        return subprocess.CompletedProcess(command, status, *said)


@cache
def _started(imported: tuple[str, ...]) -> _Server:
    server = _Server(imported)
    atexit.register(server.process.kill)
    return server


# ---- The server.


def _become(request: dict[str, Any], path: list[str]) -> None:
    """Makes a process that was just forked what a fresh one would be."""
    for name, descriptor in (("out", 1), ("err", 2)):
        file = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, descriptor)
        os.close(file)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = ["", *os.environ["PYTHONPATH"].split(os.pathsep), *path]
    sys.argv[:] = ["-c", *request["arguments"]]
    # It is another program's; no module of that may be seen to be there.
    for name in [name for name in sys.modules if name.partition(".")[0] == "support"]:
        del sys.modules[name]


def _run(request: dict[str, Any]) -> None:
    if "module" in request:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    else:
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(request["code"], "<string>", "exec"), main.__dict__)


def _serve() -> None:
    # What is printed on the way is no answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for name in sys.argv[1:]:
        importlib.import_module(name)
    # Or a process would look at a million objects once more when it ends: for a second.
    gc.collect()
    gc.freeze()
    inherited = os.environ["PYTHONPATH"].split(os.pathsep)
    path = [entry for entry in sys.path[1:] if entry not in inherited]
    for line in sys.stdin:
        request = json.loads(line)
        if not (pid := os.fork()):
            _become(request, path)
            _run(request)
            return  # The interpreter ends as it would have.
        print(pid, file=answers, flush=True)
        status = os.waitpid(pid, 0)[1]
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
