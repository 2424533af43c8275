"""Two versions of a custom op library: diff, import and a second import."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import tensorflow as tf

from opwright_codegen.naming import module_name
from support.places import ROOT
from support.processes import Done, run_code
from support.workplace import command, command_on_registry, tree

Build = Callable[..., Path]
HERE = Path(__file__).parent
Versions = tuple[Path, Path]

CHANGES = """\
Come: added the op
Defaulted: changed default of times: 2 -> 3 (breaks callers)
GainsChoice: added attr clip
GainsInput: added input more (breaks callers)
GainsOutput: added output z (breaks callers)
GainsThird: added output third
Gone: removed the op (breaks callers)
LosesChoice: removed attr mode (breaks callers)
Renamed: removed input signal (breaks callers)
Renamed: added input samples (breaks callers)
Renamed: removed attr T (breaks callers)
Renamed: added attr dtype
Retyped: changed attr gain: int -> float (breaks callers)
"""


def run_on_registry(*arguments: str | Path, cwd: Path, status: int = 0) -> Done:
    done = command_on_registry(*arguments, cwd=cwd)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def import_library(library: Path | str, cwd: Path, *more: str) -> str:
    """Imports the ops of a library; the counts that the command prints last."""
    where = ("--opdefs", "opdefs", "--group", "mine", *more)
    done = run_on_registry("import", "--library", library, *where, cwd=cwd)
    return done.stderr.splitlines()[-1].partition(": ")[2]


# Sources.


def test_diff_of_two_library_versions_lists_the_changes(
    versions: Versions, tmp_path: Path
) -> None:
    old, new = versions
    assert old.name == new.name
    assert run_on_registry("diff", old, new, cwd=tmp_path, status=1).stdout == CHANGES
    copy = shutil.copy(old, tmp_path / "copy.so")
    same = run_on_registry("diff", old, copy, cwd=tmp_path)
    assert same.stderr.endswith(": 0 changes, 0 of which break callers\n")


def test_import_and_lint_of_ops_without_shape_functions_warn(
    versions: Versions, tmp_path: Path
) -> None:
    where = ("--opdefs", "opdefs", "--library", versions[0])
    for run in (("import", "--group", "mine"), ("lint",)):
        done = run_on_registry(*run, *where, cwd=tmp_path)
        warned = re.findall(r"warning: (\w+): TensorFlow infers no shape", done.stderr)
        opdefs = {path.stem for path in tmp_path.glob("opdefs/mine/*.yaml")}
        assert len(opdefs) == 11
        assert set(warned) == opdefs - {"Same"}
    # A saved list of ops does not tell.
    run_on_registry("save", versions[0], "ops.pb", cwd=tmp_path)
    done = run_on_registry(
        "import", "--library", "ops.pb", "--opdefs", "opdefs", cwd=tmp_path
    )
    assert "warning" not in done.stderr


def test_saved_op_list_replaces_library_in_diff_and_import(
    versions: Versions, tmp_path: Path
) -> None:
    old, new = versions
    for name in ("new.pb", "new.pbtxt"):
        run_on_registry("save", new, name, cwd=tmp_path)
        assert (
            run_on_registry("diff", old, name, cwd=tmp_path, status=1).stdout == CHANGES
        )
    assert import_library(new, tmp_path) == "opdefs: 11 added, 0 updated, 0 unchanged"
    for name in ("new.pb", "new.pbtxt"):
        assert (
            import_library(name, tmp_path) == "opdefs: 0 added, 0 updated, 11 unchanged"
        )


def test_diff_takes_several_files_as_one_side(
    versions: Versions, odd_ops: Path, tmp_path: Path
) -> None:
    old, _ = versions
    folder = tmp_path / "mine/libraries"
    folder.mkdir(parents=True)
    shutil.copy(old, folder / "a.so")
    shutil.copy(odd_ops, folder / "libb.so.1")
    for several in (f"{old},{odd_ops}", "mine", "mine/libraries/a.so,mine"):
        run_on_registry("diff", several, "mine", cwd=tmp_path)
        done = run_on_registry("diff", several, old, cwd=tmp_path, status=1)
        assert "OddRef: removed the op (breaks callers)" in done.stdout
        assert "Same" not in done.stdout


def test_import_of_two_versions_is_refused(versions: Versions, tmp_path: Path) -> None:
    old, new = versions
    both = ("--library", old, "--library", new, "--group", "mine")
    done = run_on_registry(
        "import", *both, "--opdefs", "opdefs", cwd=tmp_path, status=2
    )
    assert f"Retyped is in {old} and in {new}, and not the same" in done.stderr
    assert "or rename the op in one of two libraries" in done.stderr
    assert not (tmp_path / "opdefs").exists()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("void unknown(); int used = (unknown(), 0);", "undefined symbol"),
        ("#include <cstdlib>\nint used = (std::abort(), 0);", "(SIGABRT)"),
    ],
)
def test_diff_of_unloadable_library_suggests_save(
    code: str, words: str, build: Build, tmp_path: Path
) -> None:
    source = tmp_path / "strange.cc"
    source.write_text(code)
    library = build(source, "strange")
    done = run_on_registry("diff", library, library, cwd=tmp_path, status=2)
    said = done.stderr.splitlines()[-1]
    assert f"{library}: TensorFlow" in said and words in said
    assert f"run 'opwright-codegen save {library} ops.pb' where that is" in said


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "namespace tensorflow { void Unknown(int); }"
            "int used = (tensorflow::Unknown(1), 0);",
            "The symbol is tensorflow::Unknown(int).",
        ),
        (
            "void unknown(); int used = (unknown(), 0);"
            'extern const char tag[] = "built for TensorFlow 2.9.1";',
            "it was built for TensorFlow 2.9.1.",
        ),
        (
            "void unknown(); int used = (unknown(), 0);"
            "namespace lts_20200225 { int made = 1; }",
            "it was built for another TensorFlow: its Abseil is 20200225,",
        ),
    ],
)
def test_diff_of_unloadable_library_names_symbol_and_version(
    code: str, words: str, tmp_path: Path
) -> None:
    # Without TensorFlow's headers, which name its Abseil.
    library = shared(tmp_path, code)
    done = run_on_registry("diff", library, library, cwd=tmp_path, status=2)
    assert words in done.stderr


def shared(folder: Path, code: str, *flags: str, name: str = "strange.so") -> Path:
    """A library of a few lines of C++."""
    source = folder / f"{name}.cc"
    source.write_text(code)
    made = folder / name
    command = ["c++", "-shared", "-fPIC", str(source), "-o", str(made), *flags]
    subprocess.run(command, check=True)
    return made


def test_import_of_a_library_without_ops_says_why(tmp_path: Path) -> None:
    where = ("--opdefs", "opdefs", "--group", "mine")
    library = shared(tmp_path, "int nothing;")
    done = run_on_registry(
        "import", "--library", library, *where, cwd=tmp_path, status=2
    )
    said = f"{library}: registers no op: it is not linked with libtensorflow_framework"
    assert said in done.stderr

    framework = Path(tf.sysconfig.get_lib())
    needs = ("-Wl,--no-as-needed", f"-L{framework}", "-l:libtensorflow_framework.so.2")
    linked = shared(tmp_path, "int nothing;", *needs, name="linked.so")
    done = run_on_registry(
        "import", "--library", linked, *where, cwd=tmp_path, status=2
    )
    assert f"{linked}: registers no op: it has no REGISTER_OP, or the" in done.stderr


def test_import_of_a_library_with_a_second_framework_names_it(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    soname = "-Wl,-soname,libtensorflow_framework.so.3"
    file = "libtensorflow_framework.so.3"
    copy = shared(other, "int theirs = 1;", soname, name=file)
    needs = ("-Wl,--no-as-needed", f"-L{other}", f"-l:{file}", f"-Wl,-rpath,{other}")
    library = shared(tmp_path, "int nothing;", *needs)
    where = ("--opdefs", "opdefs", "--group", "mine")
    done = run_on_registry(
        "import", "--library", library, *where, cwd=tmp_path, status=2
    )
    said = f"registers no op: it loads {copy}, a second copy of TensorFlow, and"
    assert said in done.stderr


def test_import_of_a_library_with_a_framework_of_its_own_says_so(
    build: Build, versions: Versions, tmp_path: Path
) -> None:
    """For example, a copy that a packing tool made ends the process."""
    copy = tmp_path / "libtensorflow_framework-1a2b3c4d.so.2"
    stub = tmp_path / "stub.cc"
    stub.write_text("#include <cstdlib>\nint used = (std::abort(), 0);")
    shutil.copy(build(stub, "stub", f"-Wl,-soname,{copy.name}"), copy)
    source = tmp_path / "packed.cc"
    source.write_text("int nothing;")
    needs = ("-Wl,--no-as-needed", f"-L{tmp_path}", f"-l:{copy.name}")
    packed = build(source, "packed", *needs, f"-Wl,-rpath,{tmp_path}")
    done = run_on_registry("diff", packed, packed, cwd=tmp_path, status=2)
    said = done.stderr.splitlines()[-1]
    assert f"{packed}: it is linked with {copy.name}, a copy of TensorFlow" in said
    assert "auditwheel repair --exclude libtensorflow_framework.so.2" in said
    assert "built for another" not in said

    # A package that loads it says so too, and the process goes on.
    code = """
