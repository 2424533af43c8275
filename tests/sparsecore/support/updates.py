"""The optimizers of the SparseCore ops: their names for things, and their rules."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from embedding.support import reference
from sparsecore.support.lookups import Array, raw


class Case(SimpleNamespace):
    """An optimizer as these ops name it, and its rule in the reference."""

    op: str
    rule: Callable[..., Any]
    # By the names of the gradient ops, and how the ops on rows call them where they
    # differ; which of them those take as inputs.
    slots: list[str]
    hyper: dict[str, Any]
    renamed: dict[str, str]
    inputs: list[str]

    @property
    def traits(self) -> SimpleNamespace:
        """Hyperparameters under the names of OptimizationParameters, as float32."""
        names = {
            "beta1": "momentum" if self.op == "AdagradMomentum" else "beta1",
            "l1_regularization_strength": "l1",
            "l2_regularization_strength": "l2",
            "learning_rate_power": "lr_power",
            "multiply_linear_by_learning_rate": "multiply_linear_by_lr",
        }
        return SimpleNamespace(
            **{
                names.get(k, k): v if isinstance(v, bool) else float(np.float32(v))
                for k, v in self.hyper.items()
            },
        )


def case(op: str, slots: str = "", **more: Any) -> Case:
    renamed = more.pop("renamed", {})
    inputs = more.pop("inputs", [])
    rules: dict[str, Any] = {
        "Sgd": reference.sgd,
        "Adagrad": reference.adagrad,
        "AdagradMomentum": reference.adagrad_momentum,
        "Adam": reference.adam,
        "Ftrl": reference.ftrl,
    }
    return Case(
        op=op,
        rule=rules[op],
        slots=slots.split(),
        hyper=more,
        renamed=renamed,
        inputs=inputs,
    )


def momentum_case(nesterov: bool, beta2: float, exponent: float) -> Case:
    return case(
        "AdagradMomentum",
        "accumulator momenta",
        use_nesterov=nesterov,
        exponent=exponent,
        beta1=0.9,
        beta2=beta2,
        epsilon=1e-3,
        renamed={"beta1": "beta_1", "beta2": "beta_2", "momenta": "momentum"},
        inputs=["beta_1", "epsilon"],
    )


def adam_case(inside: bool) -> Case:
    return case(
        "Adam",
        "momenta velocity",
        use_sum_inside_sqrt=inside,
        beta1=0.9,
        beta2=0.99,
        epsilon=1e-2,
        renamed={"beta1": "beta_1", "beta2": "beta_2", "momenta": "momentum"},
        inputs=["beta_1", "beta_2", "epsilon"],
    )


def ftrl_case(multiply: bool, power: float, l1: float) -> Case:
    return case(
        "Ftrl",
        "accumulator linear",
        multiply_linear_by_learning_rate=multiply,
        beta=0.3,
        learning_rate_power=power,
        l1_regularization_strength=l1,
        l2_regularization_strength=0.02,
        inputs=["beta", "learning_rate_power", "l2_regularization_strength"],
    )


CASES = {
    "sgd": case("Sgd"),
    "adagrad": case("Adagrad", "accumulator"),
    "momentum": momentum_case(False, 1.0, 2.0),
    "nesterov": momentum_case(True, 0.95, 3.0),
    "adam": adam_case(False),
    "adam inside": adam_case(True),
    "ftrl": ftrl_case(False, -0.5, 0.01),
    "ftrl multiply": ftrl_case(True, -0.7, 0.0),
}


def state_of(
    case: Case, rng: np.random.Generator, shape: tuple[int, int]
) -> list[Array]:
    """A table and its slots; what is under a root is positive."""
    state = [rng.standard_normal(shape)]
    for name in case.slots:
        slot = rng.standard_normal(shape)
        state.append(np.abs(slot) if name in ("accumulator", "velocity") else slot)
    return [x.astype(np.float32) for x in state]


def gradient_op(
    case: Case, static: bool, csr: dict[str, Any], state: list[Any], **more: Any
) -> list[Any]:
    limits = {"max_ids_per_sparse_core": 999, "max_unique_ids_per_sparse_core": 999}
    kind = "StaticBufferSize" if static else "CsrInput"
    results = getattr(raw, f"XlaSparseDenseMatmulGradWith{case.op}And{kind}")(
        **(
            csr
            | {"learning_rate": 0.25, "table_name": "the_table"}
            | dict(zip(["embedding_table", *case.slots], state, strict=True))
            | case.hyper
            | (limits if static else {})
            | more
        )
    )
    return list(results) if case.slots else [results]


def rows_op(case: Case, state: list[Any], **more: Any) -> list[Any]:
    """Outputs in the order of the slots: Adam has them in another."""
    rename = {**{name: name for name in case.slots}, **case.renamed}
    names = ["embedding_table", *(rename[name] for name in case.slots)]
    hyper = {case.renamed.get(name, name): x for name, x in case.hyper.items()}
    results = getattr(raw, f"XlaSparseCore{case.op}")(
        **(
            {"learning_rate": 0.25, "feature_width": state[0].shape[1]}
            | dict(zip(names, state, strict=True))
            | hyper
            | more
        )
    )
    if not case.slots:
        return [results]
    return [getattr(results, f"updated_{name}") for name in names]


def expected_update(
    case: Case, state: list[Array], rows: Array, g: Array
) -> list[Array]:
    result = [x.astype(np.float64) for x in state]
    updated = case.rule(case.traits, 0.25, g, *(x[rows] for x in result))
    for x, values in zip(result, updated, strict=True):
        x[rows] = values
    return result
