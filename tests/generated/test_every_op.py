"""Every op of the installed TensorFlow, but for its own test ops, has a class."""

import opwright
from opwright_codegen.left_out import TEST_OPS
from support.facts import FACTS
from support.opdefs import every_op
from support.processes import run_code
from support.versions import installed_ops

# Runs in a process of its own: another test may have loaded a library of ops here.
LIST_OPS = """
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.client import pywrap_tf_session as session

listed = session.TF_GetBuffer(session.TF_GetAllOpList())
print(*(op.name for op in op_def_pb2.OpList.FromString(listed).op))
"""


def test_op_names_cover_installed_tensorflow() -> None:
    listed = run_code(LIST_OPS).stdout
    public = {name for name in listed.split() if not name.startswith("_")}
    assert len(TEST_OPS) == FACTS["tensorflow_test_ops"]
    assert public > TEST_OPS
    assert set(installed_ops()) == public - TEST_OPS
    assert set(opwright.op_names()) == set(every_op())
    assert len(opwright.op_names()) == FACTS["ops"]


def test_op_class_has_its_op_name() -> None:
    for name in opwright.op_names():
        assert name == opwright.op_class(name).OP_NAME
