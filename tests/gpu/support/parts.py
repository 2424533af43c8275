"""The parts of a run of gpu_check.py; each is a process of its own.

A part says what it finds in rows and goes on where it can; what it cannot go on from it
raises. What is not here is a row that says so.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gpu.support import sanitizer
from gpu.support.report import FAILED, NOT_RUN, OK, Findings, found
from support.places import ROOT

FOLDERS = ("benchmarks/gpu", "generated", "runtime")
MOST_WORDS = 6  # Disagreements that become rows; all are in the part's log.


@dataclass(frozen=True)
class Run:
    """What a part is given; `deadline` is time.monotonic()'s."""

    findings: Findings
    build: Path
    deadline: float
    quick: bool = False
    together: bool = False  # All checks of the kernels in one process.

    @property
    def seconds_left(self) -> float:
        return self.deadline - time.monotonic()

    @property
    def rnn_library(self) -> Path:
        return self.build / "core" / "librnn_c.so"

    @property
    def cuda_library(self) -> Path:
        return self.build / "cuda" / "libopwright_cuda.so"

    @property
    def store_test(self) -> Path:
        """The embedding store's test, with the kernels: no TensorFlow, no torch."""
        return self.build / "cuda" / "store_on_gpu"


def first_error(said: str) -> str:
    """The first line that names an error and what follows it, or the last line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for i, line in enumerate(lines):
        if "error" in line.lower():
            return " ".join(lines[i : i + 2])
    return lines[-1] if lines else "it said nothing"


def cmake(folder: Path, targets: str, *options: str) -> tuple[str, str]:
    """Builds targets; verdict and note. What was said is in the folder's build.log."""
    began = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    # What the interpreter's environment has comes first, where CUDA often is last.
    folders = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    tools = os.pathsep.join([*folders, "/usr/local/cuda/bin"])
    cmake = shutil.which("cmake", path=tools)
    if not cmake:
        return FAILED, "cmake is not in PATH"
    commands = (
        [cmake, "-S", str(ROOT), "-B", str(folder), *options],
        [
            cmake,
            "--build",
            str(folder),
            "--target",
            *targets.split(),
            "--parallel",
            str(os.cpu_count() or 1),
        ],
    )
    log = folder / "build.log"
    with log.open("w") as output:
        for command in commands:
            ran = subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PATH": tools},
                check=False,
            )
            if ran.returncode:
                return FAILED, first_error(log.read_text(errors="replace"))
    return OK, f"{time.monotonic() - began:.0f} s"


def build(run: Run) -> None:
    """Both libraries at once; each can fail alone."""
    import torch

    for library in (run.rnn_library, run.cuda_library, run.store_test):
        library.unlink(missing_ok=True)  # A build that fails leaves no older one.

    def cuda() -> tuple[str, str]:
        major, minor = torch.cuda.get_device_capability()
        return cmake(
            run.cuda_library.parent,
            "opwright_cuda store_on_gpu",
            "-DOPWRIGHT_TENSORFLOW=OFF",
            "-DOPWRIGHT_CUDA=ON",
            f"-DCMAKE_CUDA_ARCHITECTURES={major}{minor}-real",
        )

    with ThreadPoolExecutor() as pool:
        core = pool.submit(
            cmake, run.rnn_library.parent, "rnn_c", "-DOPWRIGHT_TENSORFLOW=OFF"
        )
        on_gpu = pool.submit(cuda)
        run.findings.tried("the CPU's recurrent layers", core.result)
        run.findings.tried("the CUDA backend", on_gpu.result)


def built(run: Run, what: str, library: Path) -> bool:
    if library.exists():
        return True
    run.findings.row(what, NOT_RUN, f"{library.name} is not built")
    return False


def say(run: Run, what: str, wrong: list[str], note: str) -> None:
    """One row, and one for each of the first things that are wrong."""
    print(*wrong, sep="\n", flush=True)
    run.findings.row(what, FAILED if wrong else OK, note)
    for words in wrong[:MOST_WORDS]:
        run.findings.row(what, FAILED, words)


