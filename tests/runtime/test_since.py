"""The error names what this TensorFlow lacks and a newer or an older one has.

The registry of the installed one has all of it: the tests take parts out.
"""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

import opwright
from opwright.functions import BatchFunction, batch_function
from opwright.image import DecodeJxl, decode_jxl
from opwright.math import Range
from opwright.xla import XlaCallModule
from opwright_runtime import errors
from opwright_runtime._binding import dispatch, op_info
from opwright_runtime.types import dtypes


class Registry:
    """TensorFlow's, without an op, attr or value."""

    def __init__(self, without: str) -> None:
        self.without, _, self.value = without.partition("=")

    def get(self, name: str) -> Any:
        if name == self.without:
            return None
        op_def = tf.compat.v1.get_default_graph().op_def_for_type(name)
        older = type(op_def)()
        older.CopyFrom(op_def)
        for attr in list(older.attr):
            if attr.name != self.without:
                continue
            if not self.value:
                older.attr.remove(attr)
            else:
                attr.allowed_values.list.type.remove(
                    tf.as_dtype(self.value).as_datatype_enum
                )
        return older


@pytest.fixture
def older(monkeypatch: pytest.MonkeyPatch) -> Any:
    def without(cls: type[opwright.Op], what: str) -> op_info.OpInfo:
        monkeypatch.setattr(op_info, "op_def_registry", Registry(what))
        monkeypatch.delattr(cls, "_cached_info", raising=False)
        info = cls._info()
        monkeypatch.setattr(cls, "_cached_info", info)
        return info

    return without


def test_create_op_of_newer_tensorflow_is_refused(
    older: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        rf"TensorFlow {tf.__version__} has no op DecodeJxl: TensorFlow 2.21 brought it"
    )
    with pytest.raises(opwright.OpUnknownError, match=words):
        older(DecodeJxl, "DecodeJxl")

    def refuse(*_: object) -> None:
        raise tf.errors.NotFoundError(None, None, "no such op")

    monkeypatch.setitem(
        vars(__import__(decode_jxl.__module__, fromlist=["x"])), "execute", refuse
    )
    with pytest.raises(opwright.OpUnknownError, match=words):
        decode_jxl(b"")


def test_options_attr_of_newer_tensorflow_is_refused(older: Any) -> None:
    info = older(XlaCallModule, "use_shardy_partitioner")
    assert "use_shardy_partitioner" not in info.attr
    words = (
        rf"XlaCallModule: use_shardy_partitioner must be left at False \(TensorFlow "
        rf"{tf.__version__} has no such attr, 2.20 brought it\), not True"
    )
    with pytest.raises(opwright.OpAttrError, match=words):
        XlaCallModule.Options(use_shardy_partitioner=True)
    with pytest.raises(opwright.OpAttrError, match=words):
        XlaCallModule.Options().with_use_shardy_partitioner(True)
    left = XlaCallModule.Options(use_shardy_partitioner=False)
    assert left == XlaCallModule.Options()
    attrs = {"version": 5, "use_shardy_partitioner": False}
    assert dispatch._present(info, attrs) == {"version": 5}
    with pytest.raises(opwright.OpAttrError, match=words):
        dispatch._present(info, {"use_shardy_partitioner": True})


def test_create_op_that_tensorflow_dropped_is_refused(
    older: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DecodeJxl, "DROPPED_IN", {"DecodeJxl": "2.5"})
    monkeypatch.setattr(DecodeJxl, "SINCE", {})
    words = (
        rf"TensorFlow {tf.__version__} has no op DecodeJxl: TensorFlow 2\.5 dropped it:"
        " use another op, or an older TensorFlow"
    )
    with pytest.raises(opwright.OpUnknownError, match=words):
        older(DecodeJxl, "DecodeJxl")
    # A TensorFlow from before the op lacks it for the other reason.
    monkeypatch.setattr(DecodeJxl, "SINCE", {"DecodeJxl": "2.98"})
    monkeypatch.setattr(DecodeJxl, "DROPPED_IN", {"DecodeJxl": "2.99"})
    with pytest.raises(opwright.OpUnknownError, match=r"TensorFlow 2\.98 brought it$"):
        older(DecodeJxl, "DecodeJxl")


