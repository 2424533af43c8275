"""Lays out what a wheel has of the native kernels: libraries, and their sources.

    python tools/native_files.py build/native-files build/for-2.20 build/for-2.21

The folders after the first are builds of CMake, each against another TensorFlow. The
compile commands become the recipe of `python -m opwright build-native`, so that flags
are in CMakeLists.txt alone. They must be the same in all builds, which are for one
processor.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
NATIVE = Path("runtime/native")
# One file for every TensorFlow, and every Python.
EXTENSION = "fast_path.abi3.so"
# Headers that a wheel of TensorFlow lacks.
SHIMS = Path("codegen/opwright_codegen/templates/native/tensorflow-2.19")
Recipe: TypeAlias = "dict[str, Any]"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("builds", type=Path, nargs="+", metavar="build")
    options = parser.parse_args(arguments)
    try:
        lay_out(options.out, options.builds)
    except ValueError as error:
        print(f"native_files: {error}", file=sys.stderr)
        return 1
    return 0


def lay_out(out: Path, builds: Sequence[Path]) -> None:
    """Writes the folders _lib and _native of the package opwright_runtime."""
    shutil.rmtree(out, ignore_errors=True)
    recipes = {
        build: {"machine": stamp(build)["machine"], **recipe(commands(build))}
        for build in builds
    }
    first, *others = builds
    for other in others:
        if recipes[other] != recipes[first]:
            raise ValueError(
                f"{other} is compiled with other commands than {first}; the recipe in "
                "a wheel is for every TensorFlow"
            )
    libraries = [copy_library(build, out / "_lib") for build in builds]
    extension = libraries[0].parents[1] / EXTENSION
    if not extension.exists():
        raise ValueError(f"{first} has no {EXTENSION}, which takes Python's headers")
    shutil.copy(extension, out / "_lib")
    sources = out / "_native"
    for path in needed(recipes[first]):
        (sources / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, sources / path)
    written = {"digest": digest(recipes[first]), **recipes[first]}
    (sources / "build.json").write_text(json.dumps(written, indent=1) + "\n")


def copy_library(build: Path, folder: Path) -> Path:
    """Copies a build's library and its stamp into the folder of its minor version.

    Returns the library of the build.
    """
    stamped = stamp(build)
    if stamped["cuda"] is not None:
        raise ValueError(f"{build} is built with CUDA; a wheel has kernels for CPUs")
    minor = ".".join(stamped["tensorflow"].split(".")[:2])
    (folder / minor).mkdir(parents=True)
    place = re.search(r" -o (\S+/libopwright\.so) ", commands(build)[-1])
    assert place is not None
    # Ninja names what is in the build's folder relative to it.
    library = build / place[1]
    shutil.copy(library, folder / minor)
    shutil.copy(build / "libopwright.json", folder / minor)
    return library


def stamp(build: Path) -> dict[str, Any]:
    """What a build says of its library: for which TensorFlow and processor it is."""
    return dict(json.loads((build / "libopwright.json").read_text()))


def commands(build: Path) -> list[str]:
    """The commands that make a build's library; the last one links it."""
    ninja = shutil.which("ninja", path=sysconfig.get_path("scripts")) or "ninja"
    listed = subprocess.run(
        [ninja, "-C", build, "-t", "commands", "opwright"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = listed.stdout.splitlines()
    if listed.returncode or not lines:
        raise ValueError(f"{build} is no build of the library: {listed.stderr.strip()}")
    return [line for line in lines if not line.startswith("ninja: ")]


def recipe(lines: Sequence[str]) -> Recipe:
    """The recipe of these commands: units to compile, and flags to link them with."""
    units = []
    for line in lines:
        if " -c " in line:
            words = shlex.split(line)
            sources = sources_of(Path(words[words.index("-c") + 1]))
            flags = without_precompiled(words[1 : words.index("-MD")])
            if sources:  # Precompiled headers have none.
                kept = [neutral(flag) for flag in flags if is_kept(flag)]
                units.append({"sources": sources, "flags": kept})
    # Files that several sources make up take longest, and begin first.
    units.sort(key=lambda unit: (-len(unit["sources"]), unit["sources"]))
    link = shlex.split(lines[-1])
    link = link[link.index("-fPIC") : link.index("&&", 2)]
    output = link.index("-o")
    flags = [*link[:output], *link[output + 2 :]]
    return {
        "units": units,
        "link": [neutral(flag) for flag in flags if is_kept_to_link(flag)],
    }


def sources_of(file: Path) -> list[str]:
    """A source of this tree, or the sources that a file of a unity build includes."""
    if file.is_relative_to(ROOT / NATIVE):
        return [file.relative_to(ROOT).as_posix()]
    included = re.findall(r'^#include "(.+)"$', file.read_text(), re.MULTILINE)
    others = [path for path in included if not Path(path).is_relative_to(ROOT / NATIVE)]
    if others:
        raise ValueError(
            f"{', '.join(others)}: not in {NATIVE}, so no wheel has these sources"
        )
    return [Path(path).relative_to(ROOT).as_posix() for path in included]


def without_precompiled(flags: Sequence[str]) -> list[str]:
    """Leaves out `-include HEADER`, with which CMake names a precompiled header."""
    before = [None, *flags]
    return [
        flag
        for last, flag in zip(before, flags, strict=False)
        if "-include" not in (last, flag)
    ]


def is_kept(flag: str) -> bool:
    """Whether any compiler and any TensorFlow takes a flag: warnings may be others."""
    # It spares the reading of headers, with versions that it is tried with.
    spared = "-DOPWRIGHT_DECLARE_XLA_CLIENT"
    return flag != spared and not flag.startswith(("-W", "--param="))


def is_kept_to_link(flag: str) -> bool:
    """Whether any linker takes a flag: gold only saves time, and has one of its own."""
    return flag.startswith("-") and flag not in ("-fuse-ld=gold", "-Wl,--rosegment")


def neutral(flag: str) -> str:
    """A flag with names in the place of this machine's folders."""
    flag = re.sub(r"^(-I)?/\S*/tensorflow/include", r"\1{include}", flag)
    flag = re.sub(r"^-L/\S*/tensorflow$", "-L{library}", flag)
    flag = flag.replace(str(ROOT), "{root}")
    if re.match(r"(-[IL])?/", flag):
        raise ValueError(f"{flag} names a folder that other machines do not have")
    return flag


def needed(made: Recipe) -> list[Path]:
    """The files of the tree that a build reads, relative to its root."""
    paths = {Path(source) for unit in made["units"] for source in unit["sources"]}
    for folder in (NATIVE, SHIMS):
        headers = (path.relative_to(ROOT) for path in (ROOT / folder).rglob("*.h"))
        paths.update(path for path in headers if "testing" not in path.parts)
    return sorted(paths)


def digest(made: Recipe) -> str:
    """What tells these sources and commands from others."""
    said = hashlib.sha256(json.dumps(made, sort_keys=True).encode())
    for path in needed(made):
        said.update(f"\n{path}\n".encode())
        said.update((ROOT / path).read_bytes())
    return said.hexdigest()[:12]


if __name__ == "__main__":
    sys.exit(main())
