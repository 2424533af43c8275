"""What errors say of arguments, options, attributes and names that do not exist."""

import inspect
from contextlib import nullcontext
from typing import Any

import pytest
import tensorflow as tf

import opwright
from opwright import OpError, OpInputError, OpOptionError, Scope
from opwright.dtypes import Cast
from opwright.linalg import mat_mul
from opwright.math import AddV2, Cumsum, add_v2, cumsum
from opwright.nn import Conv2D, TopKV2, conv2d

X = tf.constant([1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("keyword", "value", "said"),
    [
        (
            "exclusive",
            True,
            "takes options as an object: write Cumsum.create(scope, x, axis, "
            "Cumsum.Options(exclusive=True)), or cumsum(x, axis, exclusive=True)",
        ),
        (
            "options",
            Cumsum.Options(),
            "takes options without a name: write "
            "Cumsum.create(scope, x, axis, options)",
        ),
        (
            "name",
            "total",
            "takes the name in the scope: write Cumsum.create("
            "Scope.current().with_name('total'), x, axis), or "
            "cumsum(x, axis, name='total')",
        ),
    ],
)
def test_create_keyword_of_another_form_says_how_to_write_it(
    keyword: str, value: object, said: str
) -> None:
    create: Any = Cumsum.create
    with pytest.raises(OpInputError) as caught:
        create(Scope.current(), X, 0, **{keyword: value})
    assert str(caught.value) == f"Cumsum: create {said}"
    assert caught.value.argument == keyword


@pytest.mark.parametrize(
    ("keyword", "meant"),
    [("axes", "axis"), ("exclusiv", r"Cumsum\.Options\(exclusive=\.\.\.\)")],
)
def test_create_unknown_keyword_names_those_it_has(keyword: str, meant: str) -> None:
    create: Any = Cumsum.create
    message = (
        rf"^Cumsum: has no argument '{keyword}'; it has scope, x, axis; "
        rf"Cumsum\.Options has exclusive, reverse; did you mean {meant}\?$"
    )
    with pytest.raises(OpInputError, match=message):
        create(Scope.current(), X, **{keyword: 0})


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (True, "True"),
        (X, r"float32\[3\]"),
        (Cumsum.Options, r"the class Cumsum\.Options"),
        (TopKV2.Options(), r"TopKV2\.Options"),
    ],
)
def test_create_surplus_argument_in_place_of_options_says_what_to_write(
    given: object, what: str
) -> None:
    create: Any = Cumsum.create
    message = (
        rf"^Cumsum: options must be Cumsum\.Options, not {what}; write "
        r"Cumsum\.Options\(exclusive=\.\.\.\), which has exclusive, reverse$"
    )
    with pytest.raises(OpOptionError, match=message):
        create(Scope.current(), X, 0, given)


def test_create_surplus_argument_is_counted() -> None:
    message = r"^AddV2: takes 3 positional arguments \(scope, x, y\), and 4 came$"
    with pytest.raises(OpInputError, match=message):
        AddV2.create(Scope.current(), X, X, X)  # type: ignore[arg-type]


def test_function_surplus_argument_names_the_keywords() -> None:
    with pytest.raises(OpInputError) as caught:
        cumsum(X, 0, True)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "Cumsum: takes 2 positional arguments (x, axis), and 3 came; "
        "by name: exclusive, reverse, name"
    )


def test_function_options_object_belongs_to_create() -> None:
    with pytest.raises(OpInputError) as caught:
        cumsum(X, 0, Cumsum.Options(reverse=True))  # type: ignore[arg-type]
    assert str(caught.value).endswith("; an Options object belongs to Cumsum.create")


def test_function_surplus_and_missing_keep_their_own_words() -> None:
    with pytest.raises(OpInputError, match=r"^AddV2: y is missing$"):
        add_v2(X)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "call, arguments, said",
    [
        (conv2d, [], "input is missing"),
        (conv2d, [X], "filter is missing"),
        (
            conv2d,
            [X, X],
            "strides is missing: it must be a sequence, each element an int",
        ),
        (
            conv2d,
            [X, X, [1, 1, 1, 1]],
            "padding is missing: it must be one of 'SAME', 'VALID', 'EXPLICIT'",
        ),
        (Conv2D.create, [Scope.current(), X], "filter is missing"),
        (
            Cast.create,
            [Scope.current(), X],
            "DstT is missing: it must be a dtype, such as TFloat32 or tf.float32",
        ),
    ],
)
@pytest.mark.parametrize("in_graph", [False, True])
def test_call_missing_arguments_names_the_first_one(
    call: Any, arguments: list[Any], said: str, in_graph: bool
) -> None:
    graph = tf.Graph().as_default() if in_graph else nullcontext()
    with graph, pytest.raises(OpError) as caught:
        call(*arguments)
    assert str(caught.value) == f"{caught.value.op}: {said}"
    assert caught.value.argument == said.split()[0]


