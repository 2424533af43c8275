"""Calls that end the process of TensorFlow, which opwright refuses.

`python -m generated.support.ending_calls` makes them all in one process, and prints for
each the error that it got, as JSON. With `graphs`, it makes those calls in graphs that
do not know the shape of the bad input before they run.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import io
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import yaml

from support.places import OPDEFS

#: The example's call of an op, with one argument that is different.
BENT = """
AddManySparseToTensorsMap | sparse_shape | np.int64([2**40, 2])
AdjustHue | delta | np.float32(np.inf)
AdjustHue | delta | np.float32(1e38)
AnonymousMutableDenseHashTable | value_shape | [2**62]
AsString | width | 2**40
AudioMicrofrontend | sample_rate | 11
AudioMicrofrontend | upper_band_limit | 1e38
AudioMicrofrontend | frame_stride | 0
AudioMicrofrontend | out_scale | 0
AudioMicrofrontend | window_step | -1
AudioSpectrogram | window_size | -1
AvgPool3DGrad | orig_input_shape | np.int32([2**20, 2**20, 2, 2, 1])
AvgPoolGrad | orig_input_shape | np.int32([[[[1]]]])
BlockLSTM | seq_len_max | np.int64(-1)
BlockLSTMGrad | h_grad | np.empty([3, 0], "f")
BlockLSTMGradV2 | o | np.float32([[[0.7, 0.8, 2.0]]])
BlockLSTMV2 | seq_len_max | np.int64(2**63 - 1)
BroadcastTo | shape | np.int32([2**20, 2**20])
ChooseFastestBranchDataset | other_arguments_lengths | [0, 100]
CombinedNonMaxSuppression | scores | np.float32([0.5])
Conv | filter | np.ones([2, 1, 1, 1, 1], "f")
Conv2D | input | np.float32([[1.0]])
Conv2D | strides | [1, 2**40, 1, 1]
Conv2DBackpropFilter | strides | []
Conv2DBackpropInput | input_sizes | np.int32([[[[1]]]])
Conv3D | input | np.float32([[[1.0]]])
Conv3DBackpropFilterV2 | out_backprop | np.float32([1.0, 0.0])
Conv3DBackpropInputV2 | input_sizes | np.int32([[[[1]]]])
CropAndResizeGradBoxes | boxes | np.float32([[0.1, 0.1, -np.inf, 0.9]])
CropAndResizeGradImage | boxes | np.float32([[0.0, -1e38, -np.inf, np.nan]])
CustomAggregator | num_bins | -(2**31)
DenseBincount | size | np.int64(2**62)
DepthwiseConv2dNative | input | np.float32([[1.0, 10.0, 2.0], [20.0, 3.0, 30.0]])
DepthwiseConv2dNativeBackpropFilter | input | np.float32([[1, 2, 4], [1, 2, 4]])
DepthwiseConv2dNativeBackpropInput | input_sizes | np.int32([[1]])
Dequantize | axis | 2**32 + 1
Empty | shape | np.int32([2**20, 2**20])
Fill | dims | np.int32([2**20, 2**20])
FixedUnigramCandidateSampler | num_shards | 2**40
FractionalMaxPoolGrad | row_pooling_sequence | np.int64([-2**63, -2**63])
FusedPadConv2D | input | np.float32(1.0)
HistogramFixedWidth | value_range | np.float64([-np.inf, 5.0])
IRFFT | fft_length | np.int32([0])
InitializeTableFromDataset | dataset | tf.data.Dataset.range(3)._variant_tensor
InitializeTableFromDataset | dataset | data_set(["a"], [1.0])
LoadAndRemapMatrix | old_tensor_name | tf.zeros([0], tf.string)
LookupTableExportV2 | Tvalues | tf.float32
RFFT | fft_length | np.int32([0])
LRNGrad | output_image | np.float32([[[0.4]]])
LSTMBlockCell | w | np.float32([1.0, 1.0])
LSTMBlockCellGrad | cs | np.float32([1.9])
LearnedUnigramCandidateSampler | range_max | 2**31
MapDefun | output_shapes | [[1] * 254]
MatrixDiagPart | input | np.empty([2**31, 0], "f")
MatrixDiagV2 | diagonal | np.int32([4, 5])
MatrixDiagV3 | diagonal | np.int32([0, 4])
MaxPool3D | ksize | [1, 2**31, 2, 2, 1]
MaxPoolGradV2 | ksize | np.int32([1, 2, -1, 1])
MaxPoolGradWithArgmax | argmax | np.int64([[[[4], [-2**31]]]])
Mfcc | lower_frequency_limit | np.nan
MultiDeviceIteratorGetNextFromShard | shard_num | -(2**30)
MultiDeviceIteratorInit | max_buffer_size | np.full([17], 2, "int64")
NearestNeighbors | k | np.int64(-1)
ParallelConcat | shape | [2**62, 2**62]
ParseExample | dense_keys | [["age", "age"]]
ParseExampleDatasetV2 | dense_shapes | []
Qr | input | np.empty([0, 2**31], "f")
QuantizeAndDequantizeV3 | input_min | np.empty([0, 0], "f")
QuantizedAvgPool | ksize | [1, 1, 2]
QuantizedInstanceNorm | x | tf.cast([[[0]]], tf.quint8)
QuantizedMatMulWithBias | max_a | np.empty([3, 0], "f")
QuantizedMaxPool | ksize | []
QuantizedResizeBilinear | size | np.int32([1, 2**31 - 1])
RFFT2D | fft_length | np.int32([0, 0])
RFFT3D | fft_length | np.int32([2, 2, 0])
RaggedCross | out_row_splits_type | tf.int32
RaggedFillEmptyRows | nrows | np.int64(2**40)
RaggedGather | indices | np.int32(2)
RaggedRange | limits | np.int64([2**60, 2**60, 3])
RaggedTensorToTensor | row_partition_tensors | [np.int64([0, 2, 2, -1])]
RaggedTensorToTensor | row_partition_tensors | [np.int64([0, 2, 2, 2**24])]
RaggedTensorToVariantGradient | Tvalues | tf.complex128
RandomIndexShuffle | rounds | -2
RandomPoissonV2 | rate | np.float32([np.nan, 20.0])
RandomStandardNormal | shape | np.int32([2**20, 2**20])
ReaderRestoreStateV2 | reader_handle | tf.stack([old, old])
RecordInput | batch_size | 2**40
RecordInput | file_parallelism | 2**62
RemoteCall | target | [b"/device:CPU:0", b"/device:CPU:0"]
RequantizePerChannel | requested_output_max | np.empty([0, 0], "f")
ResizeArea | size | np.int32([1, 2**31 - 2])
ResizeBicubic | size | np.int32([1, 2**31 - 1])
ResourceAccumulatorSetGlobalStep | new_global_step | np.int64([5, 5])
ResourceGather | batch_dims | 2
ResourceSparseApplyFtrl | accum | tf.Variable(["a", "b", "c"]).handle
ScatterNd | shape | np.int32([2**30, 2**10])
SegmentSum | segment_ids | np.int64([2**50, 2**50, 2**50])
SparseCrossHashed | num_buckets | np.empty([0], "int64")
SparseMatrixSparseCholesky | permutation | np.int32([0, 3])
StatelessRandomPoisson | lam | np.float32([0.5, np.nan])
StatelessRandomUniform | shape | np.int32([2**20, 2**20])
TensorListGetItem | index | np.empty([0, 0], "i")
TensorListReserve | num_elements | 2**31 - 1
TensorListResize | size | 2**31 - 1
TensorListScatter | indices | np.int32([2**31 - 2, 0])
TensorListScatterIntoExistingList | indices | np.int32([2**31 - 2])
TensorListScatterV2 | num_elements | 2**31 - 1
TensorScatterAdd | indices | np.zeros([2, 2, 2, 2, 2], "i")
TensorScatterSub | indices | np.int32([[[0]], [[2]], [[2]]])
TensorScatterUpdate | indices | np.zeros([2, 2, 2, 2, 2], "i")
ThreadUnsafeUnigramCandidateSampler | range_max | 2**62
UnicodeDecodeWithOffsets | Tsplits | tf.int32
UnsortedSegmentSum | num_segments | 2**40
WeightedFlatMapDataset | weights | [[0.75, 0.25], 0.25]
"""
#: Calls that the example of an op does not make in this way.
CALLS = """
MaxPoolGradV2 | r.MaxPoolGradV2(orig_input=one(1, 2, 2, 1), \
orig_output=one(1, 1, 1, 1), grad=one(1, 1, 1, 1), ksize=[1, -1, 2, 1], \
strides=[1, 2, 2, 1], padding="SAME")
If | r.If(cond=tf.constant(0, tf.half), input=[1.0], Tout=[tf.float32], \
then_branch=same(), else_branch=same())
StatefulPartitionedCall | r.StatefulPartitionedCall(args=[1.0], Tout=[], f=same())
ResourceApplyAdagrad | r.ResourceApplyAdagrad(var=handle(), accum=handle(), \
lr=np.float64(0.1), grad=np.float64([1, 2]))
ResourceApplyAdagrad | r.ResourceApplyAdagrad(var=bare(), accum=bare(), \
lr=np.float64(0.1), grad=np.float64([1, 2]))
ResourceGather | r.ResourceGather(resource=handle(), indices=[0], dtype=tf.int64)
ResourceGather | r.ResourceGather(resource=handle(one(1, 2)), \
indices=[[0]] * 2**20, batch_dims=1, dtype=tf.float32)
GatherV2 | tf.function(lambda axis: r.GatherV2(params=one(2), indices=[0], axis=axis, \
batch_dims=2**30))(tf.constant(0))
Enter | tf.function(lambda: r.Enter(data=1.0, frame_name="f", \
parallel_iterations=2**31 - 2))()
RaggedTensorToVariant | r.RaggedTensorToVariant(rt_nested_splits=[], \
rt_dense_values=np.empty([2**40, 0], "f"), batched_input=True)
CalibrationStatisticsSaver | opwright.quantization.calibration_statistics_saver(\
[one(2), one(), np.int64([])], ["a"], [1], "a.pb")
Range | r.Range(start=0, limit=2**40, delta=1)
Range | r.Range(start=0.0, limit=1e30, delta=1.0)
Conv2D | tf.function(lambda: r.Conv2D(input=np.float32([[1.0]]), \
filter=one(1, 1, 1, 1), strides=[1, 1, 1, 1], padding="SAME"))()
IRFFT | tf.function(lambda: r.IRFFT(input=np.complex64([1, 2, 3]), fft_length=[0]))()
"""


def rows(table: str) -> Iterator[list[str]]:
    for row in table.strip().split("\n"):
        yield [part.strip() for part in row.split("|")]


def opdef(name: str) -> dict[str, Any]:
    (path,) = OPDEFS.glob(f"*/{name}.yaml")
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def bent_by_conditions() -> Iterator[list[str]]:
    """Calls that do not meet the simplest conditions of all opdefs."""
    for path in sorted(OPDEFS.glob("*/*.yaml")):
        text = path.read_text()
        if "\nrequires:\n" not in text or "ref: true" in text:
            continue
        found = yaml.safe_load(text)
        if ">>> with tf.Graph()" in found["example"]:
            continue
        inputs = found.get("inputs", [])
        lists = {arg["name"] for arg in inputs if "count" in arg}
        lists |= {arg["name"] for arg in inputs if "types" in arg}
        for condition in found["requires"]:
            for argument, value in _against(condition):
                bent = f"[{value}]" if argument in lists else value
                yield [found["op"], argument, bent]


def _against(condition: str) -> Iterator[tuple[str, str]]:
    """Arguments that do not meet a condition, if it is of a simple form."""
    match ast.parse(condition, mode="eval").body:
        case ast.Compare(ast.Call(ast.Name("elements"), names), [ast.Eq()], _):
            for each in names:
                yield ast.unparse(each), "like(old, [0])"
                yield ast.unparse(each), "like(old, [17])"
        case ast.Compare(
            ast.Call(ast.Name("rank"), names), [ast.Eq()], [ast.Constant(int() as rank)]
        ):
            for each in names:
                yield ast.unparse(each), f"like(old, [1] * {rank + 1})"
                yield ast.unparse(each), f"like(old, [1] * {rank - 1})"
        case ast.Call(ast.Name("holds"), [*handles, _]):
            for each in handles:
                yield ast.unparse(each), "tf.Variable(np.int8([1, 2])).handle"


def main(*modes: str) -> None:
    os.chdir(tempfile.mkdtemp())
    if modes == ("graphs",):
        for row in rows(BENT):
            report(row, bent_in_graph(*row))
        return
    for row in [*rows(BENT), *bent_by_conditions()]:
        report(row, bent(*row))
    names = _names()
    for row in rows(CALLS):
        report(row, outcome(lambda code=row[1]: eval(code, names)))


def report(row: list[str], error: dict[str, Any]) -> None:
    print(json.dumps({"call": " | ".join(row), "op": row[0], **error}), flush=True)


def outcome(call: Any) -> dict[str, Any]:
    import opwright

    try:
        call()
    except opwright.OpError as error:
        early = error.__cause__ is None
        return {"refused": error.op if early else "", "message": str(error)}
    except Exception as error:
        return {"refused": "", "message": f"{type(error).__name__}: {error}"}
    return {"refused": "", "message": "the call was made"}


def bent(name: str, argument: str, value: str) -> dict[str, Any]:
    """The outcome of the example's first call of an op, with another argument."""
    found = _changed(name, argument, value)
    if found is None:
        return {"refused": None, "message": "the example does not call the function"}
    made, arguments, spelled, new = found
    return outcome(lambda: made(**{**arguments, spelled: new}))


