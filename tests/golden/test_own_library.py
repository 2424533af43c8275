"""A library of custom ops: import, generate, and both again for a new version."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from opwright_codegen import form
from support.places import ROOT
from support.processes import Done, run_code
from support.workplace import command, command_on_registry

Build = Callable[..., Path]
pytestmark = pytest.mark.slow  # Compiles.

HERE = Path(__file__).parent
SOURCE = HERE / "library" / "audio_ops.cc"

GAIN = """\
# Ours since 2019.
op: Addons>Gain
group: audio
summary: Makes a signal louder.
inputs:
  - {name: signal, type: float}
outputs:
  - name: louder
    type: float
    doc: The signal, multiplied.
options:
  - name: gain
    type: float
    default: 2.0
    doc: What to multiply with.
"""

#: A hand-written module in the generated package.
GRADIENTS = """\
import tensorflow as tf

from .audio import addons_gain


@tf.RegisterGradient("Addons>Gain")
def _gain(op, gradient):
    return addons_gain(gradient, gain=op.get_attr("gain"))
"""


def output(done: Done) -> str:
    """The output of a command that must succeed."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr.splitlines()[-1]


def files(root: Path) -> dict[str, str]:
    return {
        path.relative_to(root).as_posix(): path.read_text("utf-8")
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.suffix != ".pyc"
    }


def test_custom_library_import_generate_and_update_keep_texts(
    build: Build, tmp_path: Path
) -> None:
    library = shutil.copy(build(SOURCE, "audio_ops"), tmp_path / "audio_ops.so")

    def generate(*options: str) -> str:
        where = ("--opdefs", "my_opdefs", "--output", "src", "--package", "my_ops")
        return output(command("generate", *where, *options, cwd=tmp_path))

    def ask(*arguments: str | Path) -> str:
        return output(command_on_registry(*arguments, cwd=tmp_path))

    # A bare name is that of a file here, not of a library of the system.
    said = ask(
        "import",
        "--library",
        "audio_ops.so",
        "--opdefs",
        "my_opdefs",
        "--group",
        "audio",
    )
    assert "added my_opdefs/audio/Addons.Gain.yaml" in said
    assert said.endswith("my_opdefs: 2 added, 0 updated, 0 unchanged")
    assert "2 ops, 7 files written" in generate()

    # With the runtime on the path, and without the package opwright.
    path = os.pathsep.join([str(ROOT / "runtime"), "src"])
    program = (HERE / "checks" / "use_my_ops.py").read_text("utf-8")
    used = run_code(program, library, cwd=tmp_path, PYTHONPATH=path)
    assert used.returncode == 0, used.stderr

    fits_a_project(library, tmp_path)

    # Documentation comes from a person.
    gain = tmp_path / "my_opdefs/audio/Addons.Gain.yaml"
    gain.write_text(GAIN)
    # Its class, and the manifest.
    assert "2 files written" in generate()
    ask("save", "audio_ops.so", "before.pbtxt")
    before = files(tmp_path / "src/my_ops")

    # The library gets its next version.
    new = build(SOURCE, "audio_ops2", "-DOPS_ONLY", "-DWITH_CLIP")
    shutil.copy(new, tmp_path / "new.so")
    said = ask("diff", "before.pbtxt", "new.so")
    assert said.splitlines()[0] == "Addons>Gain: added attr clip"
    assert said.endswith("1 change, 0 of which break callers")

    said = ask("import", "--library", new, "--opdefs", "my_opdefs")
    assert said.endswith("my_opdefs: 0 added, 1 updated, 1 unchanged")
    # Hand-written text stays; the import adds the line before the facts.
    kept = GAIN.replace("inputs:", f"\n{form.LINE}\ninputs:")
    kept += "  - {name: clip, type: bool, default: false}\nimported_text: ["
    assert gain.read_text("utf-8").startswith(kept)

    generate()
    after = files(tmp_path / "src/my_ops")
    changed = {name for name in before if before[name] != after.get(name)}
    assert before.keys() == after.keys()
    assert changed == {"audio/addons_gain.py"}
    assert "def with_clip(self, clip: bool) -> Self:" in after["audio/addons_gain.py"]
    generate("--check")


def fits_a_project(library: Path, folder: Path) -> None:
    """A package within the author's loads the library, and registers gradients."""
    where = ("--opdefs", "my_opdefs", "--output", "lib", "--package", "mylib.ops")
    hand_written = folder / "lib/mylib/ops/gradients.py"
    hand_written.parent.mkdir(parents=True)
    hand_written.write_text(GRADIENTS)
    program = (HERE / "checks" / "use_nested.py").read_text("utf-8")
    path = os.pathsep.join([str(ROOT / "runtime"), "lib"])

    def use(load: str) -> Done:
        own = ("--load", load, "--gradients", ".gradients")
        output(command("generate", *where, *own, cwd=folder))
        return run_code(program, "lib_audio.so", cwd=folder, PYTHONPATH=path)

    missing = use("../lib_audio.so")
    where_to = folder / "lib/mylib/lib_audio.so"
    assert f"mylib.ops loads {where_to}, which is not there" in missing.stderr
    where_to.write_text("text")
    assert "build or install it again" in use("../lib_audio.so").stderr
    where_to.unlink()
    shutil.copy(library, where_to)
    used = use("../lib_audio.so")
    assert used.returncode == 0, used.stderr
    # Or a function of the author's loads it.
    assert "no function load" in use("mylib:load").stderr
    loads = (
        f"import tensorflow as tf\ndef load(): tf.load_op_library({str(where_to)!r})\n"
    )
    (folder / "lib/mylib/__init__.py").write_text(loads)
    used = use("mylib:load")
    assert used.returncode == 0, used.stderr
    assert hand_written.read_text() == GRADIENTS


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.so", None, "no such file"),
        ("text.so", b"no library", "cannot load it"),
    ],
)
def test_import_of_non_library_is_refused(
    name: str, content: bytes | None, words: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = command_on_registry("import", "--library", name, cwd=tmp_path)
    assert done.returncode == 2
    assert name in done.stderr.splitlines()[-1]
    assert words in done.stderr.splitlines()[-1]
