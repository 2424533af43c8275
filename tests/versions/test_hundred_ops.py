"""A hundred ops give what TensorFlow's own wrappers give, in every mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import opwright

X = np.linspace(0.1, 0.9, 6, dtype=np.float32).reshape(2, 3)
Y = X[::-1] + np.float32(0.25)
WHOLE = np.arange(6, dtype=np.int32).reshape(2, 3)
OTHER = WHOLE[::-1] + np.int32(1)
B = X > 0.5
SQUARE = np.float32([[4, 1], [1, 3]])

UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Digamma Elu Erf Erfc Exp
    Expm1 Floor Identity Inv IsFinite IsInf IsNan Lgamma Log Log1p LogSoftmax
    Ndtri Neg OnesLike Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign
    Sin Sinh Softmax Softplus Softsign Sqrt Square Tan Tanh ZerosLike Shape Size
    Rank Snapshot StopGradient BINARY Add AddV2 Sub Mul Div RealDiv DivNoNan
    MulNoNan Maximum Minimum Pow Atan2 SquaredDifference Less LessEqual Greater
    GreaterEqual Equal NotEqual FloorDiv FloorMod Mod Xdivy Xlogy Igamma Igammac
    NextAfter TruncateDiv TruncateMod INTEGER BitwiseAnd BitwiseOr BitwiseXor
    LeftShift RightShift LOGICAL LogicalAnd LogicalOr REDUCTIONS Sum Mean Max
    Min Prod EuclideanNorm OTHERS Any MatMul True BatchMatMulV2 None None True
    Transpose Reshape ConcatV2 Pack Unpack GatherV2 Tile TopKV2 Cast DstT
    Cholesky SQUARE MatrixInverse SQUARE Einsum StringJoin
""".split()


def calls() -> Iterator[tuple[str, dict[str, Any]]]:
    for op in UNARY:
        name = next(iter(tf.raw_ops.__dict__[op].__signature__.parameters))
        yield op, {name: X + 1 if op == "Acosh" else X}
    for name, values in (
        ("BINARY", (X, Y)),
        ("INTEGER", (WHOLE, OTHER)),
        ("LOGICAL", (B, ~B)),
    ):
        for op in globals()[name]:
            first, second, *_ = tf.raw_ops.__dict__[op].__signature__.parameters
            whole = op in ("Mod", "TruncateDiv", "TruncateMod")
            yield op, dict(
                zip((first, second), (WHOLE, OTHER) if whole else values, strict=True)
            )
    for op in REDUCTIONS:
        yield op, {"input": X, "axis": [1], "keep_dims": True}
    yield from OTHERS


CALLS = list(calls())


def same(ours: Any, theirs: Any) -> None:
    for one, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_there_are_a_hundred() -> None:
    assert len({op for op, _ in CALLS}) >= 100


@pytest.mark.parametrize(("op", "arguments"), CALLS, ids=[op for op, _ in CALLS])
def test_same(op: str, arguments: dict[str, Any]) -> None:
    cls = opwright.op_class(op)
    function = getattr(
        __import__(cls.__module__, fromlist=["x"]), cls.__module__.split(".")[-1]
    )
    expected = getattr(tf.raw_ops, op)(**arguments)
    same(function(**arguments), expected)
    same(tf.function(lambda: function(**arguments), autograph=False)(), expected)
    with tf.Graph().as_default() as graph:
        made = function(**arguments)
        operation = tf.nest.flatten(made)[0].op
        found = cls.from_operation(operation)
        assert found.op is operation and operation.graph is graph
