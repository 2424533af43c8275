"""Makes the documentation's pages about performance of recorded results.

    python benchmarks/report.py results/REFERENCE.json [results/OTHER.json ...]

The first file is of the reference machine. Others are of this machine or of another
processor. Of several files of one machine, the last one with a benchmark counts. The
choice is kept in results/pages.txt, and read from there when no file is named. What is
made: docs/reference/performance.md, docs/images/speed.svg, and what stands between the
markers in README.md. `--check` writes nothing, and fails where a page differs.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import jinja2

TREE = Path(__file__).resolve().parent.parent
RESULTS = Path("benchmarks/results")
CHOICE = RESULTS / "pages.txt"
README = Path("README.md")
PAGE = Path("docs/reference/performance.md")
CHART = Path("docs/images/speed.svg")
#: Columns of a line of text.
WIDTH = 110
#: Slower cases that the page lists.
MOST_SLOWER = 6

_KERAS_3 = {"keras": "Keras 3"}
_RNN = {"torch": "torch", "keras": "Keras 3"}
_MODELS = {
    "keras": "Keras 3",
    "keras_jax": "with JAX",
    "keras_torch": "with torch",
    "torch": "torch",
}
_LOOKUPS = {"fbgemm": "FBGEMM", "torch": "torch", "tensorflow": "TensorFlow"}
_PROGRAMS = {
    "tensorflow": "TensorFlow",
    "tf_keras": "tf_keras",
    "keras": "Keras 3",
    "torch": "torch",
}
_RAW_OPS = {"tf.raw_ops": "`tf.raw_ops`"}
_GRAPH = ("tf.Graph", "tf.function")


@dataclass(frozen=True)
class Area:
    """What a benchmark times in several cases, against peers.

    Attributes:
        title: its name on the pages.
        benchmark: the script.
        what: the values of `what` of its rows.
        peers: the contenders that opwright is compared with, and their names.
        ours: the contender that is opwright.
    """

    title: str
    benchmark: str
    what: tuple[str, ...]
    peers: dict[str, str]
    ours: str = "opwright"


AREAS = {
    "call": Area("call of a function", "dispatch", ("eager",), _RAW_OPS, "function"),
    "create": Area("call of a class", "dispatch", ("eager",), _RAW_OPS, "class"),
    "node": Area("function in a graph", "dispatch", _GRAPH, _RAW_OPS, "function"),
    "infer": Area(
        "recurrent op, inference",
        "rnn",
        ("inference",),
        _RNN | {"onnxruntime": "onnxruntime"},
    ),
    "train": Area("recurrent op, training", "rnn", ("training",), _RNN),
    "keras infer": Area(
        "`opwright.keras`, inference", "keras_layers", ("inference",), _KERAS_3
    ),
    "keras train": Area(
        "`opwright.keras`, training", "keras_layers", ("training",), _KERAS_3
    ),
    "fit": Area("epoch of a Keras model", "keras_model", ("fit",), _MODELS),
    "lookup": Area("embedding lookup", "embedding", ("forward",), _LOOKUPS),
    "step": Area("embedding lookup and update", "embedding", ("step",), _LOOKUPS),
    "program": Area(
        "training step of a DLRM", "embedding_training", ("training",), _PROGRAMS
    ),
}
#: The areas of README's table and chart.
HEADLINES = ("infer", "train", "lookup", "step")


@dataclass(frozen=True)
class Case:
    """One workload of an area, with the median seconds of each contender."""

    area: Area
    name: str
    seconds: dict[str, float]

    @property
    def ours(self) -> float:
        return self.seconds[self.area.ours]

    @property
    def peer(self) -> str:
        """The fastest peer."""
        return min(self.area.peers.keys() & self.seconds, key=self.seconds.__getitem__)

    @property
    def faster(self) -> float:
        """The time of the fastest peer, divided by opwright's."""
        return self.seconds[self.peer] / self.ours


