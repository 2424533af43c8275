"""Executes the checklist of a release on what lies in a folder: wheels and an sdist.

    python tools/release_check.py dist [--python PATH ...] [--tensorflow 2.21 ...]

Each point is printed with what was found; the exit status is 1 if one does not hold.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
# What a system must have at most: the tag says it, auditwheel checks it. A wheel
# without kernels is for any system.
SYSTEMS = ("manylinux_2_27_x86_64", "manylinux_2_26_aarch64")
NAME = re.compile(r"opwright-(.+)-py3-none-(.+)\.whl")
MOST_BYTES = 15_000_000
MACHINE = platform.machine()
VERSION = "from importlib import metadata; print(metadata.version('tensorflow'))"
INSTALLED = """
import numpy, opwright, tensorflow as tf, google.protobuf as p
from opwright_runtime import native
print('TensorFlow', tf.__version__, 'NumPy', numpy.__version__,
      'protobuf', p.__version__, 'ops', len(opwright.op_names()))
"""
KERNELS = """
from opwright_runtime._binding import fast_path
native.load()
if not fast_path.is_native:
    raise SystemExit('the extension module for eager calls does not load')
print('kernels', native.isa())
"""


class FailedError(Exception):
    """A point of the list does not hold."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--python",
        "-p",
        action="append",
        help="an interpreter to try the wheels with (default: all of 3.10 to 3.13)",
    )
    parser.add_argument(
        "--tensorflow",
        action="append",
        help="a TensorFlow to try the wheels with (default: all that have kernels)",
    )
    options = parser.parse_args(arguments)
    wheels = sorted(options.folder.glob("*.whl"))
    pythons = options.python or list(_pythons())
    tensorflows = options.tensorflow or versions()
    points: list[tuple[str, Callable[[], str]]] = [
        ("the tree is committed", tree),
        ("CHANGELOG.md names the version", changelog),
        ("generated/ is what opdefs/ say", generated),
        ("metadata", lambda: metadata(options.folder)),
        ("sdist builds", lambda: sdist(options.folder)),
    ]
    points += [(f"{wheel.name}: systems", _bind(systems, wheel)) for wheel in wheels]
    points += [
        (
            f"{wheel.name}: {python}, TensorFlow {tensorflow}",
            _bind(programs, wheel, python, tensorflow),
        )
        for wheel in wheels
        if runs_here(wheel)
        for python in pythons
        for tensorflow in tensorflows
    ]
    failures = 0
    for title, point in points:
        try:
            print(f"ok      {title}: {point()}", flush=True)
        except FailedError as failed:
            failures += 1
            print(f"FAILED  {title}: {failed}", flush=True)
    for wheel in wheels:
        if not runs_here(wheel):
            print(f"        {wheel.name}: its programs do not run on {MACHINE}")
    if not wheels:
        failures += 1
        print(f"FAILED  {options.folder} has no wheel; `make wheel` builds it")
    return 1 if failures else 0


def tree() -> str:
    changed = run("git", "status", "--porcelain", cwd=ROOT).splitlines()
    if changed:
        raise FailedError(f"{len(changed)} files are not, as {changed[0].split()[-1]}")
    return run("git", "rev-parse", "--short", "HEAD", cwd=ROOT).strip()


def changelog() -> str:
    version = own_version()
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    if headings[:1] != [version]:
        raise FailedError(f"it begins with {headings[:1]}, and not with {version}")
    return version


def own_version() -> str:
    text = (ROOT / "runtime/opwright_runtime/__init__.py").read_text()
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.M)
    return str(version)


def generated() -> str:
    said = run(
        sys.executable, "-m", "opwright_codegen", "generate", "--check", cwd=ROOT
    )
    return said.strip() or "yes"


def metadata(folder: Path) -> str:
    files = sorted(map(str, (*folder.glob("*.whl"), *folder.glob("*.tar.gz"))))
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    own = own_version()
    for wheel in folder.glob("*.whl"):
        found = NAME.fullmatch(wheel.name)
        if not found or found[1] != own or found[2] not in (*SYSTEMS, "any"):
            raise FailedError(f"{wheel.name} does not tell version and system")
        wanted = Parser().parsestr(_metadata(wheel)).get_all("Requires-Dist") or []
        (tensorflow,) = (one for one in wanted if one.startswith("tensorflow"))
        if "<" in tensorflow:  # pip would take an older one to install the wheel.
            raise FailedError(f"{wheel.name} depends on {tensorflow}")
        kernels(wheel)
        if (size := wheel.stat().st_size) > MOST_BYTES:
            raise FailedError(f"{wheel.name} has {size:,} bytes, over {MOST_BYTES:,}")
    return f"twine check --strict passes {len(files)} files"


