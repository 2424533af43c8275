"""`upgrade` of the opdefs that TensorFlow 2.20 would have gives those of 2.21."""

from __future__ import annotations

import dataclasses
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from opwright_codegen import (
    contents,
    dump,
    form,
    load,
    raw_ops,
    registries,
    since,
    sources,
)
from opwright_codegen.model import Attr, Op, is_in, is_later
from support.opdefs import every_op
from support.places import OPDEFS, ROOT, environment
from support.versions import MINOR
from support.workplace import command, tree

#: The version before the installed one.
BEFORE = [one for one in registries.kept(OPDEFS) if is_later(MINOR, one)][-1]

pytestmark = [pytest.mark.slow, pytest.mark.rotating(together="upgrade")]


def as_of(op: Op, version: str) -> Op:
    """An opdef as a tree would have it in which `version` is the newest."""

    def attr(one: Attr) -> Attr:
        late = {value for value, date in one.allowed_since if is_later(date, version)}
        return dataclasses.replace(
            one,
            allowed=one.allowed and tuple(v for v in one.allowed if v not in late),
            allowed_since=tuple(p for p in one.allowed_since if p[0] not in late),
            dropped_in=end(one.dropped_in),
        )

    def end(dropped_in: str | None) -> str | None:
        return None if is_later(dropped_in, version) else dropped_in

    return dataclasses.replace(
        op,
        attrs=tuple(attr(one) for one in op.attrs if not is_later(one.since, version)),
        dropped_in=end(op.dropped_in),
    )


def of_version(version: str) -> dict[str, Op]:
    """The opdefs of this tree as they would be if `version` were the newest."""
    return {
        name: as_of(op, version)
        for name, op in every_op().items()
        if not is_later(op.since, version)
    }


def facts(op: Op) -> str:
    """What the import writes into an opdef, as its text."""

    def bare(arg: Attr) -> Attr:
        return dataclasses.replace(arg, doc=None, message=None)

    only = dataclasses.replace(
        Op(op.name, "any"),
        inputs=tuple(dataclasses.replace(a, doc=None, shape=None) for a in op.inputs),
        outputs=tuple(dataclasses.replace(a, doc=None, shape=None) for a in op.outputs),
        attrs=tuple(map(bare, op.attrs)),
        deprecation=op.deprecation
        and dataclasses.replace(op.deprecation, replacement=None),
        **{name: getattr(op, name) for name in FLAGS},
    )
    return dump.dump(only).partition(form.LINE)[2]


FLAGS = (
    "is_stateful",
    "is_commutative",
    "is_aggregate",
    "allows_uninitialized_input",
    "is_distributed_communication",
    "gradient",
    "since",
    "dropped_in",
)


