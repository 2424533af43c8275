"""How gpu_check.py runs its parts and reports, without a GPU."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import gpu_check
import numpy as np
import pytest
from gpu_check import progress, run_part

from gpu.support import sanitizer
from gpu.support.building import BUILD, NVCC, build
from gpu.support.parts import PARTS, Run, first_error
from gpu.support.report import (
    FAILED,
    NOT_RUN,
    OK,
    Findings,
    Row,
    cell,
    found,
    table,
    write,
)
from support.places import ROOT, environment

SCRIPT = ROOT / "tools" / "gpu_check.py"
# The start of a fake part: it writes a row, and then runs the code of a test.
START = """
import os, sys, time
from pathlib import Path
from gpu.support.report import OK, Findings
findings = Findings("it", Path(sys.argv[sys.argv.index("--results") + 1]))
findings.row("the first", OK, "well")
"""


def run_code(
    code: str, tmp_path: Path, seconds: float = 20
) -> tuple[list[Row], list[str]]:
    command = [sys.executable, "-c", START + textwrap.dedent(code)]
    settings = environment(WORD="said")
    return run_part("it", command, seconds, tmp_path, settings, lambda _: None)


def test_run_part_returns_rows_and_lines(tmp_path: Path) -> None:
    rows, lines = run_code(
        """
        findings.tried("the second", lambda: ("FAILED", "badly"))
        findings.tried("the third", lambda: 1 / 0)
        findings.lines(["| a |", os.environ["WORD"]])
        findings.done()
        """,
        tmp_path,
    )
    assert rows == [
        Row("it", "the first", OK, "well"),
        Row("it", "the second", FAILED, "badly"),
        Row("it", "the third", FAILED, "ZeroDivisionError: division by zero"),
    ]
    assert lines == ["| a |", "said"]
    assert "Traceback" in (tmp_path / "it.log").read_text()


@pytest.mark.parametrize(
    "code, note",
    [
        ("raise RuntimeError('no kernel image')", "status 1: RuntimeError: no kernel"),
        ("os.abort()", f"status {-signal.SIGABRT}: "),
        ("sys.exit(0)", "status 0: "),
        (
            "open(sys.argv[2], 'a').write('{\"row\": [\"cut o'); os._exit(3)",
            "status 3: ",
        ),
    ],
)
def test_run_part_process_that_dies_keeps_rows_and_fails(
    tmp_path: Path, code: str, note: str
) -> None:
    """Rows written before the end are kept, and a row reports the end."""
    rows, _ = run_code(code, tmp_path)
    assert rows[0] == Row("it", "the first", OK, "well")
    (died,) = rows[1:]
    assert died.verdict == FAILED and note in died.note


def test_run_part_process_that_hangs_is_killed(tmp_path: Path) -> None:
    """Its child processes are killed too, also when they ignore SIGTERM."""
    rows, _ = run_code(
        """
        import signal, subprocess
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen(["sleep", "100"])
        findings.row("the child", OK, str(child.pid))
        time.sleep(100)
        """,
        tmp_path,
        6,  # In which an interpreter has to start, on a busy machine too.
    )
    assert [row.verdict for row in rows] == [OK, OK, NOT_RUN]
    assert rows[-1].note == "not done after 6 s"
    state = Path(f"/proc/{rows[1].note}/stat")

    def ended() -> bool:
        try:  # A killed process is a zombie until its parent waits for it.
            return state.read_text().rpartition(")")[2].split()[0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    # On a busy machine a killed process takes a while to end.
    limit = time.monotonic() + 60
    while not ended() and time.monotonic() < limit:
        time.sleep(0.05)
    assert ended()


def test_report_table_escapes_and_shortens_cells() -> None:
    rows = [Row("a", "x | y", OK), Row("b", "two\nlines", FAILED, "n" * 500)]
    assert table(rows) == [
        "| part | what | result | |",
        "|---|---|---|---|",
        r"| a | x \| y | ok | |",
        f"| b | two lines | FAILED | {'n' * 157}... |",
    ]
    assert cell("  a\n\tb ") == "a b"


def test_report_found_without_file_is_empty(tmp_path: Path) -> None:
    assert found("it", tmp_path / "none") == ([], [], False)


def test_report_write_replaces_text_between_marks(tmp_path: Path) -> None:
    """A file without marks is refused and left unchanged."""
    doc = tmp_path / "README.md"
    doc.write_text(
        "above\n<!-- measured: begin -->\nold\n<!-- measured: end -->\nbelow\n"
    )
    doc.chmod(0o640)
    for text in ("new\n", "newer\n"):
        write(doc, text)
        assert doc.read_text() == (
            f"above\n<!-- measured: begin -->\n{text}<!-- measured: end -->\nbelow\n"
        )
    assert doc.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [doc]
    doc.write_text("no marks\n")
    with pytest.raises(ValueError, match="lacks <!-- measured: begin"):
        write(doc, "new\n")
    assert doc.read_text() == "no marks\n"
    # The page itself has them.
    page = tmp_path / "page.md"
    page.write_text(gpu_check.DOC.read_text())
    write(page, "new\n")
    assert "new\n" in page.read_text()


def script_output(*arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.returncode, ran.stderr
    return ran.stdout


def test_gpu_check_help_names_every_part() -> None:
    words = script_output("--help")
    for name, part in PARTS.items():
        assert f"  {name} " in words and part.about in words
    assert "--only" in words and "--write" in words and "--part" not in words


def test_gpu_check_without_gpu_writes_nothing() -> None:
    """Without a GPU it prints one line, and exits with 0."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU: run tools/gpu_check.py itself")
    before = gpu_check.DOC.read_text()
    words = script_output("--write", "--only", "layout")
    assert words == "tools/gpu_check.py: nothing was checked, torch sees no GPU\n"
    assert gpu_check.DOC.read_text() == before