def layout(run: Run) -> None:
    """cuDNN's packed parameters, asked of cuDNN and read off torch's buffers."""
    what = "packed parameters"
    if not built(run, what, run.rnn_library):
        return
    import torch

    from gpu.support.layout import asked, disagreements, module, stacks, torch_layout
    from gpu.support.libcudnn import Cudnn
    from gpu.support.rnn_core import Core

    core = Core(run.rnn_library)

    def judged(count: int, wrong: list[str]) -> tuple[str, str]:
        print(*wrong, sep="\n", flush=True)
        note = f"{count} layouts, {len(wrong)} disagreements"
        return (FAILED, f"{note}; first: {wrong[0]}") if wrong else (OK, note)

    def read() -> tuple[str, str]:
        wrong: list[str] = []
        stacked = [(s, t) for s in stacks() for t in (torch.float32, torch.float16)]
        for one, dtype in stacked:
            theirs = torch_layout(one, module(one, device="cuda", dtype=dtype))
            wrong += disagreements(one, core.layout(one), theirs)
        return judged(len(stacked), wrong)

    def ask() -> tuple[str, str]:
        number: int = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        major = number // (10000 if number >= 90000 else 1000)
        cudnn = Cudnn(f"libcudnn.so.{major}")  # The one that torch has loaded.
        if not cudnn.has_device:
            return FAILED, "cudnnCreate makes no handle"
        verdict, note = judged(*asked(core, cudnn))
        return verdict, f"cuDNN {cudnn.version}: {note}"

    run.findings.tried(f"{what} in torch's buffers", read)
    run.findings.tried(f"{what}, asked of cuDNN", ask)


def rnn(run: Run) -> None:
    """Numbers of the CPU's recurrent layers and of cuDNN's."""
    if not built(run, "numbers of recurrent layers", run.rnn_library):
        return
    import torch

    from gpu.support.rnn_core import MODES, Core, Layers
    from gpu.support.rnn_numbers import Compared, Draw, compare, draws

    # gpu_check.py has set NVIDIA_TF32_OVERRIDE=0 for this part, too.
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    core = Core(run.rnn_library)
    planned = list(draws(8 if run.quick else 48))
    if not run.quick:  # And of the sizes that models have.
        planned += [
            Draw(Layers("lstm", 512, 256, 2, True), 50, 32),
            Draw(Layers("gru", 512, 256, 2, True), 50, 32),
            Draw(Layers("lstm", 512, 256, 2, False, 128), 50, 32),
            Draw(Layers("rnn_tanh", 384, 300, 3, True), 50, 32),
        ]
    compared: dict[str, list[Compared]] = {mode: [] for mode in MODES}
    left = 0
    for draw in planned:
        if run.seconds_left < 5:
            left += 1
            continue
        try:
            one = compare(core, draw, "cuda")
        except Exception as error:  # The other draws may do.
            one = Compared({}, {}, [f"{draw}: {type(error).__name__}: {error}"])
        compared[draw.layers.mode].append(one)
    for mode, of_mode in compared.items():
        if not of_mode:
            continue
        worst = {
            side: max(max(getattr(one, side).values(), default=0.0) for one in of_mode)
            for side in ("ours", "theirs")
        }
        wrong = [words for one in of_mode for words in one.wrong]
        note = f"{len(of_mode)} draws, largest error: ours {worst['ours']:.1g}, "
        say(run, f"numbers of {mode}", wrong, note + f"cuDNN's {worst['theirs']:.1g}")
    if left:
        run.findings.row(
            "numbers of recurrent layers", NOT_RUN, f"{left} draws: no time"
        )


