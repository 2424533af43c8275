"""Optimizers of embedding tables for which TensorFlow has no class.

Use them like `tf.tpu.experimental.embedding.SGD`, as the optimizer of a `TPUEmbedding`,
a `TableConfig` or an `EmbeddingTable`. docs/reference/embedding_ops.md has their update
rules.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar, Protocol, TypeAlias, TypedDict

import tensorflow as tf
from typing_extensions import Unpack

from opwright_runtime import native
from opwright_runtime._internals import embedding_optimizer, gen_tpu_ops
from opwright_runtime.errors import OpAttrError, bad_argument

__all__ = [
    "Adadelta",
    "CenteredRMSProp",
    "FrequencyEstimator",
    "Lion",
    "Momentum",
    "ProximalAdagrad",
    "ProximalYogi",
    "RMSProp",
    "RowWiseAdagrad",
]

# Protos and keyword arguments of TensorFlow's, which have no types.
Untyped: TypeAlias = Any
Rate: TypeAlias = Callable[[], Untyped]
"""A function that says, each step, what the learning rate is: a number or a tensor."""

LearningRate: TypeAlias = float | Rate
"""A constant, or a function that returns it."""


class OptimizerLike(Protocol):
    """The common attributes of TensorFlow's embedding optimizers and of opwright's."""

    learning_rate: LearningRate
    clip_weight_min: float | None
    clip_weight_max: float | None
    clip_gradient_min: float | None
    clip_gradient_max: float | None

    def _set_optimization_parameters(self, parameters: object) -> None: ...


class Common(TypedDict, total=False):
    """Arguments of all optimizers, the same as `tf.tpu.experimental.embedding.SGD` has.

    Attributes:
        use_gradient_accumulation: True (the default): the gradients of a row are summed
            over the batch, and the row is updated once. False: each gradient updates
            the row by itself.
        clip_weight_min: least weight after an update; None is no bound.
        clip_weight_max: greatest weight after an update; None is no bound.
        weight_decay_factor: each update first subtracts the weight times this factor.
        multiply_weight_decay_factor_by_learning_rate: whether the subtracted value is
            also multiplied by the learning rate.
        clipvalue: bounds of a gradient: x for (-x, x), or a pair, in which None is no
            bound. Gradients are clipped before anything else. It requires
            use_gradient_accumulation.
        low_dimensional_packing_status: the layout of narrow tables on a TPU. It has no
            effect here.
    """

    use_gradient_accumulation: bool
    clip_weight_min: float | None
    clip_weight_max: float | None
    weight_decay_factor: float | None
    multiply_weight_decay_factor_by_learning_rate: bool | None
    clipvalue: float | tuple[float | None, float | None] | None
    low_dimensional_packing_status: bool


_SHARES = ("momentum", "rho", "tau", "beta1", "beta2")
_SIZES = ("epsilon", "l1", "l2", "initial_accumulator_value")
_SWITCHES = ("use_nesterov", "use_non_lazy_lion")


def _check_hyperparameter(optimizer: str, name: str, value: object) -> None:
    """Checks a hyperparameter against the same bounds as the native library does."""
    if name in _SWITCHES:
        wanted = None if isinstance(value, bool) else "a bool"
    elif (
        isinstance(value, bool)
        or not isinstance(value, Real)
        or not math.isfinite(value)
    ):
        wanted = "a finite number"
    elif name in _SHARES:
        wanted = None if 0 <= float(value) <= 1 else "from 0 to 1"
    else:
        wanted = "at least 0" if name in _SIZES and float(value) < 0 else None
    if wanted:
        raise bad_argument(OpAttrError, optimizer, name, value, wanted)


_PROGRAM = "opwright."
"""The prefix of the names of user-defined programs that stand for optimizers."""


def optimizer_traits(parameters: Untyped) -> native.OptimizerTraits:
    """The optimizer in OptimizationParameters, as the optimizer registry has it."""
    field: str = parameters.WhichOneof("parameters")
    program: str = parameters.user_defined_program.program.name
    if program.startswith(_PROGRAM):
        field = program.removeprefix(_PROGRAM)
    return next(x for x in native.embedding_optimizers() if x["field"] == field)


class EmbeddingOptimizer(embedding_optimizer):  # type: ignore[misc]
    """Base class of the optimizers in this module. FIELD is a name in the registry.

    If OptimizationParameters has no field of that name, the optimizer is encoded as a
    user-defined program. The program is named `opwright.` plus the name, and has the
    hyperparameters as its attributes.
    """

    FIELD: ClassVar[str]
    """Its name in the registry, and in names of ops that load and retrieve it."""
    SLOTS: ClassVar[tuple[str, ...]]
    """The slots, as those ops name them and in their order."""
    ROW_WISE: ClassVar[bool] = False
    """Whether a slot is one value a row, and not one a weight."""

    def __init__(
        self,
        learning_rate: LearningRate,
        hyperparameters: Mapping[str, float],
        initial: Mapping[str, float],
        common: Common,
    ) -> None:
        for name, value in hyperparameters.items():
            _check_hyperparameter(type(self).__name__, name, value)
        for value in initial.values():
            _check_hyperparameter(
                type(self).__name__, "initial_accumulator_value", value
            )
        common = {
            "use_gradient_accumulation": True,
            "clip_weight_min": None,
            "clip_weight_max": None,
            "weight_decay_factor": None,
            "multiply_weight_decay_factor_by_learning_rate": None,
            **common,
        }
        super().__init__(learning_rate, **common)
        # A tuple of pairs, because optimizers are compared and hashed by their
        # attributes, and a dict is not hashable.
        self.hyperparameters = tuple(hyperparameters.items())
        self.initial = tuple(initial.get(slot, 0.0) for slot in self.SLOTS)

    def _slot_names(self) -> list[str]:
        return list(self.SLOTS)

    def _slot_initializers(self) -> list[tf.Initializer]:
        constant = tf.constant_initializer
        return [constant(value, support_partition=True) for value in self.initial]

    def _create_slots(self, *args: Untyped, **kwargs: Untyped) -> Untyped:
        if not self.ROW_WISE:
            return super()._create_slots(*args, **kwargs)
        with tf.variable_creator_scope(_one_column):
            return super()._create_slots(*args, **kwargs)

    def _set_optimization_parameters(self, parameters: Untyped) -> None:
        super()._set_optimization_parameters(parameters)
        if self.FIELD in parameters.DESCRIPTOR.fields_by_name:
            rule = getattr(parameters, self.FIELD)
            rule.SetInParent()
            for name, value in self.hyperparameters:
                setattr(rule, name, value)
            return
        program = parameters.user_defined_program.program
        program.name = _PROGRAM + self.FIELD
        for name, value in self.hyperparameters:
            program.frontend_attributes.map[name] = repr(float(value))

    def _load(self) -> Callable[..., object]:
        return self._op("load") or functools.partial(load_table, self.SLOTS)

    def _retrieve(self) -> Callable[..., object]:
        return self._op("retrieve") or functools.partial(
            retrieve_table, len(self.SLOTS)
        )

    def _op(self, verb: str) -> Callable[..., object] | None:
        """TensorFlow's op that loads or retrieves tables of this optimizer, if any."""
        name = f"{verb}_tpu_embedding_{self.FIELD}_parameters"
        op: Callable[..., object] | None = getattr(gen_tpu_ops, name, None)
        return op


