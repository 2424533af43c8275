"""Small mistakes, and what the checkers name in saying so."""

from opwright import Output, Scope, TFloat32, TFloat64, TInt32, TString, typed
from opwright.array import concat_v2, gather_v2, split
from opwright.control_flow import while_
from opwright.dtypes import cast
from opwright.linalg import MatMul, mat_mul
from opwright.math import AddV2, add_n, add_v2, maximum, mul, sub
from opwright.nn import bias_add, relu, top_k_v2


def needs_doubles(tensor: Output[TFloat64]) -> None: ...


def two_floats(f: Output[TFloat32], d: Output[TFloat64]) -> None:
    add_v2(f, d)  # expect: argument, naming add_v2, Output[TFloat64], Operand[TFloat32
    add_v2(d, f)  # expect: argument, naming add_v2, Output[TFloat32], Operand[TFloat64
    mat_mul(f, d)  # expect: argument, naming mat_mul, Output[TFloat64], TFloat32
    mat_mul(a=f, b=d)  # expect: argument, naming "b", mat_mul, TFloat64, TFloat32
    mul(f, d)  # expect: argument, naming mul, Output[TFloat64], TFloat32
    sub(f, d)  # expect: argument, naming sub, Output[TFloat64], TFloat32
    maximum(f, d)  # expect: argument, naming maximum, Output[TFloat64], TFloat32
    bias_add(f, d)  # expect: argument, naming bias_add, Output[TFloat64], TFloat32
    add_v2(add_v2(f, f), d)  # expect: argument, naming Output[TFloat64], TFloat32
    add_v2(f, typed(d, TFloat64))  # expect: argument, naming TFloat64, TFloat32
    f + d  # expect: operator, naming +, Output[TFloat32], Output[TFloat64]
    f @ d  # expect: operator, naming @, Output[TFloat32], Output[TFloat64]


def ops(f: Output[TFloat32], d: Output[TFloat64]) -> None:
    scope = Scope.current()
    AddV2.create(scope, f, d)  # expect: argument, naming create, TFloat64, TFloat32
    MatMul.create(scope, f, d)  # expect: argument, naming create, TFloat64, TFloat32
    add_v2(f, MatMul.create(scope, d, d))  # expect: argument, naming TFloat64, TFloat32
    needs_doubles(MatMul.create(scope, f, f))  # expect: argument, naming TFloat32


def lists(f: Output[TFloat32], d: Output[TFloat64]) -> None:
    add_v2(f, [f, d])  # expect: argument, naming Output[TFloat64], TFloat32
    add_n([f, d])  # expect: dtype, naming add_n
    concat_v2([f, d], 0)  # expect: dtype, naming concat_v2
    add_v2(f, split(0, d, 2))  # expect: argument, naming TFloat64, TFloat32


def texts(f: Output[TFloat32], s: Output[TString]) -> None:
    mat_mul(f, "x")  # expect: argument, naming mat_mul, Operand[TFloat32]
    mat_mul("x", f)  # expect: argument, naming mat_mul, Operand[TFloat32]
    relu("x")  # expect: argument, naming relu, Operand
    add_v2(f, ["x"])  # expect: argument, naming TFloat32
    relu(s)  # expect: dtype, naming relu


def results(f: Output[TFloat32], i: Output[TInt32]) -> None:
    needs_doubles(add_v2(f, f))  # expect: argument, naming TFloat64, TFloat32
    needs_doubles(cast(f, TInt32))  # expect: argument, naming TFloat64, TInt32
    needs_doubles(typed(f, TFloat32))  # expect: argument, naming TFloat64, TFloat32
    needs_doubles(top_k_v2(f, 1).indices)  # expect: argument, naming TFloat64, TInt32
    gather_v2(f, f, 0)  # expect: dtype, naming gather_v2
    typed(f, "float32")  # expect: argument, naming typed
    while_([i], lambda n: n, "body")  # expect: argument, naming while_