def test_options_unknown_field_names_the_close_one() -> None:
    with pytest.raises(OpInputError) as caught:
        Cumsum.Options(exclusiv=True)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "Cumsum.Options: has no argument 'exclusiv'; it has exclusive, reverse; "
        "did you mean exclusive?"
    )


def test_options_field_of_create_says_so() -> None:
    with pytest.raises(OpInputError, match=r"; padding is an argument of create$"):
        Conv2D.Options(padding="SAME")  # type: ignore[arg-type]


def test_argument_in_other_case_is_suggested() -> None:
    call: Any = opwright.ragged.ragged_gather
    with pytest.raises(OpInputError, match=r"did you mean OUTPUT_RAGGED_RANK\?$"):
        call([[0, 1]], X, [0], output_ragged_rank=1)


def test_options_argument_without_name_names_the_fields() -> None:
    options: Any = Cumsum.Options
    with pytest.raises(OpInputError) as caught:
        options(True)
    assert str(caught.value) == (
        "Cumsum.Options: takes its arguments by name, exclusive, reverse; True came "
        "without one"
    )


def test_op_missing_attribute_names_its_outputs() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = TopKV2.create(Scope.current(), X, 2).vals  # type: ignore[attr-defined]
    assert str(caught.value) == (
        "'TopKV2' object has no attribute 'vals'; its outputs are values, indices; "
        "did you mean values?"
    )


@pytest.mark.parametrize("name", ["options", "exclusive", "axis"])
def test_op_attribute_of_an_input_or_attr_says_where_it_is(name: str) -> None:
    with tf.Graph().as_default():
        op = Cumsum.create(Scope.current(), [1.0], 0)
        with pytest.raises(AttributeError) as caught:
            getattr(op, name)
        assert str(caught.value) == (
            f"'Cumsum' object has no attribute {name!r}; its output is out; inputs and "
            "attrs of an op in a graph are in .inputs"
        )
        assert op.inputs.exclusive is False


def test_tensor_op_missing_attribute_names_its_output() -> None:
    op = Cumsum.create(Scope.current(), X, 0)
    with pytest.raises(AttributeError) as caught:
        _ = op.output  # type: ignore[attr-defined]
    assert str(caught.value) == (
        "'Cumsum' object has no attribute 'output'; its output is out"
    )
    assert not hasattr(op, "output")
    assert op.ndim == 1


@pytest.mark.parametrize(
    ("package", "name", "text"),
    [
        (
            "opwright.math",
            "matmul",
            "did you mean `from opwright.linalg import mat_mul`",
        ),
        ("opwright.math", "MatMul", "write `from opwright.linalg import MatMul`"),
        (
            "opwright.linalg",
            "matmul",
            "did you mean `from opwright.linalg import mat_mul`",
        ),
        ("opwright", "matmul", "did you mean `from opwright.linalg import mat_mul`"),
        ("opwright.math", "reduce_sum", "opwright.search('reduce_sum') finds ops"),
    ],
)
def test_import_name_that_a_package_lacks_says_what_to_import(
    package: str, name: str, text: str
) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from {package} import {name}", {})
    assert text in str(caught.value)


def test_package_private_name_is_a_plain_attribute_error() -> None:
    with pytest.raises(AttributeError) as caught:
        _ = opwright.math._nothing
    assert str(caught.value) == "module 'opwright.math' has no attribute '_nothing'"


def test_signatures_show_no_parameter_for_refused_arguments() -> None:
    for stated in (mat_mul, Cumsum.create, Cumsum.Options):
        shown = inspect.signature(stated).parameters
        assert not {"_surplus", "_unknown"} & {*shown}