def _one_column(
    next_creator: Callable[..., tf.Variable], **kwargs: Untyped
) -> tf.Variable:
    """Creates a slot of shape [rows, 1] in place of TensorFlow's [rows, dimension]."""
    initial = kwargs["initial_value"]
    shape = (kwargs["shape"][0], 1)
    kwargs["initial_value"] = functools.partial(initial.func, shape, **initial.keywords)
    return next_creator(**{**kwargs, "shape": shape})


def load_table(
    slots: tuple[str, ...],
    *,
    parameters: tf.Tensor,
    config: str | None,
    **rest: Untyped,
) -> object:
    """Loads a table of any optimizer.

    The keyword arguments are those of an op `LoadTPUEmbedding...Parameters`.
    """
    values = [rest.pop(slot) for slot in slots]
    return native.ops().opwright_load_embedding_table(
        parameters=parameters, slots=values, config=config, **rest
    )


def retrieve_table(slots: int, **arguments: Untyped) -> tuple[tf.Tensor, ...]:
    """A table of any optimizer, [rows, dimension], and its slots."""
    found = native.ops().opwright_retrieve_embedding_table(N=slots, **arguments)
    return found.parameters, *found.slots


def optimizer_wanted(optimizer: object) -> str | None:
    """None for an optimizer of embedding tables, otherwise a text: what is allowed."""
    wanted = "one of tf.tpu.experimental.embedding or of opwright.tpu"
    if isinstance(optimizer, type):
        return f"{wanted}, an instance: {optimizer.__name__}(...)"
    if isinstance(optimizer, embedding_optimizer):
        return None
    if hasattr(optimizer, "apply_gradients"):
        return f"{wanted}: those of Keras are for dense variables"
    return wanted


