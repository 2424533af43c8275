"""Ops are imported when they are named; the runtime stands on little."""

import ast
import sys
from pathlib import Path

import pytest

import opwright
import opwright_runtime
from opwright import linalg, tpu
from opwright_runtime import embedding
from support.facts import FACTS
from support.processes import run_code

RUNTIME = Path(opwright_runtime.__file__).parent


def sources():
    """The modules of the runtime without those that have an extra of their own."""
    extras = {RUNTIME / "convert", RUNTIME / "tpu_check"}
    return [path for path in RUNTIME.rglob("*.py") if not extras & {*path.parents}]


def run(program):
    done = run_code(program)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow  # In a process with TensorFlow.
def test_one_op_imports_no_other():
    run("""
import sys
import opwright
from opwright.linalg import MatMul
import tensorflow as tf
from opwright import Scope
MatMul.create(Scope.current(), tf.constant([[1.0]]), tf.constant([[2.0]]))
names = {name for name in sys.modules if name.startswith("opwright.")}
assert names == {"opwright.linalg", "opwright.linalg.mat_mul"}, names
for name in ("crossing", "diagnosis", "equations", "resources"):
    assert f"opwright_runtime._binding.{name}" not in sys.modules, name
""")


@pytest.mark.slow  # In a process with TensorFlow.
def test_packages_are_imported_when_they_are_named():
    run("""
import sys
import opwright
assert "opwright.tpu" not in sys.modules
assert not any(name.startswith("opwright_runtime.convert") for name in sys.modules)
assert callable(opwright.tpu.software_strategy)
assert opwright.linalg.sparse.SparseMatrixMatMul.OP_NAME == "SparseMatrixMatMul"
assert "tpu" in dir(opwright) and "sparse" in dir(opwright.linalg)
try:
    opwright.tpus
except AttributeError as error:
    assert str(error) == "module 'opwright' has no attribute 'tpus'", error
else:
    raise AssertionError("opwright.tpus")
""")


@pytest.mark.slow  # In a process with TensorFlow.
def test_import_of_old_name_imports_one_op():
    run("""
import sys
import opwright
from opwright.core import Reshape, reshape
names = {name for name in sys.modules if name.startswith("opwright.")}
core = {"opwright.core"}
assert names == core | {"opwright.array", "opwright.array.reshape"}, names
from opwright.core.reshape import Reshape as old
import opwright.core.concat_v2
assert old is Reshape is opwright.array.Reshape
assert opwright.core.concat_v2 is opwright.array.concat_v2
assert opwright.core.reshape is reshape
assert "opwright.array.shape" not in sys.modules
""")


@pytest.mark.slow  # In a process with TensorFlow.
def test_import_of_function_precedes_module_of_same_name():
    run("""
import opwright.linalg.mat_mul
from opwright.linalg.mat_mul import MatMul
from opwright.linalg import mat_mul
import opwright.linalg as linalg
assert callable(mat_mul)
assert linalg.mat_mul is mat_mul
assert linalg.MatMul is MatMul
import sys
assert sys.modules["opwright.linalg.mat_mul"].mat_mul is mat_mul
""")


def test_tpu_package_lists_handwritten_names():
    assert "software_strategy" in dir(tpu)
    assert "EmbeddingConfig" in tpu.__all__
    assert tpu.EmbeddingConfig is embedding.EmbeddingConfig
    assert set(embedding.__all__) == set(tpu.__all__) - set(tpu._modules)
    # No op of that name hides it, nor it an op.
    assert not set(embedding.__all__) & set(tpu._modules)


def test_group_package_lists_ops():
    assert "MatMul" in dir(linalg)
    assert "mat_mul" in dir(linalg)
    assert "MatMul" in linalg.__all__
    assert linalg.MatMul is linalg.MatMul
    with pytest.raises(
        AttributeError, match=r"'opwright\.linalg' has no attribute 'a'"
    ):
        _ = linalg.a
    with pytest.raises(ImportError):
        exec("from opwright.linalg import a")


def test_op_names_are_sorted_and_complete():
    names = opwright.op_names()
    assert names == sorted(names)
    assert len(set(names)) == len(names) == FACTS["ops"]
    assert opwright.op_class("MatMul") is linalg.MatMul


def test_runtime_imports_declared_packages_only():
    base = {"tensorflow", "numpy", "typing_extensions"}
    base |= {"opwright_notation", "opwright_runtime"}
    for path in sources():
        # Keras's layers alone, which are imported when they are named.
        layers = path.stem in ("keras_layers", "keras_models")
        allowed = base | {"keras"} if layers else base
        if path.stem in ("cli", "convert_cli", "sparse_core_limits"):
            # Without rich, they print lines, or say how to install it.
            allowed = base | {"rich"}
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module]
            else:
                continue
            for name in names:
                root = name.partition(".")[0]
                assert root in allowed | sys.stdlib_module_names, (path.name, name)


def test_tensorflow_s_internals_are_named_in_one_place():
    for path in RUNTIME.rglob("*.py"):
        if path != RUNTIME / "_internals.py":
            assert "tensorflow.python" not in path.read_text(), path.name
