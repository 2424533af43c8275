"""README and the guides: their code runs, and their links and paths exist."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from support.places import ROOT
from support.processes import run_code

README = (ROOT / "README.md").read_text("utf-8")


CODES = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_readme_op_program_runs() -> None:
    done = run_code(CODES[0])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[11. 25.]]") == 3
    assert "Kernel CPU" in done.stdout


@pytest.mark.slow  # It takes the native library.
def test_readme_layer_and_table_programs_run() -> None:
    assert len(CODES) == 3
    layer, table = map(run_code, CODES[1:])
    assert layer.returncode == 0, layer.stderr
    assert layer.stdout.strip() == "(32, 100, 64)"
    assert "opwright.keras run Keras's own" not in layer.stderr
    assert table.returncode == 0, table.stderr
    first, *_, last = map(float, table.stdout.strip("[]\n").split(","))
    assert last < first


def test_readme_errors_match_mat_mul() -> None:
    import tensorflow as tf

    from opwright import OpInputError
    from opwright.linalg import mat_mul

    (shown,) = re.findall(r"```text\n(.*?)\n```", README, re.DOTALL)
    said = []
    for one, other in (
        (tf.ones([2, 2], tf.float32), tf.ones([2, 2], tf.float64)),
        (tf.ones([2, 4]), tf.ones([3, 5])),
    ):
        with pytest.raises(OpInputError) as raised:
            mat_mul(one, other)
        said.append(str(raised.value))
    assert said == shown.split("\n")


def test_readme_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"\bmake ([a-z-]+)\b", README))
    assert {"ops", "test"} <= named <= targets

    help_text = subprocess.run(
        [sys.executable, "-m", "opwright_codegen", "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "codegen")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for command in set(re.findall(r"opwright-codegen ([a-z]+)", README)):
        assert f"    {command} " in help_text


def test_readme_links_exist() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", README)
    assert links
    local = [link for link in links if not link.startswith("http")]
    assert [link for link in local if not (ROOT / link).exists()] == []


GUIDES = (
    *("CONTRIBUTING.md", "docs/architecture.md", "docs/glossary.md", "docs/groups.md"),
    *("docs/adr/README.md", "docs/guide.md"),
    *("docs/benchmarks.md", "docs/gpu.md", "docs/scale.md", "docs/serving.md"),
    *("docs/tpu.md", "docs/wheels.md", "runtime/native/README.md"),
    *("runtime/native/embedding/README.md", "runtime/native/embedding/cuda/README.md"),
    *("runtime/native/rnn/README.md", "tests/README.md"),
)


@pytest.mark.parametrize("guide", GUIDES)
def test_guide_links_paths_and_commands_exist(guide: str) -> None:
    """Links, paths, commands, and names in files. `foo` is a placeholder."""
    text = (ROOT / guide).read_text("utf-8")
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    places = [(ROOT / guide).parent / link for link in links if ":" not in link]
    paths = re.findall(r"`([a-z]+/[\w./-]+)`", text)
    tops = {path.name for path in ROOT.iterdir()}
    places += [ROOT / path for path in paths if path.partition("/")[0] in tops]
    missing = [str(place) for place in places if not place.exists()]
    assert [place for place in missing if "foo" not in place.lower()] == []

    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"`?make ([a-z-]+)\b(?=`|    )", text)) <= set(targets)

    for name, path in re.findall(r"`(\w+)` in\s+`([\w./]+)`", text):
        assert re.search(rf"\b{name}\b", (ROOT / path).read_text("utf-8")), (name, path)


def test_architecture_page_matches_generated_mat_mul() -> None:
    """Line breaks may differ, and `...` stands for code that is left out."""
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    (shown,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    made = (ROOT / "generated/opwright/linalg/mat_mul.py").read_text("utf-8")
    shown, made = (
        re.sub(r"\s+", "", text).replace(",)", ")") for text in (shown, made)
    )
    assert re.search(".*?".join(map(re.escape, shown.split("..."))), made)
