"""`generate`: what it writes, what it leaves alone, what it finds, and determinism."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from opwright_codegen import load
from opwright_codegen.generate import DECISIVE, NOTATION
from support import tiers
from support.places import OPDEFS, ROOT, environment
from support.workplace import command, place, tree

SOME = (
    "linalg/MatMul",
    "math/AddV2",
    "math/ArgMax",
    "array/Split",
    "array/IdentityN",
    "nn/CudnnRNNV3",
    "nn/CudnnRNNBackpropV3",
    "linalg.sparse/SparseMatrixNNZ",
    "train/ResourceAccumulatorTakeGradient",
    "linalg/BatchSvd",
    "linalg/Svd",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package_of(SOME, tmp_path_factory.mktemp("made"))


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of which `--check`, which makes everything anew, is done soonest."""
    folder = tmp_path_factory.mktemp("little")
    for name in ("Foo", "Bar"):
        place(folder / "opdefs", "math", name)
    generated = command("generate", cwd=folder)
    assert generated.returncode == 0, generated.stderr
    return folder


def package_of(names: Sequence[str], folder: Path) -> Path:
    for name in names:
        source = OPDEFS / f"{name}.yaml"
        target = folder / "opdefs" / f"{name}.yaml"
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    generated = command("generate", cwd=folder)
    assert generated.returncode == 0, generated.stderr
    return folder


@pytest.fixture
def place_of_work(made: Path, tmp_path: Path) -> Path:
    """A folder with a few real opdefs and the package made from them."""
    return shutil.copytree(made, tmp_path, dirs_exist_ok=True)