def bent_in_graph(name: str, argument: str, value: str) -> dict[str, Any]:
    """The same in a graph that checks its ops when it runs.

    It also runs with the example's own argument, which has to pass.
    """
    import tensorflow as tf

    import opwright

    skipped = {"refused": None, "message": "it has no such input in a graph"}
    found = _changed(name, argument, value)
    info = opwright.op_class(name).op_def
    inputs = {arg.name: arg for arg in info.inputs}
    if found is None or argument not in inputs or inputs[argument].is_list:
        return skipped
    made, arguments, spelled, new = found
    bad = tf.convert_to_tensor(new)
    if bad.dtype in (tf.resource, tf.variant):
        return skipped
    try:
        good = tf.convert_to_tensor(arguments[spelled], bad.dtype)
        call = tf.function(lambda x: made(**{**arguments, spelled: x}), autograph=False)
        with opwright.checked():
            graph = call.get_concrete_function(tf.TensorSpec(None, bad.dtype))
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        # Another dtype, an op without a kernel, an output that is an operation.
        return {**skipped, "message": str(error)}
    outcomes = []
    for tensor in (good, bad):
        try:
            graph(tensor)
            outcomes.append("the call was made")
        except Exception as error:
            outcomes.append(str(error))
    passed, message = outcomes
    if "must hold" in passed:
        return {"refused": "", "message": f"its own argument: {passed}"}
    return {"refused": name if "must hold" in message else "", "message": message}


