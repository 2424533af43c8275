"""`check_tpu` with the real libtpu: programs that compile, and blockers of others."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import pytest
import tensorflow as tf

from opwright import check_tpu
from opwright_runtime.tpu_check import (
    Compilation,
    OpenShapeError,
    Report,
    TpuCheckError,
    compiler,
    lowering,
)
from tpu.support.programs import dense, flipped, spell

FLOAT = tf.TensorSpec([8, 4], tf.float32)
ONE = ("v5e",)

M, K, N = 128, 256, 512


@pytest.fixture(scope="module")
def product() -> Report:
    return check_tpu(dense, tf.TensorSpec([M, K]), tf.TensorSpec([K, N]))


@pytest.mark.rotating
def test_check_tpu_product_compiles_for_every_chip(product: Report) -> None:
    assert product.compiles
    assert [each.chip for each in product.compilations] == ["v5e", "v5p", "v6e"]


def test_check_tpu_product_reports_flops(product: Report) -> None:
    for each in product.compilations:
        assert each.flops == pytest.approx(2 * M * K * N, rel=0.05)


def test_check_tpu_product_reports_memory(product: Report) -> None:
    for each in product.compilations:
        assert each.argument_bytes == 4 * (M * K + K * N)
        assert each.output_bytes == 4 * M * N
        assert each.alias_bytes == 0
        assert each.code_bytes and each.code_bytes > 1000
        assert each.bytes_accessed and each.bytes_accessed >= 4 * (
            M * K + K * N + M * N
        )


def test_report_str_and_as_dict_hold_the_numbers(product: Report) -> None:
    text = str(product)
    assert text.startswith("dense compiles for v5e, v5p and v6e\n")
    assert "33.6 M" in text and "640 KiB" in text
    assert max(map(len, text.splitlines())) <= 100
    found = json.loads(json.dumps(product.as_dict()))
    assert found["chips"] == ["v5e", "v5p", "v6e"]
    assert found["path"] is None and found["signature"] is None
    assert found["versions"]["libtpu"] == compiler.libtpu_version()
    assert found["compiles"] and found["blockers"] == []
    assert found["arguments"][1] == {
        "name": "w",
        "kind": "argument",
        "dtype": "float32",
        "shape": [K, N],
        "bytes": 4 * K * N,
    }
    assert found["compilations"][0]["flops"] == product.compilations[0].flops


@pytest.mark.rotating
def test_check_tpu_keras_model_forward_and_training_compile() -> None:
    model = keras.Sequential(
        [keras.Input([4]), keras.layers.Dense(3, name="last")], name="small"
    )
    optimizer = keras.optimizers.SGD()

    def step(x: tf.Tensor, y: tf.Tensor) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x) - y))
        weights = model.trainable_variables
        optimizer.apply_gradients(
            zip(tape.gradient(loss, weights), weights, strict=True)
        )
        return loss

    forward = check_tpu(model, FLOAT, chips=ONE)
    assert forward.compiles and forward.program == "small"
    kinds = {each.name: each.kind for each in forward.arguments[1:]}
    assert kinds == {"small/last/kernel": "variable", "small/last/bias": "variable"}

    training = check_tpu(step, FLOAT, tf.TensorSpec([8, 3]))
    assert training.compiles
    # The step writes kernel and bias: both are updated in place.
    assert all(each.alias_bytes for each in training.compilations)
    assert model.weights[0].value.shape == (4, 3)


@pytest.mark.rotating
def test_check_tpu_while_loop_compiles() -> None:
    def power(x: tf.Tensor) -> tf.Tensor:
        y = x
        for _ in tf.range(5):
            y = tf.tanh(y @ x)
        return y

    assert check_tpu(power, tf.TensorSpec([8, 8]), chips=ONE).compiles


def test_check_tpu_loop_over_a_range_of_a_tensor_compiles() -> None:
    """Python's `for` leaves a Range of no use, with a size that values decide."""
    total = tf.Variable(tf.zeros([8]), name="total")

    def grown(x: tf.Tensor, count: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(count):
            x = x * 1.5
        total.assign_add(x)
        return x

    given = tf.TensorSpec([8]), tf.TensorSpec([], tf.int32)
    report = check_tpu(grown, *given, chips=ONE)
    assert report.compiles and report.compilations[0].alias_bytes
    assert [each.name for each in report.arguments] == ["x", "count", "total"]


def test_check_tpu_op_that_no_result_needs_is_no_blocker() -> None:
    def unused(x: tf.Tensor) -> tf.Tensor:
        tf.strings.as_string(x)
        return x + 1.0

    assert isinstance(
        lowering.lower(lowering.from_function(unused, (FLOAT,), {})), bytes
    )


def of_positive(x: tf.Tensor) -> tf.Tensor:
    tf.debugging.assert_positive(x)
    return x + 1.0


def of_numbers(x: tf.Tensor) -> tf.Tensor:
    return tf.debugging.check_numerics(tf.sqrt(x), "no number")


@pytest.mark.parametrize("checked", [of_positive, of_numbers])
def test_check_tpu_assertions_compile_and_check_nothing(checked: Any) -> None:
    wrong = tf.constant([-1.0])
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(checked)(wrong)
    tf.function(checked, jit_compile=True)(wrong)  # No error.
    traced = lowering.from_function(checked, (wrong,), {})
    assert isinstance(lowering.lower(traced), bytes)


@pytest.mark.rotating
def test_check_tpu_python_arguments_and_arrays_are_accepted() -> None:
    def scaled(inputs: dict[str, tf.Tensor], double: bool) -> tf.Tensor:
        return inputs["a"] * 2 if double else tf.strings.as_string(inputs["a"])

    report = check_tpu(scaled, {"a": tf.ones([8])}, double=True, chips=ONE)
    assert report.compiles
    assert not check_tpu(scaled, {"a": tf.ones([8])}, double=False, chips=ONE).compiles


def test_check_tpu_unsupported_ops_are_blockers_with_lines() -> None:
    report = check_tpu(spell, FLOAT)
    assert not report.compiles and report.compilations == ()
    assert [each.op for each in report.blockers] == ["AsString", "StringLength"]
    first = report.blockers[0]
    assert first.name == "AsString" and first.reason == "XLA has no kernel for it"
    assert first.where and Path(first.where.rpartition(":")[0]).name == "programs.py"
    assert first.code and first.code.endswith("# not for TPUs")
    assert "AsString" in str(report) and "programs.py" in str(report)


def test_check_tpu_unsupported_op_in_loop_body_is_a_blocker() -> None:
    def loop(x: tf.Tensor) -> tf.Tensor:
        for _ in tf.range(3):
            x = tf.ensure_shape(tf.numpy_function(lambda y: y, [x], tf.float32), [8, 4])
        return x

    (blocker,) = check_tpu(loop, FLOAT).blockers
    assert blocker.op == "PyFunc" and blocker.name.startswith("while/")
    assert blocker.where and "test_check.py" in blocker.where


def test_check_tpu_shape_from_a_value_is_a_blocker() -> None:
    def filled(n: tf.Tensor) -> tf.Tensor:
        return tf.fill([n], 1.0)

    (blocker,) = check_tpu(filled, tf.TensorSpec([], tf.int32)).blockers
    assert blocker.op == "Fill" and "compile-time constant" in blocker.reason
    assert blocker.code == "return tf.fill([n], 1.0)"


def test_check_tpu_unsupported_dtype_and_table_are_blockers() -> None:
    initial = tf.lookup.KeyValueTensorInitializer(tf.constant([1]), tf.constant([2]))
    table = tf.lookup.StaticHashTable(initial, 0)
    report = check_tpu(table.lookup, tf.TensorSpec([8], tf.int32))
    assert [each.op for each in report.blockers] == ["LookupTableFindV2"]

    report = check_tpu(tf.identity, tf.TensorSpec([8], tf.string))
    assert report.blockers[0].op == "argument"
    assert report.blockers[1].reason == "XLA has no kernel for T=string"


@pytest.mark.rotating
def test_check_tpu_unique_with_counts_compiles() -> None:
    def counts(ids: tf.Tensor) -> Any:
        return tf.unique_with_counts(ids).count

    assert check_tpu(counts, tf.TensorSpec([64], tf.int32), chips="v5e").compiles


def test_check_tpu_returned_string_is_reported_once_where_it_is_made() -> None:
    @tf.function
    def text(x: tf.Tensor) -> tf.Tensor:
        return tf.strings.as_string(x)

    def called(x: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"text": text(x)}

    for program in (tf.strings.as_string, called):
        (blocker,) = check_tpu(program, FLOAT, chips=ONE).blockers
        assert blocker.op == "AsString"


def test_check_tpu_remedy_of_an_argument_names_it() -> None:
    report = check_tpu(tf.strings.length, tf.TensorSpec([8], tf.string), chips=ONE)
    assert "Instead of argument input, StringLength: convert" in str(report)


def test_check_tpu_print_is_a_blocker() -> None:
    def printed(x: tf.Tensor) -> tf.Tensor:
        tf.print(x)
        return x

    assert "PrintV2" in [each.op for each in check_tpu(printed, FLOAT).blockers]


@pytest.mark.rotating
def test_check_tpu_program_larger_than_hbm_does_not_compile() -> None:
    report = check_tpu(
        tf.linalg.matrix_transpose, tf.TensorSpec([2**17, 2**16]), chips=ONE
    )
    assert not report.compiles
    assert "exceeds available HBM" in (report.compilations[0].error or "")
    assert "does not compile for v5e" in str(report)


def test_check_tpu_dynamic_shape_is_refused() -> None:
    message = (
        r"argument 'w' has shape \(None, 4\).*: give tf\.TensorSpec\(\[8, 4\], tf\."
    )
    with pytest.raises(TpuCheckError, match=message):
        check_tpu(dense, FLOAT, tf.TensorSpec([None, 4]))


def test_check_tpu_variable_of_open_shape_says_to_fix_it() -> None:
    variable = tf.Variable(tf.ones([4]), shape=[None], name="rows")
    message = r"variable 'rows:0' has shape \(None,\).*: create it with a fixed shape"
    with pytest.raises(TpuCheckError, match=message):
        check_tpu(lambda: variable + 1.0, chips=ONE)


@pytest.mark.parametrize(
    ("shapes", "arguments"),
    [
        ({"x": (None, 16)}, "x=[8, 16]"),
        ({"left": (None, 4), "right": (2, None)}, "left=[8, 4], right=[2, 8]"),
        ({"x": None}, "x=[...]"),
        ({"a/b": (None,), "c": (None,)}, "**{'a/b': [8], 'c': [8]}"),
    ],
)
def test_open_shape_error_gives_the_arguments_to_write(
    shapes: dict[str, tuple[int | None, ...] | None], arguments: str
) -> None:
    assert str(OpenShapeError(shapes)).endswith(f"takes fixed shapes: give {arguments}")


@pytest.mark.parametrize("given", [(), ([None, 8, 8, 3],)])
def test_check_tpu_model_of_open_shape_gives_the_argument_to_write(given: Any) -> None:
    with pytest.raises(OpenShapeError, match=r"give images=\[8, 8, 8, 3\]$"):
        check_tpu(flipped, *given, chips=ONE)


@pytest.mark.rotating
def test_check_tpu_sizes_that_inputs_limit_compile() -> None:
    def positive(x: tf.Tensor) -> Any:
        return tf.boolean_mask(x, x > 0), tf.where(x)

    assert check_tpu(positive, tf.TensorSpec([8]), chips=ONE).compiles


@pytest.mark.rotating
def test_check_tpu_two_sizes_of_values_in_a_tensor_name_the_op_to_pad() -> None:
    def products(x: tf.Tensor) -> tf.Tensor:
        rows = tf.boolean_mask(x, x[:, 0] > 0)
        return rows @ tf.transpose(rows)

    (found,) = check_tpu(products, FLOAT, chips=ONE).compilations
    assert found.error is not None and "bounded" in found.error
    said = found.error.splitlines()[-1]
    assert re.search(r"come from Where \(.*test_check\.py:\d+\): pad to a fixed", said)


@pytest.mark.rotating
def test_check_tpu_input_of_a_signature_with_a_default_is_missing() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, None])] * 2)
    def doubled(x: Any, y: Any = None) -> tf.Tensor:
        return x * 2 + y

    with pytest.raises(TpuCheckError, match=r"^doubled: missing 'y'; its inputs"):
        check_tpu(doubled, FLOAT, chips=ONE)
    assert check_tpu(doubled, FLOAT, FLOAT, chips=ONE).compiles


