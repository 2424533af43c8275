"""Attrs and options that no op takes."""

import tensorflow as tf

from opwright import Output, Scope, TFloat32, TInt32, TString
from opwright.array import Split, shape, split
from opwright.control_flow import while_
from opwright.dtypes import cast
from opwright.linalg import MatMul, Svd, mat_mul
from opwright.math import ArgMax, arg_max
from opwright.nn import CudnnRNNV3, cudnn_rnn_v3
from opwright.random import random_uniform
from opwright.tpu import configure_tpu_embedding
from opwright.variables import var_handle_op


def needs_text(text: str) -> None: ...


def needs_ints(tensor: Output[TInt32]) -> None: ...


def enums(f: Output[TFloat32]) -> None:
    CudnnRNNV3.Options(rnn_mode="LSTM")  # expect: argument
    CudnnRNNV3.Options().with_direction("both")  # expect: argument
    CudnnRNNV3.Options(rnn_mode=1)  # expect: argument
    cudnn_rnn_v3(f, f, f, f, [1], input_mode="linear")  # expect: argument


def messages() -> None:
    configure_tpu_embedding(3)  # expect: argument
    configure_tpu_embedding({"num_hosts": 1})  # expect: argument
    configure_tpu_embedding(None)  # expect: argument


def functions(t: tf.Tensor) -> None:
    def step(x: tf.Tensor) -> tf.Tensor:
        return x

    while_([1], lambda i: i, "body")  # expect: argument
    while_([1], "condition", step)  # expect: argument
    while_([1], 3, "body")  # expect: argument


def options(f: Output[TFloat32]) -> None:
    scope = Scope.current()
    MatMul.Options(transposed=True)  # expect: unknown
    MatMul.Options(transpose_a="yes")  # expect: argument
    MatMul.Options(True)  # expect: argument
    MatMul.Options().with_transposed(True)  # expect: attribute
    MatMul.Options().with_transpose_a()  # expect: signature
    MatMul.Options().with_transpose_a("yes")  # expect: argument
    print(MatMul.Options().transposed)  # expect: attribute
    MatMul.Options().transpose_a = True  # expect: frozen
    MatMul.create(scope, f, f, Svd.Options())  # expect: argument
    MatMul.create(scope, f, f, True)  # expect: argument
    MatMul.create(scope, f, f, transpose_a=True)  # expect: unknown
    MatMul.create(scope, f, f, MatMul.Options)  # expect: argument
    mat_mul(f, f, MatMul.Options())  # expect: unknown
    mat_mul(f, f, transposed=True)  # expect: unknown
    mat_mul(f, f, transpose_a=2.0)  # expect: argument
    mat_mul(f, f, name=3)  # expect: argument
    mat_mul(f, f, T=TFloat32)  # expect: unknown
    needs_text(CudnnRNNV3.Options().seed)  # expect: argument


def arguments(f: Output[TFloat32]) -> None:
    scope = Scope.current()
    MatMul.create(f, f)  # expect: signature
    MatMul.create(scope, f)  # expect: signature
    MatMul.create("scope", f, f)  # expect: argument
    mat_mul(f)  # expect: signature
    mat_mul(f, c=f)  # expect: signature
    mat_mul(f, f, f)  # expect: unknown
    split(0, f)  # expect: signature
    split(0, f, 2.5)  # expect: argument
    split(0, f, "2")  # expect: argument


def dtypes(f: Output[TFloat32]) -> None:
    cast(f)  # expect: signature
    cast(f, 5)  # expect: argument
    cast(f, TFloat32())  # expect: argument
    cast(f, int)  # expect: dtype
    random_uniform([2], TInt32)  # expect: dtype
    random_uniform([2], TString)  # expect: dtype
    random_uniform([2])  # expect: signature
    arg_max(f, 0, output_type=TFloat32)  # expect: argument
    arg_max(f, 0, output_type=5)  # expect: argument
    arg_max(f, 0, TInt32)  # expect: signature
    ArgMax.create(Scope.current(), f, 0, output_type=TString)  # expect: argument
    shape(f, out_type=TFloat32)  # expect: argument
    var_handle_op(TFloat32, "scalar")  # expect: argument
    var_handle_op(TFloat32, [2.5])  # expect: argument
    var_handle_op(TFloat32, [], allowed_devices=5)  # expect: argument
    needs_ints(arg_max(f, 0))  # expect: argument
    needs_ints(cast(f, TFloat32))  # expect: argument


def accessors(f: Output[TFloat32]) -> None:
    scope = Scope.current()
    product = MatMul.create(scope, f, f)
    print(Split.create(scope, 0, f, 2).outputs)  # expect: attribute
    print(product.inputs.c)  # expect: attribute
    print(product.inputs.transposed)  # expect: attribute
    print(product.inputs.transpose_a.shape)  # expect: attribute
    print(Svd.op_def.input)  # expect: attribute
    MatMul.from_operation()  # expect: signature
    needs_text(product.inputs.transpose_a)  # expect: argument
    needs_ints(product.inputs.a)  # expect: argument
    needs_ints(Split.create(scope, 0, f, 2).inputs.value)  # expect: argument