def _changed(
    name: str, argument: str, value: str
) -> tuple[Any, dict[str, Any], str, Any] | None:
    """The function of an op, the arguments of the example's call, and another one."""
    import opwright

    cls = opwright.op_class(name)
    module = sys.modules[cls.__module__]
    names = {**_names(), **{n: getattr(module, n) for n in module.__all__}}
    function = module.__all__[-1]
    calls: list[dict[str, Any]] = []
    names[function] = _recorder(names[function], calls)
    examples = doctest.DocTestParser().get_examples(f"{opdef(name)['example']}\n")
    code = "\n".join(example.source.rstrip("\n") for example in examples)
    # Some ops have no kernel here, but their calls are refused before that.
    without_kernel = contextlib.suppress(opwright.OpKernelError)
    with contextlib.redirect_stdout(io.StringIO()), without_kernel:
        exec(code, names)
    if not calls:
        return None
    arguments = calls[0]
    spelled = cls.PYTHON_NAMES.get(argument, argument)
    new = eval(value, names | {"old": arguments.get(spelled)})
    return getattr(module, function), arguments, spelled, new


def _recorder(function: Any, calls: list[dict[str, Any]]) -> Any:
    code = function.__code__
    names = code.co_varnames[: code.co_argcount]

    def recorded(*arguments: Any, **keywords: Any) -> Any:
        calls.append({**dict(zip(names, arguments, strict=False)), **keywords})
        return function(*arguments, **keywords)

    return recorded


