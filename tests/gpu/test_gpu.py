"""The CUDA backend without a GPU: its kernels on the CPU, its build, its script."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
BUILD = ROOT / "build" / "cuda"
DOC = ROOT / "docs" / "gpu.md"
NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(
    NVCC is None, reason="nvcc is not in PATH: nothing of CUDA was compiled"
)
# Parts of their mangled names; aligned rows (true, Lb1) are the ones that count.
HOT = {
    "6LookupILb1ELb0E": "lookup",
    "11UpdateTilesINS_9embedding5rules3SgdELb1E": "update, SGD",
    "11UpdateTilesINS_9embedding5rules7AdagradELb1E": "update, Adagrad",
    "11UpdateTilesINS_9embedding5rules4AdamELb1E": "update, Adam",
    "11UpdateTilesINS_9embedding5rules4FtrlELb1E": "update, FTRL",
    "10UpdateEachINS_9embedding5rules7AdagradELb1E": "update id by id, Adagrad",
    "12CombineShortINS_9embedding5rules7AdagradELb1E": "rows in few tiles, Adagrad",
    "11CombineLongINS_9embedding5rules7AdagradELb1E": "rows in many tiles, Adagrad",
}


def run(*command: str | Path) -> str:
    ran = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert not ran.returncode, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@cache
def configure() -> None:
    options = ["-DOPWRIGHT_TENSORFLOW=OFF"]
    if NVCC:
        options = ["-DOPWRIGHT_CUDA=ON", "-DOPWRIGHT_TENSORFLOW=ON"]
    run(
        BIN / "cmake",
        *("-S", ROOT, "-B", BUILD, "-G", "Ninja", *options),
        *(f"-DCMAKE_MAKE_PROGRAM={BIN / 'ninja'}", "-DCMAKE_CXX_FLAGS=-Werror"),
        *("-DCMAKE_CUDA_FLAGS=-Werror=all-warnings", f"-DOPWRIGHT_LIBRARY_DIR={BUILD}"),
        f"-DPython3_EXECUTABLE={sys.executable}",
    )


def build(target: str) -> None:
    """Builds a target; what ptxas says of kernels that have changed is kept."""
    configure()
    said = run(BIN / "cmake", "--build", BUILD, "--parallel", "2", "--target", target)
    if "ptxas info" in said:
        (BUILD / "ptxas.log").write_text(said)


def test_kernels_on_the_cpu() -> None:
    """Thread by thread, against rows of doubles; and the plans."""
    build("cuda_host_test")
    assert run(BUILD / "cuda_host_test", "200") == "200 draws\n"


class Used(NamedTuple):
    """What ptxas gives a kernel: registers of a thread, and bytes."""

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


@needs_nvcc
def test_compiles() -> None:
    """Without a warning; hot kernels without spills, as docs/gpu.md has them."""
    build("opwright_cuda")
    used = resources((BUILD / "ptxas.log").read_text())
    assert {arch for arch, _ in used} == {"sm_80", "sm_90"}
    lines = []
    for part, what in HOT.items():
        cells = []
        for arch in ("sm_80", "sm_90"):
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
    assert len(never) == 2 * (4 + 2 * 13)
    assert not any(u.spilled for u in never)
    # Another release of nvcc may use other registers.
    release = re.search(r"release ([\d.]+)", run("nvcc", "--version"))
    if release and f"nvcc {release[1]}" in DOC.read_text():
        table = "\n".join(lines)
        assert table in DOC.read_text(), f"docs/gpu.md should have\n{table}"


def python(script: str, library: Path) -> str:
    """What a script prints that has `backend`, and the library as `library`."""
    start = (
        "import pathlib, sys; sys.path[:0] = sys.argv[2:]; import backend\n"
        "library = backend.Library(pathlib.Path(sys.argv[1]))\n"
    )
    folders = [ROOT / "tests" / "gpu", ROOT / "tests" / "native"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPWRIGHT_CHECK_DEVICE", "cpu")
        return run(sys.executable, "-c", start + script, library, *folders)


@needs_nvcc
def test_no_gpu() -> None:
    """The library loads anywhere; a table is refused in the runtime's words."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: run tests/gpu/check.py itself")
    build("opwright_cuda")
    said = python(
        "try: backend.Table(library, backend.Settings(5, 8))\n"
        "except backend.RefusedError as error: print(error.status, error)",
        BUILD / "libopwright_cuda.so",
    )
    internal = 5
    assert re.match(rf"{internal} cuda\w+\(.*\): cudaError", said), said


@needs_nvcc
def test_checks_on_the_cpu() -> None:
    """All that check.py checks, with the CPU in the place of the device."""
    pytest.importorskip("torch")
    build("opwright_cuda_on_cpu")
    library = BUILD / "libopwright_cuda_on_cpu.so"
    said = python("import checks\nprint(checks.Checks(library).everything())", library)
    assert said.endswith("168 lookups, 104 updates, 0 failures\n")