@pytest.mark.rotating
def test_check_tpu_traced_function_uses_shapes_of_the_call() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None, 4])])
    def doubled(x: tf.Tensor) -> tf.Tensor:
        return x * 2

    report = check_tpu(doubled, FLOAT, chips=ONE)
    assert report.compiles and report.arguments[0].shape == (8, 4)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"chips": ["v9"]}, "chips must be of v4, v5e, v5p, v6e, not 'v9'"),
        ({"chips": []}, "not none"),
        ({"signature": "serve"}, "only a SavedModel has signatures"),
        ({"chips": "v9"}, "not 'v9'"),
        ({"extra": 1}, "dense has no input 'extra'; there are: x, w$"),
        ({"chip": "v5e"}, "no input 'chip'.* Did you mean check_tpu's argument chips"),
    ],
)
def test_check_tpu_bad_arguments_are_refused(
    wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(TpuCheckError, match=message):
        check_tpu(dense, FLOAT, tf.TensorSpec([4, 4]), **wrong)


@pytest.mark.parametrize("shape", [[64], (None, 4), tf.TensorShape([3])])
def test_check_tpu_shape_for_a_function_names_tensor_spec(shape: Any) -> None:
    with pytest.raises(TpuCheckError, match=r"for a function give tf\.TensorSpec\(\["):
        check_tpu(tf.nn.relu, shape, chips=ONE)


def test_check_tpu_python_values_alone_are_lowered() -> None:
    def zeros(count: int) -> tf.Tensor:
        return tf.zeros([count])

    assert isinstance(lowering.lower(lowering.from_function(zeros, (3,), {})), bytes)


def test_check_tpu_called_function_without_arguments_hides_no_blocker() -> None:
    @tf.function
    def one() -> tf.Tensor:
        return tf.ones([])

    def spelled(x: tf.Tensor) -> tf.Tensor:
        return tf.strings.length(tf.strings.as_string(x + one()))

    report = check_tpu(spelled, FLOAT, chips=ONE)
    assert [each.op for each in report.blockers] == ["AsString", "StringLength"]


def test_check_tpu_missing_keras_file_says_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(TpuCheckError, match=r"nosuch\.keras: no such file$"):
        check_tpu(tmp_path / "nosuch.keras", chips=ONE)


def test_check_tpu_without_libtpu_names_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiler, "find_spec", lambda name: name != "libtpu")
    commands = r"libtpu.*'\./dist/<wheel>\[tpu\]'.*pip install 'opwright\[tpu\]'"
    with pytest.raises(TpuCheckError, match=commands):
        check_tpu(dense, FLOAT, tf.TensorSpec([4, 4]))


