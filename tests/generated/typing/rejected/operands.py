"""Inputs that no op takes: dtypes that do not fit, and what is no tensor."""

from opwright import Output, Scope, TFloat32, TInt32, TResource, TString
from opwright.array import Split, concat_v2, gather_v2, reverse_v2, split
from opwright.control_flow import switch
from opwright.linalg import MatMul, mat_mul
from opwright.math import AddV2, add_n, add_v2
from opwright.nn import top_k_v2
from opwright.tpu import send_tpu_embedding_gradients
from opwright.train import resource_accumulator_take_gradient


def needs_a_number(number: int) -> None: ...


def needs_ints(tensor: Output[TInt32]) -> None: ...


def mixed_dtypes(f: Output[TFloat32], i: Output[TInt32]) -> None:
    add_v2(f, i)  # expect: argument
    add_v2(i, f)  # expect: argument
    mat_mul(f, i, transpose_a=True)  # expect: argument
    AddV2.create(Scope.current(), f, i)  # expect: argument
    add_v2(add_v2(f, f), i)  # expect: argument
    add_v2(add_v2(f, f), add_v2(i, i))  # expect: argument
    add_v2([f, f], i)  # expect: argument
    add_v2([add_v2(f, f), i], f)  # expect: dtype
    add_n([f, i])  # expect: dtype
    add_n([add_v2(f, f), i])  # expect: dtype
    concat_v2([f, f, i], 0)  # expect: dtype


def dtypes_that_an_op_refuses(s: Output[TString], f: Output[TFloat32]) -> None:
    mat_mul(s, s)  # expect: dtype
    MatMul.create(Scope.current(), s, s)  # expect: dtype
    add_n([s, s])  # expect: dtype
    gather_v2(f, f, 0)  # expect: dtype
    gather_v2(f, [0], f)  # expect: dtype
    reverse_v2(f, f)  # expect: dtype


def dtypes_that_are_fixed(f: Output[TFloat32], i: Output[TInt32]) -> None:
    split(f, f, 2)  # expect: argument
    split(add_v2(f, f), f, 2)  # expect: argument
    switch(f, i)  # expect: argument
    send_tpu_embedding_gradients([i], [0.1], b"")  # expect: argument
    resource_accumulator_take_gradient(f, 1, TFloat32)  # expect: argument


def what_is_no_tensor(f: Output[TFloat32], handle: Output[TResource]) -> None:
    add_v2(f, None)  # expect: argument
    add_v2(f, object())  # expect: argument
    add_v2(f, TFloat32)  # expect: argument
    add_v2(f, {"x": 1.0})  # expect: argument
    add_n(f)  # expect: argument
    add_n(1.0)  # expect: argument
    resource_accumulator_take_gradient(5, 1, TFloat32)  # expect: argument
    add_v2(f, mat_mul)  # expect: argument


def results(f: Output[TFloat32], i: Output[TInt32]) -> None:
    needs_ints(add_v2(f, f))  # expect: argument
    needs_ints(mat_mul(f, 1.0))  # expect: argument
    needs_ints(MatMul.create(Scope.current(), f, 1.0))  # expect: argument
    needs_ints(split(0, f, 2)[0])  # expect: argument
    needs_ints(add_v2(f, f))  # expect: argument
    needs_a_number(f)  # expect: argument
    needs_a_number(add_v2(f, f))  # expect: argument
    needs_a_number(add_v2(i, i))  # expect: argument


def operators(f: Output[TFloat32], i: Output[TInt32]) -> None:
    needs_a_number(f + i)  # expect: operator
    needs_a_number(1 - f)  # expect: argument
    add_v2(f @ i, f)  # expect: operator
    add_v2(f < 1.0, f)  # expect: argument
    add_v2(i[0], f)  # expect: argument


def ops_with_many_outputs_are_no_tensors(f: Output[TFloat32]) -> None:
    op = Split.create(Scope.current(), 0, f, 2)
    print(op.shape)  # expect: attribute
    needs_a_number(op + 1)  # expect: operator
    op()  # expect: call
    add_v2(f, op)  # expect: argument
    add_v2(f, top_k_v2(f, 1))  # expect: argument
    print(top_k_v2(f, 1).shape)  # expect: attribute


def texts_are_no_numbers(f: Output[TFloat32]) -> None:
    mat_mul("x", f)  # expect: argument
    mat_mul(f, "x")  # expect: argument
    mat_mul([["x"]], f)  # expect: argument
