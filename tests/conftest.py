"""What tests of all folders are given."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import tiers

# TensorFlow logs its start-up, which would hide the results.
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
NATIVE = ("convert", "embedding", "native", "rnn", "sparsecore", "versions", "xla_ops")

# Files that take minutes, longest first: they begin first, so that no process ends
# alone with one.
LONG = (
    "gpu/test_gpu.py",  # Compiles what test_ops.py needs.
    "embedding/test_libraries.py",
    "golden/test_library_versions.py",
    "rnn/test_legacy_layers.py",
    "convert/test_keras_2.py",
    "embedding/test_cores.py",
    "rnn/test_auto_jit.py",
    "tpu/test_runs_on.py",
    "codegen/test_interrupted.py",
    "convert/test_to_plain.py",
    "convert/test_convert_numbers.py",
    "generated/test_process_ends.py",
    "tpu/test_check.py",
    "generated/test_same_results.py",
    "embedding/test_numbers.py",
    "fuzz/test_fuzz.py",
    "rnn/test_xla.py",
    "xla_ops/test_compiled_ops.py",
    "gpu/test_ops.py",
    "rnn/test_numbers.py",
    "reference/test_examples.py",
    "test_guide.py",
    "generated/test_same_gradients.py",
    "examples/test_gradient_aggregation.py",
    "tpu/test_docs.py",
    "embedding/test_failed_steps.py",
    "packaging/test_wheel.py",
    "codegen/test_stubs.py",
    "codegen/test_generate.py",
    "codegen/test_lossless.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tenth", action="store_true", help="run a tenth of the rotating tests"
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker, (reason, _) in tiers.EXTENDED.items():
        config.addinivalue_line("markers", f"{marker}: {reason}; in `make test-all`")


def pytest_report_header() -> str:
    if tiers.FULL:
        return "tiers: in full"
    return (
        f"tiers: part {tiers.part()} of {tiers.PARTS} of the matrices "
        "(OPWRIGHT_PART chooses one, OPWRIGHT_FULL=1 runs all)"
    )


@pytest.hookimpl(tryfirst=True)  # Before markers are selected.
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    for item in items:
        marker = tiers.marker_of(item.path.relative_to(TESTS).as_posix())
        if marker is not None:
            item.add_marker(marker)
    if not tiers.FULL:
        # A part of the matrix cannot say what all of it covers.
        left = {item for item in items if item.get_closest_marker("full_matrix")}
        if config.getoption("--tenth"):
            left.update(tiers.of_other_parts(items))
        config.hook.pytest_deselected(items=list(left))
        items[:] = [item for item in items if item not in left]
    places = {TESTS / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def pytest_collection_finish() -> None:
    """Spares the collector of garbage what TensorFlow and the tests have imported."""
    gc.collect()
    gc.freeze()


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Says what is missing before a module fails to be imported without it."""
    folder = collector.path.parent.name
    if not isinstance(collector, pytest.Module) or folder not in NATIVE:
        return
    from opwright_runtime import native

    if not native.LIBRARY.exists():
        text = f"tests/{folder} need the native library: run `make native`"
        raise pytest.UsageError(text)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Says what is missing before a test fails to import it."""
    for marker in item.iter_markers():
        if missing := tiers.missing_packages(marker.name):
            pytest.fail(
                f"tests marked {marker.name} need {', '.join(missing)}, which `make "
                f"test-extended` installs: run pip install --group {marker.name}",
                pytrace=False,
            )


@pytest.fixture(params=["avx512", "avx2", "neon", "portable"])
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
