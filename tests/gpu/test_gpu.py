"""The CUDA backend without a GPU: its build, its library, its script."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from gpu.support.building import BUILD, NVCC, build, run
from support.places import ROOT, environment

DOC = ROOT / "runtime" / "native" / "embedding" / "cuda" / "README.md"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
# Parts of their mangled names; aligned rows (true, Lb1) are the ones that count.
HOT = {
    "6LookupILb1E": "lookup",
    "11UpdateTilesINS0_5rules3SgdELb1E": "update, SGD",
    "11UpdateTilesINS0_5rules7AdagradELb1E": "update, Adagrad",
    "11UpdateTilesINS0_5rules4AdamELb1E": "update, Adam",
    "11UpdateTilesINS0_5rules4FtrlELb1E": "update, FTRL",
    "10UpdateEachINS0_5rules7AdagradELb1E": "update id by id, Adagrad",
    "12CombineShortINS0_5rules7AdagradELb1E": "rows in few tiles, Adagrad",
    "11CombineLongINS0_5rules7AdagradELb1E": "rows in many tiles, Adagrad",
}


class Used(NamedTuple):
    """The resources of a kernel as ptxas prints them: registers, and bytes."""

    registers: int
    spilled: int
    shared: int


ENTRY = re.compile(
    r"Compiling entry function '(\w+)' for '(\w+)'\n.*\n"
    r"\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads\n"
    r".*Used (\d+) registers(?:.*?(\d+) bytes smem)?"
)


def resources(said: str) -> dict[tuple[str, str], Used]:
    """By architecture and mangled name."""
    return {
        (arch, name): Used(int(used), int(stack) + int(out) + int(back), int(smem or 0))
        for name, arch, stack, out, back, used, smem in ENTRY.findall(said)
    }


@pytest.mark.skipif(
    NVCC is None, reason="nvcc is not in PATH: the CUDA kernels were not compiled"
)
def test_cuda_kernels_compile_without_spills() -> None:
    """Without a warning; hot kernels without spills, as the README shows them."""
    build("opwright_cuda")
    used = resources((BUILD / "ptxas.log").read_text())
    assert {arch for arch, _ in used} == set(ARCHITECTURES)
    lines = []
    for part, what in HOT.items():
        cells = []
        for arch in ARCHITECTURES:
            mine = [u for (a, name), u in used.items() if a == arch and part in name]
            assert mine, (arch, part)
            cells.append(
                " or ".join(str(n) for n in sorted({u.registers for u in mine}))
            )
            cells.append(str(max(u.shared for u in mine)))
            cells.append(str(max(u.spilled for u in mine)))
        lines.append(f"| {what} | {' | '.join(cells)} |")
    never = [u for (_, name), u in used.items() if "6LookupI" in name]
    never += [u for (_, name), u in used.items() if "11UpdateTilesI" in name]
    assert len(never) == len(ARCHITECTURES) * (2 + 2 * 13)
    assert not any(u.spilled for u in never)
    # Another release of nvcc may use other registers.
    release = re.search(r"release ([\d.]+)", run("nvcc", "--version"))
    if release and f"nvcc {release[1]}" in DOC.read_text():
        table = "\n".join(lines)
        assert table in DOC.read_text(), f"{DOC} should have\n{table}"


@pytest.mark.skipif(
    NVCC is None, reason="nvcc is not in PATH: the CUDA kernels were not compiled"
)
def test_kind_of_knows_every_cuda_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """benchmarks/gpu/step_times.py tells the kernels of a step apart by their names."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    from step_times import kind_of

    build("opwright_cuda")
    mangled = {name for _, name in resources((BUILD / "ptxas.log").read_text())}
    names = run("c++filt", *mangled).splitlines()
    of_step = {
        "lookup": ("Lookup<true>", "Lookup<false>"),
        "check": ("CheckGradients",),
        "expand": ("Expand",),
        "update": ("UpdateTiles", "UpdateEach", "UpdateRest"),
        "combine": ("CombineShort", "CombineLong"),
        "sort": ("RadixSort",),
        "other": ("CopyRows", "FindStarts", "Weigh", "TakeOver"),
    }
    for kind, parts in of_step.items():
        for part in parts:
            found = [name for name in names if part in name]
            assert found, part
            assert {kind_of(name) for name in found} == {kind}, part


def python(script: str, library: Path) -> str:
    """The output of a script with the names `backend` and `library`."""
    start = (
        "import pathlib, sys; from gpu.support import backend\n"
        "library = backend.Library(pathlib.Path(sys.argv[1]))\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPWRIGHT_CHECK_DEVICE", "cpu")
        patch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
        return run(sys.executable, "-c", start + script, library)


@pytest.mark.skipif(NVCC is None, reason="nvcc is not in PATH")
def test_cuda_library_without_gpu_refuses_a_table() -> None:
    """The library loads on any machine; a table needs a driver."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: run tools/gpu_check.py itself")
    build("opwright_cuda")
    said = python(
        "try: backend.Table(library, backend.Settings(5, 8))\n"
        "except backend.RefusedError as error: print(error.status, error)",
        BUILD / "libopwright_cuda.so",
    )
    failed_precondition = 2
    assert said.startswith(f"{failed_precondition} there is no driver for GPUs"), said


@pytest.mark.skipif(NVCC is None, reason="nvcc is not in PATH, nor CUDA's headers")
def test_gpu_checks_on_cpu_device_pass() -> None:
    """The checks of gpu_check.py, with the CPU as the device."""
    pytest.importorskip("torch")
    build("opwright_cuda_on_cpu")
    library = BUILD / "libopwright_cuda_on_cpu.so"
    said = python(
        "from gpu.support import checks\nall = checks.Checks(library)\n"
        "print([check() for check in all.all().values()], all.failures)",
        library,
    )
    assert said.startswith("['168 lookups', '104 updates', '3 times 3 steps of 160000")
    assert said.endswith("] []\n")