import sys, types
from opwright_runtime import libraries
sys.modules["mine"] = types.ModuleType("mine")
sys.modules["mine"].__file__ = sys.argv[1] + "/__init__.py"
try:
    libraries.load_library("mine", sys.argv[2])
except ImportError as error:
    print(error)
"""
    loaded = run_code(code, packed.parent, packed.name)
    assert loaded.returncode == 0, loaded.stderr
    assert f"mine loads {packed}, which is linked with {copy.name}" in loaded.stdout

    # Others are imported all the same; without them nothing is taken for gone.
    old, _ = versions
    both = ("--library", f"{packed},{old}", "--opdefs", "opdefs", "--group", "mine")
    done = run_on_registry("import", *both, cwd=tmp_path, status=1)
    assert f"{packed}: it is linked with {copy.name}" in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.endswith(": 11 added, 0 updated, 0 unchanged; 1 file not read")
    before = tree(tmp_path / "opdefs")
    done = run_on_registry("import", *both, "--prune", cwd=tmp_path, status=2)
    assert "--prune wants all libraries to be read" in done.stderr
    assert tree(tmp_path / "opdefs") == before


def test_import_without_group_is_refused(versions: Versions, tmp_path: Path) -> None:
    old, new = versions
    where = ("--library", old, "--opdefs", "opdefs")
    done = run_on_registry("import", *where, cwd=tmp_path, status=2)
    assert "Same, Gone, GainsOutput, ...: in no group yet" in done.stderr
    assert "--group audio" in done.stderr
    import_library(old, tmp_path)
    # Once there is one, what is new joins it.
    run_on_registry("import", "--library", new, "--opdefs", "opdefs", cwd=tmp_path)
    assert (tmp_path / "opdefs/mine/Come.yaml").exists()


# Texts of the library's author.


def test_import_keeps_texts_of_author_and_edits(
    versions: Versions, tmp_path: Path
) -> None:
    old, new = versions
    import_library(old, tmp_path)
    path = tmp_path / "opdefs/mine/Documented.yaml"
    first = path.read_text("utf-8")
    assert first.startswith("""\
