"""The reference that the embedding engine is held against, held against TensorFlow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf.tpu.optimization_parameters_pb2 import (
    ClippingLimits,
    OptimizationParameters,
)

from embedding.support import reference
from opwright_runtime import native

raw = tf.raw_ops
ROWS, DIM, IDS, STEPS, RATE = 40, 3, 25, 30, 0.125
# Hyperparameters, weights and slots, gradients, ids.
Peer = Callable[[Any, list[tf.Variable], tf.Tensor, tf.Tensor], object]


def double(x: float) -> tf.Tensor:
    return tf.constant(x, tf.float64)


LR, ZERO = double(RATE), double(0.0)


def ftrl(h: Any, v: list[tf.Variable], g: tf.Tensor, i: tf.Tensor) -> object:
    # TensorFlow knows no beta, which is an l2 of beta / (2 * lr).
    return raw.ResourceSparseApplyFtrlV2(
        var=v[0].handle,
        accum=v[1].handle,
        linear=v[2].handle,
        grad=g,
        indices=i,
        lr=LR,
        l1=double(h.l1),
        l2=double(h.l2 + h.beta / (2 * RATE)),
        l2_shrinkage=ZERO,
        lr_power=double(h.lr_power),
        multiply_linear_by_lr=h.multiply_linear_by_lr,
    )


PEERS: dict[str, tuple[list[dict[str, Any]], Peer]] = {
    "stochastic_gradient_descent": (
        [{}],
        lambda h, v, g, i: raw.ResourceScatterSub(
            resource=v[0].handle, indices=i, updates=LR * g
        ),
    ),
    "adagrad": (
        [{}],
        lambda h, v, g, i: raw.ResourceSparseApplyAdagrad(
            var=v[0].handle, accum=v[1].handle, lr=LR, grad=g, indices=i
        ),
    ),
    "adagrad_momentum": (
        [{"momentum": 0.9, "exponent": 2, "beta2": 0.75, "epsilon": 1e-3}],
        # The rate is inside of the momenta there.
        lambda h, v, g, i: (
            v[2].assign(v[2] * LR),
            raw.ResourceSparseApplyRMSProp(
                var=v[0].handle,
                ms=v[1].handle,
                mom=v[2].handle,
                lr=LR,
                rho=double(h.beta2),
                momentum=double(h.momentum),
                epsilon=double(h.epsilon),
                grad=g,
                indices=i,
            ),
            v[2].assign(v[2] / LR),
        ),
    ),
    "ftrl": (
        [
            {"l1": l1, "l2": 0.25, "lr_power": p, "beta": b, "multiply_linear_by_lr": m}
            for l1, p, b in ((0, -0.5, 0), (0.5, -0.5, 1), (0.5, -0.75, 0), (2, 0, 0))
            for m in (False, True)
        ],
        ftrl,
    ),
    "momentum": (
        [{"momentum": 0.9, "use_nesterov": n} for n in (False, True)],
        lambda h, v, g, i: raw.ResourceSparseApplyMomentum(
            var=v[0].handle,
            accum=v[1].handle,
            lr=LR,
            grad=g,
            indices=i,
            momentum=double(h.momentum),
            use_nesterov=h.use_nesterov,
        ),
    ),
    "rms_prop": (
        [{"rho": 0.75, "momentum": 0.9, "epsilon": 1e-3}],
        lambda h, v, g, i: raw.ResourceSparseApplyRMSProp(
            var=v[0].handle,
            ms=v[1].handle,
            mom=v[2].handle,
            lr=LR,
            rho=double(h.rho),
            momentum=double(h.momentum),
            epsilon=double(h.epsilon),
            grad=g,
            indices=i,
        ),
    ),
    "centered_rms_prop": (
        [{"rho": 0.75, "momentum": 0.9, "epsilon": 1e-1}],
        lambda h, v, g, i: raw.ResourceSparseApplyCenteredRMSProp(
            var=v[0].handle,
            ms=v[1].handle,
            mom=v[2].handle,
            mg=v[3].handle,
            lr=LR,
            rho=double(h.rho),
            momentum=double(h.momentum),
            epsilon=double(h.epsilon),
            grad=g,
            indices=i,
        ),
    ),
    "adadelta": (
        [{"rho": 0.75, "epsilon": 1e-3}],
        lambda h, v, g, i: raw.ResourceSparseApplyAdadelta(
            var=v[0].handle,
            accum=v[1].handle,
            accum_update=v[2].handle,
            lr=LR,
            rho=double(h.rho),
            epsilon=double(h.epsilon),
            grad=g,
            indices=i,
        ),
    ),
    "proximal_adagrad": (
        [{"l1": l1, "l2": l2} for l1 in (0, 0.125) for l2 in (0, 0.25)],
        lambda h, v, g, i: raw.ResourceSparseApplyProximalAdagrad(
            var=v[0].handle,
            accum=v[1].handle,
            lr=LR,
            l1=double(h.l1),
            l2=double(h.l2),
            grad=g,
            indices=i,
        ),
    ),
}
CASES = [(name, values) for name, (some, _) in PEERS.items() for values in some]


def settings(name: str, **values: Any) -> OptimizationParameters:
    parameters = OptimizationParameters()
    reference.set_optimizer(parameters, name, **values)
    return parameters


def new_table(name: str, rng: np.random.Generator) -> dict[str, reference.Array]:
    """Slots as after some steps: none of them 0, squares positive."""
    return reference.RULES[name].draw(rng, ROWS, DIM)


@pytest.mark.rotating
@pytest.mark.parametrize(("name", "values"), CASES)
@pytest.mark.parametrize("accumulate", [False, True])
def test_reference_rules_match_tensorflow(
    name: str, values: dict[str, Any], accumulate: bool
) -> None:
    """TensorFlow's ops update a row that comes twice twice."""
    rng = np.random.default_rng(0)
    parameters = settings(name, **values)
    parameters.gradient_accumulation_status = 1 if accumulate else 2
    table = new_table(name, rng)
    variables = [tf.Variable(value) for value in table.values()]
    for _ in range(STEPS):
        ids = rng.integers(0, ROWS, IDS)
        g = rng.standard_normal((IDS, DIM))
        table = reference.apply(parameters, RATE, table, ids, g)
        if accumulate:
            ids, inverse = np.unique(ids, return_inverse=True)
            g = tf.math.unsorted_segment_sum(g, inverse, len(ids))
        hyperparameters = reference.hyperparameters(parameters)
        PEERS[name][1](hyperparameters, variables, tf.constant(g), tf.constant(ids))
        for variable, slot in zip(variables, table, strict=True):
            np.testing.assert_allclose(table[slot], variable, 1e-11, 1e-12)