def test_check_tpu_compiler_crash_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "jax.py").write_text("import os; os.abort()")
    monkeypatch.syspath_prepend(tmp_path)
    report = check_tpu(dense, FLOAT, tf.TensorSpec([4, 4]), chips=ONE)
    assert not report.compiles
    assert "died (SIGABRT)" in (report.compilations[0].error or "")


@pytest.mark.rotating
def test_check_tpu_compiler_crash_leaves_other_chips(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strange = replace(compiler.CHIPS["v5p"], topology="v5p:of no shape")
    monkeypatch.setattr(compiler, "CHIPS", {**compiler.CHIPS, "v5p": strange})
    chips = ("v5e", "v5p", "v6e")
    report = check_tpu(dense, FLOAT, tf.TensorSpec([4, 4]), chips=chips)
    assert [each.chip for each in report.compilations] == list(chips)
    before, died, after = report.compilations
    assert before.compiles and after.compiles
    assert "died (exit status 1)" in (died.error or "")


def test_check_tpu_compiler_timeout_stops_the_compiler() -> None:
    report = check_tpu(dense, FLOAT, tf.TensorSpec([4, 4]), chips=ONE, timeout=0.05)
    (stopped,) = report.compilations
    assert stopped.error == "libtpu was not done after 0.05 s; stopped"
    assert stopped.seconds < 5
    assert stopped.timed_out and not report.compiles and not report.refused
    assert str(report).startswith("dense not known for v5e (timed out)\n")
    assert report.as_dict()["compilations"][0]["timed_out"]


def test_report_headline_tells_refusals_from_timeouts() -> None:
    compiled = Compilation("v5e", 1.0)
    late = Compilation("v5p", 1.0, "stopped", timed_out=True)
    refused = Compilation("v6e", 1.0, "too large")
    mixed = Report("f", (), compilations=(compiled, late))
    assert str(mixed).startswith("f compiles for v5e; not known for v5p (timed out)\n")
    assert not mixed.refused
    worse = Report("f", (), compilations=(compiled, late, refused))
    assert worse.refused and str(worse).startswith(
        "f does not compile for v6e; not known for v5p (timed out)\n"
    )