op: Documented
group: mine
summary: Cuts text into pieces.
description: |-
  A piece is what stands between two spaces:

    documented("a b")
""")
    assert "    type: string\n    doc: What is cut.\n" in first
    assert "    default: 10\n    doc: How many pieces there are at most.\n" in first
    assert command("lint", "--opdefs", "opdefs", cwd=tmp_path).returncode == 0
    where = ("--opdefs", "opdefs", "--output", "src", "--package", "mine")
    assert command("generate", *where, cwd=tmp_path).returncode == 0
    source = (tmp_path / "src/mine/mine/documented.py").read_text("utf-8")
    for text in (
        '"""Documented: cuts text into pieces."""',
        '    """Cuts text into pieces.\n\n    A piece is what stands',
        'spaces:\n\n      documented("a b")\n',
        "        text: string. What is cut.\n",
        "        pieces: string. The pieces, in order.\n",
        "limit: int. Default 10. How many pieces there are at most.\n",
    ):
        assert text in source

    # One text is edited by hand, one taken out, the others follow the library.
    edited = first.replace("Cuts text into", "Cuts long text into")
    edited = edited.replace("doc: What is cut.", "shape: scalar")
    path.write_text(edited)
    import_library(new, tmp_path)
    second = path.read_text("utf-8")
    assert "summary: Cuts long text into pieces." in second
    assert "description: A piece is what stands between two spaces.\n" in second
    assert "    doc: The pieces, in order of the text.\n" in second
    assert "    doc: How many pieces there are at most.\n" in second
    assert "    shape: scalar\n    doc: What is split.\n" in second
    before = tree(tmp_path / "opdefs")
    path.write_text(second.replace("    doc: What is split.\n", ""))
    taken_out = path.read_text("utf-8")
    import_library(new, tmp_path)
    assert path.read_text("utf-8") == taken_out
    path.write_text(second)
    import_library(new, tmp_path)
    assert tree(tmp_path / "opdefs") == before


# A package and another version of its library.


