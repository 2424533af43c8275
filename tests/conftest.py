"""What tests of all folders are given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

# Nobody wants TensorFlow's messages of its start among the results.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The same kernels whatever the processor: TensorFlow leaves these out of older ones.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# For the processes that run tests side by side, and what they start.
STARTUP = Path(__file__).parent / "support" / "startup"
PATH = [str(STARTUP), *filter(None, [os.environ.get("PYTHONPATH")])]
os.environ["PYTHONPATH"] = os.pathsep.join(PATH)
# What we compare with, torch and NumPy, would spin on all cores next to other tests.
if "PYTEST_XDIST_WORKER" in os.environ:
    for library in ("OMP", "OPENBLAS"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")

TESTS = Path(__file__).parent
# Folders whose tests need the native library.
NATIVE = ("embedding", "native", "rnn", "sparsecore", "versions")

# Files that take minutes, which begin first: no process is left alone with one.
LONG = (
    "gpu/test_gpu.py",  # nvcc takes minutes, of which test_ops.py needs what it makes.
    "codegen/test_interrupted.py",
    "generated/test_same_results.py",
    "codegen/test_generate.py",
    "rnn/test_xla.py",
    "gpu/test_ops.py",
    "generated/test_typing.py",
    "generated/test_same_gradients.py",
    "examples/test_gradient_aggregation.py",
    "fuzz/test_fuzz.py",
    "tpu/test_docs.py",
    "embedding/test_failed_steps.py",
    "packaging/test_wheel.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {TESTS / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Says what is missing before a module fails to be imported without it."""
    folder = collector.path.parent.name
    if not isinstance(collector, pytest.Module) or folder not in NATIVE:
        return
    from opwright_runtime import native

    if not native.LIBRARY.exists():
        words = f"tests/{folder} need the native library: run `make native`"
        raise pytest.UsageError(words)


@pytest.fixture(params=["avx512", "avx2", "portable"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each instruction set that this processor has."""
    from opwright_runtime import native

    try:
        native.use_isa(request.param)
    except ValueError as error:
        pytest.skip(str(error))
    yield request.param
    native.use_isa("")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints what compiles for TPUs below the results of the tests."""
    rows = [
        str(value)
        for report in terminalreporter.getreports("passed")
        for name, value in report.user_properties
        if name == "tpu table"
    ]
    if rows:
        terminalreporter.section("CudnnRNN for TPUs: temporaries, code")
        for row in rows:
            terminalreporter.write_line(row)
