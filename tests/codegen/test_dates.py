"""`since`: what some versions tell is dated, and what they do not keeps its date."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from tensorflow.core.framework import op_def_pb2

from opwright_codegen import dump, load, registries, registry, since, sources
from opwright_codegen.model import Op
from support.opdefs import every_op
from support.places import OPDEFS, ROOT
from support.workplace import command_on_registry, place

ROLL = """\
op: Roll
group: math

# ---- Imported facts; by hand below: doc, shape, message, replacement. ----
since: '2.17'
inputs:
  - {name: x, type: T}
outputs:
  - {name: y, type: T}
attrs:
  - {name: T, type: type, allowed: [float, half, int8], allowed_since: DATES}
options:
  - {name: by, type: int, default: 1, since: '2.18'}
  - {name: fast, type: bool, default: false}
""".replace("DATES", "{half: '2.18', int8: '2.30'}")


def op(name: str, dtypes: list[int], *options: str) -> op_def_pb2.OpDef:
    attr = {"name": "T", "type": "type", "allowed_values": {"list": {"type": dtypes}}}
    others = {
        "by": {"name": "by", "type": "int", "default_value": {"i": 1}},
        "fast": {"name": "fast", "type": "bool", "default_value": {"b": False}},
        "turns": {"name": "turns", "type": "int", "default_value": {"i": 1}},
    }
    return op_def_pb2.OpDef(
        name=name,
        input_arg=[{"name": "x", "type_attr": "T"}],
        output_arg=[{"name": "y", "type_attr": "T"}],
        attr=[attr, *(others[option] for option in options)],
    )


@pytest.fixture
def dated(tmp_path: Path) -> Path:
    """A folder of opdefs, and two versions' lists of ops, 2.20 and 2.21."""
    place(tmp_path / "opdefs", "math", "Roll", ROLL)
    gone = ROLL.replace("Roll", "Gone").replace("int8: '2.30'", "int8: '2.19'")
    place(tmp_path / "opdefs", "math", "Gone", gone)
    float_half, all_three = [1, 19], [1, 19, 6]
    for name, ops in (
        ("a.pb", [op("Roll", float_half, "by")]),
        ("b.pb", [op("Roll", all_three, "by", "fast")]),
    ):
        (tmp_path / name).write_bytes(op_def_pb2.OpList(op=ops).SerializeToString())
    return tmp_path


@pytest.mark.slow  # In a process with TensorFlow.
def test_since_of_late_versions_keeps_older_dates(dated: Path) -> None:
    before = (dated / "opdefs/math/Gone.yaml").read_text("utf-8")
    done = command_on_registry("since", "2.20=a.pb", "2.21=b.pb", cwd=dated)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "updated opdefs/math/Roll.yaml\n"
    said = "opdefs: 1 updated; 7 dates kept that these versions do not tell\n"
    assert done.stderr.endswith(said)
    expected = ROLL.replace("'2.30'", "'2.21'").replace(
        "default: false}", "default: false, since: '2.21'}"
    )
    assert (dated / "opdefs/math/Roll.yaml").read_text("utf-8") == expected
    assert (dated / "opdefs/math/Gone.yaml").read_text("utf-8") == before


@pytest.mark.slow  # In a process with TensorFlow.
def test_since_takes_back_a_date_that_a_version_contradicts(dated: Path) -> None:
    path = dated / "opdefs/math/Roll.yaml"
    path.write_text(ROLL.replace("since: '2.17'", "since: '2.21'"))
    done = command_on_registry("since", "2.20=a.pb", "2.21=b.pb", cwd=dated)
    assert done.returncode == 0, done.stderr
    assert "\nsince: " not in path.read_text("utf-8")


@pytest.mark.rotating
@pytest.mark.slow  # In a process with TensorFlow.
@pytest.mark.parametrize("versions", [("2.21=b.pb", "2.20=a.pb"), ("2.9=a.pb",) * 2])
def test_since_of_versions_out_of_order_is_refused(
    versions: tuple[str, str], dated: Path
) -> None:
    done = command_on_registry("since", *versions, cwd=dated)
    assert done.returncode == 2
    assert "versions must be different ones, the oldest first" in done.stderr
    assert (dated / "opdefs/math/Roll.yaml").read_text("utf-8") == ROLL