def rate_wanted(rate: object) -> str | None:
    """None for a valid learning rate, otherwise a text that says what is allowed."""
    if callable(rate):
        try:
            inspect.signature(rate).bind()
        except TypeError:
            return (
                "a function without arguments: of a schedule, lambda: schedule(step) "
                "with a tf.Variable that counts steps"
            )
        except ValueError:  # Python cannot determine the callable's arguments.
            return None
        return None
    if isinstance(rate, bool) or not isinstance(rate, Real) or not math.isfinite(rate):
        return "a finite number, or a function that returns one"
    return None


class Momentum(EmbeddingOptimizer):
    """Gradient descent with momentum.

    Args:
        learning_rate: constant, or a function that returns it.
        momentum: part of the momentum that the next step keeps.
        use_nesterov: whether the update looks one step of momentum ahead.
        common: as `Common` describes.
    """

    FIELD = "momentum"
    SLOTS = ("momenta",)

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        momentum: float = 0.9,
        use_nesterov: bool = False,
        **common: Unpack[Common],
    ) -> None:
        rule = {"momentum": momentum, "use_nesterov": use_nesterov}
        super().__init__(learning_rate, rule, {}, common)


class RMSProp(EmbeddingOptimizer):
    """RMSProp, with momentum.

    Args:
        learning_rate: constant, or a function that returns it.
        rho: decay of the mean of squared gradients.
        momentum: part of the momentum that the next step keeps.
        epsilon: added under the root.
        common: as `Common` describes.
    """

    FIELD = "rms_prop"
    SLOTS = ("ms", "mom")

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        **common: Unpack[Common],
    ) -> None:
        rule = {"rho": rho, "momentum": momentum, "epsilon": epsilon}
        super().__init__(learning_rate, rule, {}, common)


class CenteredRMSProp(EmbeddingOptimizer):
    """RMSProp that divides by the root of the gradients' variance.

    Args:
        learning_rate: constant, or a function that returns it.
        rho: decay of the means.
        momentum: part of the momentum that the next step keeps.
        epsilon: added under the root.
        common: as `Common` describes.
    """

    FIELD = "centered_rms_prop"
    SLOTS = ("ms", "mom", "mg")

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.9,
        momentum: float = 0.0,
        epsilon: float = 1e-7,
        **common: Unpack[Common],
    ) -> None:
        rule = {"rho": rho, "momentum": momentum, "epsilon": epsilon}
        super().__init__(learning_rate, rule, {}, common)


class Adadelta(EmbeddingOptimizer):
    """Adadelta.

    Args:
        learning_rate: constant, or a function that returns it.
        rho: decay of the means of squared gradients and squared updates.
        epsilon: added under both roots.
        common: as `Common` describes.
    """

    FIELD = "adadelta"
    SLOTS = ("accumulators", "updates")

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        rho: float = 0.95,
        epsilon: float = 1e-7,
        **common: Unpack[Common],
    ) -> None:
        rule = {"rho": rho, "epsilon": epsilon}
        super().__init__(learning_rate, rule, {}, common)


class ProximalAdagrad(EmbeddingOptimizer):
    """Adagrad with a proximal step for L1 and L2 regularization.

    Args:
        learning_rate: constant, or a function that returns it.
        l1: strength of L1 regularization.
        l2: strength of L2 regularization.
        initial_accumulator_value: what the accumulators start with; positive.
        common: as `Common` describes.
    """

    FIELD = "proximal_adagrad"
    SLOTS = ("accumulators",)

    def __init__(
        self,
        learning_rate: LearningRate = 0.001,
        l1: float = 0.0,
        l2: float = 0.0,
        initial_accumulator_value: float = 0.1,
        **common: Unpack[Common],
    ) -> None:
        if not initial_accumulator_value > 0:
            raise ValueError(
                "ProximalAdagrad: initial_accumulator_value must be positive, not "
                f"{initial_accumulator_value}"
            )
        initial = {"accumulators": initial_accumulator_value}
        super().__init__(learning_rate, {"l1": l1, "l2": l2}, initial, common)


