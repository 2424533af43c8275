"""The fuzzer of all ops finds calls that end the process, and goes on."""

from __future__ import annotations

import ast
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from opwright import OpError, raw_ops
from opwright_runtime._internals import core
from support.equivalence.registry import ops_with_cpu_kernel

from . import refused_before
from .bends import info_of
from .ops import CALLS, ENOUGH_ENDS, Run, main, parse, run
from .ops_bends import Bend, applied, apply, draw, empty
from .ops_calls import Example, Opaque, TensorValue, tensors
from .ops_findings import Corpus, Found, lines, signature, summary
from .ops_left_out import LEFT_OUT, why_left_out
from .ops_settings import Settings
from .ops_state import State
from .ops_supervisor import LimitedWorker
from .ops_text import call_text, tensor_text
from .ops_worker import EXPLAINED, Explainer, is_own
from .refused_before import REFUSED_BEFORE, REFUSED_FOR, is_named

ONE = ["--jobs", "1", "--onednn", "off", "--side", "raw"]


@pytest.fixture(scope="module")
def worker() -> Iterator[LimitedWorker]:
    made = LimitedWorker("0")
    yield made
    made.close()


def call(op: str, *bends: Bend, mode: str = "eager") -> dict[str, Any]:
    return {
        "op": op,
        "base": 0,
        "mode": mode,
        "entry": "function",
        "bends": [[one.place, one.at, one.kind, one.seed] for one in bends],
    }


def replayed(worker: LimitedWorker, data: dict[str, Any]) -> Any:
    return worker.obey({"replay": data, "side": "raw"})


def test_divided_makes_each_call_once_and_few_in_a_process() -> None:
    made = Run(parse(["--calls", "4000"]))
    made.replaced = {"Add"}
    tasks = [
        one for mode in ("0", "1") for one in made.divided(["Add", "Abs"], mode, set())
    ]
    for op in ("Add", "Abs"):
        numbers = [
            n for one in tasks if op in one.ops for n in range(one.first, one.last)
        ]
        assert sorted(numbers) == [*range(4000)]
    assert max(len(one.ops) * (one.last - one.first) for one in tasks) <= CALLS


def test_explainer_explains_few_refusals_of_tensorflow_and_all_of_python() -> None:
    explainer = Explainer()
    refused = core._NotOkStatusException("odd", tf.errors.INVALID_ARGUMENT, {})
    call_of_abs = (info_of("Abs"), ["a"], {}, None)
    for number, explained in ((0, True), (1, False), (EXPLAINED, True)):
        explainer.number = number
        found = explainer(refused, *call_of_abs)
        assert isinstance(found, OpError) is explained
        assert isinstance(found, (OpError, tf.errors.OpError))
        assert isinstance(explainer(TypeError("odd"), *call_of_abs), OpError)


@pytest.mark.parametrize(
    ("call", "own"),
    [
        (lambda: raw_ops.Add(x=["a"], y=[1]), True),
        # A condition of the opdef refuses it.
        (lambda: raw_ops.AdjustHue(images=tf.ones([1, 1, 3]), delta=np.inf), True),
        # TensorFlow refuses it, with a text that is no UTF-8.
        (lambda: raw_ops.StringToNumber(string_tensor=[b"\xff"]), False),
        # TensorFlow would truncate it to 0.
        (
            lambda: raw_ops.DatasetToGraphV2(
                input_dataset=tf.data.Dataset.range(1)._variant_tensor,
                external_state_policy=2**32,
            ),
            False,
        ),
    ],
)
def test_is_own_leaves_out_what_tensorflow_does_not_take(call: Any, own: bool) -> None:
    with pytest.raises(OpError) as raised:
        call()
    assert is_own(raised.value) is own


def test_is_named_takes_the_reason_of_an_op_alone() -> None:
    deep = "TensorListSetItem: item has 254 dimensions; it must have less than 254"
    assert is_named("TensorListSetItem", deep)
    assert not is_named("TensorListSetItem", "TensorListSetItem: index is -1")
    assert not is_named("ExpandDims", deep)
    assert is_named("Unbatch", "")
    assert {*REFUSED_BEFORE, *REFUSED_FOR} <= {*ops_with_cpu_kernel(), "Conv"}