def kernels(wheel: Path) -> None:
    """Fails if a wheel lacks a library or the sources, or a wheel for any has them."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    found = {
        name.split("/")[2]: json.loads(_read(wheel, name))["tensorflow"]
        for name in names
        if re.fullmatch(r"opwright_runtime/_lib/[^/]+/libopwright\.json", name)
    }
    expected = [] if has_no_kernels(wheel) else versions()
    if sorted(found) != sorted(expected):
        raise FailedError(f"{wheel.name} has kernels for {sorted(found)}")
    wrong = [f for f, built_for in found.items() if not built_for.startswith(f"{f}.")]
    if wrong:
        raise FailedError(f"{wheel.name} has libraries in wrong folders: {wrong}")
    if expected and "opwright_runtime/_lib/fast_path.abi3.so" not in names:
        raise FailedError(f"{wheel.name} has no extension module for eager calls")
    if expected and "opwright_runtime/_native/build.json" not in names:
        raise FailedError(f"{wheel.name} has no sources for build-native")


def runs_here(wheel: Path) -> bool:
    """Whether this machine's processor can run the kernels of a wheel."""
    return has_no_kernels(wheel) or wheel.stem.endswith(MACHINE)


def has_no_kernels(wheel: Path) -> bool:
    return wheel.stem.endswith("-any")


def versions() -> list[str]:
    """The minor versions of TensorFlow that a wheel has kernels for."""
    text = (ROOT / "Makefile").read_text()
    (named,) = re.findall(r"^VERSIONS \?= (.+)$", text, re.M)
    return str(named).split()


def sdist(folder: Path) -> str:
    """A wheel is built from it, which has no kernels."""
    found = sorted(folder.glob("*.tar.gz"))
    if not found:
        raise FailedError("there is none; `make sdist` builds it")
    (path,) = found
    with tempfile.TemporaryDirectory() as out:
        command = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps")
        run(*command, "--wheel-dir", out, str(path))
        (wheel,) = Path(out).iterdir()
        return wheel.name


def systems(wheel: Path) -> str:
    if has_no_kernels(wheel):
        return "any"
    said = run(sys.executable, "-m", "auditwheel", "show", str(wheel))
    text = " ".join(said.split())
    system = wheel.stem.rpartition("-")[2]
    if f'platform tag to "{system}"' not in text:
        raise FailedError(text)
    return system


def programs(wheel: Path, python: str, tensorflow: str) -> str:
    """Installs a wheel beside a TensorFlow, and runs the programs of its README."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        run(python, "-m", "venv", str(home / "venv"), home=home)
        inside = str(home / "venv/bin/python")
        pip = (inside, "-m", "pip", "--quiet", "--disable-pip-version-check")
        try:
            # A version that is no release yet has candidates.
            version = f"tensorflow>={tensorflow}.0rc0,=={tensorflow}.*"
            run(*pip, "install", version, home=home)
        except FailedError as failed:
            if "No matching distribution" in str(failed):
                return f"TensorFlow {tensorflow} has no wheel for it"
            raise
        before = run(inside, "-c", VERSION, home=home)
        run(*pip, "install", f"{wheel.resolve()}[codegen]", home=home)
        if run(inside, "-c", VERSION, home=home) != before:
            raise FailedError(f"pip has replaced TensorFlow {before.strip()}")
        if has_no_kernels(wheel):
            return run(inside, "-c", INSTALLED, home=home).strip()
        readme = Parser().parsestr(_metadata(wheel)).get_payload()
        codes = re.findall(r"```python\n(.*?)```", str(readme), re.DOTALL)
        for code in codes:
            run(inside, "-c", code, home=home)
        # It exits 1 if a program may break: another TensorFlow than opwright's.
        command = str(home / "venv/bin/opwright-codegen")
        run(command, "diff", "installed", "opwright", home=home, allowed=(0, 1))
        there = " ".join(run(inside, "-c", INSTALLED + KERNELS, home=home).split())
        return f"{len(codes)} programs of README run with {there}"


def run(
    *command: str,
    cwd: Path | None = None,
    home: Path | None = None,
    allowed: Sequence[int] = (0,),
) -> str:
    """What a command prints; where it may find nothing, with `home` and little else."""
    environment = None
    if home is not None:
        kept = ("PATH", "LANG", "SSL_CERT_FILE", "TMPDIR")
        environment = {
            name: value
            for name, value in os.environ.items()
            if name in kept or name.startswith("PIP_")
        }
        environment |= {"HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        command,
        cwd=cwd or home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    if done.returncode not in allowed:
        said = (done.stderr or done.stdout).strip()[-2000:]
        raise FailedError(f"{' '.join(command[:4])} ...: {said}")
    return done.stdout


def _pythons() -> Iterator[str]:
    """Of each version one that starts, from the path or pyenv."""
    pyenv = Path.home() / ".pyenv" / "versions"
    for version in PYTHONS:
        found = [shutil.which(f"python{version}") or ""]
        found += map(str, sorted(pyenv.glob(f"{version}.*/bin/python{version}")))
        for path in filter(None, found):
            if not subprocess.run([path, "-c", ""], capture_output=True).returncode:
                yield path
                break


def _metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
    return _read(wheel, name)


def _read(wheel: Path, name: str) -> str:
    with zipfile.ZipFile(wheel) as archive:
        try:
            return archive.read(name).decode()
        except KeyError:
            raise FailedError(f"{wheel.name} has no {name}") from None


def _bind(point: Callable[..., str], *arguments: object) -> Callable[[], str]:
    return lambda: point(*arguments)


if __name__ == "__main__":
    sys.exit(main())
