"""Whatever numbers come, tables hold finite ones alone, or the call changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

import opwright
from embedding.support import reference
from embedding.support.cases import (
    MAX_SLOTS,
    OP_NAMES,
    TRAITS,
    Feature,
    Lookup,
    System,
    Table,
    configured,
    enqueue,
    limits,
    load,
    optimizer,
    receive,
    retrieve,
    send,
)
from opwright import Scope
from opwright.tpu import LoadAllTPUEmbeddingParameters
from opwright_runtime import native
from support import tiers

raw = tf.raw_ops
Floats = NDArray[np.float32]
Invalid = tf.errors.InvalidArgumentError

MOST = float(np.finfo(np.float32).max)
SMALLEST = float(np.finfo(np.float32).smallest_subnormal)
LEAST = 2.0**-126  # That is no denormal.
EXTREMES = [0.0, 1.0, SMALLEST, LEAST, 1e-30, 1e-19, 1e15, 1e19, 2e19, 1e30, MOST]
BAD = [np.nan, np.inf, -np.inf]
IDS = np.array([0, 0, 1, 2])
BAGS = np.array([0, 1, 1, 3])
ROWS, DIM, SAMPLES = 4, 19, 4

# By the words of the traits: what is allowed, some of it extreme.
HYPER: dict[str, list[float]] = {
    "": [*EXTREMES, *(-x for x in EXTREMES)],
    "at least 0": EXTREMES,
    "at most 0": [-0.5, *(-x for x in EXTREMES)],
    "above 0": [x for x in EXTREMES if x > 0] + [2.0],
    "from 0 to 1": [0.0, SMALLEST, 0.5, 0.9, 1 - 2**-24, 1.0],
}

magnitudes = st.one_of(
    st.sampled_from(EXTREMES),
    st.floats(0, MOST, width=32, allow_subnormal=True),
)
numbers = st.builds(lambda x, sign: sign * x, magnitudes, st.sampled_from([1.0, -1.0]))


def matrices(rows: int, elements: st.SearchStrategy[float], columns: int = DIM) -> Any:
    return hnp.arrays(np.float32, (rows, columns), elements=elements, fill=elements)


def same_bits(found: Any, expected: Any) -> bool:
    found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
    return bool((found.view(np.uint32) == expected.view(np.uint32)).all())


def as_rows(table: dict[str, Floats]) -> dict[str, Any]:
    return {name: value.astype(np.float64) for name, value in table.items()}


@st.composite
def hyperparameters(draw: Any, name: str) -> dict[str, Any]:
    traits, rule = TRAITS[name], reference.RULES[name]
    values: dict[str, Any] = {}
    for field, bounds in zip(traits["hyper"], traits["hyper_bounds"], strict=True):
        if isinstance(rule.hyper[field].tame, bool):
            values[field] = draw(st.booleans())
        else:
            values[field] = draw(st.sampled_from(HYPER[bounds]))
    return values


@st.composite
def states(draw: Any, name: str, rows: int = ROWS) -> dict[str, Floats]:
    traits = TRAITS[name]
    state = {"parameters": draw(matrices(rows, numbers))}
    for slot, bounds in zip(traits["slots"], traits["slot_bounds"], strict=True):
        elements = magnitudes if bounds == "at least 0" else numbers
        columns = 1 if traits["row_wise"] else DIM
        state[slot] = draw(matrices(rows, elements, columns))
    return state


@st.composite
def steps(draw: Any) -> dict[str, Any]:
    """A step of any optimizer, all of it legal as such."""
    name = draw(st.sampled_from(sorted(reference.RULES)))
    rate = draw(numbers)
    parameters = optimizer(
        name,
        None if name == "frequency_estimator" else rate,
        **draw(hyperparameters(name)),
    )
    all_rows = reference.touches_all(parameters)
    accumulates = 1 if all_rows else draw(st.sampled_from([0, 1, 2]))
    parameters.gradient_accumulation_status = accumulates
    clips = st.sampled_from([(None, None), (-1.0, 1.0), (-MOST, 0.0), (None, -1e30)])
    parameters.gradient_clipping_limits.CopyFrom(limits(*draw(clips)))
    parameters.clipping_limits.CopyFrom(limits(*draw(clips)))
    parameters.weight_decay_factor = draw(st.sampled_from([0.0, 0.5, 1.0]))
    parameters.multiply_weight_decay_factor_by_learning_rate = draw(st.booleans())
    return {
        "parameters": parameters,
        "rate": rate,
        "combiner": draw(st.sampled_from(["sum", "mean", "sqrtn"])),
        "state": draw(states(name)),
        "weights": draw(hnp.arrays(np.float32, len(IDS), elements=numbers)),
        "gradients": draw(matrices(SAMPLES, numbers)),
    }


def legal(name: str, table: dict[str, Any]) -> bool:
    bounds = ["", *TRAITS[name]["slot_bounds"]]
    return all(
        np.isfinite(values).all() and (bound != "at least 0" or (values >= 0).all())
        for bound, values in zip(bounds, table.values(), strict=True)
    )


def tried(call: Callable[[], object]) -> str:
    """Why a call is refused, or nothing."""
    try:
        call()
    except Invalid as error:
        return str(error)
    return ""


@pytest.mark.partial
@given(step=steps())
@settings(
    max_examples=400 if tiers.FULL else 40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_step_extreme_values_leave_finite_tables_or_no_change(
    step: dict[str, Any],
) -> None:
    parameters, state = step["parameters"], step["state"]
    name = reference.name_of(parameters)
    system = System(
        [Table(ROWS, DIM, parameters, step["combiner"])],
        [Feature(0, (SAMPLES,), "ragged", weighted=True)],
    )
    splits = tf.constant(np.searchsorted(BAGS, np.arange(SAMPLES + 1)), tf.int32)
    tensors = (splits, tf.constant(IDS, tf.int32), tf.constant(step["weights"]))
    with configured(system) as proto:
        load(system, [as_rows(state)])
        loaded = retrieve(system)[0]
        for slot, values in state.items():
            assert same_bits(loaded[slot], values), slot
        lookup = Lookup(BAGS, IDS, step["weights"], tensors)
        refused = tried(lambda: enqueue(system, [lookup]))
        if refused:
            assert "feature0" in refused and "weights" in refused
            assert not finite_coefficients(step)
        else:
            receive(system, proto)
            rates = [step["rate"]] if name == "frequency_estimator" else []
            refused = tried(lambda: send(system, proto, [step["gradients"]], rates))
            assert not refused or "learning rate" in refused
        after = retrieve(system)[0]
    if refused:
        assert all(same_bits(after[slot], values) for slot, values in state.items())
    assert legal(name, after)
    if parameters.HasField("clipping_limits"):
        most = parameters.clipping_limits.upper.value
        if not refused and parameters.clipping_limits.HasField("upper"):
            assert (after["parameters"][:3] <= most).all()


def finite_coefficients(step: dict[str, Any]) -> bool:
    with np.errstate(all="ignore"):
        scales = reference.scales(
            step["combiner"], BAGS, step["weights"].astype(np.float64), SAMPLES
        )
        # Ours is the product of two floats.
        return bool((np.abs(scales) < 1e37).all() and (np.abs(scales) > 0).all())


# Nothing here overflows, whatever the other columns hold.
MODERATE = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -2.5, 1e-3, 100.0]


@pytest.mark.parametrize("name", reference.RULES)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=8, deadline=None)
def test_numbers_that_do_not_overflow_are_the_references(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rate = None if name == "frequency_estimator" else 0.125
    system = System(
        [Table(1, 64, optimizer(name, rate, **reference.RULES[name].tame))],
        [Feature(0, (1,), "dense")],
    )
    # A row-wise rule makes columns of each other, and they are alike.
    row_wise = TRAITS[name]["row_wise"]
    tame = np.broadcast_to(rng.random(1 if row_wise else 64) < 0.5, 64)

    def draw(bound: str, columns: int) -> Any:
        wild = rng.choice(EXTREMES, 64) * rng.choice([-1, 1], 64)
        values = np.where(tame, rng.choice(MODERATE, 64), wild)[:columns]
        values = np.abs(values) if bound == "at least 0" else values
        return values.astype(np.float32).astype(np.float64)[None]

    slots = zip(TRAITS[name]["slots"], TRAITS[name]["slot_bounds"], strict=True)
    state = {"parameters": draw("", 64)}
    state |= {slot: draw(bound, 1 if row_wise else 64) for slot, bound in slots}
    gradient = draw("", 64)
    lookup = system.draw(rng)
    with configured(system) as proto:
        load(system, [state])
        enqueue(system, lookup)
        receive(system, proto)
        send(system, proto, [gradient], [7.0] if rate is None else [])
        (after,) = retrieve(system)
    assert legal(name, after)
    with np.errstate(all="ignore"):
        (expected,) = system.updated([state], lookup, [gradient], [7.0])
    for slot in state:
        size = np.abs(expected[slot]) + np.abs(state[slot]) + np.abs(gradient) / 8
        error = np.abs(after[slot] - expected[slot])
        assert (error <= 3e-6 * size)[:, tame].all(), slot


def test_step_overflow_saturates_at_float32_limits() -> None:
    """By hand: the gradient, a slot, the weight."""

    def stepped(name: str, w: float, slots: list[float], g: float, **more: Any) -> Any:
        system = System(
            [Table(1, 1, optimizer(name, **more))], [Feature(0, (1,), "dense")]
        )
        names = ("parameters", *reference.RULES[name].slots)
        state = {n: np.array([[x]]) for n, x in zip(names, [w, *slots], strict=True)}
        with configured(system) as proto:
            load(system, [state])
            enqueue(system, system.draw(np.random.default_rng(0)))
            receive(system, proto)
            send(system, proto, [np.array([[g]])])
            (after,) = retrieve(system)
        return [float(value[0, 0]) for value in after.values()]

    assert stepped("stochastic_gradient_descent", MOST, [], -MOST) == [MOST]
    assert stepped("stochastic_gradient_descent", -MOST, [], MOST) == [-MOST]
    # The accumulator ends at the largest float32, whose root divides.
    w, a = stepped("adagrad", 0, [1], 1e30)
    assert a == MOST
    assert w == pytest.approx(-0.125 * 1e30 / np.sqrt(MOST), rel=1e-6)
    assert stepped("momentum", 0, [MOST], MOST, momentum=1) == [-MOST / 8, MOST]
    assert stepped("rms_prop", 1, [0, 0], 1e30, rho=1)[1] == 0


def load_one(name: str, tensors: list[Any], config: bytes) -> None:
    """Loads the only table, with the op of its optimizer if it has one."""
    if name in OP_NAMES:
        op: Any = opwright.op_class(f"LoadTPUEmbedding{OP_NAMES[name]}Parameters")
        options = op.Options(table_id=0, config=config)
        op.create(Scope.current(), *tensors, 1, 0, options)
        return
    native.ops().opwright_load_embedding_table(
        parameters=tensors[0],
        slots=tensors[1:],
        table_id=0,
        num_shards=1,
        shard_id=0,
        config=config,
    )


@pytest.mark.parametrize("name", reference.RULES)
@pytest.mark.parametrize("wrong", [*BAD, -1.0, -SMALLEST])
def test_loading_refuses_what_a_table_may_not_hold(name: str, wrong: float) -> None:
    rate = None if name == "frequency_estimator" else 0.125
    parameters = optimizer(name, rate, **reference.RULES[name].tame)
    system = System([Table(7, 5, parameters)], [Feature(0, (1,), "dense")])
    state = system.tables[0].draw(np.random.default_rng(0))
    names = dict(
        zip(
            ["parameters", *TRAITS[name]["slots"]],
            ["", *TRAITS[name]["slot_bounds"]],
            strict=True,
        )
    )
    every: Any = LoadAllTPUEmbeddingParameters
    with configured(system) as proto:
        load(system, [state])
        for at, (slot, bound) in enumerate(names.items()):
            tensors = [np.array(state[n], np.float32) for n in names]
            column = min(2, tensors[at].shape[1] - 1)
            tensors[at][6, -1] = tensors[at][3, column] = wrong
            lists = [[x] for x in (*tensors, np.zeros((7, 5), np.float32))]
            lists += [[np.zeros(0, np.float32)]] * (1 + MAX_SLOTS - len(lists))
            one = tried(lambda x=tensors: load_one(name, x, proto))
            all_ = tried(lambda x=lists: every.create(Scope.current(), *x, proto, 1, 0))
            if np.isfinite(wrong) and bound != "at least 0":
                assert not one and not all_
                load(system, [state])
                continue
            for words in (one, all_):
                for word in ("table0", "row 3", f"column {column}", f"{wrong:.6g}"[:4]):
                    assert word in words, (word, words)
            assert slot in one and (f"auxiliary{at}[0]" if at else slot) in all_
            (found,) = retrieve(system)
            assert all(same_bits(found[n], state[n]) for n in names), slot


@pytest.mark.parametrize("value", [-0.0, SMALLEST, MOST])
def test_loading_and_retrieving_keep_every_bit(value: float) -> None:
    system = System([Table(3, 5, optimizer("adagrad"))], [Feature(0, (1,), "dense")])
    state = {n: np.full((3, 5), value) for n in ("parameters", "accumulators")}
    with configured(system):
        load(system, [state])
        (found,) = retrieve(system)
    assert all(same_bits(found[name], state[name]) for name in state)


@pytest.mark.parametrize(
    ("combiner", "weights"),
    [
        ("mean", [LEAST * (1 + 2**-23), -LEAST]),
        ("mean", [MOST, -MOST, 1, -1 + 2**-24]),
    ],
)
def test_weights_that_combine_to_infinity_are_refused(
    combiner: str, weights: list[float]
) -> None:
    table = Table(3, 2, optimizer("adagrad"), combiner)
    system = System([table], [Feature(0, (1,), "ragged", weighted=True)])
    count = len(weights)
    tensors = (
        tf.constant([0, count]),
        tf.constant([0] * count),
        tf.constant(weights, tf.float32),
    )
    bags = np.zeros(count, np.int64)
    with configured(system):
        refused = tried(
            lambda: enqueue(system, [Lookup(bags, bags, np.array(weights), tensors)])
        )
    assert "feature0" in refused and "sample 0" in refused


def test_limits_of_quantization_are_as_far_apart_as_float32_can_say() -> None:
    for low, high in ((-3e38, 3e38), (0.0, SMALLEST), (-MOST, 1e38)):
        parameters = optimizer("adagrad")
        quantization = parameters.simulated_quantization
        quantization.enabled, quantization.num_buckets = True, 17
        quantization.clipping_limits.CopyFrom(limits(low, high))
        system = System([Table(3, 2, parameters)], [Feature(0, (3,), "dense")])
        with (
            pytest.raises(Invalid, match=r"table0.*clipping_limits"),
            configured(system),
        ):
            pass


@pytest.mark.rotating
@given(
    low=st.floats(-MOST, MOST, width=32),
    width=st.floats(2.0**-90, MOST, width=32),
    buckets=st.integers(2, 2**20),
    values=hnp.arrays(np.float32, (5, DIM), elements=numbers),
)
@settings(max_examples=60, deadline=None)
@example(0.0, MOST, 4, np.full((5, DIM), MOST, np.float32))
def test_quantized_activations_lie_within_the_limits(
    low: float, width: float, buckets: int, values: Floats
) -> None:
    with np.errstate(over="ignore"):
        high = float(np.float32(low) + np.float32(width))
    parameters = optimizer("adagrad")
    quantization = parameters.simulated_quantization
    quantization.enabled, quantization.num_buckets = True, buckets
    quantization.clipping_limits.CopyFrom(limits(low, high))
    system = System([Table(5, DIM, parameters)], [Feature(0, (5,), "dense")])
    lookup = system.draw(np.random.default_rng(0))
    try:
        with configured(system) as proto:
            zeros = np.zeros((5, DIM))
            load(system, [{"parameters": values, "accumulators": zeros}])
            enqueue(system, lookup, "inference")
            (found,) = receive(system, proto)
    except Invalid as error:
        assert "clipping_limits" in str(error)
        return
    assert (found >= np.float32(low)).numpy().all()
    assert (found <= np.float32(high)).numpy().all()


# ---- SparseCores.

FIELDS = {
    "Sgd": "stochastic_gradient_descent",
    "Adagrad": "adagrad",
    "AdagradMomentum": "adagrad_momentum",
    "Adam": "adam",
    "Ftrl": "ftrl",
}
# What the two families of ops call slots and hyperparameters of the traits.
SLOTS = {
    "Adagrad": (["accumulator"], ["accumulator"]),
    "AdagradMomentum": (["accumulator", "momenta"], ["accumulator", "momentum"]),
    "Adam": (["momenta", "velocity"], ["momentum", "velocity"]),
    "Ftrl": (["accumulator", "linear"], ["accumulator", "linear"]),
}
NAMES = {
    "AdagradMomentum": {"momentum": "beta1"},
    "Ftrl": {
        "l1": "l1_regularization_strength",
        "l2": "l2_regularization_strength",
        "lr_power": "learning_rate_power",
        "multiply_linear_by_lr": "multiply_linear_by_learning_rate",
    },
}
ROW_NAMES = {"beta1": "beta_1", "beta2": "beta_2"}


@st.composite
def sparse_core_steps(draw: Any) -> dict[str, Any]:
    op = draw(st.sampled_from(sorted(FIELDS)))
    hyper = draw(hyperparameters(FIELDS[op]))
    hyper.pop("use_non_lazy_adam", None)
    named = {NAMES.get(op, {}).get(k, k): v for k, v in hyper.items()}
    low, high = draw(st.sampled_from([(-np.inf, np.inf), (-1.0, MOST), (-MOST, 1e30)]))
    return {
        "op": op,
        "hyper": named,
        "clip": {"clip_weight_min": low, "clip_weight_max": high},
        "state": draw(states(FIELDS[op], 8)),
        "rate": draw(numbers),
        "gains": draw(hnp.arrays(np.float32, 4, elements=numbers)),
        "gradients": draw(matrices(4, numbers)),
    }


def by_rows(step: dict[str, Any], state: list[Any], **more: Any) -> list[Any]:
    op, slots = step["op"], SLOTS.get(step["op"], ([], []))[1]
    names = ["embedding_table", *slots]
    results = getattr(raw, f"XlaSparseCore{op}")(
        indices=np.array([3, 1, 6, 7], np.int32),
        gradient=step["gradients"],
        learning_rate=np.float32(step["rate"]),
        feature_width=DIM,
        **dict(zip(names, state, strict=True)),
        **{ROW_NAMES.get(k, k): v for k, v in step["hyper"].items()},
        **more,
    )
    if not slots:
        return [results]
    return [getattr(results, f"updated_{name}") for name in names]


def by_triples(step: dict[str, Any], state: list[Any], **more: Any) -> list[Any]:
    """Four samples of an id each, on one SparseCore."""
    op, slots = step["op"], SLOTS.get(step["op"], ([], []))[0]
    results = getattr(raw, f"XlaSparseDenseMatmulGradWith{op}AndCsrInput")(
        row_pointers=np.array([4] + [8] * 7, np.int32),
        sorted_sample_ids=np.array([0, 1, 2, 3] + [0] * 4, np.int32),
        sorted_token_ids=np.array([1, 1, 3, 6] + [0] * 4, np.int32),
        sorted_gains=np.concatenate([step["gains"], np.zeros(4, np.float32)]),
        num_minibatches_per_physical_sparse_core=1,
        activation_gradients=step["gradients"],
        learning_rate=np.float32(step["rate"]),
        table_name="table",
        num_sparsecores_per_device=1,
        **dict(zip(["embedding_table", *slots], state, strict=True)),
        **step["hyper"],
        **step["clip"],
        **more,
    )
    return list(results) if slots else [results]


@pytest.mark.rotating
@given(step=sparse_core_steps())
@settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_sparse_cores_return_finite_tables(step: dict[str, Any]) -> None:
    state = list(step["state"].values())
    kept = [np.array(values) for values in state]
    for call in (by_rows, by_triples):
        new: list[Any] = []
        refused = tried(lambda call=call, new=new: new.extend(call(step, state)))
        assert all(same_bits(x, y) for x, y in zip(state, kept, strict=True))
        if refused:
            assert step["op"] == "Ftrl" and step["rate"] <= 0
            assert "learning_rate" in refused
            continue
        names = step["state"]
        assert legal(
            FIELDS[step["op"]],
            dict(zip(names, (x.numpy() for x in new), strict=True)),
        )


GOOD: dict[str, dict[str, Any]] = {
    "Sgd": {},
    "Adagrad": {},
    "AdagradMomentum": {
        "beta1": 0.9,
        "use_nesterov": False,
        "exponent": 2.0,
        "beta2": 0.9,
        "epsilon": 1e-3,
    },
    "Adam": {"beta1": 0.9, "beta2": 0.9, "epsilon": 1e-3, "use_sum_inside_sqrt": True},
    "Ftrl": {
        "multiply_linear_by_learning_rate": False,
        "beta": 0.0,
        "learning_rate_power": -0.5,
        "l1_regularization_strength": 0.0,
        "l2_regularization_strength": 0.0,
    },
}


def good_step(op: str) -> dict[str, Any]:
    return {
        "op": op,
        "hyper": dict(GOOD[op]),
        "clip": {"clip_weight_min": -np.inf, "clip_weight_max": np.inf},
        "rate": 0.5,
        "gains": np.ones(4, np.float32),
        "gradients": np.ones((4, DIM), np.float32),
    }


@pytest.mark.parametrize("call", [by_rows, by_triples])
@pytest.mark.parametrize("op", FIELDS)
def test_sparse_cores_refuse_what_a_row_may_not_hold(
    op: str, call: Callable[..., list[Any]]
) -> None:
    slots = SLOTS.get(op, ([], []))[call is by_rows]
    bounds = ["", *TRAITS[FIELDS[op]]["slot_bounds"]]
    step = good_step(op)
    for at, (name, bound) in enumerate(
        zip(["embedding_table", *slots], bounds, strict=True)
    ):
        for wrong in (*BAD, -1.0):
            state = [np.ones((8, DIM), np.float32) for _ in bounds]
            # A row that no batch updates stays as it is.
            state[at][[0, 3, 6], 4] = wrong
            state[at][3, 2] = wrong
            refused = tried(lambda s=state: call(step, s))
            if np.isfinite(wrong) and bound != "at least 0":
                assert not refused
                continue
            for word in (name, "row 3", "column 2", f"{wrong:.6g}"[:4]):
                assert word in refused, (word, refused)
            state[at][[3, 6]] = 1
            assert not tried(lambda s=state: call(step, s))


@pytest.mark.rotating
@pytest.mark.parametrize("call", [by_rows, by_triples])
@pytest.mark.parametrize("op", FIELDS)
def test_sparse_cores_refuse_settings_beyond_their_bounds(
    op: str, call: Callable[..., list[Any]]
) -> None:
    wrong: dict[str, list[float]] = {
        "": BAD,
        "at least 0": [*BAD, -1.0],
        "at most 0": [*BAD, 1.0],
        "above 0": [*BAD, 0.0, -1.0],
        "from 0 to 1": [*BAD, -0.5, 1.5],
    }
    traits = TRAITS[FIELDS[op]]
    state = [np.ones((8, DIM), np.float32) for _ in ("", *traits["slots"])]
    for field, bounds in zip(traits["hyper"], traits["hyper_bounds"], strict=True):
        name = NAMES.get(op, {}).get(field, field)
        step = good_step(op)
        if isinstance(step["hyper"].get(name, True), bool):
            continue
        for value in wrong[bounds]:
            step["hyper"][name] = value
            refused = tried(lambda s=step: call(s, state))
            given_as = ROW_NAMES.get(name, name) if call is by_rows else name
            assert given_as in refused and f"{value:.6g}" in refused, refused
    for rate in BAD + [0.0, -1.0] * (op == "Ftrl"):
        refused = tried(lambda r=rate: call(good_step(op) | {"rate": r}, state))
        assert "learning_rate" in refused and f"{rate:.6g}" in refused
    if call is by_triples:
        for low, high in ((np.nan, 1.0), (0.0, np.nan), (np.inf, np.inf), (2.0, 1.0)):
            clip = {"clip_weight_min": low, "clip_weight_max": high}
            refused = tried(lambda c=clip: call(good_step(op) | {"clip": c}, state))
            assert "clip_weight_min" in refused


@pytest.mark.parametrize("call", [by_rows, by_triples])
def test_sparse_cores_say_where_a_gradient_is_not_finite(
    call: Callable[..., list[Any]],
) -> None:
    step = good_step("Sgd")
    step["gradients"][2, 7] = step["gradients"][3, 1] = np.nan
    refused = tried(lambda: call(step, [np.ones((8, DIM), np.float32)]))
    for word in ("gradient", "sample 2", "column 7", "nan"):
        assert word in refused, refused


def test_nan_in_a_table_is_looked_up_as_nan() -> None:
    table = np.ones((8, DIM), np.float32)
    table[3, 4] = np.nan
    for buckets in (0, 16):
        found = raw.XlaSparseDenseMatmulWithCsrInput(
            row_pointers=np.array([2] + [8] * 7, np.int32),
            sorted_sample_ids=np.array([0, 1] + [0] * 6, np.int32),
            sorted_token_ids=np.array([1, 3] + [0] * 6, np.int32),
            sorted_gains=np.ones(8, np.float32),
            embedding_table=table,
            num_minibatches_per_physical_sparse_core=1,
            input_size=2,
            quantization_config_low=-2.0,
            quantization_config_high=2.0,
            quantization_config_num_buckets=buckets,
            table_name="table",
            num_sparsecores_per_device=1,
        ).numpy()
        assert np.isnan(found[1, 4]) and np.isnan(found).sum() == 1


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
def test_gains_of_sparse_cores_are_finite(combiner: str) -> None:
    for weights in ([MOST, MOST], [SMALLEST, 0], [MOST, -MOST], [1e30, 1e30]):
        refused = tried(
            lambda w=weights: raw.ConvertToCooTensor(
                indices_or_row_splits=np.array([0, 2], np.int32),
                values=np.array([5, 5], np.int32),
                weights=np.array(w, np.float32),
                sample_count=1,
                combiner=combiner,
            )
        )
        if refused:
            assert "weights" in refused and "sample 0" in refused
    gains = raw.ConvertToCooTensor(
        indices_or_row_splits=np.array([0, 2], np.int32),
        values=np.array([5, 6], np.int32),
        weights=np.array([1e30, 1e30], np.float32),
        sample_count=1,
        combiner=combiner,
    ).gains.numpy()
    want = {"sum": 1e30, "mean": 0.5, "sqrtn": 0.5**0.5}[combiner]
    np.testing.assert_allclose(gains, want, 1e-6)