def kept(folder: Path, version: str, ops: list[op_def_pb2.OpDef]) -> None:
    """Keeps a registry beside the opdefs in `folder`."""
    path = folder / "opdefs/registries" / f"{version}.pb.xz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(registry.save(ops, path))


@pytest.mark.rotating
@pytest.mark.slow  # In a process with TensorFlow.
def test_since_compares_registries_that_are_kept_with_those_given(dated: Path) -> None:
    kept(dated, "2.20", [op("Roll", [1, 19], "by")])
    kept(dated, "2.19", [op("Roll", [1])])
    done = command_on_registry("since", cwd=dated)
    assert done.returncode == 0, done.stderr
    text = (dated / "opdefs/math/Roll.yaml").read_text("utf-8")
    assert "allowed_since: {half: '2.20', int8: '2.30'}" in text
    assert "default: 1, since: '2.20'}" in text
    done = command_on_registry("since", "2.21=b.pb", cwd=dated)
    assert done.returncode == 0, done.stderr
    text = (dated / "opdefs/math/Roll.yaml").read_text("utf-8")
    assert "allowed_since: {half: '2.20', int8: '2.21'}" in text
    assert "default: false, since: '2.21'}" in text


@pytest.mark.slow  # In a process with TensorFlow.
def test_since_without_a_version_in_between_is_refused(dated: Path) -> None:
    """The later one would seem to have brought all that it has."""
    for versions in ("2.19=a.pb", "2.21=b.pb"), ("1.9=a.pb", "2.1=b.pb"):
        done = command_on_registry("since", *versions, cwd=dated)
        assert done.returncode == 2
        one, later = (version.partition("=")[0] for version in versions)
        assert (
            f"a version between {one} and {later} is missing, so it is not known which"
            f" of them brought what {later} has: give it too, or save its registry in"
            " opdefs/registries"
        ) in done.stderr
        assert (dated / "opdefs/math/Roll.yaml").read_text("utf-8") == ROLL


@pytest.mark.slow  # In a process with TensorFlow.
def test_since_without_any_version_is_refused(dated: Path) -> None:
    done = command_on_registry("since", cwd=dated)
    assert done.returncode == 2
    assert (
        "no version to compare: opdefs/registries has none, so give each:"
        " 2.21=ops-2.21.pb"
    ) in done.stderr


@pytest.mark.slow  # In a process with TensorFlow.
def test_since_with_a_registry_of_another_name_is_refused(dated: Path) -> None:
    kept(dated, "2.21.0", [])
    done = command_on_registry("since", cwd=dated)
    assert done.returncode == 2
    said = "opdefs/registries/2.21.0.pb.xz: the registry of a TensorFlow is named"
    assert f"{said} 2.21.pb.xz" in done.stderr


@pytest.mark.rotating
@pytest.mark.slow  # In a process with TensorFlow.
def test_since_writes_the_first_version_without_an_op_or_attr(dated: Path) -> None:
    kept(dated, "2.21", [op("Gone", [1]), op("Roll", [1, 19, 6], "by", "fast")])
    kept(dated, "2.22", [op("Roll", [1, 19, 6], "by")])
    kept(dated, "2.23", [op("Roll", [1, 19, 6], "by")])
    done = command_on_registry("since", cwd=dated)
    assert done.returncode == 0, done.stderr
    roll = dated / "opdefs/math/Roll.yaml"
    assert "default: false, dropped_in: '2.22'}" in roll.read_text("utf-8")
    gone = (dated / "opdefs/math/Gone.yaml").read_text("utf-8")
    assert "since: '2.17'\ndropped_in: '2.22'\ninputs:" in gone
    assert gone.count("dropped_in") == 1
    # An import of a TensorFlow without the option keeps it, in its place.
    text = roll.read_text("utf-8")
    path = dated / "newest.pb"
    path.write_bytes(registry.save([op("Roll", [1, 19, 6], "by")], path))
    done = command_on_registry("import", "--library", path, cwd=dated)
    assert done.returncode == 0, done.stderr
    assert roll.read_text("utf-8") == text
    # A version that has the option takes the date back.
    kept(dated, "2.23", [op("Roll", [1, 19, 6], "by", "fast")])
    assert command_on_registry("since", cwd=dated).returncode == 0
    assert "dropped_in" not in roll.read_text("utf-8")


