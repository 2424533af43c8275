"""libtpu's compiler, at arm's length."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from opwright_runtime.tpu_check.findings import CHIPS, Compilation, TpuCheckError

# For a machine without a TPU, and for one whose TPU is in use: ask no metadata server,
# take no lock, leave no log files, and never start the device.
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
        raise TpuCheckError(f"chips must be of {', '.join(CHIPS)}, not {given}")
    missing = [name for name in ("libtpu", "jax", "jaxlib") if not find_spec(name)]
    if missing:
        raise TpuCheckError(
            f"needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'}"
            " not installed; run pip install 'opwright[tpu]' (Linux on x86-64)"
        )


def compile_each(
    hlo: bytes, chips: Sequence[str], timeout: float, notify: Callable[[str], None]
) -> Iterator[Compilation]:
    """Compiles a serialized HLO module for each of the chips in turn."""
    with tempfile.TemporaryDirectory(prefix="opwright-tpu-") as folder:
        module = Path(folder, "module.hlo")
        module.write_bytes(hlo)
        for number, chip in enumerate(chips, 1):
            notify(f"compiling for {chip} ({number} of {len(chips)})")
            yield _compile(module, chip, timeout)


def _compile(module: Path, chip: str, timeout: float) -> Compilation:
    result = module.with_name(f"{chip}.json")
    worker = f"{__package__}.worker"
    topology = CHIPS[chip].topology
    command = [sys.executable, "-m", worker, topology, str(module), str(result)]
    # The worker finds what this process does, however it came to find it.
    path = os.pathsep.join(filter(None, sys.path))
    start = time.monotonic()
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        error = f"libtpu was not done after {timeout:g} s; stopped"
        return Compilation(chip, time.monotonic() - start, error)
    if done.returncode:
        error = _last_words(done.returncode, done.stderr.decode(errors="replace"))
        return Compilation(chip, time.monotonic() - start, error)
    return Compilation(chip, **json.loads(result.read_text("utf-8")))


def _last_words(status: int, stderr: str) -> str:
    """Why a worker died: the line of a failed check if there is one, or its last."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    fatal = [line for line in lines if line.startswith("F") and "] " in line]
    said = (fatal or lines or ["it said nothing"])[0 if fatal else -1]
    how = f"exit status {status}" if status > 0 else signal.Signals(-status).name
    return f"libtpu's compiler died ({how}): {said}"