def outcomes(package_of: Path, library: Path, cwd: Path) -> dict[str, dict[str, str]]:
    """The outcomes of calls of each op, in a package generated for another version."""
    import_library(package_of, cwd)
    where = ("--opdefs", "opdefs", "--output", "src", "--package", "mine")
    assert command("generate", *where, cwd=cwd).returncode == 0
    path = os.pathsep.join([str(ROOT / "runtime"), "src"])
    program = (HERE / "checks" / "use_other_version.py").read_text("utf-8")
    done = run_code(program, library, cwd=cwd, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


DIFFERENCES = {
    "GainsInput": "input more: generated for none, found float32",
    "GainsOutput": "output z: generated for none, found float32",
    "GainsThird": "output third: generated for none, found float32",
    "LosesChoice": "attr mode: generated for string, found none",
    "Renamed": "input signal: generated for float32, found none; attr T: generated for"
    " type, found none; input samples: generated for none, found float32",
    "Retyped": "attr gain: generated for int, found float",
}


def test_package_with_next_library_version_raises_op_changed_error(
    versions: Versions, tmp_path: Path
) -> None:
    old, new = versions
    found = outcomes(old, new, tmp_path)
    # After the first call TensorFlow's own function is called again.
    assert found.pop("fast") is True
    assert found.pop("Documented")["function"] == "b'a'"
    # Defaults are the package's, as its signatures say, and not the library's.
    assert set(found.pop("Defaulted").values()) == {"2.0", "(2.0,)"}
    for name in ("Same", "GainsChoice"):
        assert found.pop(name) == {
            "function": "1.5",
            "again": "1.5",
            "class": "(1.5,)",
            "graph": "1.5",
        }
    for said in found.pop("Gone").values():
        assert "has no op Gone" in said
    assert set(found) == set(DIFFERENCES)
    for name, said in found.items():
        for text in said.values():
            assert text.startswith(
                f"OpChangedError: {name}: mine.mine.{module_name(name)} was generated"
                f" for another {name} than the loaded library has:"
                f" {DIFFERENCES[name]}. If you changed the opdef, build the library"
                " again. Otherwise load the library that mine was generated for, or"
                " generate mine again: `opwright-codegen import"
            )


def test_package_with_previous_library_version_raises_op_changed_error(
    versions: Versions, tmp_path: Path
) -> None:
    old, new = versions
    found = outcomes(new, old, tmp_path)
    assert found["Same"]["function"] == "1.5"
    assert found["Defaulted"]["function"] == "3.0"
    assert "attr clip: generated for bool, found none" in found["GainsChoice"]["again"]
    assert (
        "output z: generated for float32, found none" in found["GainsOutput"]["class"]
    )
    assert "has no op Come" in found["Come"]["graph"]


def test_schema_matches_registry(odd_ops: Path, tmp_path: Path) -> None:
    """Compares the schema of each class of the goldens with the registry's."""
    code = (
        "import sys, tensorflow as tf, odd_ops\n"
        "tf.load_library(sys.argv[1])\n"
        "from opwright_runtime._binding import compatibility\n"
        "for name in odd_ops.op_names():\n"
        "    cls = odd_ops.op_class(name)\n"
        "    stated, there = cls.SCHEMA, compatibility.schema(cls._info().proto)\n"
        "    assert list(stated.items()) == list(there.items()), (stated, there)\n"
    )
    path = os.pathsep.join([str(ROOT / "runtime"), str(HERE / "expected")])
    done = run_code(code, odd_ops, cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr


#: Uses packages of two libraries that have ops of the same names.
BOTH = """
import sys

import one
import three
from opwright_runtime.api import OpChangedError, OpKernelError

try:
    import two
except ImportError as error:
    print(error)
try:
    one.mine.same([1.5])
except OpKernelError as error:
    print(error)
try:
    three.op_class("Retyped").op_def
except OpChangedError as error:
    print(error)
"""


def test_packages_of_two_libraries_with_one_op_name_both_libraries(
    versions: Versions, tmp_path: Path
) -> None:
    old, new = versions
    packages = {"one": (old, True), "two": (new, True), "three": (new, False)}
    for package, (library, is_loaded) in packages.items():
        opdefs = tmp_path / package
        opdefs.mkdir()
        import_library(library, opdefs)
        where = ("--opdefs", "opdefs", "--output", "../src", "--package", package)
        path = os.path.relpath(library, tmp_path / "src" / package)
        load = ("--load", path) if is_loaded else ()
        done = command("generate", *where, *load, cwd=opdefs)
        assert done.returncode == 0, done.stderr
    path = os.pathsep.join([str(ROOT / "runtime"), "src"])
    done = run_code(BOTH, cwd=tmp_path, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    imported, called, changed = done.stdout.splitlines()
    assert imported.startswith(f"two loads {new}, which registers the op ")
    assert imported.endswith(
        f". So does {old}. A process can hold one op of a name: import one of the "
        "packages, or rename the op in one of the libraries"
    )
    assert called == (
        f"Same: several libraries have its kernel: {old}, {new}; load one of them, "
        "or rename the op in one"
    )
    assert f" {old} and {new} register Retyped, and the first one loaded" in changed