@dataclass(frozen=True)
class Record:
    """The results of one machine: the content of its files."""

    path: Path
    files: list[dict[str, Any]]

    @classmethod
    def of_machines(cls, files: Sequence[Path]) -> list[Record]:
        """A record for each machine, in the order of the files."""
        found: dict[str, Record] = {}
        for file in files:
            data = json.loads(file.read_text("utf-8"))
            machine = json.dumps(data["machine"], sort_keys=True)
            record = found.setdefault(machine, cls(file, []))
            record.files.append(data)
        return [*found.values()]

    @property
    def data(self) -> dict[str, Any]:
        """The first file, with the benchmarks of later files in place of its own."""
        merged = {k: v for one in self.files for k, v in one["benchmarks"].items()}
        return self.files[0] | {"benchmarks": merged}

    @property
    def measured(self) -> str:
        """When the results were measured, and at which commits."""
        words = []
        for one in self.files:
            scripts = [f"{name}.py" for name in one["benchmarks"]]
            what = f"`{'`, `'.join(scripts)}` " if words else ""
            words.append(f"{what}on {one['date']} at commit {one['commit']}")
        return ", ".join(words)

    @property
    def commands(self) -> list[str]:
        return [one["command"] for one in self.data["benchmarks"].values()]

    def rows(self, benchmark: str, *what: str) -> list[dict[str, Any]]:
        recorded = self.data["benchmarks"].get(benchmark, {}).get("rows", [])
        return [row for row in recorded if row["what"] in what]

    def cases(self, name: str) -> list[Case]:
        """Of an area. A row without a peer is left out."""
        area = AREAS[name]
        found = []
        for row in self.rows(area.benchmark, *area.what):
            medians = {who: times[1] for who, times in row["seconds"].items()}
            if area.ours in medians and area.peers.keys() & medians:
                found.append(Case(area, row["case"], medians))
        return found

    def ratios(self, name: str) -> list[float]:
        return [case.faster for case in self.cases(name)]

    def all_cases(self) -> Iterator[Case]:
        for name in AREAS:
            yield from self.cases(name)

    def slower(self) -> list[Case]:
        """The cases in which a peer is faster, the slowest one first."""
        cases = (case for case in self.all_cases() if case.faster < 1)
        return sorted(cases, key=lambda case: case.faster)

    def worst(self) -> str:
        """The slowest case in which a peer is faster."""
        case = self.slower()[0]
        return f"{case.faster:.2f} x as fast ({case.area.title})"

    @property
    def name(self) -> str:
        machine = self.data["machine"]
        vectors = {"avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON"}
        known = vectors.get(machine["vectors"], "no vectors that kernels use")
        return f"{machine['processor']}, {known}"

    @property
    def machine(self) -> str:
        """The processor, its cores and its caches."""
        facts = self.data["machine"]
        caches = (f"{_memory(size)} of {one}" for one, size in facts["caches"].items())
        number = f"family {facts['family']}, model {facts['model']}"
        return ", ".join([f"{number}, {facts['cores']} cores", *caches])

    @property
    def versions(self) -> str:
        names = {
            "python": "Python",
            "tensorflow": "TensorFlow",
            "keras": "Keras",
            "torch": "torch",
            "fbgemm-gpu-cpu": "FBGEMM",
            "torchrec": "torchrec",
        }
        found = self.data["versions"]
        return ", ".join(
            f"{name} {found[key].partition('+')[0]}"
            for key, name in names.items()
            if key in found
        )


def _memory(size: str) -> str:
    """A size as Linux writes it, such as 512K or 32768K."""
    kib = int(size.rstrip("K"))
    return f"{kib >> 10} MiB" if kib >= 1024 else f"{kib} KiB"


def number(value: float) -> str:
    """Three digits, or all of a number that has more before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def wrap(text: str, indent: str = "") -> str:
    """A paragraph in lines, none of which breaks code or a link."""
    joined = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\0"), text.strip())
    lines = textwrap.fill(
        joined,
        WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace("\0", " ") + "\n"


Cells = Mapping[str, str]


def table(record: Record, name: str, unit: float) -> list[Cells]:
    """Of each case of an area: its name, times in `unit` seconds, and the ratio.

    What was not timed is empty.
    """
    rows = []
    for case in record.cases(name):
        row = defaultdict(str, case=case.name, faster=f"{case.faster:.2f}")
        row |= {who: number(one / unit) for who, one in case.seconds.items()}
        rows.append(row)
    return rows


def recurrent(record: Record) -> list[tuple[str, dict[str, Cells]]]:
    """Each shape and mode, with its row in the tables of the op and of the layers."""
    names = ("infer", "train", "keras infer", "keras train")
    by_area = {
        name: {row["case"]: row for row in table(record, name, 1e-3)} for name in names
    }
    cases = dict.fromkeys(case for rows in by_area.values() for case in rows)
    none: Cells = defaultdict(str)
    return [
        (case, {name: by_area[name].get(case, none) for name in names})
        for case in cases
    ]


def cores(record: Record) -> list[dict[str, Any]]:
    """CPU time of several cores, relative to one core's."""
    found = []
    for row in record.rows("embedding_cores", "CPU time", "CPU time without tables"):
        times = {int(cores): one[1] for cores, one in row["seconds"].items()}
        ratios = [f"{one / times[1]:.2f}" for count, one in times.items() if count > 1]
        one_core = number(times[1] * 1e3)
        found.append(
            {
                "case": row["case"],
                "tables": "yes" if row["what"] == "CPU time" else "no",
                "one": one_core,
                "ratios": ratios,
                "counts": [count for count in times if count > 1],
            }
        )
    return found


