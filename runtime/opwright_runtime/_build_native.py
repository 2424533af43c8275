"""Builds the library of native kernels for the installed TensorFlow.

The wheel has the sources and a recipe, which was made of the commands of opwright's own
build. This takes a C++ compiler, and neither CMake nor a source tree.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import tensorflow as tf

from opwright_runtime import _native_library

#: Called for each file that is compiled: its name, how many are, and how many will be.
Progress = Callable[[str, int, int], None]
COMPILERS = ("c++", "g++", "clang++")
PROBE = """\
#include <charconv>
#include <string>
#if __cplusplus < 201703L
#error "it does not compile C++17"
#endif
#ifndef __GLIBCXX__
#error "its C++ library is not libstdc++, which TensorFlow uses"
#endif
std::string Probe(int number) { return std::to_string(number); }
"""
LOADED = "from opwright_runtime import native; native.load(); print(native.isa())"


class BuildError(Exception):
    """The library cannot be built here; the message says what to do."""


@dataclass(frozen=True)
class Unit:
    """Sources that are compiled together, and the flags for them."""

    sources: tuple[str, ...]
    flags: tuple[str, ...]

    @property
    def name(self) -> str:
        first = self.sources[0].removeprefix("runtime/native/")
        more = len(self.sources) - 1
        return f"{first} and {more} more" if more else first


@dataclass(frozen=True)
class Recipe:
    """How to build the library: build.json of the wheel, for this TensorFlow."""

    machine: str
    units: tuple[Unit, ...]
    link: tuple[str, ...]

    @classmethod
    def read(cls, path: Path) -> Recipe:
        """The recipe in a file; its flags with the folders of this machine."""
        read = json.loads(path.read_text("utf-8"))
        places = {
            "{root}": str(path.parent),
            "{include}": tf.sysconfig.get_include(),
            "{library}": tf.sysconfig.get_lib(),
        }

        def here(flags: Sequence[str]) -> tuple[str, ...]:
            pattern = "|".join(map(re.escape, places))
            return tuple(
                re.sub(pattern, lambda found: places[found[0]], flag) for flag in flags
            )

        # Those of this TensorFlow come last, and so win.
        theirs = [
            flag
            for flag in tf.sysconfig.get_compile_flags()
            if not flag.startswith("-I")
        ]
        return cls(
            machine=read["machine"],
            units=tuple(
                Unit(
                    tuple(unit["sources"]),
                    here((*unit["flags"], *theirs, "-w")),
                )
                for unit in read["units"]
            ),
            link=here(read["link"]),
        )


def build(progress: Progress, jobs: int | None = None) -> Path:
    """Builds the library, tries it, and puts it where the loader looks.

    Args:
        jobs: how many compilers run at once; None for as many as there are cores.

    Raises:
        BuildError: something that the build needs is missing, or a source does not
            compile with this TensorFlow.
    """
    folder = _native_library.built_libraries()
    if folder is None:
        raise BuildError(
            "this opwright was installed without the sources of its kernels, or you "
            f"have no home folder; {_native_library.advice()}"
        )
    recipe = Recipe.read(_native_library.RECIPE)
    _check_machine(recipe)
    target = folder / _native_library.minor(tf.__version__) / _native_library.NAME
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as work:
            cores = len(os.sched_getaffinity(0))
            library = _compiled(recipe, Path(work), jobs or cores, progress)
            _check_that_it_loads(library)
            # The stamp first: a library without one does not load.
            for path in (library.with_suffix(".json"), library):
                os.replace(path, target.with_name(path.name))
    except OSError as error:
        raise BuildError(
            f"{folder} cannot be written: {error}; OPWRIGHT_DATA_DIR names another "
            "folder"
        ) from error
    return target


def compiler() -> list[str]:
    """The C++ compiler: the one that CXX names, or the first that there is."""
    if named := shlex.split(os.environ.get("CXX", "")):
        if shutil.which(named[0]) is None:
            raise BuildError(f"CXX names {named[0]}, and there is no such program")
        return named
    for name in COMPILERS:
        if found := shutil.which(name):
            return [found]
    raise BuildError(
        "there is no C++ compiler: install one, such as the package g++ of Debian or "
        "gcc-c++ of Fedora, or name one in CXX"
    )


def _check_machine(recipe: Recipe) -> None:
    if platform.machine() != recipe.machine:
        raise BuildError(
            f"the kernels are for {recipe.machine}, and this machine is "
            f"{platform.machine()}"
        )
    header = Path(tf.sysconfig.get_include(), "tensorflow/core/framework/op_kernel.h")
    if not header.is_file():
        raise BuildError(
            f"this TensorFlow has no headers: {header} does not exist; install "
            f"TensorFlow with pip: pip install --force-reinstall --no-deps "
            f"tensorflow=={tf.__version__}"
        )


def _compiled(recipe: Recipe, work: Path, jobs: int, progress: Progress) -> Path:
    """The library and its stamp in the folder `work`."""
    cxx = compiler()
    _check_compiler(cxx, recipe, work)
    objects = []
    commands = []
    for number, unit in enumerate(recipe.units):
        source = _native_library.SOURCES / unit.sources[0]
        if len(unit.sources) > 1:
            source = work / f"{number}.cc"
            paths = (_native_library.SOURCES / path for path in unit.sources)
            source.write_text("".join(f'#include "{path}"\n' for path in paths))
        objects.append(str(work / f"{number}.o"))
        command = [*cxx, *unit.flags, "-c", str(source), "-o", objects[-1]]
        commands.append((unit.name, command))
    _run_all(commands, work, jobs, progress)
    library = work / _native_library.NAME
    link = [*cxx, "-o", str(library), *objects, *recipe.link]
    _run_all([(library.name, link)], work, 1, lambda *_: None)
    library.with_suffix(".json").write_text(
        json.dumps(
            {
                "tensorflow": tf.__version__,
                "cxx11_abi": tf.sysconfig.CXX11_ABI_FLAG,
                "cuda": None,
            }
        )
    )
    return library


def _check_compiler(cxx: Sequence[str], recipe: Recipe, work: Path) -> None:
    """Builds a small library with all flags of the recipe."""
    source, output = work / "probe.cc", work / "probe.so"
    source.write_text(PROBE)
    flags = dict.fromkeys(flag for unit in recipe.units for flag in unit.flags)
    flags.pop("-isystem", None)
    plain = [flag for flag in flags if flag.startswith("-")]
    command = [*cxx, *plain, str(source), *recipe.link, "-o", str(output)]
    try:
        done = subprocess.run(
            command, env=_english(), capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BuildError(f"{cxx[0]} does not run: {error}") from error
    if done.returncode or not output.exists():
        raise BuildError(
            f"{' '.join(cxx)} cannot build the kernels: {_first_error(done.stderr)}; "
            "name another C++ compiler in CXX, such as g++ 12"
        )


def _run_all(
    commands: Sequence[tuple[str, list[str]]],
    work: Path,
    jobs: int,
    progress: Progress,
) -> None:
    """Runs the commands, `jobs` at a time. Ends all of them if one fails."""
    waiting = list(enumerate(commands))
    running: dict[int, subprocess.Popen[bytes]] = {}
    done = 0
    progress("compiling", done, len(commands))
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, (_, command) = waiting.pop(0)
                with (work / f"{number}.log").open("wb") as log:
                    running[number] = subprocess.Popen(
                        command,
                        env=_english(),
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
            ended = [n for n, process in running.items() if process.poll() is not None]
            for number in ended:
                name, command = commands[number]
                if running.pop(number).returncode:
                    raise _failure(name, command, work / f"{number}.log")
                done += 1
                progress(name, done, len(commands))
            if not ended:
                time.sleep(0.05)
    finally:
        for process in running.values():
            # The compiler itself is a child of the command.
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def _english() -> dict[str, str]:
    """An environment in which compilers write English, which `_first_error` parses."""
    return {**os.environ, "LC_ALL": "C"}


def _failure(name: str, command: Sequence[str], log: Path) -> BuildError:
    output = log.read_text("utf-8", errors="replace")
    here = _native_library.minor(tf.__version__)
    with tempfile.NamedTemporaryFile(
        "w", prefix="opwright-build-native-", suffix=".log", delete=False
    ) as kept:
        kept.write(f"{shlex.join(command)}\n{output}")
    why = f"{name} does not compile with TensorFlow {here}: {_first_error(output)}; "
    if re.search(r"[Kk]illed|out of memory|cannot allocate", output):
        why += "take fewer jobs, such as --jobs 1; "
    else:
        why += "a newer opwright may support it; "
    return BuildError(f"{why}the compiler's output is in {kept.name}")


def _first_error(output: str) -> str:
    lines = output.strip().splitlines() or ["it says nothing"]
    found = [line for line in lines if re.search(r"\berror\b|cannot find", line)]
    return (found or lines[-1:])[0].strip()


def _check_that_it_loads(library: Path) -> None:
    """Loads the library in a process of its own, which a wrong one could end."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        env={**os.environ, "OPWRIGHT_LIBRARY": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it ended the process"])[-1]
        raise BuildError(f"the library was built and does not load: {last}")
