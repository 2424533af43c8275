"""`since`: what some versions tell is dated, and what they do not keeps its date."""

from __future__ import annotations

from pathlib import Path

import pytest
from tensorflow.core.framework import op_def_pb2

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


def test_since_takes_back_a_date_that_a_version_contradicts(dated: Path) -> None:
    path = dated / "opdefs/math/Roll.yaml"
    path.write_text(ROLL.replace("since: '2.17'", "since: '2.21'"))
    done = command_on_registry("since", "2.20=a.pb", "2.21=b.pb", cwd=dated)
    assert done.returncode == 0, done.stderr
    assert "\nsince: " not in path.read_text("utf-8")


@pytest.mark.parametrize("versions", [("2.21=b.pb", "2.20=a.pb"), ("2.9=a.pb",) * 2])
def test_since_of_versions_out_of_order_is_refused(
    versions: tuple[str, str], dated: Path
) -> None:
    done = command_on_registry("since", *versions, cwd=dated)
    assert done.returncode == 2
    assert "versions must be different ones, the oldest first" in done.stderr
    assert (dated / "opdefs/math/Roll.yaml").read_text("utf-8") == ROLL
