"""libtpu's compiler, in a separate process."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from opwright_runtime._extras import how_to_install
from opwright_runtime.tpu_check.findings import (
    CHIPS,
    Compilation,
    TpuCheckError,
    close_chips,
)

# With these variables, libtpu works on a machine without a TPU, or whose TPU is in use:
# it uses no metadata server, no lock file and no log files, and starts no device.
ENVIRONMENT = {
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "JAX_PLATFORMS": "cpu",
    "TPU_LOG_DIR": "disabled",
    "TPU_SKIP_MDS_QUERY": "1",
}


def require(chips: Sequence[str]) -> None:
    """Raises `TpuCheckError` unless libtpu is installed and `chips` are known."""
    unknown = [chip for chip in chips if chip not in CHIPS]
    if unknown or not chips:
        given = ", ".join(map(repr, unknown)) or "none"
        hint = close_chips(unknown[0]) if unknown else ""
        raise TpuCheckError(f"chips must be of {', '.join(CHIPS)}, not {given}{hint}")
    missing = [name for name in ("libtpu", "jax", "jaxlib") if not find_spec(name)]
    if missing:
        raise TpuCheckError(
            f"needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'}"
            f" not installed; {how_to_install('tpu')} (Linux on x86-64)"
        )


def libtpu_version() -> str:
    try:
        return version("libtpu")
    except PackageNotFoundError:  # A nightly build is a package of another name.
        return "unknown"


def compile_each(
    hlo: bytes, chips: Sequence[str], timeout: float, notify: Callable[[str], None]
) -> Iterator[Compilation]:
    """Compiles a serialized HLO module for each of the chips in turn.

    One worker process compiles for all chips. If it dies or is stopped, a new worker
    continues with the next chip.
    """
    with (
        tempfile.TemporaryDirectory(prefix="opwright-tpu-") as folder,
        ExitStack() as ends,
    ):
        module = Path(folder, "module.hlo")
        module.write_bytes(hlo)
        worker = None
        for number, chip in enumerate(chips):
            notify(f"compiling for {chip} ({number + 1} of {len(chips)})")
            if worker is None or worker.ended():
                worker = _Worker(module, chips[number:])
                ends.callback(worker.end)
            yield worker.next(chip, timeout)


class _Worker:
    """A process that compiles a module for some chips, one after the other."""

    def __init__(self, module: Path, chips: Sequence[str]) -> None:
        topologies = [CHIPS[chip].topology for chip in chips]
        command = [sys.executable, "-m", f"{__package__}.worker"]
        # With this path, the worker finds the same modules as this process.
        path = os.pathsep.join(filter(None, sys.path))
        self._stderr = module.with_name("stderr")
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                [*command, str(module), *topologies],
                env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                bufsize=0,  # `poll` does not notice data in a buffer of Python.
            )

    def next(self, chip: str, timeout: float) -> Compilation:
        """The result for the next chip."""
        assert self._process.stdout is not None
        start = time.monotonic()
        answers = select.poll()
        answers.register(self._process.stdout, select.POLLIN)
        if not answers.poll(timeout * 1000):
            self.end()
            error = f"libtpu was not done after {timeout:g} s; stopped"
            seconds = time.monotonic() - start
            return Compilation(chip, seconds, error, timed_out=True)
        if (line := self._process.stdout.readline()).endswith(b"\n"):
            return Compilation(chip, **json.loads(line))
        error = _last_words(
            self._process.wait(), self._stderr.read_text("utf-8", "replace")
        )
        return Compilation(chip, time.monotonic() - start, error)

    def ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdout.close()


def _last_words(status: int, stderr: str) -> str:
    """Why a worker died: its line for a failed check, or else its last line."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("F") and "] " in line]
    said = (fatal or lines or ["it said nothing"])[0 if fatal else -1]
    how = f"exit status {status}" if status > 0 else signal.Signals(-status).name
    return f"libtpu's compiler died ({how}): {said}"