@pytest.mark.parametrize("beta1", [0.0, 0.5])
def test_reference_adam_matches_tensorflow(beta1: float) -> None:
    """The non-lazy form; TensorFlow's op puts the powers of the betas in the rate."""
    rng = np.random.default_rng(0)
    parameters = settings(
        "adam", beta1=beta1, beta2=0.75, epsilon=1e-3, use_non_lazy_adam=True
    )
    h = parameters.adam
    table = new_table("adam", rng)
    variables = [tf.Variable(value) for value in table.values()]
    for step in range(1, STEPS):
        ids = rng.integers(0, ROWS, IDS)
        g = rng.standard_normal((IDS, DIM))
        rate = RATE * np.sqrt(1 - h.beta2**step) / (1 - h.beta1**step)
        table = reference.apply(parameters, rate, table, ids, g)
        raw.ResourceApplyAdam(
            var=variables[0].handle,
            m=variables[1].handle,
            v=variables[2].handle,
            beta1_power=double(h.beta1**step),
            beta2_power=double(h.beta2**step),
            lr=LR,
            beta1=double(h.beta1),
            beta2=double(h.beta2),
            epsilon=double(h.epsilon),
            grad=tf.math.unsorted_segment_sum(tf.constant(g), ids, ROWS),
        )
        for variable, slot in zip(variables, table, strict=True):
            np.testing.assert_allclose(table[slot], variable, 1e-11, 1e-12)