def apart(what: str, call: Callable[[], object], run: Run) -> None:
    """Makes a call in a process of its own, a copy of this one, that leaves rows.

    An error of CUDA's that no call can clear ends with it.
    """
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.setpgid(0, 0)
        status = 1
        try:
            call()
            status = 0
        finally:
            sys.stdout.flush()
            os._exit(status)
    while time.monotonic() < run.deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            if code:
                run.findings.row(what, FAILED, f"ended with status {code}")
            return
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    run.findings.row(what, NOT_RUN, "not done in time")


def kernels(run: Run) -> None:
    """The CUDA kernels against float64, each check in a process of its own."""
    if not built(run, "CUDA kernels", run.cuda_library):
        return
    from gpu.support.backend import Library
    from gpu.support.checks import NAMES, Checks

    def checked(name: str) -> tuple[str, str]:
        checks = Checks(Library(run.cuda_library), run.quick)
        note = checks.all()[name]()
        if checks.failures:
            return FAILED, f"{len(checks.failures)} failed; first: {checks.failures[0]}"
        return OK, note

    for name in NAMES:

        def tried(name: str = name) -> None:
            run.findings.tried(name, lambda: checked(name))

        if run.together:
            tried()
        elif run.seconds_left < 3:
            run.findings.row(name, NOT_RUN, "no time is left")
        else:
            apart(name, tried, run)


def store(run: Run) -> None:
    """The embedding store with the kernels: streams, ids made there, late refusals."""
    if not built(run, "the store", run.store_test):
        return
    path = sanitizer.find()
    tools = ("memcheck", "racecheck", "synccheck")
    for i, tool in enumerate(("", *tools)):
        what = f"the store under {tool}" if tool else "the store"
        limit = run.seconds_left / (len(tools) + 1 - i) - 2
        log = run.build / f"store{'-' if tool else ''}{tool}.log"
        # Draws of steps take longest, and a sanitizer a hundred times as long.
        command = [str(run.store_test), "--rounds", "1" if tool or run.quick else "4"]
        if limit < 3:
            run.findings.row(what, NOT_RUN, "no time is left")
        elif tool:
            run.findings.row(what, *sanitizer.run(path, tool, command, limit, log))
        else:
            run.findings.row(what, *plain(command, limit, log))


def plain(command: list[str], limit: float, log: Path) -> tuple[str, str]:
    """Verdict and note of a program of tests in C++; what it says is in the log."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            text=True,
        )
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            return NOT_RUN, f"not done after {limit:.0f} s"
        finally:
            if process.poll() is None:
                sanitizer.stop(process)
    lines = log.read_text(errors="replace").strip().splitlines()
    last = lines[-1] if lines else "it said nothing"
    return (
        (FAILED, f"status {status}: {last}; see {log.name}") if status else (OK, last)
    )


def sanitized(run: Run) -> None:
    """The CUDA kernels' checks, a few of them, under memcheck and racecheck."""
    if not built(run, "compute-sanitizer", run.cuda_library):
        return
    path = sanitizer.find()
    tools = ("memcheck", "racecheck")
    for i, tool in enumerate(tools):
        results = run.build / f"{tool}.jsonl"
        results.unlink(missing_ok=True)
        limit = run.seconds_left / (len(tools) - i) - 2
        script = [sys.executable, str(ROOT / "tools" / "gpu_check.py")]
        script += ["--part", "kernels", "--together"]
        options = ["--quick", "--results", str(results), "--build", str(run.build)]
        options += ["--seconds", f"{limit:.0f}"]
        log = run.build / f"{tool}.log"
        verdict, note = sanitizer.run(path, tool, [*script, *options], limit, log)
        rows, _, done = found("kernels", results)
        # A tool that has seen nothing is no word on what was not run.
        if verdict == OK and (not done or any(row.verdict != OK for row in rows)):
            verdict, note = FAILED, f"{note}, but not all checks passed: see {log.name}"
        run.findings.row(tool, verdict, note)