class FrequencyEstimator(EmbeddingOptimizer):
    """Estimates how many steps pass between two occurrences of an id.

    The table has dimension 1; its weights are the estimates.

    Args:
        step: a function that returns the number of the current step, which reaches the
            engine in the place of a learning rate.
        tau: weight of a new observation in the estimate, between 0 and 1.
        max_delta: the upper limit of the steps of one observation.
        outlier_threshold: an observation that is more than this many times the estimate
            replaces the estimate.
        weight_exponent: part of the configuration; it has no effect here.
        common: as `Common` describes.
    """

    FIELD = "frequency_estimator"
    SLOTS = ("last_hit_step",)

    def __init__(
        self,
        step: Rate,
        tau: float,
        max_delta: float,
        outlier_threshold: float,
        weight_exponent: float = 1.0,
        **common: Unpack[Common],
    ) -> None:
        rule = {
            "tau": tau,
            "max_delta": max_delta,
            "outlier_threshold": outlier_threshold,
            "weight_exponent": weight_exponent,
        }
        if not callable(step):
            raise TypeError(
                "FrequencyEstimator: step must be a function that returns the current "
                f"step, not {step!r}"
            )
        super().__init__(step, rule, {}, common)


class ProximalYogi(EmbeddingOptimizer):
    """Yogi with a proximal step for L1 and L2 regularization.

    Args:
        learning_rate: constant, or a function that returns it. As with Adam, the
            function must include the bias correction.
        l1: strength of L1 regularization.
        l2: strength of L2 regularization.
        beta1: decay of the mean of gradients.
        beta2: a step changes the mean of squared gradients by 1 - beta2 times the
            squared gradient, up or down.
        epsilon: added to the root.
        initial_accumulator_value: what the squared gradients' mean starts with.
        common: as `Common` describes.
    """

    FIELD = "proximal_yogi"
    SLOTS = ("v", "m")

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        l1: float = 0.0,
        l2: float = 0.0,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-3,
        initial_accumulator_value: float = 1e-6,
        **common: Unpack[Common],
    ) -> None:
        rule = {"l1": l1, "l2": l2, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
        initial = {"v": initial_accumulator_value}
        super().__init__(learning_rate, rule, initial, common)


class Lion(EmbeddingOptimizer):
    """Lion: steps of one size, in the direction of the momentum's sign.

    Args:
        learning_rate: constant, or a function that returns it.
        beta1: weight of the momentum in an update; the gradient has weight 1 - beta1.
        beta2: decay of the momentum.
        use_non_lazy_lion: whether rows without a gradient are updated, too.
        common: as `Common` describes.
    """

    FIELD = "lion"
    SLOTS = ("momenta",)

    def __init__(
        self,
        learning_rate: LearningRate = 1e-4,
        beta1: float = 0.9,
        beta2: float = 0.99,
        use_non_lazy_lion: bool = False,
        **common: Unpack[Common],
    ) -> None:
        rule = {"beta1": beta1, "beta2": beta2, "use_non_lazy_lion": use_non_lazy_lion}
        super().__init__(learning_rate, rule, {}, common)


class RowWiseAdagrad(EmbeddingOptimizer):
    """Adagrad with one accumulator a row: the sum of the row's mean squared gradients.

    FBGEMM's EXACT_ROWWISE_ADAGRAD. It runs on the CPU; a TPU has no such optimizer.

    Args:
        learning_rate: constant, or a function that returns it.
        initial_accumulator_value: what the accumulators start with, at least 0.
        epsilon: added to the root of an accumulator.
        common: as `Common` describes.
    """

    FIELD = "row_wise_adagrad"
    SLOTS = ("accumulators",)
    ROW_WISE = True

    def __init__(
        self,
        learning_rate: LearningRate = 0.01,
        initial_accumulator_value: float = 0.0,
        epsilon: float = 1e-8,
        **common: Unpack[Common],
    ) -> None:
        initial = {"accumulators": initial_accumulator_value}
        super().__init__(learning_rate, {"epsilon": epsilon}, initial, common)