@pytest.mark.slow  # In a process with TensorFlow.
def test_since_keeps_the_first_version_without_an_op_that_is_newer(dated: Path) -> None:
    roll = dated / "opdefs/math/Roll.yaml"
    text = ROLL.replace("since: '2.17'\n", "since: '2.17'\ndropped_in: '2.22'\n")
    roll.write_text(text)
    assert (
        command_on_registry("since", "2.20=a.pb", "2.21=b.pb", cwd=dated).returncode
        == 0
    )
    assert "since: '2.17'\ndropped_in: '2.22'\n" in roll.read_text("utf-8")


@pytest.mark.slow  # In a process with TensorFlow.
def test_import_puts_a_dropped_option_where_it_was(dated: Path) -> None:
    roll = dated / "opdefs/math/Roll.yaml"
    roll.write_text(ROLL.replace("since: '2.18'}", "dropped_in: '2.22'}"))
    path = dated / "newest.pb"
    # Were `by` not known to be dropped, the new option would seem to be `by`, renamed.
    newest = op("Roll", [1, 19, 6], "fast", "turns")
    path.write_bytes(registry.save([newest], path))
    done = command_on_registry("import", "--library", path, cwd=dated)
    assert done.returncode == 0, done.stderr
    text = roll.read_text("utf-8")
    names = re.findall(r"\{name: (\w+), type: (?:int|bool)", text)
    assert names == ["by", "fast", "turns"]
    assert "is now" not in done.stdout


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (
            ROLL.replace("since: '2.17'\n", "since: '2.17'\ndropped_in: '2.17'\n"),
            "'dropped_in' of 'Roll' is 2.17, the first version without it; it must be"
            " later than 'since', 2.17",
        ),
        (
            ROLL.replace("since: '2.18'}", "since: '2.18', dropped_in: '2.9'}"),
            "'dropped_in' of 'by' is 2.9, the first version without it; it must be"
            " later than 'since', 2.18",
        ),
        (
            ROLL.replace(
                "{name: T, type: type,", "{name: T, dropped_in: '2.22', type: type,"
            ),
            "'T' takes no 'dropped_in', which only options do",
        ),
    ],
)
def test_lint_of_a_dropped_in_that_cannot_be_is_a_problem(
    written: str, message: str, tmp_path: Path
) -> None:
    path = place(tmp_path / "opdefs", "math", "Roll", written)
    op, problems = load.load_text(path.read_bytes(), path)
    assert op is None
    assert any(message in problem.message for problem in problems)


def test_dump_of_an_opdef_with_dropped_in_is_the_same_text() -> None:
    written = ROLL.replace("since: '2.17'\n", "since: '2.17'\ndropped_in: '2.22'\n")
    written = written.replace("default: false}", "default: false, dropped_in: '2.22'}")
    op, problems = load.load_text(written.encode(), Path("math/Roll.yaml"))
    assert op is not None and problems == []
    assert dump.dump(op) == written


HISTORY = {version: str(path) for version, path in registries.kept(OPDEFS).items()}


def test_kept_registries_begin_with_the_versions_that_wheels_are_for() -> None:
    """A version whose release is not out yet can follow them."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    versions = re.search(r"^VERSIONS \?= (.*)$", makefile, re.MULTILINE)
    assert versions is not None
    supported = versions[1].split()
    assert [*HISTORY][: len(supported)] == supported
    assert len(HISTORY) <= len(supported) + 1


@pytest.mark.rotating
@pytest.mark.slow  # It takes seconds.
@pytest.mark.parametrize("first", range(len(HISTORY)))
def test_dated_by_kept_registries_changes_no_opdef(first: int) -> None:
    """Also by the later ones alone, which do not tell what the earlier ones brought."""
    history = [
        (version, ops_by_name(path)) for version, path in [*HISTORY.items()][first:]
    ]
    changed = [op.name for op in every_op().values() if since.dated(op, history) != op]
    assert changed == []


@cache
def ops_by_name(path: str) -> dict[str, Op]:
    return {op.name: op for op in sources.ops(path)[0]}


@pytest.mark.rotating
@pytest.mark.slow  # In a process with TensorFlow.
def test_source_that_is_a_version_is_its_registry(tmp_path: Path) -> None:
    done = command_on_registry("diff", "2.20", "2.21", cwd=tmp_path)
    assert "DecodeJxl: added the op\n" in done.stdout
    done = command_on_registry("save", "2.17", "ops.pb", cwd=tmp_path)
    assert done.returncode == 2
    assert "2.17: no OpList can be read from it" in done.stderr
