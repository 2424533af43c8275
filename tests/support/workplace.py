"""What the tests of the generator share: its command line, small folders of opdefs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support.places import ROOT
from support.processes import Done, run_code, run_program

#: What commands import that ask no TensorFlow.
GENERATOR = tuple(
    f"opwright_codegen.{name}" for name in ("cli", "emit", "form", "format", "scaffold")
)


def command(
    *arguments: str | Path,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
) -> Done:
    """Runs `opwright-codegen` as a user does, and never lets a traceback pass.

    With `env`, in a process that has imported nothing.
    """
    if env is None:
        name = "opwright_codegen"
        done = run_program(
            name, *arguments, timeout=timeout, cwd=cwd, imported=GENERATOR
        )
    else:
        done = subprocess.run(
            [sys.executable, "-m", "opwright_codegen", *map(str, arguments)],
            cwd=cwd,
            env=dict(env),
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=timeout,
            check=False,
        )
    assert "Traceback" not in done.stderr, done.stderr
    return done


def command_on_registry(*arguments: str | Path, cwd: Path = ROOT) -> Done:
    """The same of commands that ask TensorFlow, without waiting for its import."""
    code = "from opwright_codegen.__main__ import main; raise SystemExit(main())"
    done = run_code(code, *arguments, cwd=cwd)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def place(root: Path, group: str, op: str, text: str | bytes = "") -> Path:
    """Writes an opdef; by default the smallest there is."""
    path = root / group / f"{op.replace('>', '.')}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = text or f"op: {op}\ngroup: {group}\n"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def tree(root: Path) -> dict[str, bytes]:
    """Every file below `root` but bytecode, with its content."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }
