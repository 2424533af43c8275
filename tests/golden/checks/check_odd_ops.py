"""The goldens, run: every attr, input and output arrives as it was given.

Run by test_golden.py, in a process of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import odd_ops
import pytest
import tensorflow as tf
from odd_ops.args import (
    OddListOutput,
    OddRef,
    odd_counts,
    odd_inferred,
    odd_list_output,
    odd_mixed,
    odd_no_input,
    odd_no_output,
    odd_nothing,
    odd_ref,
)
from odd_ops.attrs import (
    OddEnums,
    OddMinimum,
    OddTexts,
    odd_bytes,
    odd_enums,
    odd_function,
    odd_function_default,
    odd_functions,
    odd_half,
    odd_lists,
    odd_minimum,
    odd_named_dims,
    odd_nan,
    odd_numbers,
    odd_packed,
    odd_required,
    odd_shapes,
    odd_tensor_lists,
    odd_tensors,
    odd_texts,
)
from odd_ops.docs import OddProse, odd_deprecated, odd_prose
from odd_ops.dtypes import (
    odd_default_dtype,
    odd_required_dtype,
    odd_silent_dtype,
    odd_two_dtypes,
)
from odd_ops.names import (
    OddCollisions,
    OddMembers,
    OddReserved,
    Op_,
    any,
    if_,
    iterator,
    lambda_,
    odd_collisions,
    odd_reserved,
    op,
    unpack,
)
from odd_ops.names.spaces import AddonsOddSpace, addons_odd_space

from opwright_runtime.api import OpError, Scope, TFloat32, TInt32, TInt64, TString

tf.load_library(os.environ["ODD_OPS_LIBRARY"])

Run = Callable[[Callable[[], Any]], Any]


def eagerly(make: Callable[[], Any]) -> Any:
    return make()


def in_a_function(make: Callable[[], Any]) -> Any:
    return tf.function(make)()


def in_a_graph(make: Callable[[], Any]) -> Any:
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return session.run(make())


def values(results: Any) -> Any:
    return tf.nest.map_structure(
        lambda x: x.numpy() if hasattr(x, "numpy") else x, results
    )


@pytest.fixture(params=[eagerly, in_a_function, in_a_graph])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a function that makes tensors, and returns their values."""
    return lambda make: values(request.param(make))


@pytest.fixture(params=[in_a_function, in_a_graph])
def run_built(request: pytest.FixtureRequest) -> Run:
    """The same where ops are built first: eager execution takes no tensors as attrs."""
    return lambda make: values(request.param(make))


def attrs_of(text: Any) -> dict[str, str]:
    """The attrs that a kernel received, as its output lists them."""
    return dict(part.split("=", 1) for part in text.decode().split("; "))


def test_package_op_names_and_classes_agree() -> None:
    assert len(odd_ops.op_names()) == 56
    assert odd_ops.op_class("Addons>OddSpace") is AddonsOddSpace
    assert [odd_ops.op_class(name).OP_NAME for name in odd_ops.op_names()] == list(
        odd_ops.op_names()
    )


# Attrs.


def test_odd_lists_attrs_arrive(run: Run) -> None:
    assert attrs_of(run(lambda: odd_lists())) == {
        "ints": "[1, -2]",
        "floats": "[]",
        "bools": "[true]",
        "strings": '["a", ""]',
        "types": "[DT_FLOAT, DT_STRING]",
        "shapes": "[<unknown>, [2]]",
    }
    given = attrs_of(
        run(
            lambda: odd_lists(
                ints=[],
                floats=(0.5, float("inf")),
                strings=[b"\xff", "é"],
                types=[TInt64, "half", tf.bool],
                shapes=[[], tf.TensorShape([None, 3]), None],
            )
        )
    )
    assert given["ints"] == "[]"
    assert given["floats"] == "[0.5, inf]"
    assert given["strings"] == '["\\377", "\\303\\251"]'
    assert given["types"] == "[DT_INT64, DT_HALF, DT_BOOL]"
    assert given["shapes"] == "[[], [?,3], <unknown>]"


def test_odd_required_attrs_arrive(run_built: Run) -> None:
    attrs = attrs_of(
        run_built(
            lambda: odd_required(
                2,
                0.5,
                True,
                "text",
                TString,
                [None, 2],
                [[1, 2]],
                [7],
                [TInt32],
                last=9,
            )
        )
    )
    assert attrs.pop("value").startswith("Tensor<type: int32 shape: [1,2]")
    assert attrs == {
        "i": "2",
        "f": "0.5",
        "b": "true",
        "s": '"text"',
        "t": "DT_STRING",
        "shape": "[?,2]",
        "last": "9",
        "sizes": "[7]",
        "dtypes": "[DT_INT32]",
    }


def test_odd_function_attrs_arrive(run: Run) -> None:
    concrete = tf.function(lambda x: x + 1).get_concrete_function(
        tf.TensorSpec([], tf.float32)
    )
    name = concrete.name.decode()
    assert name in attrs_of(run(lambda: odd_function(concrete)))["f"]
    attrs = attrs_of(run(lambda: odd_functions([concrete, concrete])))
    assert attrs["branches"].count(name) == 2
    assert attrs["spare"] == "[]"


def test_odd_tensors_attr_arrives(run: Run, run_built: Run) -> None:
    np.testing.assert_array_equal(run(lambda: odd_tensors()), [[1], [-2]])
    assert run_built(lambda: odd_tensors(value=np.int32(7))) == 7


def test_odd_tensor_lists_attrs_arrive(run_built: Run) -> None:
    attrs = attrs_of(run_built(lambda: odd_tensor_lists([1.5, np.zeros(2, np.int8)])))
    assert "type: float shape: [] values: 1.5" in attrs["must"]
    assert "type: int8 shape: [2] values: 0 0" in attrs["must"]
    assert attrs["may"] == "[]"


def test_tensor_attrs_in_eager_execution_are_refused() -> None:
    """Refused, as by TensorFlow's own functions, except for a default."""
    with pytest.raises(OpError, match="value"):
        odd_tensors(value=np.int32(7))
    with pytest.raises(OpError, match="must"):
        odd_tensor_lists([1.0])


def test_odd_shapes_attrs_arrive(run: Run) -> None:
    assert attrs_of(run(lambda: odd_shapes())) == {
        "unknown": "<unknown>",
        "scalar": "[]",
        "matrix": "[?,2]",
    }
    assert attrs_of(run(lambda: odd_shapes(unknown=[], scalar=None))) == {
        "unknown": "[]",
        "scalar": "<unknown>",
        "matrix": "[?,2]",
    }


def test_odd_numbers_defaults_arrive(run: Run) -> None:
    assert attrs_of(run(lambda: odd_numbers())) == {
        "high": "inf",
        "low": "-inf",
        "tenth": "0.1",
        "tiny": "1e-07",
        "least": "-9223372036854775808",
    }


def test_attrs_with_rare_defaults_arrive(run: Run) -> None:
    assert attrs_of(run(lambda: odd_nan())) == {"f": "nan", "fs": "[1, nan]"}
    assert attrs_of(run(lambda: odd_bytes())) == {
        "s": r'"\377\000\""',
        "ss": r'["\376", "a"]',
    }
    assert attrs_of(run(lambda: odd_named_dims())) == {"shape": "[?,2]"}
    assert attrs_of(run(lambda: odd_function_default()))["f"].startswith("f")
    half = run(lambda: odd_half())
    assert (half.dtype, half.tolist()) == (
        np.float16,
        np.float16([1, 0.1, 0.1]).tolist(),
    )
    packed = run(lambda: odd_packed())
    assert packed.astype(np.float32).tolist() == [[1, 0.10009765625]]
    y, z = run(lambda: op(2.5))
    assert (y, z) == (2.5, 0)
    assert odd_ops.op_class("Op") is Op_
    assert Op_.create(Scope.current(), 1.5).y == 1.5


def test_odd_texts_defaults_are_escaped(run: Run) -> None:
    assert OddTexts.Options().as_dict() == {
        "quotes": 'it\'s "so"',
        "escapes": "C:\\new\n\ttab",
        "empty": "",
        "yes": "no",
    }
    assert attrs_of(run(lambda: odd_texts())) == {
        "quotes": r'"it\'s \"so\""',
        "escapes": r'"C:\\new\n\ttab"',
        "empty": '""',
        "yes": '"no"',
    }


def test_odd_enums_allowed_values_are_checked(run: Run) -> None:
    attrs = attrs_of(run(lambda: odd_enums("b c", modes=["y", "y"])))
    assert attrs == {"must": '"b c"', "mode": '"good"', "modes": '["y", "y"]'}
    with pytest.raises(OpError, match=r"OddEnums.*must.*'c'"):
        run(lambda: odd_enums("c"))
    with pytest.raises(OpError, match=r"modes.*'z'"):
        OddEnums.Options(modes=["x", "z"])


def test_odd_minimum_is_checked(run: Run) -> None:
    attrs = attrs_of(run(lambda: odd_minimum(2, width=-1, sizes=(1, 2, 3))))
    assert attrs == {"depth": "2", "width": "-1", "sizes": "[1, 2, 3]"}
    with pytest.raises(OpError, match="depth must be at least 2, not 1"):
        run(lambda: odd_minimum(1))
    with pytest.raises(OpError, match=r"sizes"):
        OddMinimum.Options(sizes=[1])


# Inputs and outputs.


def test_ops_without_outputs_run() -> None:
    odd_nothing()
    with tf.Graph().as_default() as graph:
        odd_nothing(name="void")
        odd_no_output([1.0, 2.0])
        assert [op.type for op in graph.get_operations()][-1] == "OddNoOutput"
    tf.function(lambda: odd_no_output([1, 2]) and None)()
    odd_no_output([tf.constant("a")])


def test_odd_no_input_gives_a_tensor(run: Run) -> None:
    assert run(lambda: odd_no_input()) == 0
    assert tf.abs(odd_no_input()) == 0


def test_odd_ref_takes_references_only() -> None:
    with pytest.raises(OpError, match="ref"):
        odd_ref(tf.Variable(1.0), 2.0)
    with tf.Graph().as_default():
        variable = tf.compat.v1.get_variable("v", initializer=1.0, use_resource=False)
        assert odd_ref(variable._ref(), 2.0).dtype == tf.dtypes.float32._as_ref
        op = OddRef.create(Scope.current(), variable._ref(), 2.0)
        assert op.output_ref.dtype == tf.dtypes.float32._as_ref
        assert op.inputs.value.dtype == tf.float32


def test_odd_inferred_attrs_follow_the_inputs(run: Run) -> None:
    """The dtype of the inputs wins over the default."""
    assert run(lambda: odd_inferred(np.int32(3), [1.0, 2.0])) == 3
    assert run(lambda: odd_inferred(tf.constant(3), [])).dtype == np.int32
    assert run(lambda: odd_inferred(1.5, [])) == 1.5


def test_odd_counts_lists_keep_their_lengths(run: Run) -> None:
    def make() -> Any:
        op = odd_counts([1, 2], [0.5, tf.constant(1.5)], [])
        return op.x, op.y, op.z

    x, y, z = run(make)
    assert (list(x), list(y), list(z)) == ([1, 2], [0.5, 1.5], [])

    def longer() -> Any:
        op = odd_counts([1], [b"b"], ["c", "d"])
        return [*op.x, *op.y, *op.z]

    assert run(longer) == [1, b"b", b"c", b"d"]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_odd_list_output_gives_a_list(run: Run, count: int) -> None:
    outputs = run(lambda: odd_list_output(count))
    assert isinstance(outputs, list)
    assert outputs == [0.0] * count
    assert not hasattr(OddListOutput, "as_output")


def test_odd_mixed_lists_keep_their_dtypes(run: Run) -> None:
    def make() -> Any:
        op = odd_mixed([1, "two", [3.0]], [TString, "float32"])
        return op.outputs, op.made

    outputs, made = run(make)
    assert [np.asarray(value).tolist() for value in outputs] == [1, b"two", [3.0]]
    assert list(made) == [b"", 0.0]

    outputs, made = run(
        lambda: (lambda op: (op.outputs, op.made))(odd_mixed([], [TInt32]))
    )
    assert (list(outputs), list(made)) == ([], [0])


# dtypes that are arguments.


@pytest.mark.parametrize("dtype", [TInt64, tf.int64, "int64", np.int64])
def test_odd_required_dtype_is_that_of_the_output(run: Run, dtype: Any) -> None:
    assert run(lambda: odd_required_dtype(1.0, dtype).output).dtype == np.int64
    with pytest.raises(OpError, match="int32, int64, not TFloat32"):
        run(lambda: odd_required_dtype(1.0, TFloat32).output)


def test_odd_default_dtype_is_that_of_the_output(run: Run) -> None:
    assert run(lambda: odd_default_dtype("x").output).dtype == np.int32
    assert run(lambda: odd_default_dtype(1, out_type=TFloat32).output).dtype == "f4"
    assert run(lambda: odd_default_dtype(1.0, out_type=tf.string).output) == b""


def test_odd_two_dtypes_are_those_of_the_outputs(run: Run) -> None:
    def dtypes(**given: Any) -> list[Any]:
        op = odd_two_dtypes(**given)
        return [op.a, op.b]

    assert [x.dtype for x in run(dtypes)] == [np.float32, np.int64]
    given = run(lambda: dtypes(Ta=TInt32, Tb=tf.bool, seed=3))
    assert [x.dtype for x in given] == [np.int32, np.bool_]