def _names() -> dict[str, Any]:
    import numpy as np
    import tensorflow as tf

    import opwright
    from opwright import Scope, raw_ops

    kept = []

    def handle(value: Any = (1.0, 2.0)) -> Any:
        kept.append(tf.Variable(value))
        return kept[-1].handle

    def bare() -> Any:
        """A handle that no variable of Python stands for."""
        made = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[2], shared_name="bare")
        value = tf.constant([1.0, 2.0])
        tf.raw_ops.AssignVariableOp(resource=made, value=value)
        return made

    def data_set(keys: Any, values: Any) -> Any:
        made = tf.data.Dataset.from_tensor_slices((keys, values))
        kept.append(made)
        return made._variant_tensor

    def same() -> Any:
        function = tf.function(lambda x: x)
        return function.get_concrete_function(tf.TensorSpec([], tf.float32))

    def like(old: Any, shape: list[int]) -> Any:
        """A tensor of the dtype of `old`, or of its first part."""
        if isinstance(old, list) and old and not isinstance(old[0], (int, float)):
            old = old[0]
        one = tf.convert_to_tensor(0 if old is None else old)
        if one.dtype == tf.float64 and not hasattr(old, "dtype"):
            one = tf.cast(one, tf.float32)
        if one.dtype == tf.variant:
            while one.shape.rank:
                one = one[0]
            for size in reversed(shape):
                one = tf.stack([one] * size)
            return one
        if one.dtype.is_quantized:
            return tf.cast(tf.zeros(shape), one.dtype)
        flat = tf.reshape(one, [-1])
        filled = flat[:1] if flat.shape[0] else tf.zeros([1], one.dtype)
        return tf.broadcast_to(tf.reshape(filled, [1] * len(shape)), shape)

    return {
        "np": np,
        "tf": tf,
        "opwright": opwright,
        "Scope": Scope,
        "r": raw_ops,
        "one": lambda *shape: np.ones(shape, np.float32),
        "handle": handle,
        "bare": bare,
        "data_set": data_set,
        "same": same,
        "like": like,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