def narrow(record: Record) -> list[Cells]:
    """Rows of narrow dtypes: how many times as fast as those of float32."""
    found = []
    for row in record.rows("embedding_narrow", "lookup", "step"):
        medians = {dtype: one[1] for dtype, one in row["seconds"].items()}
        wide = medians.pop("float32")
        cells = {dtype: f"{wide / one:.2f}" for dtype, one in medians.items()}
        name = f"{row['what']}, {row['case']}"
        row_of = defaultdict(str, case=name, float32=number(wide * 1e3))
        found.append(row_of | cells)
    return found


def hosts(record: Record) -> list[dict[str, Any]]:
    """Milliseconds of a step by number of hosts and program."""
    return [
        {
            "case": row["case"],
            "ms": {name: number(one[1] * 1e3) for name, one in row["seconds"].items()},
        }
        for row in record.rows("embedding_hosts", "step")
    ]


def slower(records: Sequence[Record]) -> list[tuple[Record, Case]]:
    """The slowest cases of all machines in which a peer is faster."""
    found = [(record, case) for record in records for case in record.slower()]
    return sorted(found, key=lambda one: one[1].faster)[:MOST_SLOWER]


def compared(records: Sequence[Record], name: str) -> str:
    """The peers in an area that some machine has times of."""
    timed = {
        peer for one in records for case in one.cases(name) for peer in case.seconds
    }
    peers = AREAS[name].peers.items()
    return ", ".join(title for peer, title in peers if peer in timed)


@dataclass(frozen=True)
class Bar:
    """One bar of the chart, with its whisker, as ratios."""

    title: str
    worst: float
    middle: float
    best: float


def bars(record: Record) -> list[Bar]:
    found = []
    for name in HEADLINES:
        ratios = record.ratios(name)
        title = AREAS[name].title
        found.append(Bar(title, min(ratios), median(ratios), max(ratios)))
    return found


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    made.filters |= {"ratio": "{:.2f}".format, "median": median, "wrap": wrap}
    made.globals |= {
        "AREAS": AREAS,
        "HEADLINES": HEADLINES,
        "table": table,
        "recurrent": recurrent,
        "cores": cores,
        "hosts": hosts,
        "narrow": narrow,
        "slower": slower,
        "compared": compared,
        "bars": bars,
    }
    return made


def _complete(record: Record) -> None:
    """Raises unless the pages have all results that README shows."""
    for name in ("call", *HEADLINES):
        if not record.cases(name):
            area = AREAS[name]
            raise SystemExit(
                f"{record.path} has no {' or '.join(area.what)} of "
                f"benchmarks/{area.benchmark}.py against a peer: record them first"
            )


def pages(tree: Path, records: Sequence[Record]) -> dict[Path, str]:
    """The texts that the documentation has with these results, by path."""
    environment = _environment()
    for record in records[:1]:
        _complete(record)
    made = {PAGE: environment.get_template("performance.md.jinja")}
    if records:
        made[CHART] = environment.get_template("speed.svg.jinja")
    texts = {path: one.render(records=records) for path, one in made.items()}
    blocks = environment.get_template("readme.md.jinja").make_module(
        {"records": records}
    )
    text = (tree / README).read_text("utf-8")
    for name in ("call", "performance"):
        text = replaced(text, name, getattr(blocks, name)())
    return texts | {README: text}


def replaced(text: str, name: str, block: str) -> str:
    """The text with another block between the markers of this name."""
    start, end = f"<!-- {name}: benchmarks/report.py -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"({re.escape(start)}).*?({re.escape(end)})", re.DOTALL)
    if len(pattern.findall(text)) != 1:
        raise SystemExit(f"{README} needs one {start} and its {end}")
    return pattern.sub(lambda found: found[1] + block + found[2], text)


def chosen(tree: Path) -> list[Path]:
    choice = tree / CHOICE
    if not choice.exists():
        return []
    return [tree / RESULTS / name for name in choice.read_text("utf-8").split()]


def main(arguments: Sequence[str] | None = None, tree: Path = TREE) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="results in benchmarks/results, of the reference machine first",
    )
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    options = parser.parse_args(arguments)
    folder = tree / RESULTS
    for file in options.files:
        if file.resolve().parent != folder.resolve():
            parser.error(f"{file} is not in {folder}")
    files = options.files or chosen(tree)
    records = Record.of_machines(files)
    if len(records) > 2:
        parser.error("the pages show two machines")
    made = pages(tree, records)
    if options.files:
        made[CHOICE] = "".join(f"{file.name}\n" for file in options.files)
    differ = [
        path
        for path, text in made.items()
        if not (tree / path).exists() or (tree / path).read_text("utf-8") != text
    ]
    for path in differ:
        if options.check:
            print(f"{path} is not what the results say: run benchmarks/report.py")
        else:
            (tree / path).write_text(made[path], "utf-8")
            print(f"wrote {path}")
    return 1 if options.check and differ else 0


if __name__ == "__main__":
    sys.exit(main())