def test_progress_without_rich_prints_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich.progress", None)
    with progress(2) as (doing, done):
        doing("half")
        done("all [of] it")
    assert capsys.readouterr().out == "all [of] it\n"


def test_progress_with_rich_prints_lines(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rich")
    with progress(2) as (doing, done):
        doing("half")
        done("all [of] it")
    assert "all [of] it\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "build_output, note",
    [
        (
            "CMake Error at CMakeLists.txt:7 (enable_language):\n\n  No CUDA.\n"
            "-- Configuring incomplete, errors occurred!\n",
            "CMake Error at CMakeLists.txt:7 (enable_language): No CUDA.",
        ),
        ("a\nx.cc:1:2: error: y\n  z\nmake: *** 1\n", "x.cc:1:2: error: y z"),
        ("Killed\n", "Killed"),
        ("", "it said nothing"),
    ],
)
def test_first_error_finds_the_compiler_message(build_output: str, note: str) -> None:
    assert first_error(build_output) == note


WITHOUT_LIBRARY = {"build", "tensorflow", "growth"}


@pytest.mark.parametrize("name", sorted(PARTS.keys() - WITHOUT_LIBRARY))
def test_part_without_build_is_not_run(tmp_path: Path, name: str) -> None:
    """A part that cannot run writes a row that says so."""
    pytest.importorskip("torch")
    findings = Findings(name, tmp_path / "rows")
    PARTS[name].run(Run(findings, tmp_path, time.monotonic() + 60))
    (row,), _, _ = found(name, tmp_path / "rows")
    assert row.verdict == NOT_RUN and row.note.endswith(" is not built")