def test_script() -> None:
    """One line and success, where it has nothing to run on."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: run tests/gpu/check.py itself")
    said = run(sys.executable, ROOT / "tests" / "gpu" / "check.py")
    assert said == "tests/gpu/check.py: nothing was checked, torch sees no GPU\n"


@needs_nvcc
def test_store() -> None:
    """An engine's tables on a device that gets to its work later."""
    build("cuda_store_test")
    said = run(BUILD / "cuda_store_test", "40")
    assert said == "40 draws: steps are in order\n"


def tensorflow(library: str, *command: str | Path) -> str:
    """What Python prints with this library in the place of libopwright.so."""
    build(library)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPWRIGHT_LIBRARY", str(BUILD / f"lib{library}.so"))
        patch.setenv("TF_CPP_MIN_LOG_LEVEL", "3")
        path = (str(ROOT / part) for part in ("generated", "runtime", "codegen"))
        patch.setenv("PYTHONPATH", os.pathsep.join(path))
        return run(sys.executable, *command)


KERNELS = """
import json, sys
import opwright
from opwright_runtime import native
from opwright_runtime.kernels import kernels
rows = {
    name: {row.device: row.host_memory for row in kernels(name)}
    for name in sys.argv[1:]
}
arguments = {
    name: [a.name for a in (*op.inputs, *op.outputs)]
    for name in sys.argv[1:]
    for op in [opwright.op_class(name).op_def]
}
print(json.dumps([rows, arguments, native.cuda()]))
"""
# Ops whose numbers are the device's, and what of them is on the host all the same.
ON_DEVICE = {
    "RecvTPUEmbeddingActivations": [],
    "SendTPUEmbeddingGradients": ["learning_rates"],
    "TPUEmbeddingActivations": [],
}


@needs_nvcc
def test_registrations() -> None:
    """Every op that the opdefs promise has a kernel for GPUs, with or without one."""
    promised = [
        path.stem
        for path in (ROOT / "opdefs" / "tpu").glob("*.yaml")
        if "\nkernels: {CPU: opwright, GPU: opwright}\n" in path.read_text("utf-8")
    ]
    assert len(promised) == 51
    said = tensorflow("opwright_embedding_gpu", "-c", KERNELS, *promised)
    (answer,) = (line for line in said.splitlines() if line.startswith("[{"))
    rows, arguments, cuda = json.loads(answer)
    assert cuda
    for name in promised:
        assert rows[name].keys() >= {"CPU", "GPU"}, name
        on_host = rows[name]["GPU"]
        if "TPUEmbedding" in name and name.startswith(("Load", "Retrieve")):
            assert on_host == [], name
        else:
            expected = ON_DEVICE.get(name, arguments[name])
            assert sorted(on_host) == sorted(expected), name


# Of several cores, of more memory than a copy of it should take, of gradients that are
# refused at once; the fuzzer is run by itself.
NOT_ON_GPUS = (
    "several_cores",
    "ids_beyond_32_bits and not cut",
    "test_send[12]",
    "test_send[13]",
    "test_send[14]",
    "fuzzed",
)


@needs_nvcc
def test_cpu_kernels_beside_those_for_gpus() -> None:
    """Without a GPU and its driver, the CPU works as ever."""
    tests = ROOT / "tests" / "native" / "test_embedding_enqueue.py"
    said = tensorflow("opwright_embedding_gpu", "-m", "pytest", "-q", tests)
    assert " passed" in said
    # TensorFlow has functions of these names too, for a runtime of its own.
    names = run("nm", "-D", BUILD / "libopwright_embedding_gpu.so")
    assert not re.search(r" U (cuda|__cuda|cu[A-Z])", names)


@needs_nvcc
def test_ops_on_the_cpu() -> None:
    """The ops' own tests, with their tables on a device that is the CPU."""
    folder = ROOT / "tests" / "native"
    names = ("numbers", "order", "bad_input", "enqueue")
    tests = [folder / f"test_embedding_{name}.py" for name in names]
    left_out = " or ".join(f"({what})" for what in ("avx2", "avx512", *NOT_ON_GPUS))
    said = tensorflow(
        *("opwright_embedding_on_cpu", "-m", "pytest", "-q"),
        *("-k", f"not ({left_out})", *tests),
    )
    assert int(re.search(r"(\d+) passed", said)[1]) > 150
    assert " failed" not in said


@needs_nvcc
def test_fuzzed_ops_on_the_cpu() -> None:
    fuzz = ROOT / "tests" / "native" / "embedding_fuzz.py"
    tensorflow("opwright_embedding_on_cpu", fuzz, "500", "0", "--cores", "1")


@needs_nvcc
def test_late_refusals() -> None:
    tests = ROOT / "tests" / "gpu" / "late_refusals.py"
    said = tensorflow("opwright_embedding_on_cpu", "-m", "pytest", "-q", tests)
    assert " passed" in said
