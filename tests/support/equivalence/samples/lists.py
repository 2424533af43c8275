"""Lists, maps and arrays of tensors, and values in variants."""

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import composite_tensor_variant_pb2
from tensorflow.python.saved_model import nested_structure_coder

from support.equivalence.modes import GRAPH
from support.equivalence.samples.kit import Samples, real

SAMPLES = Samples()

FLOAT = {"element_dtype": tf.float32}


@SAMPLES.program()
def tensor_lists(run):
    shape = [2]
    handle = run.TensorListFromTensor(real(3, 2), shape)
    run.TensorListLength(handle)
    run.TensorListElementShape(handle, shape_type=tf.int64)
    handle = run.TensorListPushBack(handle, real(2))
    run.TensorListStack(handle, shape, **FLOAT, num_elements=4)
    run.TensorListGetItem(handle, 1, shape, **FLOAT)
    handle = run.TensorListSetItem(
        handle, 5, real(2), resize_if_index_out_of_bounds=True
    )
    handle = run.TensorListResize(handle, 3)
    run.TensorListGather(handle, [2, 0], shape, **FLOAT)
    handle, _ = run.TensorListPopBack(handle, shape, **FLOAT)
    run.TensorListConcat(handle, **FLOAT, element_shape=[2])
    run.TensorListConcatV2(handle, shape, np.int64([]), **FLOAT)
    handle = run.TensorListScatterIntoExistingList(handle, real(1, 2), [0])
    run.TensorListStack(handle, shape, **FLOAT)
    split = run.TensorListSplit(real(3, 2), [-1, 2], np.int64([1, 2]))
    run.TensorListConcatV2(split, [-1, 2], np.int64([]), **FLOAT)
    empty = run.EmptyTensorList(shape, 4, **FLOAT)
    run.TensorListLength(empty)
    reserved = run.TensorListReserve(shape, 2, **FLOAT)
    run.TensorListStack(reserved, shape, **FLOAT)
    for scattered in (
        run.TensorListScatter(real(2, 2), [1, 0], shape),
        run.TensorListScatterV2(real(2, 2), [1, 0], shape, -1),
    ):
        run.TensorListStack(scattered, shape, **FLOAT)


@SAMPLES.program()
def batches_of_lists(run):
    one, two = (run.TensorListFromTensor(real(3, 2), [2]) for _ in range(2))
    both = run.Pack([one, two])
    for handle in run.Unpack(run.TensorListPushBackBatch(both, real(2, 2)), num=2):
        run.TensorListStack(handle, [2], **FLOAT)
    joined = run.TensorListConcatLists(both, both, **FLOAT)
    for handle in run.Unpack(joined, num=2):
        run.TensorListStack(handle, [2], **FLOAT)


@SAMPLES.program()
def tensor_maps(run):
    handle = run.TensorMapInsert(run.EmptyTensorMap(), 3, real(2))
    typed = {"key_dtype": tf.int32}
    run.TensorMapSize(handle)
    run.TensorMapLookup(handle, 3, value_dtype=tf.float32)
    run.TensorMapHasKey(handle, 4)
    run.TensorMapStackKeys(handle, **typed)
    handle = run.TensorMapErase(handle, 3, value_dtype=tf.float32)
    run.TensorMapSize(handle)


@SAMPLES.program()
def optionals(run):
    typed = {"output_types": [tf.float32, tf.string], "output_shapes": [[2], []]}
    some = run.OptionalFromValue([real(2), "a"])
    run.OptionalHasValue(some)
    run.OptionalGetValue(some, **typed)
    run.OptionalHasValue(run.OptionalNone())


@SAMPLES.program()
def optional_number(run):
    some = run.OptionalFromValue([real(2)])
    run.OptionalGetValue(some, output_types=[tf.float32], output_shapes=[[2]])


@SAMPLES.program()
def composite_tensors(run):
    spec = tf.RaggedTensorSpec([None, None], tf.float32)
    encoded = nested_structure_coder.encode_structure(spec).type_spec_value
    message = composite_tensor_variant_pb2.CompositeTensorVariantMetadata(
        type_spec_proto=encoded
    ).SerializeToString()
    components = [real(3), np.int64([0, 1, 3])]
    handle = run.CompositeTensorVariantFromComponents(components, metadata=message)
    run.CompositeTensorVariantToComponents(
        handle, metadata=message, Tcomponents=[tf.float32, tf.int64]
    )


