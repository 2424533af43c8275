"""TPU embeddings in NumPy and float64, written from the formulas.

Nothing here knows the engine. `RULES` is the one table of optimizers that tests have. A
table is a dictionary of matrices, `parameters` and the
optimizer's slots; a step's ids are two vectors, the bag that each id falls into and the
id. Hyperparameters come from TensorFlow's OptimizationParameters, whose floats are
float32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
# Hyperparameters, learning rate, gradient, weights, slots -> weights, slots.
Update = Callable[..., tuple[Array, ...]]


def quotient(a: Array, b: Array) -> Array:
    """a / b, and 0 where b is 0: an accumulator of nothing moves no weight."""
    return np.divide(a, b, out=np.zeros(np.broadcast(a, b).shape), where=b != 0)


def power(base: Array, exponent: float) -> Array:
    """base ** exponent, and 0 where that is the reciprocal of 0."""
    if exponent >= 0:
        return base**exponent
    return quotient(np.ones_like(base), base**-exponent)


def shrink(x: Array, limit: Array) -> Array:
    return np.sign(x) * np.maximum(np.abs(x) - limit, 0)


def sgd(_: Any, lr: float, g: Array, w: Array) -> tuple[Array, ...]:
    return (w - lr * g,)


def adagrad(_: Any, lr: float, g: Array, w: Array, a: Array) -> tuple[Array, ...]:
    a = a + g**2
    return w - lr * quotient(g, np.sqrt(a)), a


def adagrad_momentum(
    h: Any, lr: float, g: Array, w: Array, a: Array, m: Array
) -> tuple[Array, ...]:
    a = a + g**2 if h.beta2 == 1 else h.beta2 * a + (1 - h.beta2) * g**2
    s = power(a + h.epsilon, -1 / h.exponent) * g
    m = h.momentum * m + s
    return w - lr * (h.momentum * m + s if h.use_nesterov else m), a, m


def adam(
    h: Any, lr: float, g: Array, w: Array, m: Array, v: Array
) -> tuple[Array, ...]:
    m = h.beta1 * m + (1 - h.beta1) * g
    v = h.beta2 * v + (1 - h.beta2) * g**2
    divisor = np.sqrt(v) + h.epsilon
    if h.use_sum_inside_sqrt:
        divisor = np.sqrt(v + h.epsilon**2)
    return w - lr * quotient(m, divisor), m, v


def ftrl(
    h: Any, lr: float, g: Array, w: Array, a: Array, z: Array
) -> tuple[Array, ...]:
    old = power(a, -h.lr_power)
    a = a + g**2
    new = power(a, -h.lr_power)
    if h.multiply_linear_by_lr:
        z = z + lr * g - (new - old) * w
        l1, divisor = lr * h.l1, new + h.beta + 2 * lr * h.l2
    else:
        z = z + g - (new - old) * w / lr
        l1, divisor = h.l1, (new + h.beta) / lr + 2 * h.l2
    return quotient(np.clip(z, -l1, l1) - z, divisor), a, z


def momentum(h: Any, lr: float, g: Array, w: Array, m: Array) -> tuple[Array, ...]:
    m = h.momentum * m + g
    return w - lr * (g + h.momentum * m if h.use_nesterov else m), m


def lion(h: Any, lr: float, g: Array, w: Array, m: Array) -> tuple[Array, ...]:
    """Chen and others, Symbolic Discovery of Optimization Algorithms, algorithm 2."""
    step = np.sign(h.beta1 * m + (1 - h.beta1) * g)
    return w - lr * step, h.beta2 * m + (1 - h.beta2) * g


def rms_prop(
    h: Any, lr: float, g: Array, w: Array, ms: Array, mom: Array
) -> tuple[Array, ...]:
    ms = ms + (1 - h.rho) * (g**2 - ms)
    mom = h.momentum * mom + lr * quotient(g, np.sqrt(ms + h.epsilon))
    return w - mom, ms, mom


def centered_rms_prop(
    h: Any, lr: float, g: Array, w: Array, ms: Array, mom: Array, mg: Array
) -> tuple[Array, ...]:
    ms = ms + (1 - h.rho) * (g**2 - ms)
    mg = mg + (1 - h.rho) * (g - mg)
    mom = h.momentum * mom + lr * quotient(g, np.sqrt(ms - mg**2 + h.epsilon))
    return w - mom, ms, mom, mg


def adadelta(
    h: Any, lr: float, g: Array, w: Array, a: Array, d: Array
) -> tuple[Array, ...]:
    a = h.rho * a + (1 - h.rho) * g**2
    u = quotient(np.sqrt(d + h.epsilon), np.sqrt(a + h.epsilon)) * g
    return w - lr * u, a, h.rho * d + (1 - h.rho) * u**2


def proximal_adagrad(
    h: Any, lr: float, g: Array, w: Array, a: Array
) -> tuple[Array, ...]:
    a = a + g**2
    eta = quotient(np.full_like(a, lr), np.sqrt(a))
    return shrink(w - eta * g, eta * h.l1) / (1 + eta * h.l2), a


def proximal_yogi(
    h: Any, lr: float, g: Array, w: Array, v: Array, m: Array
) -> tuple[Array, ...]:
    """Zaheer and others, NeurIPS 2018, algorithm 2, and a proximal step after it."""
    m = h.beta1 * m + (1 - h.beta1) * g
    v = v - (1 - h.beta2) * np.sign(v - g**2) * g**2
    eta = quotient(np.full_like(v, lr), np.sqrt(v) + h.epsilon)
    return shrink(w - eta * m, eta * h.l1) / (1 + eta * h.l2), v, m


def row_wise_adagrad(
    h: Any, lr: float, g: Array, w: Array, a: Array
) -> tuple[Array, ...]:
    """FBGEMM's EXACT_ROWWISE_ADAGRAD; a is [rows, 1]."""
    a = a + (g**2).sum(1, keepdims=True) / g.shape[1]
    return w - lr * quotient(g, np.sqrt(a) + h.epsilon), a


