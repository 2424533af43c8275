"""Includes and links between the folders of the native library go down only."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.places import NATIVE

TENSORFLOW = {"absl", "dlpack", "google", "tensorflow", "tsl"}
# By folder: the folders that its files may include. Tests may include base/testing too.
MAY_INCLUDE = {
    "base": set(),
    "base/testing": {"base"},
    "rnn/testing": {"base", "base/testing", "rnn", "rnn/kernels"},
    "embedding/testing": {"base", "base/testing", "embedding", "embedding/cpu"},
    "base/xla": {"xla"},
    "base/tf": {"base", "base/xla", "xla", *TENSORFLOW},
    "rnn/kernels": {"base"},
    "rnn": {"base", "rnn/kernels"},
    "rnn/xla": {"base/xla", "rnn", "absl", "xla"},
    "rnn/tf": {"base", "base/tf", "rnn", "rnn/xla", "xla", *TENSORFLOW},
    "embedding": {"base"},
    "embedding/cpu": {"base", "embedding"},
    "embedding/cuda": {"base", "embedding"},
    "embedding/tf": {
        "base",
        "base/tf",
        "embedding",
        "embedding/cpu",
        "embedding/cuda",
        "xla",
        *TENSORFLOW,
    },
    "sparsecore": {"base", "embedding", "embedding/cpu"},
    "sparsecore/testing": {"base/testing", "sparsecore"},
    "sparsecore/tf": {
        "base",
        "base/tf",
        "embedding",
        "embedding/cpu",
        "sparsecore",
        *TENSORFLOW,
    },
    "xla_ops/xla": {"base/xla", "absl", "xla"},
    "xla_ops/tf": {"base", "base/tf", "base/xla", "xla_ops/xla", "xla", *TENSORFLOW},
    "checks/tf": {"base", "base/tf", *TENSORFLOW},
    "calls": set(),
    # The C functions that Python calls.
    ".": {
        "base",
        "base/tf",
        "rnn",
        "embedding",
        "embedding/tf",
        "sparsecore",
        "sparsecore/tf",
    },
}
# By target: the targets that it may link.
MAY_LINK = {
    "opwright_base": set(),
    "opwright_testing": {"opwright_base"},
    "opwright_rnn": {"opwright_base"},
    "opwright_rnn_tf": {"opwright_rnn", "tensorflow"},
    "opwright_rnn_xla": {"opwright_rnn", "tensorflow"},
    "opwright_embedding_loops": {"opwright_base"},
    "opwright_embedding": {"opwright_base", "opwright_embedding_loops"},
    "embedding_kernels": {"opwright_embedding"},  # A benchmark.
    "opwright_embedding_cuda_host": {"opwright_embedding"},
    "opwright_embedding_cuda": {"opwright_embedding_cuda_host"},
    "opwright_embedding_cuda_kernels": {"opwright_embedding_cuda_host"},
    "opwright_embedding_tf": {"opwright_embedding", "tensorflow"},
    "opwright_embedding_input_tf": {"opwright_embedding", "tensorflow"},
    "opwright_embedding_device": {"opwright_embedding", "tensorflow"},
    "opwright_embedding_device_cuda": {
        "opwright_embedding_cuda",
        "opwright_embedding_cuda_kernels",
        "tensorflow",
    },
    "opwright_sparsecore": {"opwright_embedding"},
    "opwright_sparsecore_tf": {"opwright_sparsecore", "tensorflow"},
    "opwright_xla_ops_tf": {"opwright_base", "tensorflow"},
    "opwright_checks_tf": {"opwright_base", "tensorflow"},
    "opwright": {
        "opwright_rnn_tf",
        "opwright_rnn_xla",
        "opwright_embedding_tf",
        "opwright_embedding_input_tf",
        "opwright_sparsecore_tf",
        "opwright_xla_ops_tf",
        "opwright_checks_tf",
        "opwright_embedding_device",
        "opwright_embedding_device_cuda",
    },
}
ELSEWHERE = re.compile(r"Threads::Threads|CUDA::\w+|LINKER:.*|INTERFACE")


def is_test(name: str) -> bool:
    return bool(re.search(r"_test\.cc$|/adapter_", name))


def included() -> list[tuple[str, str]]:
    """Each file's includes in quotes, as they are written."""
    found = []
    for path in sorted(NATIVE.rglob("*")):
        if path.suffix in {".h", ".cc", ".cu"}:
            name = path.relative_to(NATIVE).as_posix()
            text = path.read_text()
            found += [(name, one) for one in re.findall(r'#include "(.+?)"', text)]
    return found


def test_native_includes_go_down() -> None:
    wrong = []
    for name, target in included():
        own = Path(name).parent.as_posix()
        if (NATIVE / target).exists():
            folder = Path(target).parent.as_posix()
        else:
            folder = target.split("/")[0]
        # A test may include files of other folders.
        allowed = own == folder or folder in MAY_INCLUDE[own]
        in_test = is_test(name) and not folder.startswith(
            ("base/tf", "absl", "tensorflow")
        )
        if not allowed and not in_test:
            wrong.append(f"{name} includes {target}")
    assert not wrong, "\n".join(wrong)


def test_native_includes_start_at_the_root() -> None:
    """Include paths start at runtime/native."""
    ours = {path.name for path in NATIVE.rglob("*.h")}
    bare = [
        f"{name}: {target}"
        for name, target in included()
        if "/" not in target and target in ours
    ]
    assert not bare, bare


def link_lines() -> list[tuple[str, str]]:
    found = []
    for path in NATIVE.rglob("CMakeLists.txt"):
        text = re.sub(r"#.*", "", path.read_text())
        for name, rest in re.findall(r"opwright_library\((\w+)([^)]*)\)", text):
            links = rest.partition("LINKS")[2].split()
            found += [(name, one) for one in links]
        for name, rest in re.findall(r"target_link_libraries\((\w+)([^)]*)\)", text):
            found += [
                (name, one)
                for one in rest.split()
                if one not in {"PUBLIC", "PRIVATE", "INTERFACE"}
            ]
    return found


def test_native_link_lines_go_down() -> None:
    lines = [one for one in link_lines() if not one[0].endswith("_test")]
    assert len(lines) > 15
    wrong = [
        f"{name} links {one}"
        for name, one in lines
        if one not in MAY_LINK[name] and not ELSEWHERE.fullmatch(one)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("table", [MAY_INCLUDE, MAY_LINK], ids=["include", "link"])
def test_native_layers_have_no_cycle(table: dict[str, set[str]]) -> None:
    done: list[str] = []
    left = dict(table)
    while left:
        free = [one for one, below in left.items() if not below & set(left)]
        assert free, f"a cycle among {sorted(left)}"
        for one in free:
            done.append(one)
            del left[one]
