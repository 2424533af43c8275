"""Ops that work element by element, with their gradient ops."""

import numpy as np
import tensorflow as tf

from support.equivalence.samples.kit import (
    Samples,
    complexes,
    integers,
    positive,
    real,
    tensor,
)

SAMPLES = Samples()

X = np.array([[-1.5, -0.25, 0.0], [0.5, 1.0, 2.75]], np.float32)
UNIT = np.array([-0.9, -0.3, 0.1, 0.4, 0.8], np.float32)
Z = complexes(2, 3)
INTEGERS = np.array([[-7, 0, 3], [11, -2, 5]], np.int32)
BYTES = np.array([[1, 2, 3], [4, 6, 250]], np.uint8)
ODD = np.array([np.nan, np.inf, -np.inf, -0.0, 1.5], np.float64)

# One argument.
SAMPLES.each(
    "Abs Neg Sign Square Round Rint Floor Ceil Relu Relu6 Elu Selu Softplus Softsign"
    " Sigmoid Tanh Sin Cos Sinh Cosh Asinh Atan Exp Expm1 Erf Erfc BesselI0 BesselI0e"
    " BesselI1 BesselI1e Dawsn FresnelCos FresnelSin Tan Identity Snapshot ZerosLike"
    " OnesLike StopGradient PreventGradient DeepCopy",
    X,
)
SAMPLES.each("Acos Asin Atanh Erfinv Log1p", UNIT)
SAMPLES.each(
    "Sqrt Rsqrt Log Lgamma Digamma Inv Reciprocal BesselJ0 BesselJ1 BesselK0 BesselK0e"
    " BesselK1 BesselK1e BesselY0 BesselY1 Expint Spence Acosh",
    positive(2, 4, dtype=np.float64),
)
SAMPLES.add("Ndtri", np.array([0.1, 0.5, 0.99]))
SAMPLES.each("IsFinite IsInf IsNan", ODD)
SAMPLES.each("Conj Real Imag Angle ComplexAbs Exp Tanh Sqrt Reciprocal", Z)
SAMPLES.each(
    "Real Imag Angle ComplexAbs",
    tensor(complexes(4, dtype=np.complex128)),
    Tout=tf.float64,
)
SAMPLES.add("Conj", tensor(complexes(2, 2, dtype=np.complex128)))
SAMPLES.each("Abs Neg Sign Square OnesLike", INTEGERS)
SAMPLES.each("Invert PopulationCount", BYTES)
SAMPLES.add("LogicalNot", np.array([True, False]))
SAMPLES.add("LeakyRelu", X, alpha=0.3)
SAMPLES.add("LeakyRelu", tensor(X.astype(np.float64)))
SAMPLES.add("LeakyRelu", X.astype(np.float64))
SAMPLES.add("CheckNumerics", X, message="not a number")
SAMPLES.add("CheckNumericsV2", X, message="not a number")
SAMPLES.add("AsString", X, precision=3, scientific=True, width=12, fill="0")
SAMPLES.add("AsString", INTEGERS, width=5, fill="-")
SAMPLES.add("AsString", X.astype(np.float64), shortest=True)
SAMPLES.add("Bitcast", X, type=tf.int32)
SAMPLES.add("Bitcast", BYTES.reshape(3, 2), type=tf.uint16)
SAMPLES.add("Cast", X, DstT=tf.bfloat16, Truncate=True)
SAMPLES.add("Cast", X, DstT=tf.float64)
SAMPLES.add("Cast", X, DstT=tf.int64)
SAMPLES.add("ToBool", 2.5)
SAMPLES.add("Bucketize", X, boundaries=[-1.0, 0.0, 1.0])

# Two arguments.
Y = np.array([1.5, -2.0, 0.5], np.float32)
SAMPLES.each(
    "Add AddV2 Sub Mul Div RealDiv DivNoNan MulNoNan Maximum Minimum SquaredDifference"
    " Atan2 FloorDiv FloorMod TruncateMod Mod Xdivy Less LessEqual Greater"
    " GreaterEqual",
    X,
    Y,
)
SAMPLES.each("Xlogy Xlog1py", X, positive(3))
SAMPLES.add("TruncateDiv", INTEGERS, np.int32(3))
SAMPLES.each("FloorDiv FloorMod TruncateMod Mod", INTEGERS, np.int32(4))
SAMPLES.add("TruncateDiv", X, Y)
SAMPLES.add("Pow", positive(2, 3), Y)
SAMPLES.add("NextAfter", X, np.float32(9))
SAMPLES.add("Equal", X, Y)
SAMPLES.add("Equal", X, real(4, 5), incompatible_shape_error=False)
SAMPLES.add("NotEqual", WORDS := np.array(["a", "b", "a"]), "a")
SAMPLES.add("NotEqual", X, real(4, 5), incompatible_shape_error=False)
SAMPLES.add("Equal", WORDS, "b")
SAMPLES.add("ApproximateEqual", X, X + 0.05, tolerance=0.1)
SAMPLES.add("ApproximateEqual", X, X + 1e-6)
SAMPLES.each("BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift", BYTES, np.uint8(3))
SAMPLES.each(
    "LogicalAnd LogicalOr", np.array([True, False, True]), np.array([True, True, False])
)
SAMPLES.add("Complex", X, X + 1)
SAMPLES.add(
    "Complex",
    tensor(positive(3, dtype=np.float64)),
    tensor(real(3, dtype=np.float64)),
    Tout=tf.complex128,
)
SAMPLES.each("Igamma Igammac", positive(3), np.array([0.3, 1.0, 4.0], np.float32))
SAMPLES.add("IgammaGradA", positive(3), np.array([0.3, 1.0, 4.0], np.float32))
SAMPLES.add("RandomGammaGrad", positive(3), np.array([0.3, 1.0, 4.0], np.float32))
SAMPLES.add("Polygamma", np.array([1.0, 2.0, 3.0]), positive(3, dtype=np.float64))
SAMPLES.add("Zeta", np.array([2.0, 3.5, 5.0]), positive(3, dtype=np.float64))
SAMPLES.add("Cross", real(2, 3), positive(2, 3))
SAMPLES.each(
    "SigmoidGrad TanhGrad SqrtGrad RsqrtGrad InvGrad ReciprocalGrad EluGrad SeluGrad"
    " ReluGrad Relu6Grad SoftplusGrad SoftsignGrad",
    positive(2, 3),
    real(2, 3),
)
SAMPLES.add("LeakyReluGrad", real(2, 3), X, alpha=0.3)

# Three arguments and more.
SAMPLES.add(
    "Betainc", positive(3), positive(3) + 1, np.array([0.1, 0.5, 0.9], np.float32)
)
SAMPLES.add("ClipByValue", X, np.float32(-0.5), np.float32(1.25))
SAMPLES.each("Select SelectV2", X > 0, X, -X)
SAMPLES.add("SelectV2", np.array([True, False, True]), X, Y)
SAMPLES.add("AddN", [X, X * 2, X * 3])
SAMPLES.add("AddN", [integers(2, 2), integers(2, 2)])
SAMPLES.add(
    "StochasticCastToInt",
    X,
    np.array([3], np.uint64),
    np.array([5, 7], np.uint64),
    1,
    Tout=tf.int16,
)
