"""What is read: regular files of a bounded size, whose names forge no line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tensorflow.core.framework import op_def_pb2

from opwright_codegen import contents
from support.processes import Done
from support.workplace import command, command_on_registry, place, tree


def ended(folder: Path, *arguments: str) -> Done:
    """What a command says that has to end, whatever it is to read."""
    return command(*arguments, cwd=folder, timeout=120)


@pytest.mark.parametrize("arguments", [["lint"], ["generate"], ["native"]])
def test_command_with_a_fifo_among_opdefs_names_it(
    arguments: list[str], tmp_path: Path
) -> None:
    place(tmp_path / "opdefs", "math", "Roll")
    os.mkfifo(tmp_path / "opdefs/math/Add.yaml")
    (tmp_path / "opdefs/math/Zero.yaml").symlink_to("/dev/zero")
    before = tree(tmp_path)
    done = ended(tmp_path, *arguments)
    assert done.returncode == 1
    assert done.stderr.splitlines()[:2] == [
        "opdefs/math/Add.yaml:1:1: Add: cannot be read: is a FIFO, not a regular file",
        "opdefs/math/Zero.yaml:1:1: Zero: cannot be read: is a device, not a regular"
        " file",
    ]
    assert tree(tmp_path) == before


def test_generate_with_a_fifo_for_groups_or_in_the_way_names_it(tmp_path: Path) -> None:
    place(tmp_path / "opdefs", "math", "Roll")
    os.mkfifo(tmp_path / "opdefs/groups.yaml")
    done = ended(tmp_path, "generate")
    assert "opdefs/groups.yaml:1:1: groups: cannot be read: is a FIFO" in done.stderr
    os.unlink(tmp_path / "opdefs/groups.yaml")
    module = tmp_path / "generated/opwright/math/roll.py"
    module.parent.mkdir(parents=True)
    os.mkfifo(module)
    done = ended(tmp_path, "generate")
    assert done.returncode == 1
    assert "generated/opwright/math/roll.py: is a FIFO, not a reg" in done.stderr


@pytest.mark.rotating
@pytest.mark.slow  # In a process with TensorFlow.
@pytest.mark.parametrize("name", ["ops.pb", "ops.so"])
def test_source_that_is_a_fifo_is_refused(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    where = ("--library", name, "--opdefs", "opdefs", "--group", "mine")
    done = command_on_registry("import", *where, cwd=tmp_path)
    assert done.returncode == 2
    assert f"{name}: " in done.stderr and "regular file" in done.stderr


def test_of_a_file_beyond_the_bound_raises(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.write_bytes(b"x" * 11)
    assert contents.of(path, most=11) == b"x" * 11
    with pytest.raises(OSError, match="has more than") as raised:
        contents.of(path, most=10)
    assert raised.value.filename == str(path)


def test_of_list_of_a_compressed_list_reverses_packed(tmp_path: Path) -> None:
    for name in ("2.21.pb.xz", "ops.pb"):
        path = tmp_path / name
        path.write_bytes(contents.packed(b"op" * 1000, path))
        assert (path.stat().st_size < 1000) == name.endswith(".xz")
        assert contents.of_list(path) == b"op" * 1000


def test_of_list_of_a_damaged_compressed_list_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ops.pb.xz"
    whole = contents.packed(b"op" * 1000, path)
    for content, message in (
        (b"ops", "does not unpack"),
        (whole[:-4], "is cut off"),
        (b"", "is cut off"),
    ):
        path.write_bytes(content)
        with pytest.raises(OSError, match=message) as raised:
            contents.of_list(path)
        assert raised.value.filename == str(path)
    path.write_bytes(whole)
    monkeypatch.setattr(contents, "LIST", 1999)
    with pytest.raises(OSError, match="has more than"):
        contents.of_list(path)


def test_entries_of_an_op_list_are_its_op_defs_in_any_order() -> None:
    ops = [op_def_pb2.OpDef(name="A" * size) for size in (300, 1, 20_000)]
    found = [
        contents.entries(op_def_pb2.OpList(op=one).SerializeToString())
        for one in (ops, ops[::-1])
    ]
    assert found[0] == found[1] == sorted(op.SerializeToString() for op in ops)
    assert contents.entries(b"") == []


@pytest.mark.parametrize("cut", [1, 2, 100, 302])
def test_entries_of_an_op_list_that_is_cut_off_raises(cut: int) -> None:
    ops = [op_def_pb2.OpDef(name="A" * 300)]
    read = op_def_pb2.OpList(op=ops).SerializeToString()
    assert len(contents.entries(read)) == 1
    with pytest.raises(ValueError, match="the last OpDef is cut off"):
        contents.entries(read[:cut])
    with pytest.raises(ValueError, match="byte 0 begins no OpDef"):
        contents.entries(read[1:])


@pytest.mark.slow  # In a process with TensorFlow.
def test_save_writes_ops_in_the_order_of_their_names(tmp_path: Path) -> None:
    done = command_on_registry("save", "installed", "ops.pb", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    read = (tmp_path / "ops.pb").read_bytes()
    names = [op.name for op in op_def_pb2.OpList.FromString(read).op]
    assert "MatMul" in names
    assert names == sorted(names)


def test_lint_of_a_name_with_line_breaks_prints_one_line(tmp_path: Path) -> None:
    forged = "X\nopdefs/math/Good.yaml:1:1: Good: forged\x1b[2K\u202e"
    place(tmp_path / "opdefs", "math", "Roll")
    (tmp_path / "opdefs/math" / f"{forged.replace('/', '|')}.yaml").write_text(
        "op: X\n"
    )
    done = command("lint", cwd=tmp_path)
    assert done.returncode == 1
    assert "\x1b" not in done.stderr and "\u202e" not in done.stderr
    assert not any(line.startswith("opdefs|") for line in done.stderr.splitlines())
    assert r"X\nopdefs|math|Good.yaml:1:1: Good: forged\x1b[2K\u202e" in done.stderr


def test_generate_from_a_folder_with_a_line_break_runs_none_of_it(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "defs\nraise SystemExit(7)  # "
    place(folder, "math", "Roll")
    arguments = ("--opdefs", folder, "--output", "src", "--package", "my_ops")
    done = command("generate", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "src/my_ops/math/roll.py").read_text("utf-8").splitlines()
    assert r"defs\nraise SystemExit(7)  # /math/Roll.yaml" in lines[0] + lines[1]
    assert not any(line.startswith("raise SystemExit") for line in lines)
