"""Pages about performance are what the recorded results say."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from support.places import ROOT

CASES = [f"{shape}, {mode}" for shape in "ACDEFGH" for mode in ("lstm", "gru")]
WORKLOADS = [f"{letter}: 4 x 1M x 128, L=20" for letter in "ABCDEFG"]


def _module(name: str) -> ModuleType:
    """A script of benchmarks/, whose other names would hide folders of tests."""
    path = ROOT / "benchmarks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"benchmarks_{name}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


report = _module("report")
results = _module("results")


def _row(case: str, what: str, seconds: Mapping[str, float]) -> dict[str, Any]:
    spread = {name: [0.9 * one, one, 1.1 * one] for name, one in seconds.items()}
    return {"case": case, "what": what, "rounds": 5, "seconds": spread}


def _record(processor: str = "Some CPU") -> dict[str, Any]:
    """Results in which opwright takes 2 ms, and its fastest peer 3 ms."""
    calls = {"bare": 1e-6, "tf.raw_ops": 3e-6, "class": 2.5e-6, "function": 2e-6}
    recurrent = {"opwright": 2e-3, "torch": 3e-3, "keras": 4e-3}
    tables = {"opwright": 2e-3, "fbgemm": 3e-3, "torch": 5e-3, "tensorflow": 4e-3}
    program = {"opwright": 2e-3, "tensorflow": 3e-3, "tf_keras": 4e-3}
    program |= {"keras": 5e-3, "torch": 6e-3}
    rows = {
        "dispatch": [
            _row(f"Op {i}", what, calls)
            for what in ("eager", "tf.Graph", "tf.function")
            for i in range(5)
        ],
        "rnn": [
            _row(case, what, recurrent)
            for case in CASES
            for what in ("inference", "training")
        ],
        "keras_layers": [
            _row(case, what, {"opwright": 2e-3, "keras": 4e-3})
            for case in CASES[2:]
            for what in ("inference", "training")
        ],
        "embedding": [
            _row(case, what, tables)
            for case in WORKLOADS
            for what in ("forward", "step")
        ],
        "embedding_training": [_row(case, "training", program) for case in "HB"],
        "keras_model": [
            _row("512 samples", "fit", {"opwright": 2.0, "keras": 4.0, "torch": 6.0})
        ],
        "embedding_narrow": [
            _row("2 GB", what, {"float32": 4.0, "float16": 2.0, "int8": 1.0})
            for what in ("lookup", "step")
        ],
        "embedding_cores": [
            _row(case, what, {"1": 1e-2, "2": 2e-2, "4": 3e-2, "8": 4e-2})
            for case in "HB"
            for what in ("CPU time", "CPU time without tables")
        ],
        "embedding_hosts": [
            _row(f"{hosts}", "step", {"opwright": 1e-3 * hosts, "torch, gloo": 9e-3})
            for hosts in (1, 2, 4)
        ],
    }
    return {
        "date": "2000-01-31",
        "commit": "01234567",
        "machine": {
            "name": re.sub(r"\W+", "-", processor.lower()),
            "processor": processor,
            "family": "25",
            "model": "1",
            "cores": 2,
            "vectors": "avx2",
            "caches": {"L1": "32K", "L2": "512K", "L3": "32768K"},
        },
        "versions": {
            "python": "3.11.7",
            "tensorflow": "2.21.0",
            "keras": "3.15.1",
            "torch": "2.13.0+cpu",
            "fbgemm-gpu-cpu": "1.8.0",
            "torchrec": "1.8.0",
        },
        "benchmarks": {
            name: {"command": f"python benchmarks/{name}.py", "rows": each}
            for name, each in rows.items()
        },
    }


class Tree:
    """A folder with README, in which report.py makes pages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in (report.RESULTS, report.PAGE.parent, report.CHART.parent):
            (folder / path).mkdir(parents=True)
        shutil.copy(ROOT / "README.md", folder)

    def keep(self, name: str, record: Mapping[str, Any]) -> str:
        path = self.folder / report.RESULTS / name
        path.write_text(json.dumps(record), "utf-8")
        return str(path)

    def run(self, *arguments: str) -> int:
        code: int = report.main(arguments, tree=self.folder)
        return code

    def text(self, path: Path) -> str:
        return " ".join((self.folder / path).read_text("utf-8").split())


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def _slow_down(record: dict[str, Any], benchmark: str, factor: float) -> None:
    """Makes opwright slower in the first case of a benchmark."""
    seconds = record["benchmarks"][benchmark]["rows"][0]["seconds"]
    seconds["opwright"] = [factor * one for one in seconds["opwright"]]


def test_pages_equal_what_the_results_say() -> None:
    assert report.main(["--check"]) == 0


def test_pages_show_ratio_to_fastest_peer(tree: Tree) -> None:
    assert tree.run(tree.keep("a.json", _record())) == 0
    readme, page = tree.text(report.README), tree.text(report.PAGE)
    assert "| recurrent op, training | torch, Keras 3 | 1.50 x as fast |" in readme
    assert "--> 1.50 times as fast, eagerly <!--" in readme
    assert "Some CPU, AVX2, 2 cores, float32; Python 3.11.7" in readme
    assert "opwright is the fastest in each case" in readme
    assert "| recurrent op, training | torch, Keras 3 | 1.50 | 1.50 | 1.50 |" in page
    assert "| Op 0 | 3 | 2 | 2.5 | 1.50 |" in page
    assert "Some CPU, AVX2: 0 of 89 cases." in page
    assert tree.run("--check") == 0