def test_odd_silent_dtype_attr_arrives(run: Run) -> None:
    assert attrs_of(run(lambda: odd_silent_dtype())) == {"dtype": "DT_FLOAT"}
    given = run(lambda: odd_silent_dtype(dtype=TInt32))
    assert attrs_of(given) == {"dtype": "DT_INT32"}


# Names.


def test_odd_reserved_names_get_an_underscore(run: Run) -> None:
    def make() -> Any:
        op = odd_reserved(in_=1.0, lambda_=2.0, class_=3, def_=4)
        return op.is_, op.not_

    assert tuple(run(make)) == (1.0, 2.0)
    with tf.Graph().as_default():
        operation = odd_reserved(1.0, 2.0, 3).is_.op
        view = OddReserved.from_operation(operation).inputs
        assert (view.class_, view.def_) == (3, 0)
        assert view.in_ is operation.inputs[0]
        assert view.attribute_names() == ("class", "def")
    with pytest.raises(OpError, match="class_"):
        odd_reserved(1.0, 2.0, "x")


def test_odd_collisions_names_get_an_underscore(run: Run) -> None:
    def make() -> Any:
        op = odd_collisions(1.0, 2, "bytes", True, TInt32, U=1, Output_=2, name="n")
        return op.op_, op.inputs_, op.create_, op.options_

    assert [np.asarray(x).tolist() for x in run(make)] == [1.0, 2, b"bytes", True]
    with tf.Graph().as_default():
        op = OddCollisions.create(
            Scope.current(), 1.0, 2, "bytes", True, TInt32, OddCollisions.Options(U=7)
        )
        view = op.inputs
        assert (view.T, view.T2, view.U, view.Output_) == (tf.int32, tf.string, 7, 0)
        assert view.name_ is op.op.inputs[1]
        assert op.op.get_attr("T") == tf.int32


def test_odd_members_options_get_an_underscore(run: Run) -> None:
    options = OddMembers.Options(as_dict_=False, int_="str").with_merge_(False)
    assert options.explicit == {"as_dict_", "int_", "merge_"}
    assert options.as_dict() == {
        "as_dict_": False,
        "merge_": False,
        "explicit_": True,
        "Literal_": True,
        "attribute_names_": True,
        "int_": "str",
    }
    attrs = attrs_of(run(lambda: OddMembers.create(Scope.current(), options).said))
    assert attrs["as_dict"] == attrs["merge"] == "false"
    assert attrs["int"] == '"str"'
    with tf.Graph().as_default():
        given = OddMembers.Options(explicit_=False)
        view = OddMembers.create(Scope.current(), given).inputs
        assert (view.explicit_, view.as_dict_, view.int_) == (False, True, "int")
        assert "attribute_names" in view.attribute_names()


def test_ops_named_like_python_names_run(run: Run) -> None:
    assert run(lambda: any([[True], [False]], 0)) == [True]
    assert run(lambda: unpack([[1, 2], [3, 4]], 2, axis=1))[1].tolist() == [2, 4]
    handle = iterator("shared", "", [TInt32], [[]])
    assert handle.dtype == tf.resource
    assert run(lambda: lambda_(2.5)) == 2.5


def test_if_op_runs_the_chosen_branch(run: Run) -> None:
    branches = [
        tf.function(lambda x, sign=sign: x * sign).get_concrete_function(
            tf.TensorSpec([], tf.float32)
        )
        for sign in (1.0, -1.0)
    ]
    for condition, expected in ((True, 2.0), (False, -2.0)):
        (result,) = run(
            lambda condition=condition: if_(condition, [2.0], [TFloat32], *branches)
        )
        assert result == expected


def test_addons_odd_space_keeps_its_namespace(run: Run) -> None:
    assert run(lambda: addons_odd_space(1.5)) == 1.5
    with tf.Graph().as_default():
        op = AddonsOddSpace.create(Scope.current("mine"), 1.5)
        assert op.op.type == "Addons>OddSpace"
        assert repr(op).startswith("<Addons>OddSpace 'mine:0' ")


# Documentation.


def test_odd_prose_docstring_keeps_special_characters(run: Run) -> None:
    assert run(lambda: odd_prose(1.0, gain=2.0)) == 1.0
    assert "C:\\new\\table" in (OddProse.__doc__ or "")
    assert 'three """ in its docs' in (OddProse.__doc__ or "")
    assert "    y = x * gain ** {gain}      # {{ not" in (OddProse.__doc__ or "")


def test_odd_deprecated_is_refused(run: Run) -> None:
    """A graph of a version that removed the op is refused."""
    with pytest.raises(OpError, match=r"OddDeprecated.*version 7"):
        run(lambda: odd_deprecated(1.0))