def test_no_op_is_named_twice() -> None:
    tree = ast.parse(Path(refused_before.__file__).read_text("utf-8"))
    for table in (node for node in ast.walk(tree) if isinstance(node, ast.Dict)):
        named: list[str] = []
        for key, value in zip(table.keys, table.values, strict=True):
            # Without a key, it is `**dict.fromkeys(names, ...)`.
            names = key or value.args[0]  # type: ignore[attr-defined]
            parts = [one for one in ast.walk(names) if isinstance(one, ast.Constant)]
            named += [one.value for one in parts]
        assert len(named) == len({*named})


@pytest.mark.rotating
def test_shorten_errors_leaves_out_where_an_op_was_added(
    worker: LimitedWorker,
) -> None:
    bend = seed_with("Reshape", "shape", "value", "[-7,")
    told = replayed(worker, call("Reshape", bend, mode="function")).told
    assert told and "defined at" not in told


def seed_with(op: str, place: str, kind: str, wanted: str) -> Bend:
    """A bend of an argument that makes it what is wanted, as text."""
    info = info_of(op)
    base = Example(op).calls()[0].arguments
    for seed in range(2000):
        one = Bend(place, None, kind, seed)
        if wanted in call_text(info, "eager", apply(info, base, one)):
            return one
    raise AssertionError(f"no bend makes {wanted}")


@pytest.mark.rotating
def test_worker_call_that_aborts_is_found(worker: LimitedWorker) -> None:
    bend = seed_with(
        "LearnedUnigramCandidateSampler", "range_max", "attr", "2147483648"
    )
    ended = replayed(worker, call("LearnedUnigramCandidateSampler", bend))
    assert ended.place is not None
    assert ended.kind == "SIGABRT"
    assert "Check failed: N >= 0" in ended.words
    assert "range_max=2147483648" in ended.shown["code"]
    assert ended.keys == "range_max attr"
    # The next command works.
    assert replayed(worker, call("AddV2")).place is None


@pytest.mark.rotating
def test_worker_call_that_hangs_is_ended(
    monkeypatch: pytest.MonkeyPatch, worker: LimitedWorker
) -> None:
    monkeypatch.setattr(worker, "seconds", 2.0)
    bend = seed_with("AdjustHue", "delta", "value", "np.inf")
    ended = replayed(worker, call("AdjustHue", bend))
    assert ended.kind == "hang"


@pytest.mark.rotating
def test_worker_call_that_grows_is_ended(
    monkeypatch: pytest.MonkeyPatch, worker: LimitedWorker
) -> None:
    # A slow machine takes long to fill its memory.
    monkeypatch.setattr(worker, "seconds", 120.0)
    bend = seed_with("AsString", "width", "attr", "2147483647")
    ended = replayed(worker, call("AsString", bend))
    assert ended.kind == "memory"


@pytest.mark.rotating
def test_run_goes_on_after_a_call_that_ends_the_process(tmp_path: Path) -> None:
    options = ["--ops", "LearnedUnigramCandidateSampler,AddV2", "--calls", "60"]
    made = run(parse([*ONE, *options, "--corpus", str(tmp_path)]))
    assert made.deaths["LearnedUnigramCandidateSampler"] > 0
    assert made.deaths["AddV2"] == 0
    ended = sum(made.deaths.values())
    assert made.made >= 120 and ended < 40
    (found,) = (one for one in made.found if one.kind == "SIGABRT")
    assert found.confirmed
    assert found.places == {"range_max"}
    assert found.code.startswith("tf.raw_ops.LearnedUnigramCandidateSampler(")
    assert len(lines(tmp_path / "findings.jsonl")) == len(made.found)
    # All is done.
    again = run(parse([*ONE, *options, "--corpus", str(tmp_path), "--resume"]))
    assert again.made == 0
    assert {one.code for one in again.found} == {one.code for one in made.found}


@pytest.mark.rotating
def test_main_replay_counts_the_calls_that_end_the_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bend = seed_with(
        "LearnedUnigramCandidateSampler", "range_max", "attr", "2147483648"
    )
    data = [
        {**call("LearnedUnigramCandidateSampler", bend), "code": ""},
        {**call("AddV2"), "code": ""},
    ]
    corpus = Corpus(tmp_path)
    for one in data:
        corpus.keep(
            Found(one["op"], "SIGABRT", "", "raw", "0", 0, 0, True, "", data=one)
        )
    assert main(["--replay", str(tmp_path / "findings.jsonl"), "--side", "raw"]) == 1
    said = capsys.readouterr().out
    assert "LearnedUnigramCandidateSampler, SIGABRT: ended" in said
    assert "AddV2, SIGABRT: taken" in said
    assert said.endswith("1 end the process\n")