def test_pages_change_with_a_result(tree: Tree) -> None:
    record = _record()
    tree.run(tree.keep("a.json", record))
    chart = tree.text(report.CHART)
    _slow_down(record, "embedding", 3)
    tree.keep("a.json", record)
    assert tree.run("--check") == 1
    assert tree.run() == 0
    assert tree.run("--check") == 0
    assert "A peer is faster in 1 of 89 cases" in tree.text(report.README)
    assert tree.text(report.CHART) != chart


@pytest.mark.parametrize("page", [report.README, report.PAGE, report.CHART])
def test_check_finds_a_page_that_was_edited(tree: Tree, page: Path) -> None:
    tree.run(tree.keep("a.json", _record()))
    path = tree.folder / page
    path.write_text(path.read_text("utf-8").replace("1.5", "2.5"), "utf-8")
    assert tree.run("--check") == 1


def test_slower_case_has_a_row_of_its_own(tree: Tree) -> None:
    record = _record()
    _slow_down(record, "embedding_training", 2)
    tree.run(tree.keep("a.json", record))
    row = "| training step of a DLRM | H | Some CPU, AVX2 | TensorFlow | 0.75 |"
    assert row in tree.text(report.PAGE)
    assert "opwright is at worst 0.75 x as fast (" in tree.text(report.README)


def test_pages_of_two_machines_are_short(tree: Tree) -> None:
    records = [_record("One CPU"), _record("Another CPU")]
    for record in records:
        for benchmark in ("embedding", "rnn"):
            for row in record["benchmarks"][benchmark]["rows"]:
                row["seconds"]["opwright"] = [1.0, 1.0, 1.0]
    tree.run(*(tree.keep(f"{i}.json", one) for i, one in enumerate(records)))
    for path, most in ((report.PAGE, 170), (report.README, 150)):
        assert len((tree.folder / path).read_text("utf-8").splitlines()) <= most
    page = tree.text(report.PAGE)
    assert "- One CPU, AVX2: 42 of 89 cases." in page
    assert "- Another CPU, AVX2: 42 of 89 cases." in page


def test_later_file_of_a_machine_replaces_a_benchmark(tree: Tree) -> None:
    record = _record()
    later = _record() | {"date": "2030-01-02", "commit": "fedcba98"}
    later["benchmarks"] = {"embedding": later["benchmarks"]["embedding"]}
    _slow_down(later, "embedding", 3)
    files = tree.keep("a.json", record), tree.keep("b.json", later)
    assert tree.run(*files) == 0
    assert "A peer is faster in 1 of 89 cases" in tree.text(report.README)
    words = "`embedding.py` on 2030-01-02 at commit fedcba98."
    assert words in tree.text(report.PAGE)
    assert tree.run("--check") == 0
    # In the other order, the first file has the last word.
    assert tree.run(*reversed(files)) == 0
    assert "Some CPU, AVX2: 0 of 89 cases." in tree.text(report.PAGE)


def test_pages_show_two_machines_at_most(tree: Tree) -> None:
    files = [tree.keep(f"{i}.json", _record(f"CPU {i}")) for i in range(3)]
    with pytest.raises(SystemExit):
        tree.run(*files)


def test_page_has_the_epoch_of_a_model_and_the_speed_of_narrow_rows(tree: Tree) -> None:
    tree.run(tree.keep("a.json", _record()))
    page = tree.text(report.PAGE)
    assert "| epoch of a Keras model | Keras 3, torch | 2.00 | 2.00 | 2.00 |" in page
    assert "| 512 samples | 2 | 4 | | | 6 | 2.00 |" in page
    assert "| step, 2 GB | 4,000 | 2.00 | | 4.00 |" in page


def test_results_without_a_peer_are_refused(tree: Tree) -> None:
    record = _record()
    for row in record["benchmarks"]["embedding"]["rows"]:
        row["seconds"] = {"opwright": row["seconds"]["opwright"]}
    with pytest.raises(SystemExit, match=r"no forward of benchmarks/embedding\.py"):
        tree.run(tree.keep("a.json", record))


def test_commands_of_results_are_those_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    target = re.search(r"^bench-results:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    assert target is not None
    listed = re.findall(r"\$\(BIN\)/(python .*) --record", target[1])
    for file in report.chosen(ROOT):
        recorded = json.loads(file.read_text("utf-8"))["benchmarks"].values()
        assert {one["command"] for one in recorded} <= set(listed)
    scripts = {command.split()[1] for command in listed}
    assert {f"benchmarks/{a.benchmark}.py" for a in report.AREAS.values()} <= scripts


def test_results_of_a_commit_are_in_one_file_past_midnight(tmp_path: Path) -> None:
    def recorded(benchmark: str, case: str) -> Path:
        recorder = results.Recorder(benchmark, tmp_path)
        recorder.add(case, "forward", {"opwright": [1e-3]})
        return recorder.save()  # type: ignore[no-any-return]

    today = recorded("first", "A")
    yesterday = today.rename(today.with_name("2020-01-01" + today.name[10:]))
    assert recorded("second", "B") == yesterday
    record = json.loads(yesterday.read_text("utf-8"))
    assert list(record["benchmarks"]) == ["first", "second"]
    assert record["date"] == "2020-01-01"
    assert list(tmp_path.iterdir()) == [yesterday]
