"""A hundred ops give the results of TensorFlow's own wrappers, in every mode."""

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

# By the kind of their arguments.
OPS = {
    "one": """
        Abs Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Digamma Elu Erf Erfc Exp
        Expm1 Floor Identity Inv IsFinite IsInf IsNan Lgamma Log Log1p LogSoftmax Ndtri
        Neg OnesLike Reciprocal Relu Relu6 Rint Round Rsqrt Selu Sigmoid Sign Sin Sinh
        Softmax Softplus Softsign Sqrt Square Tan Tanh ZerosLike Shape Size Rank
        Snapshot StopGradient
    """,
    "two": """
        Add AddV2 Sub Mul Div RealDiv DivNoNan MulNoNan Maximum Minimum Pow Atan2
        SquaredDifference Less LessEqual Greater GreaterEqual Equal NotEqual FloorDiv
        FloorMod Xdivy Xlogy Igamma Igammac NextAfter
    """,
    "two whole": """
        BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift Mod TruncateDiv TruncateMod
    """,
    "two truths": "LogicalAnd LogicalOr",
    "axes": "Sum Mean Max Min Prod EuclideanNorm",
}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("MatMul", {"a": X, "b": Y, "transpose_b": True}),
    ("BatchMatMulV2", {"x": X[None], "y": Y[None], "adj_y": True}),
    ("Transpose", {"x": X, "perm": [1, 0]}),
    ("Reshape", {"tensor": X, "shape": [3, 2]}),
    ("ConcatV2", {"values": [X, Y], "axis": 0}),
    ("Pack", {"values": [X, Y], "axis": 1}),
    ("Unpack", {"value": X, "num": 2}),
    ("GatherV2", {"params": X, "indices": [1, 0], "axis": 1}),
    ("Tile", {"input": X, "multiples": [2, 1]}),
    ("TopKV2", {"input": X, "k": 2}),
    ("Cast", {"x": X, "DstT": tf.int32}),
    ("Cholesky", {"input": SQUARE}),
    ("MatrixInverse", {"input": SQUARE}),
    ("Einsum", {"inputs": [X, Y], "equation": "ij,kj->ik"}),
    ("StringJoin", {"inputs": [["a"], ["b"]], "separator": "-"}),
]
VALUES: dict[str, tuple[Any, ...]] = {
    "one": (X,),
    "two": (X, Y),
    "two whole": (WHOLE, OTHER),
    "two truths": (B, ~B),
    "axes": (X, [1]),
}


def calls() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind, ops in OPS.items():
        for op in ops.split():
            info = opwright.op_class(op).op_def
            values = (X + 1,) if op == "Acosh" else VALUES[kind]
            names = (arg.python_name for arg in info.inputs)
            yield op, dict(zip(names, values, strict=True))
    yield from OTHERS


CALLS = list(calls())


def assert_same(ours: Any, theirs: Any) -> None:
    for one, other in zip(tf.nest.flatten(ours), tf.nest.flatten(theirs), strict=True):
        assert one.dtype == other.dtype
        if one.dtype.is_floating or one.dtype.is_complex:
            # A function may run another kernel, of oneDNN, than an eager call does.
            np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-6)
        else:
            np.testing.assert_array_equal(one.numpy(), other.numpy())


def test_op_table_has_a_hundred_ops() -> None:
    assert len({op for op, _ in CALLS}) >= 100


@pytest.mark.rotating
@pytest.mark.parametrize(("op", "arguments"), CALLS, ids=[op for op, _ in CALLS])
def test_op_matches_raw_op_in_every_mode(op: str, arguments: dict[str, Any]) -> None:
    cls = opwright.op_class(op)
    function = getattr(
        __import__(cls.__module__, fromlist=["x"]), cls.__module__.split(".")[-1]
    )
    renamed = {"reduction_indices": "axis"}
    expected = getattr(tf.raw_ops, op)(
        **{renamed.get(name, name): value for name, value in arguments.items()}
    )
    assert_same(function(**arguments), expected)
    assert_same(tf.function(lambda: function(**arguments), autograph=False)(), expected)
    with tf.Graph().as_default() as graph:
        made = function(**arguments)
        operation = tf.nest.flatten(made)[0].op
        found = cls.from_operation(operation)
        assert found.op is operation and operation.graph is graph
