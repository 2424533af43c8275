"""The contract between generated code and the runtime: its names and its number."""

import os
import re
import shutil
from pathlib import Path

import pytest

import opwright
from opwright_codegen import emit
from opwright_runtime import gencode, types
from support.processes import run_code

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "expected"


def run(folder: Path, program: str) -> str:
    """What a program prints that finds the packages in `folder`."""
    path = os.pathsep.join([str(folder), str(ROOT / "runtime")])
    done = run_code(program, PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_abi_of_generator_equals_runtime() -> None:
    assert emit.ABI == gencode.ABI


@pytest.mark.slow  # In a process with TensorFlow.
def test_package_with_other_abi_is_refused(tmp_path: Path) -> None:
    package = shutil.copytree(GOLDEN / "odd_ops", tmp_path / "odd_ops")
    init = package / "__init__.py"
    stated = f"abi={gencode.ABI},"
    assert init.read_text().count(stated) == 1
    other = gencode.ABI + 1
    init.write_text(init.read_text().replace(stated, f"abi={other}, ops={{}},"))
    said = run(
        tmp_path,
        """
import importlib, sys
for name in ("odd_ops", "odd_ops.args", "odd_ops.args.odd_counts"):
    try:
        importlib.import_module(name)
    except ImportError as error:
        assert error.name == "odd_ops"
        print(error)
assert not [name for name in sys.modules if name.startswith("odd_ops.args")]
""",
    ).splitlines()
    words = (
        f"odd_ops was generated for contract {other} between generated code and "
        f"opwright's runtime; opwright {opwright.__version__}, which is installed, has "
        f"contract {gencode.ABI}. Generate odd_ops anew with its `opwright-codegen "
        f"generate`, or install an opwright that has contract {other}"
    )
    assert said == [words] * 3


def test_package_of_this_abi_may_pass_no_other_name() -> None:
    with pytest.raises(TypeError, match="of_no_package: declare_package takes no ops"):
        gencode.declare_package("of_no_package", abi=gencode.ABI, ops={})


IMPORT = re.compile(
    r"^ *from opwright_runtime\.gencode import (?:\(([^)]+)\)|(.+))", re.MULTILINE
)


def names_of(path: Path) -> set[str]:
    """What a generated file imports from the runtime, to run or to be checked."""
    found = IMPORT.findall(path.read_text("utf-8"))
    names = {name.strip() for pair in found for name in ",".join(pair).split(",")}
    return {name.partition(" as ")[0] for name in names} - {""}


def test_gencode_exports_equal_generated_imports(tmp_path: Path) -> None:
    root = tmp_path / "__init__.py"
    root.write_text(emit.root_source("my", ["audio"], "lib.so", ".gradients"))
    paths = [*(ROOT / "generated").rglob("*.py"), *GOLDEN.rglob("*.py"), root]
    used = set().union(*map(names_of, paths))
    assert used <= set(gencode.__all__)
    # A dtype may be one that no op of TensorFlow names.
    assert set(gencode.__all__) - used <= {"ABI", *types.__all__}