def test_kernels_part_check_that_dies_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A check that dies or hangs is reported, and the other checks run."""
    pytest.importorskip("torch")
    from gpu.support import checks

    def rows_of(seconds: float, *deeds: object) -> list[tuple[str, str]]:
        class Made:
            failures: tuple[str, ...] = ()

            def __init__(self, library: object, quick: bool) -> None:
                pass

            def all(self) -> dict[str, object]:
                return {str(i): deed for i, deed in enumerate(deeds)}

        monkeypatch.setattr(checks, "Checks", Made)
        monkeypatch.setattr(checks, "NAMES", list(map(str, range(len(deeds)))))
        results = tmp_path / "rows"
        results.unlink(missing_ok=True)
        run = Run(Findings("it", results), tmp_path, time.monotonic() + seconds)
        run.cuda_library.parent.mkdir(exist_ok=True)
        run.cuda_library.touch()
        PARTS["kernels"].run(run)
        return [(row.verdict, row.note) for row in found("it", results)[0]]

    monkeypatch.setattr("gpu.support.backend.Library", lambda path: None)
    assert rows_of(600, lambda: "well", lambda: os._exit(7), lambda: 1 / 0) == [
        (OK, "well"),
        (FAILED, "ended with status 7"),
        (FAILED, "ZeroDivisionError: division by zero"),
    ]
    assert rows_of(4, lambda: time.sleep(600), lambda: "late") == [
        (NOT_RUN, "not done in time"),
        (NOT_RUN, "no time is left"),
    ]


def test_store_part_runs_under_every_tool(
    stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program runs without and with each sanitizer tool; the log has its output."""
    monkeypatch.setenv("CUDA_HOME", str(Path(stand_in).parents[1]))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    run = Run(Findings("store", tmp_path / "rows"), tmp_path, time.monotonic() + 60)
    run.store_test.parent.mkdir()
    for status, verdicts in ((0, [OK] * 4), (1, [FAILED] * 4)):
        run.store_test.write_text(f"#!/bin/sh\necho 9 tests\nexit {status}\n")
        run.store_test.chmod(0o755)
        (tmp_path / "rows").unlink(missing_ok=True)
        PARTS["store"].run(run)
        rows, _, _ = found("store", tmp_path / "rows")
        assert [row.verdict for row in rows] == verdicts
        assert [row.what for row in rows] == [
            "the store",
            *(f"the store under {t}" for t in ("memcheck", "racecheck", "synccheck")),
        ]
    assert "9 tests" in (tmp_path / "store.log").read_text()
    assert rows[0].note == "status 1: 9 tests; see store.log"


def test_gpu_check_leave_writes_page_logs_and_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is the caller's, and need not exist."""
    made = tmp_path / "build"
    (made / "cuda").mkdir(parents=True)
    for name in ("kernels.log", "kernels.jsonl", "cuda/build.log", "other"):
        (made / name).write_text(name)
    monkeypatch.setattr(gpu_check, "BUILD", made)
    monkeypatch.setattr(gpu_check, "machine", lambda: "a machine")
    folder = tmp_path / "a" / "folder"
    for _ in range(2):
        gpu_check.leave(folder, "the page\n", [Row("a", "b", OK, "c")])
    names = ["build-cuda.log", "kernels.jsonl", "kernels.log", "page.md"]
    assert sorted(one.name for one in folder.iterdir()) == [*names, "results.json"]
    assert (folder / "page.md").read_text() == "the page\n"
    assert json.loads((folder / "results.json").read_text()) == {
        "machine": "a machine",
        "rows": [{"part": "a", "what": "b", "verdict": "ok", "note": "c"}],
    }