@pytest.mark.rotating
def test_judge_says_what_tensorflow_takes(worker: LimitedWorker) -> None:
    cases = [["Relu", number] for number in range(40)]
    command = {"judge": cases, "modes": {}, "settings": {"seed": 0}}
    taken = worker.obey(command).taken
    assert 0 < len(taken) < 40
    assert all(data["code"] for _, data in taken)


@pytest.mark.rotating
def test_few_refused_calls_that_end_tensorflow_are_tried() -> None:
    name = "LearnedUnigramCandidateSampler"
    made = run(parse(["--ops", name, "--calls", "600", "--onednn", "off"]))
    assert max(made.refused_ends.values()) == ENOUGH_ENDS
    assert not made.found


def test_draw_is_the_same_for_a_seed() -> None:
    info, bases = info_of("Conv2D"), Example("Conv2D").calls()
    first = [draw(info, bases, Settings(3), number)[0] for number in range(50)]
    assert first == [draw(info, bases, Settings(3), number)[0] for number in range(50)]
    assert first != [draw(info, bases, Settings(4), number)[0] for number in range(50)]


@pytest.mark.parametrize("given", [np.array(b"a", object), np.float32(7)])
def test_empty_of_a_scalar_has_an_element_of_the_dtype(given: Any) -> None:
    for seed in range(20):
        made = empty(np.asarray(given), random.Random(seed))
        assert not any(made.reshape(-1).tolist())
        assert all(isinstance(one, type(given[()])) for one in made.reshape(-1))


def test_draw_bends_every_argument_in_every_way() -> None:
    info, bases = (
        info_of("ResourceApplyAdagrad"),
        Example("ResourceApplyAdagrad").calls(),
    )
    drawn = [draw(info, bases, Settings(0), number)[0] for number in range(600)]
    keys = {one.key for plan in drawn for one in plan.bends}
    assert {"var handle", "lr value", "grad dtype", "T retype"} <= keys
    assert {"use_locking attr", "grad empty", "grad huge", "grad rank"} <= keys
    assert "grad deepest" in keys
    assert {plan.mode for plan in drawn} == {"eager", "function", "constant"}


def test_draw_makes_chosen_calls_alone() -> None:
    info, bases = info_of("GatherV2"), Example("GatherV2").calls()
    settings = Settings(0, graphs=1.0, kinds=("deepest", "rank"))
    drawn = [draw(info, bases, settings, number)[0] for number in range(200)]
    assert {plan.mode for plan in drawn} == {"function", "constant"}
    kinds = {one.kind for plan in drawn for one in plan.bends}
    assert kinds == {"retype", "deepest", "rank"}


@pytest.mark.parametrize("op", ["Conv2D", "ConcatV2", "ResourceGather", "StringSplit"])
def test_call_text_makes_the_same_call(op: str) -> None:
    example = Example(op)
    info, base = example.info, example.calls()[0]
    drawing = random.Random(0)
    for number in range(30):
        plan, arguments = draw(info, [base], Settings(drawing.getrandbits(20)), number)
        text = call_text(info, "eager", arguments)
        if "<of" in text or "_of_" in text:
            continue
        made = eval(
            text.replace(f"tf.raw_ops.{op}", "dict"),
            {"tf": tf, "np": np},
            dict(base.namespace),
        )
        given = tensors(arguments)
        for arg in info.inputs:
            one = made[arg.name]
            for mine, other in zip(
                one if arg.is_list else [one],
                given[arg.name] if arg.is_list else [given[arg.name]],
                strict=True,
            ):
                assert mine.dtype == other.dtype
                assert mine.shape == other.shape
                if mine.dtype not in (tf.resource, tf.variant):
                    # NumPy has no array of more than 64 axes.
                    np.testing.assert_array_equal(*map(flat, (mine, other)))
        del plan


def flat(tensor: tf.Tensor) -> np.ndarray:
    elements: np.ndarray = tf.reshape(tensor, [-1]).numpy()
    return elements