def times(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*.py")}


def changed(before: dict[str, bytes], after: dict[str, bytes]) -> set[str]:
    return {
        name
        for name in before.keys() | after.keys()
        if before.get(name) != after.get(name)
    }


@pytest.mark.slow  # It takes seconds.
def test_generate_without_changes_writes_nothing(place_of_work: Path) -> None:
    before = times(place_of_work)
    again = command("generate", cwd=place_of_work)
    assert again.returncode == 0
    assert "0 files written, 0 removed" in again.stderr
    assert times(place_of_work) == before


def test_file_times_say_nothing(place_of_work: Path) -> None:
    for path in place_of_work.rglob("*"):
        if path.is_file():
            os.utime(path, (0, 0))
    again = command("generate", cwd=place_of_work)
    assert "0 files written, 0 removed" in again.stderr


def test_generate_without_changes_imports_no_black(place_of_work: Path) -> None:
    """The formatter and the templates are not even imported."""
    code = (
        "import sys\n"
        "from opwright_codegen import cli\n"
        "assert cli.main(['generate']) == 0\n"
        "print(sorted({'black', 'jinja2'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=place_of_work,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_decisive_lists_every_imported_module() -> None:
    """When one of them changes, all is generated anew."""
    code = (
        "import sys\n"
        "from opwright_codegen import emit, format, groups, load\n"
        "print(*sorted(name for name in sys.modules if 'opwright_' in name))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    used = {*done.stdout.split()} - {"opwright_codegen", "opwright_notation"}
    listed = {f"opwright_codegen.{name}" for name in DECISIVE}
    listed |= {f"opwright_notation.{name}" for name in NOTATION}
    # How files are read and written decides nothing.
    used -= {"opwright_codegen.contents", "opwright_codegen.write"}
    assert used | {"opwright_codegen.generate"} == listed


def test_generate_after_one_edit_writes_one_file(place_of_work: Path) -> None:
    before = tree(place_of_work / "generated")
    path = place_of_work / "opdefs/math/AddV2.yaml"
    text, edits = re.subn(
        "^summary: .*$",
        "summary: Adds, as edited.",
        path.read_text("utf-8"),
        flags=re.M,
    )
    assert edits == 1
    path.write_text(text, "utf-8")
    command("generate", cwd=place_of_work)
    after = tree(place_of_work / "generated")
    assert changed(before, after) == {
        "opwright/math/add_v2.py",
        "opwright.manifest.json",
    }
    assert b"Adds, as edited." in after["opwright/math/add_v2.py"]


def test_generate_after_an_op_moves_moves_its_class(place_of_work: Path) -> None:
    opdefs = place_of_work / "opdefs"
    text = (opdefs / "math/AddV2.yaml").read_text("utf-8")
    place(opdefs, "audio", "AddV2", text.replace("group: math", "group: audio"))
    (opdefs / "math/AddV2.yaml").unlink()
    command("generate", cwd=place_of_work)
    files = tree(place_of_work / "generated/opwright")
    assert "audio/add_v2.py" in files
    assert "math/add_v2.py" not in files
    assert b"add_v2" not in files["math/__init__.py"]
    assert b".audio.add_v2" in files["_table.py"]


def test_generate_after_an_op_is_removed_removes_its_files(
    place_of_work: Path,
) -> None:
    (place_of_work / "opdefs/linalg.sparse/SparseMatrixNNZ.yaml").unlink()
    root = place_of_work / "generated/opwright"
    assert (root / "linalg/sparse/sparse_matrix_nnz.py").is_file()
    cache = root / "linalg/sparse/__pycache__"
    cache.mkdir()
    (cache / "sparse_matrix_nnz.cpython-311.pyc").write_bytes(b"")
    command("generate", cwd=place_of_work)
    assert not (root / "linalg/sparse").exists()
    assert (root / "linalg/mat_mul.py").is_file()


def test_generate_without_a_referenced_op_is_refused(place_of_work: Path) -> None:
    """The file that refers to it did not change; it is wrong all the same."""
    (place_of_work / "opdefs/nn/CudnnRNNV3.yaml").unlink()
    before = tree(place_of_work / "generated")
    done = command("generate", cwd=place_of_work)
    assert done.returncode == 1
    assert "nn/CudnnRNNBackpropV3.yaml:" in done.stderr
    assert "CudnnRNNV3" in done.stderr
    assert tree(place_of_work / "generated") == before


@pytest.mark.rotating
@pytest.mark.slow  # It takes seconds.
@pytest.mark.parametrize("what", ["edited", "missing", "extra", "manifest"])
def test_check_finds_what_is_not_as_generated(
    little: Path, tmp_path: Path, what: str
) -> None:
    place_of_work = shutil.copytree(little, tmp_path, dirs_exist_ok=True)
    assert command("generate", "--check", cwd=place_of_work).returncode == 0
    root = place_of_work / "generated/opwright"
    path = root / "math/foo.py"
    if what == "edited":
        edited = path.read_text("utf-8").replace("class Foo", "class Food")
        assert edited != path.read_text("utf-8")
        path.write_text(edited)
    elif what == "missing":
        path.unlink()
    elif what == "extra":
        path = root / "math/left_over.py"
        path.write_text("# @generated by opwright-codegen. DO NOT EDIT.\n")
    else:
        path = root.parent / "opwright.manifest.json"
        path.write_text("{}")
    before = tree(place_of_work)
    done = command("generate", "--check", cwd=place_of_work)
    assert done.returncode == 1
    assert path.name in done.stdout
    assert "bar" not in done.stdout
    assert tree(place_of_work) == before

    assert command("generate", cwd=place_of_work).returncode == 0
    assert command("generate", "--check", cwd=place_of_work).returncode == 0


def test_generate_with_a_package_name_makes_that_package(tmp_path: Path) -> None:
    place(tmp_path / "mine", "audio", "Addons>Echo")
    done = command(
        "generate",
        "--opdefs",
        "mine",
        "--output",
        "src",
        "--package",
        "my_ops",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    files = tree(tmp_path / "src")
    assert set(files) == {
        "my_ops.manifest.json",
        "my_ops/__init__.py",
        "my_ops/_table.py",
        "my_ops/py.typed",
        "my_ops/audio/__init__.py",
        "my_ops/audio/addons_echo.py",
    }
    assert not any(b"from opwright " in text for text in files.values())


@pytest.mark.rotating
def test_generate_with_a_dotted_name_makes_a_nested_package(tmp_path: Path) -> None:
    place(tmp_path / "mine", "audio", "Echo")
    place(tmp_path / "mine", "audio.old", "Tape")
    (tmp_path / "mine/groups.yaml").write_text("moved: {audio.old: [Echo]}\n")
    where = ("generate", "--opdefs", "mine", "--output", "src", "--package", "my.ops")
    own = ("--load", "../libmy.so", "--gradients", ".gradients")
    # Another's temporary files are not ours to remove.
    theirs = tmp_path / "src/my/.ops.py.opwright.tmp"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    left = tmp_path / "src/.my.ops.manifest.json.x.opwright.tmp"
    left.touch()
    done = command(*where, *own, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert theirs.exists()
    assert not left.exists()
    files = tree(tmp_path / "src")
    assert "my.ops.manifest.json" in files
    # It works wherever it is put: nothing names the package, but for people.
    for name, text in files.items():
        assert b"import my" not in text and b"from my" not in text, name
    assert b'load_library(__name__, "../libmy.so")' in files["my/ops/__init__.py"]
    assert b'(__name__, ".gradients")' in files["my/ops/__init__.py"]
    assert b"from ...audio.echo import (" in files["my/ops/audio/old/echo.py"]
    assert command(*where, *own, "--check", cwd=tmp_path).returncode == 0
    assert command(*where, "--check", cwd=tmp_path).returncode == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--package", "my.class"), "'my.class' is no name of a Python package"),
        (("--package", "my", "--load", "/a/lib.so"), "relative to the package"),
        (("--package", "my", "--load", "native:"), "'native:' is no function"),
        (("--package", "my", "--gradients", "a b"), "'a b' is no module"),
        (("--load", "lib.so"), "for packages of your own"),
    ],
)
def test_generate_with_a_bad_package_name_is_refused(
    options: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    place(tmp_path / "opdefs", "math", "Foo")
    done = command("generate", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert words in " ".join(done.stderr.split())
    assert not (tmp_path / "generated").exists()


def test_modules_of_somebody_else_stay(tmp_path: Path) -> None:
    place(tmp_path / "opdefs", "math", "Foo")
    place(tmp_path / "opdefs", "audio", "Echo")
    root = tmp_path / "generated/opwright"
    theirs = {
        "notes.py": "precious = True\n",
        "audio/mine.py": "",
        "own/__init__.py": "",
    }
    for name, text in theirs.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    assert command("generate", cwd=tmp_path).returncode == 0
    shutil.rmtree(tmp_path / "opdefs/audio")
    # Taken over: it is the author's from now on.
    (root / "audio/echo.py").write_text("mine = True\n")
    assert command("generate", cwd=tmp_path).returncode == 0
    assert command("generate", "--check", cwd=tmp_path).returncode == 0
    assert not (root / "audio/__init__.py").exists()
    theirs["audio/echo.py"] = "mine = True\n"
    assert {name: (root / name).read_text() for name in theirs} == theirs


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("math/foo.py", "which would overwrite it"),
        ("math.py", "which would make a package of its name, which hides it"),
    ],
)
def test_files_of_somebody_else_are_not_overwritten(
    name: str, words: str, tmp_path: Path
) -> None:
    place(tmp_path / "opdefs", "math", "Foo")
    theirs = tmp_path / "generated/opwright" / name
    theirs.parent.mkdir(parents=True)
    theirs.write_text("precious = True\n")
    done = command("generate", cwd=tmp_path)
    assert done.returncode == 1
    assert f"{name}:1:1" in done.stderr
    assert words in done.stderr
    assert theirs.read_text() == "precious = True\n"


def surroundings(seed: str, locale: str) -> dict[str, str]:
    return environment(PYTHONHASHSEED=seed, LC_ALL=locale, TZ="Asia/Tokyo")


#: Digests of every op's file as it is before black lays it out, which takes the time.
SOURCES = """
import hashlib, sys
from pathlib import Path
from opwright_codegen import emit, load

paths = load.find(Path(sys.argv[1]))
names = frozenset(map(load.op_name_of, paths))
for path in paths[int(sys.argv[2])::int(sys.argv[3])]:
    op, _ = load.load_text(path.read_bytes(), path, names)
    print(path.name, hashlib.sha256(emit.op_source(op).encode()).hexdigest())
"""


@pytest.mark.rotating
@pytest.mark.slow
@pytest.mark.partial
def test_op_sources_hash_seed_and_locale_change_nothing() -> None:
    part = (0, 1) if tiers.FULL else (tiers.part(), tiers.PARTS)
    said = [
        subprocess.run(
            [sys.executable, "-c", SOURCES, OPDEFS, *map(str, part)],
            env=surroundings(seed, locale),
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        for seed, locale in (("1", "C"), ("12345", "C.UTF-8"))
    ]
    assert len(said[0]) == len(load.find(OPDEFS)[part[0] :: part[1]])
    assert said[0] == said[1]


@pytest.mark.slow
def test_generate_of_committed_package_writes_nothing(tmp_path: Path) -> None:
    """By the digests of the manifest, so that nothing has to be made anew."""
    manifest = json.loads((ROOT / "generated/opwright.manifest.json").read_text())
    if manifest["black"] != version("black"):
        pytest.skip("the manifest is of another black; make check makes all anew")
    for folder in ("opdefs", "generated"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    done = command("generate", cwd=tmp_path)
    assert "0 files written, 0 removed" in done.stderr


@pytest.mark.full_matrix
def test_generate_check_committed_package_is_up_to_date() -> None:
    done = command("generate", "--check", cwd=ROOT)
    assert done.returncode == 0, done.stderr


@pytest.mark.full_matrix
def test_generate_from_nothing_equals_what_is_committed(tmp_path: Path) -> None:
    done = command(
        "generate",
        "--opdefs",
        OPDEFS,
        "--output",
        "out",
        "--jobs",
        "1",
        cwd=tmp_path,
        env=surroundings("1", "C"),
    )
    assert done.returncode == 0, done.stderr
    assert changed(tree(tmp_path / "out"), tree(ROOT / "generated")) == set()
