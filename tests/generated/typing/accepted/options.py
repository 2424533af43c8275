"""Options, their builders, and the attrs that they hold."""

from typing import Literal

from typing_extensions import assert_type

from opwright import Output, PackedParams, Scope, TFloat32, TInt8
from opwright.dtypes import cast
from opwright.linalg import MatMul, mat_mul
from opwright.nn import CudnnRNNV3, cudnn_rnn_v3


def builders() -> None:
    options = CudnnRNNV3.Options(rnn_mode="gru", dropout=0.5)
    assert_type(options, CudnnRNNV3.Options)
    assert_type(options.with_seed(7).with_time_major(False), CudnnRNNV3.Options)
    assert_type(options.rnn_mode, Literal["rnn_relu", "rnn_tanh", "lstm", "gru"])
    assert_type(options.dropout, float)
    assert_type(options.with_dropout(1).seed, int)
    assert options == CudnnRNNV3.Options(dropout=0.5).with_rnn_mode("gru")


def any_number_of_them() -> None:
    x = cast([[1.0, 2.0], [3.0, 4.0]], TFloat32)
    scope = Scope.current()
    first, last = MatMul.Options(transpose_a=True), MatMul.Options(transpose_b=True)
    assert_type(MatMul.create(scope, x, x), MatMul[TFloat32])
    assert_type(MatMul.create(scope, x, x, first), MatMul[TFloat32])
    assert_type(MatMul.create(scope, x, x, first, last).product, Output[TFloat32])
    assert_type(mat_mul(x, x, transpose_a=True, name="product"), Output[TFloat32])


def outputs_of_a_cell(rnn: CudnnRNNV3[TFloat32]) -> None:
    assert_type(rnn.output_h, Output[TFloat32])
    assert_type(rnn.host_reserved, Output[TInt8])


def of_packed_params(packed: PackedParams) -> None:
    CudnnRNNV3.Options(**packed.options, is_training=False)
    x: Output[TFloat32] = cast([[[1.0]]], TFloat32)
    rnn = cudnn_rnn_v3(x, x, x, packed, [1], **packed.options, is_training=False)
    assert_type(rnn.output, Output[TFloat32])