def frequency_estimator(
    h: Any, step: float, g: Array, w: Array, last: Array
) -> tuple[Array, ...]:
    delta = step - last
    capped = np.minimum(delta, h.max_delta)
    mixed = w * (1 - h.tau) + capped * h.tau
    outlier = delta >= h.outlier_threshold * w
    return np.where(outlier, capped, mixed), np.full_like(last, step)


# How tests draw the values of a slot, [rows, columns], as after some steps.
DrawState = Callable[[np.random.Generator, tuple[int, int]], Array]


def signed(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    return rng.standard_normal(size)


def positive(rng: np.random.Generator, size: tuple[int, int]) -> Array:
    return np.abs(rng.standard_normal(size)) + 0.1


@dataclass(frozen=True)
class Hyper:
    """A hyperparameter: how tests draw it, and a value with which nothing overflows."""

    draw: Callable[[np.random.Generator], float]
    tame: float


def between(low: float, high: float, tame: float) -> Hyper:
    return Hyper(lambda rng: float(rng.uniform(low, high)), tame)


def one_of(*values: float, tame: float) -> Hyper:
    return Hyper(lambda rng: type(values[0])(rng.choice(values)), tame)


def zero_or(one: Hyper) -> Hyper:
    return Hyper(lambda rng: one.draw(rng) * bool(rng.random() < 0.5), one.tame)


FLAG = one_of(False, True, tame=False)
EPSILON = Hyper(lambda rng: float(10 ** rng.uniform(-8, -2)), 1e-3)
DECAY = between(0.3, 0.99, tame=0.75)
MOMENTUM = between(0, 0.95, tame=0.5)
L1 = zero_or(between(0, 0.2, tame=0.125))
L2 = zero_or(between(0, 0.5, tame=0.5))


@dataclass(frozen=True)
class Rule:
    """All that tests know of an optimizer: what `updated` and every draw is made of."""

    update: Update
    # In the order of the Load ops' inputs.
    slots: Mapping[str, DrawState] = field(default_factory=dict)
    # In the order of the optimizer registry.
    hyper: Mapping[str, Hyper] = field(default_factory=dict)
    weights: DrawState = signed
    # Slots are [rows, 1].
    row_wise: bool = False

    def draw(
        self, rng: np.random.Generator, rows: int, dimension: int
    ) -> dict[str, Array]:
        """Weights and slots."""
        columns = 1 if self.row_wise else dimension
        table = {"parameters": self.weights(rng, (rows, dimension))}
        return table | {n: d(rng, (rows, columns)) for n, d in self.slots.items()}

    def draw_hyper(self, rng: np.random.Generator) -> dict[str, float]:
        return {name: one.draw(rng) for name, one in self.hyper.items()}

    @property
    def tame(self) -> dict[str, float]:
        return {name: one.tame for name, one in self.hyper.items()}


# By the name in the optimizer registry.
RULES = {
    "stochastic_gradient_descent": Rule(sgd),
    "adagrad": Rule(adagrad, {"accumulators": positive}),
    "adagrad_momentum": Rule(
        adagrad_momentum,
        {"accumulators": positive, "momenta": signed},
        {
            "momentum": MOMENTUM,
            "use_nesterov": FLAG,
            "exponent": one_of(1.5, 2.0, 3.0, tame=3.0),
            "beta2": Hyper(
                lambda rng: 1.0 if rng.random() < 0.5 else DECAY.draw(rng), DECAY.tame
            ),
            "epsilon": EPSILON,
        },
    ),
    "adam": Rule(
        adam,
        {"momenta": signed, "velocities": positive},
        {
            "beta1": MOMENTUM,
            "beta2": DECAY,
            "epsilon": EPSILON,
            "use_non_lazy_adam": FLAG,
            "use_sum_inside_sqrt": FLAG,
        },
    ),
    "ftrl": Rule(
        ftrl,
        {"accumulators": positive, "linears": signed},
        {
            "l1": L1,
            "l2": L2,
            "lr_power": one_of(-0.5, -0.25, -0.75, 0.0, tame=-0.75),
            "beta": zero_or(between(0, 1, tame=1.0)),
            "multiply_linear_by_lr": FLAG,
        },
    ),
    "momentum": Rule(
        momentum,
        {"momenta": signed},
        {"momentum": MOMENTUM, "use_nesterov": one_of(False, True, tame=True)},
    ),
    "lion": Rule(
        lion,
        {"momenta": signed},
        {"beta1": MOMENTUM, "beta2": DECAY, "use_non_lazy_lion": FLAG},
    ),
    "rms_prop": Rule(
        rms_prop,
        {"ms": positive, "mom": signed},
        {"rho": DECAY, "momentum": MOMENTUM, "epsilon": EPSILON},
    ),
    "centered_rms_prop": Rule(
        centered_rms_prop,
        # The square of the mean is below the mean of squares.
        {"ms": positive, "mom": signed, "mg": lambda rng, at: 0.1 * signed(rng, at)},
        {"rho": DECAY, "momentum": MOMENTUM, "epsilon": between(0.5, 1, tame=1e6)},
    ),
    "adadelta": Rule(
        adadelta,
        {"accumulators": positive, "updates": positive},
        {"rho": DECAY, "epsilon": EPSILON},
    ),
    "proximal_adagrad": Rule(
        proximal_adagrad, {"accumulators": positive}, {"l1": L1, "l2": L2}
    ),
    "row_wise_adagrad": Rule(
        row_wise_adagrad,
        {"accumulators": positive},
        {"epsilon": EPSILON},
        row_wise=True,
    ),
    "proximal_yogi": Rule(
        proximal_yogi,
        {"v": positive, "m": signed},
        {"l1": L1, "l2": L2, "beta1": MOMENTUM, "beta2": DECAY, "epsilon": EPSILON},
    ),
    "frequency_estimator": Rule(
        frequency_estimator,
        {"last_hit_step": lambda rng, at: rng.integers(-9, 0, at).astype(np.float64)},
        {
            "tau": between(0.1, 0.9, tame=0.5),
            "max_delta": between(5, 30, tame=10.0),
            "outlier_threshold": between(1, 5, tame=2.0),
            "weight_exponent": between(0.5, 2, tame=1.0),
        },
        weights=lambda rng, size: rng.uniform(1, 20, size),
    ),
}

# Of an optimizer without a field in OptimizationParameters: the program that names it.
PROGRAM = "opwright."


def name_of(parameters: Any) -> str:
    """The optimizer's name in the registry."""
    program = str(parameters.user_defined_program.program.name)
    if program.startswith(PROGRAM):
        return program.removeprefix(PROGRAM)
    return str(parameters.WhichOneof("parameters"))


def hyperparameters(parameters: Any) -> Any:
    """The optimizer's hyperparameters, as attributes whose values are float32's."""
    program = parameters.user_defined_program.program
    if not program.name.startswith(PROGRAM):
        return getattr(parameters, parameters.WhichOneof("parameters"))
    values = program.frontend_attributes.map.items()
    return SimpleNamespace(**{n: float(np.float32(v)) for n, v in values})


def set_optimizer(parameters: Any, name: str, **values: float) -> None:
    """Chooses an optimizer in OptimizationParameters."""
    if name in parameters.DESCRIPTOR.fields_by_name:
        message = getattr(parameters, name)
        message.SetInParent()
        for key, value in values.items():
            setattr(message, key, value)
        return
    program = parameters.user_defined_program.program
    program.name = PROGRAM + name
    for key, value in values.items():
        program.frontend_attributes.map[key] = str(value)


def rule(parameters: Any) -> Rule:
    return RULES[name_of(parameters)]


def clipped(x: Array, limits: Any) -> Array:
    """Between ClippingLimits, each of which may be absent."""
    low = limits.lower.value if limits.HasField("lower") else -np.inf
    high = limits.upper.value if limits.HasField("upper") else np.inf
    return np.clip(x, low, high)


def touches_all(parameters: Any) -> bool:
    """Whether rows that a step did not look up are updated too, with gradients of 0."""
    return bool(parameters.adam.use_non_lazy_adam or parameters.lion.use_non_lazy_lion)


def updated(
    parameters: Any, lr: float, rows: dict[str, Array], g: Array
) -> dict[str, Array]:
    """Rows after one update with one gradient each."""
    g = clipped(g, parameters.gradient_clipping_limits)
    decay = parameters.weight_decay_factor
    if parameters.multiply_weight_decay_factor_by_learning_rate:
        decay *= lr
    w = rows["parameters"] - decay * rows["parameters"]
    names = rule(parameters).slots
    w, *slots = rule(parameters).update(
        hyperparameters(parameters), lr, g, w, *(rows[name] for name in names)
    )
    w = clipped(w, parameters.clipping_limits)
    return {"parameters": w, **dict(zip(names, slots, strict=True))}


def apply(
    parameters: Any, lr: float, table: dict[str, Array], ids: Ids, gradients: Array
) -> dict[str, Array]:
    """The table after a step with `gradients` [n, dimension] of `ids` [n], in order."""
    table = {name: values.copy() for name, values in table.items()}

    def update(at: Ids, g: Array) -> None:
        rows = {name: values[at] for name, values in table.items()}
        for name, values in updated(parameters, lr, rows, g).items():
            table[name][at] = values

    disabled = 2  # GradientAccumulationStatus.DISABLED
    if parameters.gradient_accumulation_status == disabled:
        for at, g in zip(ids, gradients, strict=True):
            update(at[None], g[None])
        return table
    rows = np.arange(len(table["parameters"]))
    if not touches_all(parameters):
        rows = np.unique(ids)
    sums = np.zeros((len(rows), gradients.shape[1]))
    np.add.at(sums, np.searchsorted(rows, ids), gradients)
    update(rows, sums)
    return table


def scales(combiner: str, bags: Ids, weights: Array, count: int) -> Array:
    """What each id's row is multiplied by before the rows of a bag are added."""
    denominators: Array = np.ones(count)
    if combiner == "mean":
        denominators = np.bincount(bags, weights, count).astype(np.float64)
    elif combiner == "sqrtn":
        denominators = np.sqrt(np.bincount(bags, weights**2, count))
    return quotient(weights, denominators[bags])


def looked_up(values: Array, bags: Ids, ids: Ids, scale: Array, count: int) -> Array:
    """[count, dimension]: the sum of each bag's rows."""
    activations = np.zeros((count, values.shape[1]))
    np.add.at(activations, bags, scale[:, None] * values[ids])
    return activations


def quantized(values: Array, settings: Any) -> Array:
    """What a lookup sees of a table under SimulatedQuantization."""
    if not settings.enabled:
        return values
    low = settings.clipping_limits.lower.value
    high = settings.clipping_limits.upper.value
    width = (high - low) / (settings.num_buckets - 1)
    buckets: Array = np.floor((np.clip(values, low, high) - low) / width + 0.5)
    result: Array = low + width * buckets
    return result
