"""`opwright.raw_ops`: the names, keywords, results of `tf.raw_ops`, and our errors."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright
from opwright import raw_ops
from reference.support import examples
from support.equivalence import calls
from support.equivalence.modes import EAGER, FUNCTION
from support.equivalence.registry import op_def
from support.equivalence.results import difference, same
from support.equivalence.samples import by_table, every_sample, sample_named
from support.grouped import check_each, every_op_by_group
from support.opdefs import every_op
from support.processes import run_code
from support.versions import later

X = tf.constant([[1.0, 2.0], [3.0, 4.0]])
RAGGED = tf.ragged.constant([[0.5, 1.0], [2.0]])


def names_of_tensorflow() -> list[str]:
    return [name for name in dir(tf.raw_ops) if not name.startswith("_")]


def keywords(function: Any) -> set[str]:
    return {*inspect.signature(function).parameters}


def test_raw_ops_names_are_those_of_tensorflow() -> None:
    assert raw_ops.__all__ == names_of_tensorflow()
    assert {*names_of_tensorflow()} <= {*dir(raw_ops)}
    assert len(raw_ops.__all__) > 1400


def newer(name: str) -> set[str]:
    """The attrs of an op that the installed TensorFlow does not have yet."""
    since = opwright.op_class(name).SINCE
    return {attr for attr, version in since.items() if later(version)}


@every_op_by_group()
def test_raw_op_signature_equals_that_of_tensorflow(names: list[str]) -> None:
    def check(name: str) -> None:
        ours, theirs = getattr(raw_ops, name), getattr(tf.raw_ops, name)
        absent = newer(name)
        shown = inspect.signature(ours)
        kept = [one for one in shown.parameters.values() if one.name not in absent]
        assert shown.replace(parameters=kept) == inspect.signature(theirs)
        # The signature of TensorFlow does not say that arguments are keywords only.
        code = ours.__code__
        assert code.co_argcount == 0
        names = {*code.co_varnames[: code.co_kwonlyargcount]}
        assert names - absent == keywords(theirs)
        assert ours.__name__ == ours.__qualname__ == name
        assert ours.__doc__.strip()

    check_each({*names} & {*raw_ops.__all__}, check)


def call_raw_op(name: str, arguments: calls.Arguments) -> calls.Called:
    """Calls `opwright.raw_ops` where `calls.call_tensorflow` calls `tf.raw_ops`."""
    if name not in raw_ops.__all__:
        return calls.call_tensorflow(name, arguments)
    words = calls.RENAMED.get(name, {})
    given = {words.get(one, one): value for one, value in arguments.items()}
    with pytest.MonkeyPatch.context() as patch:
        # The helper turns a result into one value for each output of the OpDef.
        patch.setattr(calls, "MODULES", (raw_ops,))
        patch.setattr(calls, "RENAMED", {})
        return calls.call_tensorflow(name, given)


@cache
def compared(table: str, mode: str) -> tuple[frozenset[str], tuple[str, ...]]:
    """The raw ops that the samples of a table call, and what differs."""
    seen: set[str] = set()
    wrong = []
    runs = [(one.name, mode) for one in every_sample() if mode in one.modes]
    # In inference their reserve spaces are memory that nothing has written.
    runs = [run for run in runs if not run[0].startswith("FusedBatchNorm")]
    for name, _ in by_table(runs).get(table, []):
        sample = sample_named(name)
        expected = sample.run(calls.call_tensorflow, mode)
        found = difference(expected, sample.run(call_raw_op, mode))
        wrong += [f"{name}: {found}"] if found else []
        seen.update(call.op for call in expected)
    return frozenset(seen & {*raw_ops.__all__}), tuple(wrong)


TABLES = [*by_table([(sample.name, EAGER) for sample in every_sample()])]


@pytest.mark.rotating
@pytest.mark.parametrize("mode", [EAGER, FUNCTION])
@pytest.mark.parametrize("table", TABLES)
def test_raw_op_results_equal_those_of_tensorflow(table: str, mode: str) -> None:
    _, wrong = compared(table, mode)
    assert not wrong, "\n".join(wrong)


@pytest.mark.full_matrix
def test_raw_op_results_compared_are_of_most_ops() -> None:
    assert len(frozenset[str]().union(*(compared(t, EAGER)[0] for t in TABLES))) > 1000


def values(result: Any) -> list[Any]:
    return [
        np.asarray(one)
        for one in tf.nest.flatten(result)
        if isinstance(one, tf.Tensor) and one.dtype not in (tf.resource, tf.variant)
    ]


def results(module: Any, name: str, given: dict[str, Any]) -> list[Any] | None:
    """The outputs of a raw op; None if it refuses the call."""
    try:
        return values(getattr(module, name)(**given))
    except (tf.errors.OpError, ValueError):
        return None


def equal(ours: list[Any], theirs: list[Any]) -> bool:
    return len(ours) == len(theirs) and all(map(same, ours, theirs))


def check_example(name: str) -> int:
    """Repeats the eager calls of an op's example with both; how many there are."""
    op, count = every_op()[name], 0
    words = calls.RENAMED.get(name, {})
    for call in examples.run(op).calls:
        if symbolic((call.inputs, call.outputs)):
            continue
        given = {arg.name: one for arg, one in zip(op.inputs, call.inputs, strict=True)}
        given |= {n: one for n, one in call.attrs.items() if n not in newer(name)}
        given = {words.get(n, n): one for n, one in given.items()}
        theirs = [results(tf.raw_ops, name, given) for _ in range(2)]
        # What the example made for the call may be gone. Some results are random.
        if None in theirs or not equal(*theirs):
            continue
        ours = results(raw_ops, name, given)
        assert ours is not None and equal(ours, theirs[0])
        count += 1
    return count