def test_reference_adam_forms_differ_as_documented() -> None:
    """Where epsilon is 0 its place is all one; lazy means that other rows stay."""
    rng = np.random.default_rng(0)
    table, ids = new_table("adam", rng), np.array([3, 3, 7])
    g = rng.standard_normal((3, DIM))
    betas = {"beta1": 0.9, "beta2": 0.5}
    plain = reference.apply(settings("adam", **betas), RATE, table, ids, g)
    inside = settings("adam", **betas, use_sum_inside_sqrt=True)
    all_rows = settings("adam", **betas, use_non_lazy_adam=True)
    within = reference.apply(inside, RATE, table, ids, g)
    everywhere = reference.apply(all_rows, RATE, table, ids, g)
    for slot, values in plain.items():
        np.testing.assert_allclose(within[slot], values)
        np.testing.assert_allclose(everywhere[slot][[3, 7]], values[[3, 7]])
        others = np.delete(np.arange(ROWS), [3, 7])
        assert (values[others] == table[slot][others]).all()
        assert (everywhere[slot][others] != table[slot][others]).all()
    # One weight by hand: m stays 1/4.
    start = {"parameters": 1.0, "momenta": 0.25, "velocities": 0.0}
    one = {name: np.array([[value]]) for name, value in start.items()}
    inside = settings("adam", beta1=0.5, beta2=0.5, use_sum_inside_sqrt=True)
    inside.adam.epsilon = 3.75
    found = reference.apply(inside, 0.5, one, np.array([0]), np.array([[0.25]]))
    v = 0.5 * 0.0625
    np.testing.assert_allclose(found["velocities"], v)
    expected = 1 - 0.5 * 0.25 / np.sqrt(v + 3.75**2)
    np.testing.assert_allclose(found["parameters"], expected)


def test_every_rule_is_here() -> None:
    traits = [one for one in native.embedding_optimizers() if one["formula"]]
    assert set(reference.RULES) == {one["field"] for one in traits}
    for one in traits:
        rule = reference.RULES[one["field"]]
        assert list(rule.slots) == one["slots"]
        assert list(rule.hyper) == one["hyper"]
        assert rule.row_wise == one["row_wise"]


def test_lion_is_keras_s() -> None:
    rng = np.random.default_rng(0)
    parameters = settings("lion", beta1=0.5, beta2=0.75, use_non_lazy_lion=True)
    table = new_table("lion", rng)
    table["momenta"][:] = 0
    peer = tf.keras.optimizers.Lion(RATE, beta_1=0.5, beta_2=0.75)
    variable = tf.Variable(table["parameters"])
    for _ in range(STEPS):
        ids = rng.integers(0, ROWS, IDS)
        g = rng.standard_normal((IDS, DIM))
        table = reference.apply(parameters, RATE, table, ids, g)
        dense = tf.math.unsorted_segment_sum(tf.constant(g), ids, ROWS)
        peer.apply_gradients([(dense, variable)])
        np.testing.assert_allclose(table["parameters"], variable, 1e-9, 1e-10)


def one_weight(name: str, lr: float, g: float, **values: Any) -> list[float]:
    """Weight and slots after an update of a weight of 1 and slots of 1."""
    table = {
        slot: np.ones((1, 1)) for slot in ("parameters", *reference.RULES[name].slots)
    }
    parameters = settings(name, **values)
    table = reference.apply(parameters, lr, table, np.array([0]), np.array([[g]]))
    return [float(value[0, 0]) for value in table.values()]


def test_rules_without_a_peer_by_hand() -> None:
    # m = 1/2 + 3/2 = 2; v = 1 + 3/4 * 9, as 9 is more than 1; w is positive throughout.
    yogi = {"beta1": 0.5, "beta2": 0.25, "epsilon": 0.25, "l1": 0.5, "l2": 2}
    w, v, m = one_weight("proximal_yogi", 0.75, 3, **yogi)
    eta = 0.75 / (np.sqrt(7.75) + 0.25)
    assert (v, m) == (7.75, 2)
    np.testing.assert_allclose(w, (1 - 2 * eta - eta / 2) / (1 + 2 * eta))
    # v above g^2 shrinks.
    _, v, _ = one_weight("proximal_yogi", 0.75, 0.5, **yogi)
    assert v == 1 - 0.75 * 0.25

    # a = 1 + 7 = 8, 8^(-1/3) = 1/2, s = sqrt(7) / 2, m = 1/4 + s.
    values = {"momentum": 0.25, "exponent": 3, "beta2": 1}
    s = np.sqrt(7) / 2
    w, a, m = one_weight("adagrad_momentum", 0.5, np.sqrt(7), **values)
    np.testing.assert_allclose([w, a, m], [1 - (0.25 + s) / 2, 8, 0.25 + s])
    w, _, _ = one_weight(
        "adagrad_momentum", 0.5, np.sqrt(7), **values, use_nesterov=True
    )
    np.testing.assert_allclose(w, 1 - (0.25 * (0.25 + s) + s) / 2)

    # 5 steps since the last one: at most 4; no outlier, and one.
    values = {"tau": 0.25, "max_delta": 4, "outlier_threshold": 6}
    assert one_weight("frequency_estimator", 6, 9, **values) == [0.75 + 0.25 * 4, 6]
    values["outlier_threshold"] = 5
    assert one_weight("frequency_estimator", 6, 9, **values) == [4, 6]