# What compute-sanitizer prints, as its manual has it.
CLEAN = "========= ERROR SUMMARY: 0 errors"
ERRORS = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at opwright::cuda::Lookup+0x70
========= ERROR SUMMARY: 2 errors"""
NO_RACE = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
RACE = "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)"


@pytest.mark.parametrize(
    "status, words, verdict, note",
    [
        (0, CLEAN, OK, "ERROR SUMMARY: 0 errors"),
        (
            0,
            NO_RACE,
            OK,
            "RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)",
        ),
        (86, ERRORS, FAILED, "ERROR SUMMARY: 2 errors; first: Invalid __global__"),
        (
            0,
            RACE,
            FAILED,
            "RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)",
        ),
        (86, NO_RACE, FAILED, "RACECHECK SUMMARY: 0 hazards"),
        (1, CLEAN, FAILED, "but the checks exit with 1"),
        (-11, "Segmentation fault\n", FAILED, "no summary, exit status -11: Segm"),
        (1, "Error: no driver\n", NOT_RUN, "the machine refuses it: Error: no driver"),
        (
            255,
            "========= Error: No attachable process found. It timed out.\n",
            NOT_RUN,
            "the machine refuses it: Error: No attachable process",
        ),
        (
            1,
            "===== Target application terminated before first instrumented API call",
            NOT_RUN,
            "the machine refuses it: Target application",
        ),
        # These words are a check's, not the sanitizer's.
        (1, f"this is not supported\n{CLEAN}", FAILED, "but the checks exit with 1"),
        (0, "", FAILED, "no summary, exit status 0: it said nothing"),
    ],
)
def test_sanitizer_judge_gives_the_verdict(
    status: int, words: str, verdict: str, note: str
) -> None:
    found_verdict, found_note = sanitizer.judge(status, words)
    assert found_verdict == verdict and note in found_note


# A fake sanitizer: runs a command, and prints a summary with SANITIZED errors.
STAND_IN = """#!/bin/sh
[ "$1 $3 $4" = "--tool --error-exitcode 86" ] || exit 2
tool=$2
shift 4
while [ "${1#--}" != "$1" ]; do shift 2; done
[ -z "$PYTORCH_NO_CUDA_MEMORY_CACHING" ] && exit 3
"$@" || exit $?
if [ $tool = memcheck ]; then
  echo "========= ERROR SUMMARY: ${SANITIZED:-0} errors"
else
  echo "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
fi
[ "${SANITIZED:-0}" = 0 ] || exit 86
"""


@pytest.fixture
def stand_in(tmp_path: Path) -> str:
    script = tmp_path / "bin" / "compute-sanitizer"
    script.parent.mkdir()
    script.write_text(STAND_IN)
    script.chmod(0o755)
    return str(script)


def test_sanitizer_run_gives_the_verdict(
    stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"

    def run(tool: str, *command: str, seconds: float = 20) -> tuple[str, str]:
        return sanitizer.run(stand_in, tool, command, seconds, log)

    assert run("memcheck", "echo", "checked") == (OK, "ERROR SUMMARY: 0 errors")
    assert "checked\n" in log.read_text()
    assert run("racecheck", "true")[0] == OK
    assert run("memcheck", "false")[0] == FAILED
    assert run("memcheck", "sleep", "60", seconds=1) == (NOT_RUN, "not done after 1 s")
    monkeypatch.setenv("SANITIZED", "3")
    assert run("memcheck", "true") == (FAILED, "ERROR SUMMARY: 3 errors")
    assert sanitizer.run(None, "memcheck", ["true"], 1, log) == (
        NOT_RUN,
        "compute-sanitizer is not there",
    )


def test_sanitizer_find_searches_path_nvcc_and_cuda_home(
    stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search looks in PATH, next to nvcc, and under CUDA_HOME."""
    folder = str(Path(stand_in).parent)
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.setenv("PATH", folder)
    assert sanitizer.find() == stand_in
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert sanitizer.find() == stand_in
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "none"))
    assert sanitizer.find() is None
    nvcc = Path(stand_in).with_name("nvcc")
    nvcc.write_text("")
    nvcc.chmod(0o755)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "nvcc").symlink_to(nvcc)
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert sanitizer.find() == stand_in


@pytest.fixture(scope="module")
def on_cpu() -> Path:
    """The CUDA backend with the CPU in the place of the device."""
    if NVCC is None:
        pytest.skip("nvcc is not in PATH, nor CUDA's headers")
    pytest.importorskip("torch")
    build("opwright_cuda_on_cpu")
    return BUILD / "libopwright_cuda_on_cpu.so"