def symbolic(value: Any) -> bool:
    flat = tf.nest.flatten(value)
    return any(isinstance(one, tf.Tensor) and hasattr(one, "op") for one in flat)


#: The first two wait for a server that the example ends. The others draw samples.
NOT_REPEATED = {
    "RegisterDataset",
    "RegisterDatasetV2",
    "SdcaOptimizer",
    "SdcaOptimizerV2",
}


def repeatable(name: str) -> bool:
    """Whether an op gives the same twice, and its example runs here."""
    if name not in raw_ops.__all__ or name in NOT_REPEATED or op_def(name).is_stateful:
        return False
    op = every_op()[name]
    return examples.runs(op) and not examples.is_gone(op)


@pytest.mark.equivalence
def test_raw_op_repeats_calls_of_examples_as_tensorflow_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # Some ops write files.
    counts: list[int] = []
    check_each(
        filter(repeatable, sorted(every_op())),
        lambda name: counts.append(check_example(name)),
    )
    assert sum(counts) > 800


def test_raw_op_returns_a_tuple_with_the_fields_of_tensorflow() -> None:
    ours = raw_ops.UniqueWithCounts(x=[5, 5, 7])
    theirs = tf.raw_ops.UniqueWithCounts(x=[5, 5, 7])
    assert ours._fields == theirs._fields == ("y", "idx", "count")
    assert ours.count.numpy().tolist() == [2, 1]
    tf.nest.assert_same_structure(ours, theirs)


def test_raw_op_without_outputs_returns_none_eagerly_and_an_operation_in_a_graph() -> (
    None
):
    assert raw_ops.NoOp() is None
    with tf.Graph().as_default():
        assert raw_ops.NoOp(name="nothing").name == "nothing"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: raw_ops.MatMul(a=X), "MatMul: b is missing"),
        (lambda: raw_ops.MatMul(a=X, b=[1.0]), "MatMul: b has 1 dimension, not 2"),
        (lambda: raw_ops.MatMul(a=X, b=X, c=1), "MatMul: has no argument 'c'"),
        (
            lambda: raw_ops.MatMul(a=X, b=X, transpose_a=1),
            "MatMul: transpose_a must be a bool, not 1",
        ),
        # Keywords that the functions call otherwise.
        (lambda: raw_ops.Sum(input=X), "Sum: axis is missing"),
        (
            lambda: raw_ops.Sum(input=X, reduction_indices=0),
            "no argument 'reduction_indices'.*did you mean axis",
        ),
        (
            lambda: raw_ops.Select(condition=[True], x=[1], y=[2.5]),
            "Select: y must be int32 as x is",
        ),
        (lambda: raw_ops.Bitcast(input=X, type=7.5), "Bitcast: type must be a dtype"),
    ],
)
def test_raw_op_with_bad_argument_names_op_and_argument(
    call: Callable[[], object], words: str
) -> None:
    with pytest.raises(opwright.OpError, match=words):
        call()


def test_raw_op_with_positional_arguments_is_refused() -> None:
    called: Any = raw_ops.MatMul
    with pytest.raises(TypeError, match=r"MatMul: a raw op takes keywords only: a, b"):
        called(X, X)


def test_raw_op_with_a_number_that_does_not_fit_is_refused() -> None:
    with pytest.raises(opwright.OpInputError, match=r"AddV2: y .* 300 does not fit"):
        raw_ops.AddV2(x=tf.constant([1], tf.uint8), y=300)


@pytest.mark.parametrize("build", [lambda f: f, tf.function])
def test_raw_op_takes_none_for_the_default(build: Callable[[Any], Any]) -> None:
    def call() -> Any:
        product = raw_ops.MatMul(a=X, b=X, transpose_a=None, transpose_b=True)
        total = raw_ops.Sum(input=product, axis=0, keep_dims=None)
        return total, raw_ops.Cumsum(x=X, axis=0, exclusive=None, reverse=True)

    total, sums = build(call)()
    expected = X.numpy() @ X.numpy().T
    np.testing.assert_array_equal(total, expected.sum(axis=0))
    np.testing.assert_array_equal(sums, X.numpy()[::-1].cumsum(axis=0)[::-1])


