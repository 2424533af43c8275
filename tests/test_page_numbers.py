"""Numbers that pages state in words are those of the sources."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opwright_codegen.model import Op
from support import pages
from support.opdefs import every_op
from support.places import ROOT

EMBEDDING = "runtime/native/embedding"
HOSTS = "tests/embedding/support/hosts.py"
BENCHMARK = "benchmarks/embedding_hosts.py"

#: By page: what it states, the source of the number, and the words there.
STATED = {
    "docs/explanation/scale.md": [
        ("The global batch is 8,", HOSTS, "BATCH, STEPS = 8, 100"),
        ("equal in 50 steps", HOSTS, "bytes_to_send(range(STEPS // 2, STEPS))"),
        ("trains 4 tables of", BENCHMARK, "tables: int = 4"),
        ("of 100,000 rows", BENCHMARK, "rows: int = 100_000"),
        ("of 64 floats", BENCHMARK, "width: int = 64"),
        ("with 256 samples a host", BENCHMARK, "samples: int = 256"),
        ("20 ids a sample", BENCHMARK, "ids: int = 20"),
        ("exceed the formula by 20 %", BENCHMARK, "> 1.2 * formula"),
        ("a dense part of 20 ms", BENCHMARK, '"--dense", type=float, default=20.0'),
        ("10 GB a second", BENCHMARK, '"--link", type=float, default=10.0'),
        ("trip takes 0.2 ms", BENCHMARK, '"--round", type=float, default=0.2'),
        ("takes 30 us of", BENCHMARK, '"--message", type=float, default=30.0'),
    ],
    "docs/how-to/embedding_hosts.md": [
        (
            "`timeout` seconds (60 by default)",
            "runtime/opwright_runtime/embedding/strategy.py",
            "timeout: float = 60.0",
        ),
        (
            "eight times in `timeout` seconds",
            f"{EMBEDDING}/tf/host_heartbeat.cc",
            "timeout / 8",
        ),
        (
            "The first host gets sixteen in that time",
            f"{EMBEDDING}/tf/host_heartbeat.cc",
            "(has_service ? 2 : 1)",
        ),
    ],
    "docs/how-to/embedding_serving.md": [
        ("spin for 0.2 ms", "runtime/native/base/spinning_pool.h", "kSpin{200}"),
        (
            "16 to 256 MiB",
            f"{EMBEDDING}/tf/packed_lookup.cc",
            "kLeast = 16 << 20, kMost = 256 << 20",
        ),
    ],
    "docs/how-to/gpu.md": [
        (
            "copied 16 MiB at a time",
            f"{EMBEDDING}/cuda/store.cc",
            "kPieceBytes = int64_t{16} << 20",
        ),
    ],
    "docs/how-to/libraries.md": [
        (
            "opdefs up to 16 MiB",
            "codegen/opwright_codegen/contents.py",
            "TEXT: Final = 16 * 2**20",
        ),
        (
            "lists of ops up to 256 MiB",
            "codegen/opwright_codegen/contents.py",
            "LIST: Final = 256 * 2**20",
        ),
    ],
    "docs/how-to/rnn_keras.md": [
        (
            "With four steps or fewer",
            "runtime/opwright_runtime/rnn/keras_layers.py",
            "_FIXED_STEPS = 4",
        ),
        (
            "1,048,576 weights of the layer in inference, and for each 524,288 in",
            "runtime/opwright_runtime/rnn/keras_layers.py",
            "{False: 1 << 20, True: 1 << 19}",
        ),
    ],
    "docs/reference/embedding_errors.md": [
        (
            "or after ten seconds if",
            "runtime/opwright_runtime/embedding/tpu_embedding.py",
            "EAGER_TIMEOUT = 10.0",
        ),
        (
            "When an op has waited ten seconds",
            f"{EMBEDDING}/tf/watch.cc",
            "kSilence = std::chrono::seconds(10)",
        ),
        ("above 1e30 counts as 1e30", f"{EMBEDDING}/optimizers.h", "Min(1e30f, x)"),
        ("| 2^28 |", f"{EMBEDDING}/spec.cc", "kMaxSamples = int64_t{1} << 28"),
        ("| 253 |", f"{EMBEDDING}/spec.cc", "kMaxDimensions = 253"),
        ("| 65,536 |", f"{EMBEDDING}/spec.cc", "kMaxCores = 1 << 16"),
        ("| 128 batches;", f"{EMBEDDING}/engine.h", "kMaxQueued = 128"),
        (
            "| 2^20 |",
            "runtime/native/sparsecore/tf/sort_kernels.cc",
            "kMaxShards = 1 << 20",
        ),
        (
            "for minibatches | 2^20 |",
            "runtime/native/sparsecore/tf/minibatch_kernels.cc",
            "kMaxShards = 1 << 20",
        ),
        (
            "| 4 MiB for their names and 64 bytes each |",
            "runtime/native/sparsecore/limits.cc",
            "kMostBytes = 4 << 20, kBytesOfTable = 64",
        ),
    ],
    "docs/reference/environment.md": [
        ("1/32 of the memory", "runtime/native/rnn/weight_cache.cc", "pages / 32"),
        (
            "at most 512 MiB",
            "runtime/native/rnn/weight_cache.cc",
            "kMax = int64_t{512} << 20",
        ),
    ],
    "docs/reference/rnn_kernels.md": [
        ("1/32 of the machine's", "runtime/native/rnn/weight_cache.cc", "pages / 32"),
        (
            "never more than 512 MiB",
            "runtime/native/rnn/weight_cache.cc",
            "kMax = int64_t{512} << 20",
        ),
    ],
}
ROWS = [
    pytest.param(page, *row, id=f"{Path(page).stem}_{number}")
    for page, rows in STATED.items()
    for number, row in enumerate(rows, 1)
]


@pytest.mark.parametrize(("page", "statement", "source", "words"), ROWS)
def test_page_number_is_that_of_the_source(
    page: str, statement: str, source: str, words: str
) -> None:
    assert statement in " ".join((ROOT / page).read_text("utf-8").split())
    assert words in (ROOT / source).read_text("utf-8"), f"{page} states {statement!r}"


def test_scale_page_table_follows_from_the_formula() -> None:
    """Of four tables, for the link, round trip and message that the page assumes."""
    text = (ROOT / "docs/explanation/scale.md").read_text("utf-8")
    section = text.partition("## Up to 1,024 hosts")[2]
    tables, rows, floats, samples, ids = 4, 100_000, 64, 256, 20
    distinct = rows * (1 - (1 - 1 / rows) ** (samples * ids))
    assert f"U = {distinct:.0f} distinct ids" in section
    shown = [
        [float(cell.replace(",", "")) for cell in row.strip("| ").split(" | ")]
        for row in re.findall(r"^\| \d.*\|$", section, re.MULTILINE)
    ]
    assert [row[0] for row in shown] == [1, 2, 4, 16, 64, 256, 1024]
    for hosts, *cells in shown:
        others = hosts - 1
        unit = 4 + 8 * floats
        by_row = tables * distinct * others / hosts * unit
        sums = samples * others * (1 - (1 - 1 / hosts) ** ids)
        by_sum = tables * (sums * unit + 4 * samples * ids * others / hosts)
        sent = min(by_row, by_sum) + (32 + 28 * tables) * others
        times = [sent / 10e9 * 1e3, 0.8 * (hosts > 1), 4 * others * 0.03]
        megabytes = [size / 1e6 for size in (by_row, by_sum, sent)]
        wanted = [*megabytes, 4 * others, *times, sum(times)]
        assert cells == pytest.approx(wanted, abs=0.051, rel=0), hosts


def _newer(ops: list[Op], version: str) -> tuple[set[str], int]:
    """The ops that a version brought, and how many attrs it brought to other ops."""
    brought = {op.name for op in ops if op.since == version}
    others = [op for op in ops if op.name not in brought]
    attrs = [attr for op in others for attr in op.attrs if attr.since == version]
    return brought, len(attrs)


@pytest.mark.slow
def test_wheels_page_counts_what_each_tensorflow_lacks() -> None:
    text = (ROOT / "docs/reference/wheels.md").read_text("utf-8")
    ops = [*every_op().values()]
    counts = {version: _newer(ops, version) for version in ("2.19", "2.20", "2.22")}
    assert counts["2.19"] == (set(), 0)
    assert _newer(ops, "2.21") == ({"DecodeJxl"}, 1)
    new, attrs = counts["2.20"]
    assert f"| 3.20.3 to 5 | {len(new)} ops, {attrs} attrs, " in text
    new, attrs = counts["2.22"]
    assert f"of 2.22: {len(new)} ops for SparseCores, {attrs} attrs of Batch" in text


@pytest.mark.parametrize("page", ["README.md", "docs/how-to/install.md"])
def test_page_table_of_versions_names_those_that_are_tried(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    makefile = (ROOT / "Makefile").read_text("utf-8")
    check = (ROOT / "tools/release_check.py").read_text("utf-8")
    versions = re.findall(r"^\| (2\.\d+.*?) \|", text, re.MULTILINE)
    (tried,) = re.findall(r"^VERSIONS \?= (.*)$", makefile, re.MULTILINE)
    assert ", ".join(versions).split(", ") == tried.split()
    pythons = re.findall(
        r'"(3\.\d+)"', check.partition("PYTHONS = ")[2].splitlines()[0]
    )
    last = text.partition(f"| {versions[-1]} |")[2].partition("\n")[0]
    assert re.findall(r"\b3\.\d+", last) == pythons


def test_readme_begins_with_the_range_of_versions() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    first, *_, last = re.findall(r"^\| (2\.\d+.*?) \| (.*) \|$", text, re.MULTILINE)
    versions = [row[0].split(", ") for row in (first, last)]
    pythons = re.findall(r"3\.\d+", last[1])
    facts = (
        f"Python {pythons[0]} to {pythons[-1]} · "
        f"TensorFlow {versions[0][0]} to {versions[1][-1]} · "
    )
    assert facts in text.partition("![")[0]


def test_readme_has_110_to_150_lines_and_at_most_six_figures() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert 110 <= len(text.splitlines()) <= 150
    figures = re.findall(r"\b\d+\.\d\d(?= x\b| times)", text)
    assert 5 <= len(figures) <= 6


#: Tables that a program writes, which may be long.
GENERATED = r"<!-- (?:begin.*?|ops: begin) -->.*?<!-- (?:end.*?|ops: end) -->"


@pytest.mark.parametrize(
    "page",
    [*pages.PAGES, *(ROOT / "docs" / "reference").glob("*.rst")],
    ids=lambda page: page.stem,
)
def test_page_has_at_most_200_lines(page: Path) -> None:
    text = re.sub(GENERATED, "", page.read_text("utf-8"), flags=re.DOTALL)
    assert len(text.splitlines()) <= 200


def test_every_page_is_linked_from_another_one() -> None:
    every = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.rst")]
    written = {ROOT / "docs" / "groups", ROOT / "docs" / "ops"}
    shown = {page for page in every if page.parent not in written}
    linked = {ROOT / "docs" / "index.md", ROOT / "docs" / "reference" / "changelog.md"}
    for page in {*shown, *ROOT.glob("*.md")}:
        for link in re.findall(r"\]\(([^)\s#]+)", page.read_text("utf-8")):
            target = (page.parent / link).resolve()
            if target != page:
                linked.add(target)
    assert shown - linked == set()
