// The dtypes for which kernels are registered.
#pragma once

#include "tensorflow/core/framework/types.h"

namespace opwright::xla_ops {

constexpr tensorflow::DataType kIndices[] = {tensorflow::DT_INT32, tensorflow::DT_INT64};
constexpr tensorflow::DataType kFloats[] = {tensorflow::DT_BFLOAT16, tensorflow::DT_HALF,
                                            tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE};
constexpr tensorflow::DataType kNumbers[] = {tensorflow::DT_INT32, tensorflow::DT_INT64,
                                             tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE};
// What TensorFlow's own kernels of these ops have: all real numbers.
constexpr tensorflow::DataType kReal[] = {
    tensorflow::DT_BFLOAT16, tensorflow::DT_HALF,   tensorflow::DT_FLOAT,
    tensorflow::DT_DOUBLE,   tensorflow::DT_INT8,   tensorflow::DT_INT16,
    tensorflow::DT_INT32,    tensorflow::DT_INT64,  tensorflow::DT_UINT8,
    tensorflow::DT_UINT16,   tensorflow::DT_UINT32, tensorflow::DT_UINT64};
constexpr tensorflow::DataType kNumeric[] = {
    tensorflow::DT_BFLOAT16, tensorflow::DT_HALF,   tensorflow::DT_FLOAT,
    tensorflow::DT_DOUBLE,   tensorflow::DT_INT8,   tensorflow::DT_INT16,
    tensorflow::DT_INT32,    tensorflow::DT_INT64,  tensorflow::DT_UINT8,
    tensorflow::DT_UINT16,   tensorflow::DT_UINT32, tensorflow::DT_UINT64,
    tensorflow::DT_COMPLEX64};
// What ops on images take.
constexpr tensorflow::DataType kImages[] = {
    tensorflow::DT_HALF,  tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE,
    tensorflow::DT_INT8,  tensorflow::DT_INT16, tensorflow::DT_INT32,
    tensorflow::DT_INT64, tensorflow::DT_UINT8, tensorflow::DT_UINT16};
// What ops that resize images take.
constexpr tensorflow::DataType kResized[] = {
    tensorflow::DT_BFLOAT16, tensorflow::DT_HALF,  tensorflow::DT_FLOAT, tensorflow::DT_DOUBLE,
    tensorflow::DT_INT8,     tensorflow::DT_INT16, tensorflow::DT_INT32, tensorflow::DT_INT64,
    tensorflow::DT_UINT8,    tensorflow::DT_UINT16};
constexpr tensorflow::DataType kAny[] = {
    tensorflow::DT_BFLOAT16, tensorflow::DT_HALF,     tensorflow::DT_FLOAT,
    tensorflow::DT_DOUBLE,   tensorflow::DT_INT8,     tensorflow::DT_INT16,
    tensorflow::DT_INT32,    tensorflow::DT_INT64,    tensorflow::DT_UINT8,
    tensorflow::DT_UINT16,   tensorflow::DT_UINT32,   tensorflow::DT_UINT64,
    tensorflow::DT_BOOL,     tensorflow::DT_COMPLEX64};

}  // namespace opwright::xla_ops