def test_raw_op_takes_none_for_a_shape_as_tensorflow_does() -> None:
    def shape(module: Any) -> Any:
        with tf.Graph().as_default():
            table = module.MutableDenseHashTableV2(
                empty_key=-1, deleted_key=-2, value_dtype=tf.int32, value_shape=None
            )
            return table.op.get_attr("value_shape")

    assert shape(raw_ops) == shape(tf.raw_ops)


@pytest.mark.parametrize("name", ["Sin", "IsNan", "Lgamma"])
def test_raw_op_dispatches_composite_tensors_as_tensorflow_does(name: str) -> None:
    found = getattr(raw_ops, name)(x=RAGGED)
    expected = getattr(tf.raw_ops, name)(x=RAGGED)
    assert isinstance(found, tf.RaggedTensor)
    assert found.to_list() == expected.to_list()
    traced = tf.function(lambda: getattr(raw_ops, name)(x=RAGGED))()
    assert traced.to_list() == expected.to_list()


def test_raw_op_without_dispatch_refuses_a_composite_tensor() -> None:
    with pytest.raises(
        opwright.OpInputError, match="Acos: x must be a tensor, not a R"
    ):
        raw_ops.Acos(x=RAGGED)
    for slices in (tf.IndexedSlices([1.0], [0]), tf.IndexedSlices(X, [0])):
        with pytest.raises(opwright.OpInputError, match="not an IndexedSlices"):
            raw_ops.ReadVariableOp(resource=slices, dtype=tf.float32)


def test_raw_op_takes_variables_and_has_a_gradient() -> None:
    variable = tf.Variable(X)
    with tf.GradientTape() as tape:
        product = raw_ops.MatMul(a=variable, b=variable, transpose_b=True)
    with tf.GradientTape() as theirs:
        expected = tf.raw_ops.MatMul(a=variable, b=variable, transpose_b=True)
    np.testing.assert_array_equal(
        tape.gradient(product, variable), theirs.gradient(expected, variable)
    )


def test_raw_op_in_a_function_with_a_condition_is_left_to_python() -> None:
    @tf.function
    def doubled_if_positive(x: tf.Tensor) -> Any:
        if raw_ops.Sum(input=x, axis=[0, 1]) > 0:
            x = raw_ops.AddV2(x=x, y=x, name="twice")
        return x

    np.testing.assert_array_equal(doubled_if_positive(X), 2 * X.numpy())
    np.testing.assert_array_equal(doubled_if_positive(-X), -X.numpy())


def test_raw_op_survives_pickling() -> None:
    assert pickle.loads(pickle.dumps(raw_ops.MatMul)) is raw_ops.MatMul


def test_raw_op_documents_the_keywords_of_tensorflow() -> None:
    text = str(raw_ops.Sum.__doc__)
    assert "axis: `Tidx`" in text and "`reduce(x, axis, keep_dims)`" in text
    assert "reduction_indices" not in text


def test_raw_ops_with_unknown_name_suggests_others() -> None:
    with pytest.raises(AttributeError, match=r"'Matmul'; did you mean MatMul"):
        raw_ops.Matmul  # noqa: B018  # type: ignore[attr-defined]


def test_raw_ops_without_an_op_of_opwright_says_where_it_is() -> None:
    with pytest.raises(AttributeError, match=r"has no tf.raw_ops.*from opwright.audio"):
        raw_ops.AudioMicrofrontend  # noqa: B018  # type: ignore[attr-defined]


def test_raw_ops_without_an_op_of_a_newer_tensorflow_names_the_version(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    op_class = opwright.op_class("MatMul")
    monkeypatch.setattr(op_class, "OP_NAME", "MatMulOfTomorrow")
    monkeypatch.setattr(op_class, "SINCE", {"MatMulOfTomorrow": "2.99"}, raising=False)
    monkeypatch.delattr(op_class, "_cached_info", raising=False)
    monkeypatch.delitem(vars(raw_ops), "MatMul", raising=False)
    monkeypatch.delattr(tf.raw_ops, "MatMul")
    with pytest.raises(AttributeError, match=r"TensorFlow 2\.99 brought it"):
        raw_ops.MatMul  # noqa: B018


PROGRAM = """
import sys
import opwright
before = set(sys.modules)
assert "opwright.raw_ops" not in before
from opwright import raw_ops
raw_ops.MatMul(a=[[1.0]], b=[[1.0]])
found = [name for name in set(sys.modules) - before if name.startswith("opwright.")]
print(sorted(found))
"""


@pytest.mark.slow
def test_raw_ops_imports_the_ops_that_a_program_calls() -> None:
    done = run_code(PROGRAM)
    assert done.returncode == 0, done.stderr
    modules = ["_table", "linalg", "linalg.mat_mul", "raw_ops"]
    assert done.stdout.strip() == str([f"opwright.{name}" for name in modules])