@SAMPLES.program()
def compressed(run):
    element = run.CompressElement([real(2), "a"])
    run.UncompressElement(
        element, output_types=[tf.float32, tf.string], output_shapes=[[2], []]
    )


# Arrays.
@SAMPLES.program()
def tensor_arrays(run):
    typed = {"dtype": tf.float32}
    array, flow = run.TensorArrayV3(
        2,
        **typed,
        element_shape=[2],
        dynamic_size=True,
        clear_after_read=False,
        identical_element_shapes=True,
        tensor_array_name=run.unique("array"),
    )
    flow = run.TensorArrayWriteV3(array, 0, real(2), flow)
    flow = run.TensorArrayScatterV3(array, [1, 2], real(2, 2), flow)
    run.TensorArrayReadV3(array, 1, flow, **typed)
    run.TensorArrayGatherV3(array, [2, 0], flow, **typed, element_shape=[2])
    run.TensorArrayConcatV3(array, flow, **typed, element_shape_except0=[])
    run.TensorArraySizeV3(array, flow)
    gradient, flow = run.TensorArrayGradV3(array, flow, source="gradients")
    run.TensorArraySizeV3(gradient, flow)
    gradient, flow = run.TensorArrayGradWithShape(array, flow, [3], source="more")
    run.TensorArraySizeV3(gradient, flow)
    run.TensorArrayCloseV3(array)
    parts, flow = run.TensorArrayV3(2, **typed)
    flow = run.TensorArraySplitV3(parts, real(3, 2), np.int64([1, 2]), flow)
    run.TensorArrayReadV3(parts, 1, flow, **typed)


@SAMPLES.program()
def empty_tensor_array(run):
    array, flow = run.TensorArrayV3(2, dtype=tf.float32, dynamic_size=True)
    run.TensorArraySizeV3(array, flow)


@SAMPLES.program(modes=(GRAPH,), old=True)
def removed_tensor_arrays_v2(run):
    typed = {"dtype": tf.float32}
    flow = np.float32(0)
    array = run.opaque.TensorArrayV2(
        3, **typed, element_shape=[2], clear_after_read=False
    )
    run.TensorArrayWriteV2(array, 0, real(2), flow)
    run.TensorArrayScatterV2(array, [1, 2], real(2, 2), flow)
    run.TensorArrayReadV2(array, 1, flow, **typed)
    run.TensorArrayGatherV2(array, [2, 0], flow, **typed, element_shape=[2])
    run.TensorArrayConcatV2(array, flow, **typed)
    run.TensorArraySizeV2(array, flow)
    run.opaque.TensorArrayGradV2(array, flow, source="gradients")
    run.TensorArrayCloseV2(array)
    parts = run.opaque.TensorArrayV2(2, **typed)
    run.TensorArraySplitV2(parts, real(3, 2), np.int64([1, 2]), flow)


@SAMPLES.program(modes=(GRAPH,), old=True)
def removed_tensor_arrays(run):
    typed = {"dtype": tf.float32}
    flow = np.float32(0)
    array = run.TensorArray(3, **typed, element_shape=[2], clear_after_read=False)
    run.TensorArrayWrite(array, 0, real(2), flow)
    run.TensorArrayScatter(array, [1, 2], real(2, 2), flow)
    run.TensorArrayRead(array, 1, flow, **typed)
    run.TensorArrayGather(array, [2, 0], flow, **typed, element_shape=[2])
    run.TensorArrayConcat(array, flow, **typed)
    run.TensorArrayPack(array, flow, **typed)
    run.TensorArraySize(array, flow)
    run.TensorArrayClose(array)
    parts = run.TensorArray(2, **typed)
    run.TensorArraySplit(parts, real(3, 2), np.int64([1, 2]), flow)
    again = run.TensorArray(3, **typed)
    run.TensorArrayUnpack(again, real(3, 2), flow)


@SAMPLES.program(modes=(GRAPH,), old=True)
def removed_tensor_array_gradient(run):
    array = run.opaque.TensorArrayV2(1, dtype=tf.float32)
    flow = run.TensorArrayWriteV2(array, 0, real(2), np.float32(0))
    run.TensorArrayGrad(array, flow, source="gradients")