def test_sanitizer_part_on_cpu_device_runs_kernel_checks(
    on_cpu: Path, stand_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernels' checks, as a sanitizer runs them."""
    monkeypatch.setenv("OPWRIGHT_CHECK_DEVICE", "cpu")
    monkeypatch.setenv("CUDA_HOME", str(Path(stand_in).parents[1]))
    library = tmp_path / "cuda" / "libopwright_cuda.so"
    library.parent.mkdir()
    library.symlink_to(on_cpu)

    def run() -> list[tuple[str, str]]:
        script = [sys.executable, str(SCRIPT), "--build", str(tmp_path)]
        command = [*script, "--part", "sanitizer"]
        rows, _ = run_part("sanitizer", command, 240, tmp_path, {}, lambda _: None)
        return [(row.what, row.verdict) for row in rows]

    assert run() == [("memcheck", OK), ("racecheck", OK)]
    rows, _, done = found("kernels", tmp_path / "memcheck.jsonl")
    assert done
    assert [(row.what, row.verdict) for row in rows] == [
        (what, OK)
        for what in (
            "lookups",
            "updates",
            "the same bits",
            "bad input, out of memory",
            "shards",
            "2^32 rows",
        )
    ]
    assert [row.note for row in rows[:2]] == ["36 lookups", "26 updates"]
    # A file that is no library: the sanitizer reports no error, and no check passes.
    library.unlink()
    library.write_text("no library")
    assert run() == [("memcheck", FAILED), ("racecheck", FAILED)]


def test_embedding_times_on_cpu_device_fill_the_table(
    on_cpu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of times with all its contenders, small."""
    monkeypatch.setenv("OPWRIGHT_CHECK_DEVICE", "cpu")
    code = f"""
import json, pathlib, sys
sys.path.insert(0, {str(ROOT / "benchmarks/gpu")!r})
from gpu.support.backend import Library
from embedding_times import Sizes, all_times
sizes = Sizes(40, 3, 1 << 16, 500, (16, 32), (8,), 3, 1 << 12)
told = []
library = Library(pathlib.Path({str(on_cpu)!r}))
measured = all_times(
    library, sizes, told=lambda what, wrong: told.append([what, wrong])
)
lines, targets = measured.lines(), measured.targets()
late = all_times(library, sizes, deadline=0).lines()
print(json.dumps([lines, told, late, targets]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.returncode, ran.stderr
    lines, told, late, targets = json.loads(ran.stdout.splitlines()[-1])
    assert [what for what, _ in told] == [
        f"{name}, D {dimension}, {kind}"
        for name, dimensions in (("Adagrad", (16, 32)), ("SGD", (8,)), ("Adam", (8,)))
        for dimension in dimensions
        for kind in ("uniform", "Zipf")
    ]
    assert all(wrong == [] for _, wrong in told)
    rows = [line for line in lines if line.startswith(("| 16", "| 32", "| 8"))]
    assert len(rows) == 8
    # On the CPU, FBGEMM has no Adam.
    has_fbgemm = importlib.util.find_spec("fbgemm_gpu") is not None
    missing = [line for line in lines if " is not timed: " in line]
    name = "FBGEMM's Adam" if has_fbgemm else "FBGEMM"
    assert len(missing) == 1 and missing[0].startswith(f"{name} is not timed: ")
    for number, row in enumerate(rows):
        timed = has_fbgemm and number < 6
        cells = [text.strip() for text in row.strip("|").split("|")]
        assert len(cells) == 10
        assert cells[3].endswith("%") and cells[7].endswith("%")
        filled = [bool(text) for text in cells]
        assert filled == [True] * 5 + [timed] + [True] * 3 + [timed]
    assert "8 workloads are left out: no time was left." in late
    # No dimension is 64, so nothing is said of the copy.
    peers = "torch and FBGEMM" if has_fbgemm else "torch"
    assert targets.keys() == {f"{w}: ahead of {peers}" for w in ("lookup", "step")}


def test_step_times_on_cpu_device_fill_the_table(
    on_cpu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times of complete small steps: all tables are looked up and updated."""
    monkeypatch.setenv("OPWRIGHT_CHECK_DEVICE", "cpu")
    code = f"""
import json, pathlib, sys
sys.path.insert(0, {str(ROOT / "benchmarks/gpu")!r})
import step_times
from gpu.support.backend import Library
library, failed = Library(pathlib.Path({str(on_cpu)!r})), []
shapes = [(n, 40, length, 64, 50) for n in (26, 3) for length in (20, 1)]
workloads = tuple(step_times.Workload(*shape) for shape in shapes)
steps = step_times.Steps(library, workloads[0])
steps.enqueue(0)
steps.step()
steps.enqueue(0)
steps.receive()
moved = [bool(table.abs().max() > 0) for table in steps.outputs]
steps.close()
results = step_times.all_times(library, workloads, 2, failed=failed.append)
step_times.all_times(library, workloads, 2, deadline=0, failed=failed.append)
targets = [what for what, _, _ in step_times.targets(results, 1e9)]
print(json.dumps([moved, step_times.lines(results, 1e9), targets, failed]))
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not ran.returncode, ran.stderr
    moved, lines, targets, failed = json.loads(ran.stdout.splitlines()[-1])
    assert moved == [True] * 26
    rows = [line for line in lines if line.startswith(("| 26", "| 3 "))]
    # 26 tables of 40 samples: 20 ids and 41 offsets, or one id.
    assert [row.split(" | ")[:5] for row in rows] == [
        ["| 26", "40", "20", "64", "0.1"],
        ["| 26", "40", "1", "64", "0.0"],
        ["| 3", "40", "20", "64", "0.0"],
        ["| 3", "40", "1", "64", "0.0"],
    ]
    assert len([line for line in lines if line.startswith("- ")]) == 4
    assert targets == [
        f"{what} of 26 tables, L = {length}: {share} of the copy"
        for length, shares in ((20, ("75%", "60%")), (1, ("45%", "45%")))
        for what, share in zip(("lookup", "step"), shares, strict=True)
    ]
    assert failed == [
        f"{n} tables, L = {length}, D 64: no time was left"
        for n in (26, 3)
        for length in (20, 1)
    ]


def test_by_kind_sums_device_kernels_of_a_profile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Sums the events of torch's profiler by kind, without the host's own calls.

    Names are as CUPTI gives them, demangled, and events are torch's.
    """
    torch = pytest.importorskip("torch")
    from torch.autograd.profiler_util import FunctionEvent

    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    from step_times import by_kind

    here = "opwright::embedding::cuda::"

    def run(kernel: str) -> str:
        space = " " if kernel.endswith(">") else ""
        return f"void {here}Run<{here}{kernel}{space}>({here}{kernel})"

    adagrad = "opwright::embedding::rules::Adagrad, true"
    cub = "cub::CUB_300001_SM_900::detail::radix_sort::"
    on_device = [
        ("Memcpy HtoD (Pinned -> Device)", 40.0),
        (run("Lookup<true>"), 300.0),
        (run("CheckGradients"), 20.0),
        (run("Expand"), 30.0),
        (f"void {cub}DeviceRadixSortHistogramKernel<{cub}policy_hub<int> >", 5.0),
        (f"void {cub}DeviceRadixSortOnesweepKernel<{cub}policy_hub<int> >", 60.0),
        (run(f"UpdateTiles<{adagrad}>"), 500.0),
        (run(f"CombineShort<{adagrad}>"), 7.0),
        (f"void {here}RunTogether<{here}CombineLong<{adagrad}> >", 8.0),
        ("Memcpy HtoD (Pinned -> Device)", 2.0),
        ("Memcpy DtoH (Device -> Pinned)", 1.0),
        ("Memset (Device)", 1.5),
    ]
    of_host = [
        ("cudaLaunchKernelExC", 4000.0),
        ("cudaMemcpyAsync", 3000.0),
        ("cudaDeviceSynchronize", 9000.0),
    ]
    kinds = torch.autograd.DeviceType
    events = [
        FunctionEvent(
            number, name, 0, 10.0, 10.0 + took, device_type=kind, use_device="cuda"
        )
        for kind, all_of in ((kinds.CPU, of_host), (kinds.CUDA, on_device))
        for number, (name, took) in enumerate(all_of)
    ]
    assert by_kind(events) == pytest.approx(
        {
            "copy of ids": 0.042,
            "lookup": 0.3,
            "check": 0.02,
            "expand": 0.03,
            "sort": 0.065,
            "update": 0.5,
            "combine": 0.015,
            "other": 0.0025,
        }
    )
    assert by_kind([]) == {}


def test_step_result_limit_names_the_bottleneck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The times are given by hand."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    from step_times import Result, Workload, targets

    workload = Workload(26, 1000, 20, 64, 1 << 20)
    times = {"lookup": np.array([1.0, 1.0, 9.0]), "step": np.array([4.0, 4.0, 9.0])}
    kernels = {"update": 2.0, "lookup": 1.0, "copy of ids": 3.0}
    one = Result(workload, times, 0.5, kernels, 260000.0)
    assert one.copied == 26 * 4 * (20000 + 1001)
    assert one.limit() == (
        "The GPU limits 26 tables, L = 20, D 64: update 67%, lookup 33%; it waits 25%."
    )
    slow = {**kernels, "copy of ids": 6.0}
    assert "The copy of ids limits" in Result(workload, times, 0.5, slow).limit()
    assert "The host limits" in Result(workload, times, 5.0, kernels).limit()
    assert "has no times of kernels" in Result(workload, times, 0.5).limit()
    # A lookup moves 546,000 rows of 256 bytes in a millisecond; a step those, 520,000
    # gradients and 260,000 rows four times, in four.
    assert list(targets([one], 2e11)) == [
        ("lookup of 26 tables, L = 20: 75% of the copy", False, "at least 70%"),
        ("step of 26 tables, L = 20: 60% of the copy", True, "at least 67%"),
    ]


def test_embedding_targets_compare_with_copy_and_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The times are given by hand; one target is reached and one is missed."""
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "gpu"))
    from embedding_times import Measured, Result, Sizes, Workload

    sizes = Sizes(samples=1000, ids_per_sample=10)

    def result(dimension: int, lookup: float, step: float, peer: float) -> Result:
        medians = {
            ("opwright", "lookup"): lookup,
            ("opwright", "step"): step,
            ("torch", "lookup"): peer,
            ("torch", "step"): peer,
        }
        times = {key: np.array([t, t, 9 * t]) for key, t in medians.items()}
        return Result(
            Workload(sizes, dimension, "uniform", "adagrad"), times, 5000.0, []
        )

    results = [result(64, 1.0, 4.0, 3.0), result(16, 100.0, 1.0, 300.0)]
    # D 64: a lookup moves 11000 rows of 264 bytes, 2.9 MB in a millisecond; a step
    # those, 10000 of 264 bytes and 5000 rows of 256 bytes 4 times, 10.7 MB in four.
    assert Measured(sizes, 4e9, results, {}, 0).targets() == {
        "lookup, D >= 64: 75% of the copy": (False, "at least 73%"),
        "step, D >= 64: 60% of the copy": (True, "at least 67%"),
        "lookup: ahead of torch": (True, "at least 3.00 times as fast"),
        "step: ahead of torch": (False, "at least 0.75 times as fast"),
    }