def times(run: Run) -> None:
    """Speed: of steps with many tables, and of one table next to its peers."""
    if not built(run, "times", run.cuda_library):
        return
    import step_times
    from embedding_times import Sizes, all_times, copy_bandwidth

    from gpu.support.backend import Library

    count, wrong = 0, list[str]()

    def report(what: str, of_workload: list[str]) -> None:
        nonlocal count
        count += 1
        wrong.extend(f"{what}: {words}" for words in of_workload)

    library, deadline = Library(run.cuda_library), run.deadline - 15
    copy = copy_bandwidth(Sizes())
    # Half of the time at most: the peers want some, too.
    half = deadline - run.seconds_left / 2
    failed = list[str]()
    steps = step_times.all_times(library, deadline=half, failed=failed.append)
    run.findings.lines(step_times.lines(steps, copy))
    for words in failed:
        run.findings.row("steps of many tables", NOT_RUN, words)
    for what, reached, note in step_times.targets(steps, copy):
        run.findings.row(what, OK if reached else FAILED, note)
    measured = all_times(library, deadline=deadline, told=report)
    run.findings.lines(measured.lines())
    say(run, "the same looked up by all", wrong, f"{count} workloads")
    for what, (reached, note) in measured.targets().items():
        run.findings.row(what, OK if reached else FAILED, note)
    for name, why in measured.missing.items():
        run.findings.row(f"times of {name}", NOT_RUN, why)
    if measured.left_out:
        note = f"{measured.left_out} workloads: no time was left"
        run.findings.row("times", NOT_RUN, note)


def growth(run: Run) -> None:
    """The same with an allocator that grows, in the place of TensorFlow's default."""
    tensorflow(run)


def tensorflow(run: Run) -> None:
    """TensorFlow's cuDNN and the TPU-embedding ops on the GPU."""
    if importlib.util.find_spec("tensorflow") is None:
        run.findings.row("TensorFlow", NOT_RUN, "tensorflow is not installed")
        return
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        run.findings.row("TensorFlow", NOT_RUN, f"{tf.__version__} sees no GPU")
        return
    tf.config.experimental.enable_tensor_float_32_execution(False)
    capability = tf.config.experimental.get_device_details(gpus[0])[
        "compute_capability"
    ]
    verdict, note = cmake(
        run.build / "tensorflow",
        "opwright",
        "-DOPWRIGHT_CUDA=ON",
        f"-DPython3_EXECUTABLE={sys.executable}",
        f"-DCMAKE_CUDA_ARCHITECTURES={''.join(map(str, capability))}-real",
    )
    run.findings.row(f"library for TensorFlow {tf.__version__}", verdict, note)
    if verdict == OK:
        on_device(run, "/GPU:0")


def on_device(run: Run, device: str) -> None:
    """All that tensorflow_gpu.py checks."""
    from gpu.support.tensorflow_gpu import rows

    for what, check in rows(device):
        run.findings.tried(what, check)


@dataclass(frozen=True)
class Part:
    """`seconds` is the most it may take; `environment` is set before it begins."""

    run: Callable[[Run], None]
    seconds: float
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def about(self) -> str:
        return (self.run.__doc__ or "").partition("\n")[0]


_FOR_TENSORFLOW = (("TF_CPP_MIN_LOG_LEVEL", "3"), ("NVIDIA_TF32_OVERRIDE", "0"))
# In the order in which they run. Their seconds are more than ten minutes together: few
# take all of their own, and what they leave is there for those that follow.
PARTS = {
    "build": Part(build, 180),
    "layout": Part(layout, 90),
    "rnn": Part(rnn, 90, (("NVIDIA_TF32_OVERRIDE", "0"),)),
    "kernels": Part(kernels, 120),
    "store": Part(store, 150),
    "sanitizer": Part(sanitized, 180),
    "times": Part(times, 120),
    "tensorflow": Part(tensorflow, 300, _FOR_TENSORFLOW),
    "growth": Part(
        growth, 150, (*_FOR_TENSORFLOW, ("TF_FORCE_GPU_ALLOW_GROWTH", "true"))
    ),
}