def test_clipping_and_decay_by_hand() -> None:
    """Gradient clipping, decay, the rule, weight clipping: in this order."""
    table = {"parameters": np.array([[8.0, -8.0, 1.0]])}
    ids, g = np.array([0, 0]), np.array([[2.0, -2.0, 0.25]] * 2)
    parameters = settings("stochastic_gradient_descent")
    parameters.weight_decay_factor = 0.25
    parameters.gradient_clipping_limits.CopyFrom(limits(-1, 3))
    parameters.clipping_limits.CopyFrom(limits(None, 5.0))

    def after() -> list[float]:
        rows = reference.apply(parameters, 0.5, table, ids, g)["parameters"]
        return [float(value) for value in rows[0]]

    assert after() == [6 - 1.5, -6 + 0.5, 0.75 - 0.25]
    parameters.multiply_weight_decay_factor_by_learning_rate = True
    assert after() == [5, -7 + 0.5, 0.875 - 0.25]
    parameters.gradient_accumulation_status = 2
    # Twice 7/8 of it, less half of the gradient; 8 is clipped to 5 between.
    assert after() == [5 * 0.875 - 1, (-7 + 0.5) * 0.875 + 0.5, 0.75 * 0.875 - 0.125]


def limits(low: float | None, high: float | None) -> ClippingLimits:
    result = ClippingLimits()
    if low is not None:
        result.lower.value = low
    if high is not None:
        result.upper.value = high
    return result


@pytest.mark.parametrize("combiner", ["sum", "mean", "sqrtn"])
@pytest.mark.parametrize("weighted", [False, True])
def test_lookups_and_gradients_are_tensorflows(combiner: str, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    bags = np.sort(rng.integers(0, 12, 40))
    bags[bags == 5] = 6  # Some bags are empty.
    ids = rng.integers(0, 9, 40)
    weights = rng.uniform(0.5, 2, 40) if weighted else np.ones(40)
    table = tf.Variable(rng.standard_normal((9, DIM)))
    count = 14
    columns = np.arange(40)
    indices = np.stack([bags, columns], 1)
    sparse = tf.SparseTensor(indices, ids, [count, 40])
    sparse_weights = tf.SparseTensor(indices, weights, [count, 40])
    upstream = rng.standard_normal((count, DIM))
    with tf.GradientTape() as tape:
        theirs = tf.nn.safe_embedding_lookup_sparse(
            table, sparse, sparse_weights if weighted else None, combiner
        )
    gradient = tape.gradient(theirs, table, tf.constant(upstream))
    scale = reference.scales(combiner, bags, weights, count)
    ours = reference.looked_up(table.numpy(), bags, ids, scale, count)
    assert (ours[5] == 0).all()
    np.testing.assert_allclose(ours, theirs, 1e-12, 1e-12)

    parameters = settings("stochastic_gradient_descent")
    found = reference.apply(
        parameters,
        1.0,
        {"parameters": table.numpy()},
        ids,
        scale[:, None] * upstream[bags],
    )
    expected = table.numpy() - tf.convert_to_tensor(gradient).numpy()
    np.testing.assert_allclose(found["parameters"], expected, 1e-12, 1e-12)


@pytest.mark.parametrize("combiner", ["mean", "sqrtn"])
def test_weights_of_nothing_give_nothing(combiner: str) -> None:
    bags = np.array([0, 0, 1])
    weights = np.array([0.0, 0.0, 2.0])
    scale = reference.scales(combiner, bags, weights, 2)
    assert scale.tolist() == [0, 0, 1]
    if combiner == "mean":
        assert not reference.scales("mean", bags[:2], np.array([1.0, -1.0]), 1).any()


def test_quantization_is_fake_quantization() -> None:
    """TensorFlow's fake quantization of 8 bits has 256 buckets; 0 is one of these."""
    parameters = OptimizationParameters()
    quantization = parameters.simulated_quantization
    quantization.enabled = True
    quantization.num_buckets = 256
    quantization.clipping_limits.CopyFrom(limits(-1.28, 1.27))
    values = np.random.default_rng(0).uniform(-2, 2, (50, 4)).astype(np.float32)
    theirs = tf.quantization.fake_quant_with_min_max_args(values, -1.28, 1.27, 8)
    ours = reference.quantized(values.astype(np.float64), quantization)
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