def test_apply_deepest_makes_a_tensor_of_the_largest_ranks() -> None:
    info, (base, *_) = info_of("Relu"), Example("Relu").calls()
    given = base.arguments
    tried = [Bend("features", None, "deepest", seed) for seed in range(20)]
    made = [applied(info, given, (one,))["features"].tensor for one in tried]
    assert {one.shape.rank for one in made} == {252, 253, 254}
    for one in made:
        np.testing.assert_array_equal(flat(one), flat(given["features"].tensor))


def test_tensor_text_of_special_elements_is_python() -> None:
    array = np.array([np.nan, -np.inf, 0.5], np.float32)
    text = tensor_text(tf.float32, array)
    assert text == "tf.constant([np.nan, -np.inf, 0.5], tf.float32)"
    many = np.full([20], 7, np.int32)
    assert tensor_text(tf.int32, many) == "tf.fill([20], tf.constant(7, tf.int32))"


def test_applied_fewer_bends_stand_alone() -> None:
    """A finding is made smaller by leaving out bends, which need no others."""
    info, (base, *_) = info_of("Conv2D"), Example("Conv2D").calls()
    bends = (Bend("input", None, "rank", 1), Bend("filter", None, "value", 2))
    arguments = applied(info, base.arguments, bends[1:])
    assert arguments["input"] is base.arguments["input"]
    both = applied(info, base.arguments, bends)
    np.testing.assert_array_equal(both["filter"].array, arguments["filter"].array)


def test_example_quantized_tensors_of_a_graph_have_integers() -> None:
    base, *_ = Example("QuantizedConcatV2").calls()
    for one in base.arguments["values"]:
        assert one.dtype == tf.quint8 and one.array.dtype == np.uint8
        assert one.tensor.dtype == tf.quint8


@pytest.mark.parametrize("op", ["RandomUniform", "StatefulUniform", "Multinomial"])
def test_example_makes_the_same_arguments_again(op: str) -> None:
    example = Example(op)
    first, again = example.calls()[0].arguments, example.calls()[0].arguments
    for name, one in first.items():
        if isinstance(one, TensorValue):
            np.testing.assert_array_equal(one.array, again[name].array)


def test_example_handles_have_the_expressions_that_make_them() -> None:
    base, *_ = Example("ResourceGather").calls()
    handle = base.arguments["resource"]
    assert isinstance(handle, Opaque) and handle.source
    assert isinstance(base.arguments["indices"], TensorValue)


def test_why_left_out_names_ops_that_there_are() -> None:
    names = ops_with_cpu_kernel()
    for reason, patterns in LEFT_OUT.items():
        for pattern in patterns:
            assert any(re.fullmatch(pattern, name) for name in names), (reason, pattern)
    assert why_left_out("Abort")
    assert why_left_out("AddV2") is None


def test_state_outlives_the_mapping_that_wrote_it(tmp_path: Path) -> None:
    one, other = State(tmp_path / "state"), State(tmp_path / "state")
    one.begin(3, 7, "x rank + y value")
    assert (other.place.op, other.place.number) == (3, 7)
    assert other.place.started > 0
    assert other.keys == "x rank + y value"
    one.end(3, 7, "refused")
    assert other.place.started == 0
    assert other.outcomes["refused"] == 1


def test_signature_does_not_depend_on_numbers() -> None:
    words = "tensor.cc:896] Check failed: dtype() == expected_dtype ({} vs. 2)"
    first = signature("Op", "SIGABRT", words.format(1))
    assert first == signature("Op", "SIGABRT", words.format(9))
    assert first != signature("Op", "SIGSEGV", words.format(1))


def test_summary_has_each_finding_with_its_call(tmp_path: Path) -> None:
    data = {"mode": "eager", "bends": [["x", None, "rank", 1]]}
    found = Found("Op", "SIGSEGV", "", "raw", "0", 0, 5, True, "tf.raw_ops.Op()", data)
    text = summary([found], run_outcomes(), "About.")
    assert "**Op** SIGSEGV" in text
    assert "tf.raw_ops.Op()" in text
    assert "by x rank" in text
    Corpus(tmp_path).keep(found)
    (read,) = Corpus(tmp_path).findings()
    assert read == found
    assert json.dumps(read.data)


def run_outcomes() -> Any:
    from collections import Counter

    return Counter({"ran": 3})
