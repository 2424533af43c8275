"""Which tests `make test` leaves to `make test-all`, and which it runs in part.

`make test` has ten minutes. Tests of a marker below run in `make test-all` only. Tests
marked `partial` run in both: in part, and in full where OPWRIGHT_FULL is 1. Of the
tests marked `rotating`, `make test` runs a tenth, another one at each commit. pytest
without `--tenth` runs all of them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TypeVar

import pytest

from support.places import ROOT

Item = TypeVar("Item")

FULL = os.environ.get("OPWRIGHT_FULL") == "1"
#: How many processes a test of crashes kills.
KILLS = int(os.environ.get("OPWRIGHT_KILLS") or (100 if FULL else 5))
PARTS = 10

#: The markers of tests that only `make test-all` runs, why, and the files they cover. A
#: file is named relative to tests/; single tests carry the marker themselves.
EXTENDED: dict[str, tuple[str, tuple[str, ...]]] = {
    "compile_tpu": (
        "compiles many programs for TPUs",
        ("tpu/test_docs.py",),
    ),
    "convert": (
        "converts models with tf2onnx, ONNX Runtime and LiteRT",
        (
            "convert/test_convert_bodies.py",
            "convert/test_convert_forms.py",
            "convert/test_layer_exports.py",
            "convert/test_to_onnx.py",
            "convert/test_to_tflite.py",
            "convert/test_widen.py",
        ),
    ),
    "cuda": (
        "compiles the experimental CUDA backend, or runs it on the CPU, also in C++",
        ("gpu",),
    ),
    "endurance": ("repeats steps, calls, models or kills by the thousand", ()),
    "equivalence": ("compares long runs and trainings with those of a peer", ()),
    "full_matrix": ("needs every op in every mode", ()),
    "hosts": (
        "trains on several processes",
        ("examples/test_gradient_aggregation.py",),
    ),
    "libraries": (
        "trains layers of other libraries against plain Keras",
        ("embedding/test_libraries.py",),
    ),
    "notebooks": (
        "runs the notebooks of examples/",
        ("examples/test_notebooks.py",),
    ),
    "process_ends": (
        "calls every op, some of which end the process",
        ("fuzz/test_ops_run.py",),
    ),
    "project": (
        "builds a project or a package from nothing",
        (
            "codegen/test_release_wheel.py",
            "golden/test_adopt.py",
            "golden/test_library_versions.py",
            "golden/test_native_ops.py",
            "golden/test_own_library.py",
        ),
    ),
    "site": ("builds the site: `make test-site`", ("docs_site",)),
    "style": (
        "reads sources for lengths, words and imports: `make lint`",
        ("test_shape.py", "test_sources.py", "test_style.py"),
    ),
    "typing": (
        "type checks packages and programs: `make types`",
        ("generated/test_typing.py",),
    ),
    "wheel": ("builds wheels and installs them", ("packaging",)),
}


#: What only `make test-extended` installs, by the markers of the tests that import it.
#: Its dependency group has the name of the marker.
PACKAGES = {"convert": ("ai_edge_litert", "onnx", "onnxruntime", "tf2onnx")}


def missing_packages(marker: str) -> list[str]:
    """The packages of a marker's tests that are not installed."""
    needed = PACKAGES.get(marker, ())
    return [name for name in needed if importlib.util.find_spec(name) is None]


def marker_of(name: str) -> str | None:
    """The marker that covers a file, given relative to tests/."""
    for marker, (_, files) in EXTENDED.items():
        if any(name == file or name.startswith(f"{file}/") for file in files):
            return marker
    return None


def part_of(items: Sequence[Item], parts: int = PARTS) -> list[Item]:
    """One of `parts` parts of `items`, the next one at each commit; all where FULL."""
    return list(items) if FULL else list(items[part(parts) :: parts])


def of_other_parts(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """The rotating tests of the other tenths.

    `@pytest.mark.rotating(together=NAME)`: the tests of a file with this name share
    what takes long to make, and run in the same tenth. `part`: which tenth that is,
    for tests that take so long that no two may meet by chance.
    """
    units: dict[str, list[pytest.Item]] = {}
    parts: dict[str, int] = {}
    for item in items:
        if marker := item.get_closest_marker("rotating"):
            together = marker.kwargs.get("together")
            name = f"{item.path}::{together}" if together else item.nodeid
            units.setdefault(name, []).append(item)
            if "part" in marker.kwargs:
                parts[name] = marker.kwargs["part"]
    others = [name for name in units if name not in parts]
    parts.update((name, place % PARTS) for place, name in enumerate(others))
    return [
        item for name, unit in units.items() if parts[name] != part() for item in unit
    ]


@cache
def part(parts: int = PARTS) -> int:
    """The number of the part: OPWRIGHT_PART, or as many as the commits count."""
    chosen = os.environ.get("OPWRIGHT_PART")
    if chosen is None:
        counted = subprocess.run(
            ["git", "rev-list", "--count", "HEAD"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        # Outside of a repository, as in an unpacked sdist.
        chosen = counted.stdout.strip() or "0"
    return int(chosen) % parts