def write_tree_of(version: str, root: Path) -> None:
    """Writes the opdefs that a tree would have in which `version` is the newest."""
    ops = of_version(version)
    # What the version has without a date, such as a default, is that of its registry.
    there = {op.name: op for op in sources.ops(version)[0]}
    for name, dated in ops.items():
        op = dump.with_facts(dated, there[name]) if name in there else dated
        path = load.op_path(root, op.group, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        same = op == every_op()[name]
        content = Path(op.source).read_bytes() if same else dump.dump(op).encode()
        path.write_bytes(content)
    kept = registries.kept(OPDEFS)
    (root / "registries").mkdir()
    for one, path in kept.items():
        if not is_later(one, version):
            shutil.copy(path, root / "registries")
    shutil.copy(OPDEFS / load.GROUPS, root)
    gone = every_op().keys() - ops.keys()
    rows = (OPDEFS / load.RAW_OPS).read_text("utf-8").splitlines(keepends=True)
    named = re.compile(r"  (?:- )?([\w>]+)(?::|$)")
    (root / load.RAW_OPS).write_text(
        "".join(row for row in rows if not (m := named.match(row)) or m[1] not in gone)
    )


def run(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "opwright_codegen", "upgrade"]
    return subprocess.Popen(
        [*command, "--python", sys.executable, *arguments],
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A program in the background of a script ignores interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@dataclasses.dataclass(frozen=True)
class Upgraded:
    """A folder after an upgrade, and what the run said that finished it."""

    folder: Path
    report: str
    said: str


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The opdefs of a tree in which the version before the installed one is newest."""
    root = tmp_path_factory.mktemp("start") / "opdefs"
    write_tree_of(BEFORE, root)
    return root


@pytest.fixture(scope="module")
def upgraded(start: Path, tmp_path_factory: pytest.TempPathFactory) -> Upgraded:
    """The first run is interrupted while it imports, and a second one goes on."""
    folder = tmp_path_factory.mktemp("upgrade")
    shutil.copytree(start, folder / "opdefs")
    shutil.copytree(ROOT / "generated", folder / "generated")
    first = run(folder)
    assert first.stderr is not None
    lines = []
    for line in first.stderr:
        lines.append(line)
        if " facts: " in line:
            first.send_signal(signal.SIGINT)
            break
    said = "".join(lines) + first.communicate(timeout=300)[1]
    assert first.returncode == 130, said
    assert said.endswith("interrupted; run it again to finish\n")
    second = run(folder)
    report, said = second.communicate(timeout=600)
    assert second.returncode == 0, said
    assert "Traceback" not in said
    return Upgraded(folder, report, said)


def test_write_tree_of_a_version_has_the_ops_of_its_registry(start: Path) -> None:
    """The opdefs from which the upgrade starts."""
    found, problems = load.load_all(start)
    assert problems == []
    there = {op.name: op for op in sources.ops(BEFORE)[0]}
    ops = {op.name: op for op in found if is_in(op, BEFORE)}
    assert ops.keys() == there.keys()
    for name, op in ops.items():
        undated = dataclasses.replace(
            op,
            since=None,
            dropped_in=None,
            gradient=None,
            attrs=tuple(
                dataclasses.replace(one, since=None, dropped_in=None, allowed_since=())
                for one in op.attrs
                if is_in(one, BEFORE)
            ),
        )
        assert facts(undated) == facts(there[name])
    history = [
        (version, {op.name: op for op in sources.ops(str(path))[0]})
        for version, path in registries.kept(start).items()
    ]
    assert [op.name for op in found if since.dated(op, history) != op] == []
    assert len(every_op()) > len(found)


def test_upgrade_after_an_interruption_repeats_no_finished_step(
    upgraded: Upgraded,
) -> None:
    said = upgraded.said
    for step in "registry", "changes", "dropped":
        assert re.search(rf"\] {step}: .*; finished before, in [\d.]+ s\n", said)
    for step in "facts", "dates", "stubs", "classes":
        assert re.search(rf"\] {step}: .*; [\d.]+ s\n", said)


def test_upgrade_writes_the_facts_of_the_new_version(upgraded: Upgraded) -> None:
    """No opdef is edited by hand; the group of a new op is what people choose."""
    expected = {name: facts(op) for name, op in of_version(MINOR).items()}
    found, problems = load.load_all(upgraded.folder / "opdefs")
    assert problems == []
    assert {op.name: facts(op) for op in found} == expected


def test_upgrade_writes_files_byte_for_byte_as_they_are(upgraded: Upgraded) -> None:
    """All but those with a text for something new, or with what is newer still."""
    ours = {path.name: path for path in load.find(upgraded.folder / "opdefs")}
    compared = different = 0
    for name, op in of_version(MINOR).items():
        path = Path(op.source)
        if op != every_op()[name] or op != as_of(op, BEFORE) or op.since == MINOR:
            continue
        compared += 1
        different += ours[path.name].read_bytes() != path.read_bytes()
    assert different == 0
    assert compared > 0.95 * len(every_op())


def test_upgrade_saves_the_registry_and_renews_raw_ops(upgraded: Upgraded) -> None:
    opdefs = upgraded.folder / "opdefs"
    kept = registries.kept(opdefs)
    assert [*kept][-1] == MINOR
    ours, theirs = (
        contents.entries(contents.of_list(found[MINOR]))
        for found in (kept, registries.kept(OPDEFS))
    )
    assert ours == theirs
    ops = of_version(MINOR)
    now, _ = raw_ops.read(opdefs, load.find(opdefs))
    expected, _ = raw_ops.read(OPDEFS, load.find(OPDEFS))
    assert now is not None and expected is not None
    assert now.absent == expected.absent & ops.keys()
    assert now.keywords == {n: w for n, w in expected.keywords.items() if n in ops}


def test_upgrade_writes_stubs_that_lint_refuses(upgraded: Upgraded) -> None:
    new = {name for name, op in of_version(MINOR).items() if op.since == MINOR}
    assert new
    done = command("lint", cwd=upgraded.folder)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    stubs = re.findall(r"^opdefs/.*?: ([\w>]+): (.*) is a stub", done.stderr, re.M)
    assert new <= {name for name, _ in stubs}
    keys = ("summary", "description", "example")
    assert {(name, key) for name in new for key in keys} <= {*stubs}
    found = re.findall(r"^   - `opdefs/.*?:\d+: (.*) is a stub", upgraded.report, re.M)
    assert found == [what for _, what in stubs]


def test_upgrade_report_lists_changes_and_new_ops(upgraded: Upgraded) -> None:
    path = upgraded.folder / "build/upgrade" / MINOR / "report.md"
    assert path.read_text("utf-8") == upgraded.report
    for name, op in of_version(MINOR).items():
        if op.since == MINOR:
            assert f"- `from {BEFORE}: {name}: added the op`\n" in upgraded.report
            added = rf"- `added opdefs/[\w.]+/{name}\.yaml`\n"
            assert re.search(added, upgraded.report)
    assert "| tests | left out: there is no tests/versions here | " in upgraded.report


def test_upgrade_generates_the_classes(upgraded: Upgraded) -> None:
    done = command("generate", "--check", cwd=upgraded.folder)
    assert done.returncode == 0, done.stderr


# At the end of the file: the others look at the folder as it is before.
def test_upgrade_of_what_is_upgraded_writes_nothing(upgraded: Upgraded) -> None:
    folder = upgraded.folder
    before = tree(folder)
    again = run(folder)
    _, said = again.communicate(timeout=600)
    assert again.returncode == 0, said
    assert said.count("finished before") == 8
    after = tree(folder)
    assert {name for name in after if after[name] != before.get(name)} <= {
        f"build/upgrade/{MINOR}/report.md",
        f"build/upgrade/{MINOR}/record.json",
    }