def test_options_attr_that_tensorflow_dropped_is_refused(
    older: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped = {"use_shardy_partitioner": "2.21"}
    monkeypatch.setattr(XlaCallModule, "DROPPED_IN", dropped)
    older(XlaCallModule, "use_shardy_partitioner")
    words = (
        r"XlaCallModule: use_shardy_partitioner must be left at False \(TensorFlow "
        rf"{tf.__version__} has no such attr, 2\.21 dropped it\), not True"
    )
    with pytest.raises(opwright.OpAttrError, match=words):
        XlaCallModule.Options(use_shardy_partitioner=True)
    left = XlaCallModule.Options(use_shardy_partitioner=False)
    assert left == XlaCallModule.Options()


def test_create_without_attr_of_newer_tensorflow_reads_default(older: Any) -> None:
    """An op is made without the attr, and reads as if it had it."""
    older(XlaCallModule, "use_shardy_partitioner")
    with tf.Graph().as_default() as graph:
        made = XlaCallModule.create(
            opwright.Scope(graph),
            [],
            5,
            b"",
            [],
            [],
        )
        assert made.inputs.use_shardy_partitioner is False


def test_make_value_of_newer_tensorflow_names_version(older: Any) -> None:
    info = older(Range, "Tidx=uint64")
    assert info.attr["Tidx"].brought(tf.uint64) == " (TensorFlow 2.20 brought uint64)"
    assert info.attr["Tidx"].brought(tf.string) == ""
    three = tf.constant(3, tf.uint64)
    refused = tf.errors.InvalidArgumentError(None, None, "Value for attr Tidx")
    with pytest.raises(
        opwright.OpInputError, match=r"\(TensorFlow 2.20 brought uint64\)"
    ):
        dispatch.make(info, opwright.Scope.current(), [three] * 3, {}, refused)


def test_dtype_of_newer_tensorflow_names_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(TypeError):

        class TNothing(dtypes.TType, name="nothing"):
            """Of no TensorFlow."""

    class TInt1(dtypes.TType, name="int1", since="9.9"):
        """Of one to come."""

    words = (
        rf"TensorFlow {tf.__version__} has no dtype int1, which TensorFlow 9.9 brought"
    )
    with pytest.raises(AttributeError, match=words):
        _ = TInt1.dtype
    with pytest.raises(TypeError, match=words):
        dtypes.as_dtype(TInt1)
    with pytest.raises(errors.OpInputError, match=words):
        opwright.typed(tf.constant(1), TInt1)
    with pytest.raises(errors.OpAttrError, match=words):
        opwright.op_class("Cast").create(opwright.Scope.current(), 1, TInt1)  # type: ignore[attr-defined]
    assert "int1" not in dtypes.DTYPES
    monkeypatch.delitem(dtypes._LACKING, TInt1)


def test_shapes_without_attr_of_newer_tensorflow_are_diagnosed(older: Any) -> None:
    """The diagnosis reads attrs that TensorFlow lacks: they are at their defaults."""
    older(BatchFunction, "enable_priority_aware_batch_scheduler")
    vector = tf.TensorSpec([None], tf.float32)
    add = tf.function(lambda x, y: x + y, input_signature=[vector, vector])
    words = r"in_tensors\[1\] has 3 elements, in_tensors\[0\] has 2 elements"
    with pytest.raises(opwright.OpInputError, match=words):
        batch_function(
            [tf.zeros([2]), tf.zeros([3])],
            [],
            f=add.get_concrete_function(),
            num_batch_threads=1,
            max_batch_size=8,
            batch_timeout_micros=1000,
            Tout=[opwright.TFloat32],
        )
