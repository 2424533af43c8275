// The ops for deduplication data on the CPU. They return its layout, and convert between it and
// two vectors.
//
// The layout of a TPU is not documented. In this library, the data of a step has two parts for
// each table, in the order of the configuration. One part contains the row of each sample as
// integers. The other part contains its weight as floats.
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/tf/config.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_encode_decode.h"
#include "tensorflow/core/framework/variant_op_registry.h"
#include "tensorflow/core/framework/variant_tensor_data.h"
#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"

namespace opwright::embedding {
namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tpu::TPUEmbeddingConfiguration;

bool IsVectorOfSize(const TensorShape& shape, int64_t size) {
  return shape.dims() == 1 && shape.dim_size(0) == size;
}

constexpr int64_t kMaxInt = std::numeric_limits<int32_t>::max();

struct Part {
  bool is_float;
  int64_t length;
};

// The parts as vectors. This type replaces XLA's tuple.
struct DedupTuple {
  std::vector<Tensor> parts;

  std::string TypeName() const { return "opwright::DedupTuple"; }
  std::string DebugString() const {
    return TypeName() + " of " + std::to_string(parts.size()) + " parts";
  }
  void Encode(tensorflow::VariantTensorData* data) const {
    data->set_type_name(TypeName());
    for (const Tensor& part : parts) *data->add_tensors() = part;
  }
  bool Decode(const tensorflow::VariantTensorData& data) {
    parts = data.tensors();
    return true;
  }
};
REGISTER_UNARY_VARIANT_DECODE_FUNCTION(DedupTuple, "opwright::DedupTuple");

absl::Status ParseConfig(const std::string& bytes, TPUEmbeddingConfiguration* config) {
  int size;
  if (Narrow(bytes.size(), &size) && config->ParseFromArray(bytes.data(), size)) {
    return absl::OkStatus();
  }
  return Invalid("config", "is no serialized TPUEmbeddingConfiguration");
}

// Reads how many TensorCores share the data of a replica. Each part is divided among them. 1
// means that nothing is divided.
absl::Status ReadSharding(const TPUEmbeddingConfiguration& config, int64_t* cores) {
  *cores = 1;
  if (!config.spmd_sharding().enabled()) return absl::OkStatus();
  *cores = config.spmd_sharding().num_cores_per_replica();
  if (*cores > 0) return absl::OkStatus();
  return Invalid("config", "spmd_sharding.num_cores_per_replica must be at least 1, is " +
                               std::to_string(*cores));
}

absl::Status Layout(const std::string& bytes, std::vector<Part>* parts) {
  Configuration configuration;
  TF_RETURN_IF_ERROR(ReadConfiguration(bytes, &configuration, nullptr));
  TPUEmbeddingConfiguration config;
  TF_RETURN_IF_ERROR(ParseConfig(bytes, &config));
  int64_t cores;
  TF_RETURN_IF_ERROR(ReadSharding(config, &cores));
  std::vector<int64_t> samples(configuration.tables.size());
  for (const FeatureConfig& feature : configuration.features) {
    int64_t& sum = samples[static_cast<size_t>(feature.table)];
    const Checked more = Checked(sum) + feature.samples();
    sum = more.value();
    if ((more + cores).AtMost(kMaxInt)) continue;
    return Invalid("config", Describe(configuration, feature.table) + ": with " +
                                 std::to_string(cores) + " cores a replica, " +
                                 std::to_string(sum) + " samples are too many");
  }
  for (const int64_t count : samples) {
    const int64_t length = (count + cores - 1) / cores * cores;
    parts->push_back({false, length});
    parts->push_back({true, length});
  }
  return absl::OkStatus();
}

// Returns the layout, which only depends on the configuration.
class LayoutOp : public OpKernel {
 public:
  explicit LayoutOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string bytes;
    OP_REQUIRES_OK(context, context->GetAttr("config", &bytes));
    OP_REQUIRES_OK(context, Layout(bytes, &parts_));
  }

 protected:
  std::vector<Part> parts_;
};

class SizeOp : public LayoutOp {
 public:
  using LayoutOp::LayoutOp;

  void Compute(OpKernelContext* context) override {
    int32_t parts;
    OP_REQUIRES(context, Narrow(parts_.size(), &parts),
                Invalid("config", "has more tables than int32 counts"));
    Tensor* size;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &size));
    size->flat<int32_t>()(0) = parts;
  }
};

class TupleMaskOp : public LayoutOp {
 public:
  using LayoutOp::LayoutOp;

  void Compute(OpKernelContext* context) override {
    Tensor* output;
    const int64_t parts = static_cast<int64_t>(parts_.size());
    TensorShape shape;
    OP_REQUIRES_OK(context, TensorShape::BuildTensorShape({parts, 2}, &shape));
    OP_REQUIRES_OK(context, context->allocate_output(0, shape, &output));
    int32_t* to = output->flat<int32_t>().data();
    for (const Part& part : parts_) {
      *to++ = part.is_float ? 1 : 0;
      *to++ = static_cast<int32_t>(part.length);
    }
  }
};

// The base class of the conversions in both directions. One device does the work of all
// TensorCores of a replica. So its parts are complete, while each TensorCore of a TPU would
// have a share of them.
class ConversionOp : public OpKernel {
 public:
  explicit ConversionOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("integer_type", &integer_type_));
    OP_REQUIRES_OK(context, context->GetAttr("float_type", &float_type_));
    std::string mask, bytes;
    OP_REQUIRES_OK(context, context->GetAttr("tuple_mask", &mask));
    OP_REQUIRES_OK(context, ReadMask(mask));
    OP_REQUIRES_OK(context, context->GetAttr("config", &bytes));
    TPUEmbeddingConfiguration config;
    OP_REQUIRES_OK(context, ParseConfig(bytes, &config));
    int64_t cores;
    OP_REQUIRES_OK(context, ReadSharding(config, &cores));
    for (size_t i = 0; i < parts_.size(); ++i) {
      OP_REQUIRES(context, parts_[i].length % cores == 0,
                  Invalid("tuple_mask", "the " + std::to_string(cores) +
                                            " cores of a replica must divide each length; "
                                            "that of part " +
                                            std::to_string(i) + " is " +
                                            std::to_string(parts_[i].length)));
      // There are few parts, and each length is an int32, so the sum cannot overflow.
      totals_[parts_[i].is_float] += parts_[i].length;
    }
  }

 protected:
  tensorflow::DataType type(bool is_float) const {
    return is_float ? float_type_ : integer_type_;
  }

  std::vector<Part> parts_;
  int64_t totals_[2] = {0, 0};

 private:
  absl::Status ReadMask(const std::string& bytes) {
    // With two parts for each table, no configuration has so many. The limit is necessary,
    // because a few bytes can encode many parts.
    constexpr int64_t kMaxParts = 1 << 16;
    const auto no_tensor = [] {
      return Invalid("tuple_mask", "is no serialized TensorProto of int32");
    };
    tensorflow::TensorProto proto;
    int size;
    if (!Narrow(bytes.size(), &size) || !proto.ParseFromArray(bytes.data(), size) ||
        proto.dtype() != tensorflow::DT_INT32) {
      return no_tensor();
    }
    // The shape is checked before the tensor is created, because the tensor allocates the
    // memory of its shape.
    TensorShape shape;
    if (!TensorShape::BuildTensorShape(proto.tensor_shape(), &shape).ok()) return no_tensor();
    // An empty mask may lack its second dimension.
    const bool empty = shape.dims() > 0 && shape.dim_size(0) == 0;
    if (!empty && (shape.dims() != 2 || shape.dim_size(1) != 2)) {
      return Invalid("tuple_mask",
                     "must have the shape [parts, 2], has " + shape.DebugString());
    }
    if (shape.dim_size(0) > kMaxParts) {
      return Invalid("tuple_mask", "must have at most " + std::to_string(kMaxParts) +
                                       " parts, has " + std::to_string(shape.dim_size(0)));
    }
    Tensor tensor;
    if (!tensor.FromProto(proto)) return no_tensor();
    if (empty) return absl::OkStatus();
    const int32_t* const mask = tensor.flat<int32_t>().data();
    for (int64_t i = 0; i < shape.dim_size(0); ++i) {
      const int32_t kind = mask[2 * i], length = mask[2 * i + 1];
      if ((kind != 0 && kind != 1) || length < 0) {
        return Invalid("tuple_mask", "part " + std::to_string(i) +
                                         " must be 0, an integer, or 1, a float, and have a "
                                         "length of at least 0, is [" +
                                         std::to_string(kind) + ", " + std::to_string(length) +
                                         "]");
      }
      parts_.push_back({kind == 1, length});
    }
    return absl::OkStatus();
  }

  tensorflow::DataType integer_type_, float_type_;
};

class MergeOp : public ConversionOp {
 public:
  using ConversionOp::ConversionOp;

  void Compute(OpKernelContext* context) override {
    const char* const names[] = {"integer_tensor", "float_tensor"};
    for (int i = 0; i < 2; ++i) {
      const TensorShape& shape = context->input(i).shape();
      OP_REQUIRES(context, IsVectorOfSize(shape, totals_[i]),
                  Invalid(names[i], "must have the shape [" + std::to_string(totals_[i]) +
                                        "], as tuple_mask says, has " + shape.DebugString()));
    }
    DedupTuple tuple;
    int64_t at[2] = {0, 0};
    for (const Part& part : parts_) {
      int64_t& begin = at[part.is_float];
      tuple.parts.push_back(context->input(part.is_float).Slice(begin, begin + part.length));
      begin += part.length;
    }
    Tensor* output;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &output));
    output->flat<tensorflow::Variant>()(0) = std::move(tuple);
  }
};

class SplitOp : public ConversionOp {
 public:
  using ConversionOp::ConversionOp;

  void Compute(OpKernelContext* context) override {
    const Tensor& input = context->input(0);
    const DedupTuple* const tuple =
        input.dims() == 0 ? input.flat<tensorflow::Variant>()(0).get<DedupTuple>() : nullptr;
    OP_REQUIRES(context, tuple,
                Invalid("input", "must be a scalar that MergeDedupData returned, is " +
                                     input.DebugString()));
    OP_REQUIRES(
        context, tuple->parts.size() == parts_.size(),
        Invalid("tuple_mask", "has " + std::to_string(parts_.size()) + " parts, input has " +
                                  std::to_string(tuple->parts.size())));
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Tensor& part = tuple->parts[i];
      const tensorflow::DataType wanted = type(parts_[i].is_float);
      OP_REQUIRES(
          context, part.dtype() == wanted && IsVectorOfSize(part.shape(), parts_[i].length),
          Invalid("tuple_mask", "says that part " + std::to_string(i) + " is a vector of " +
                                    std::to_string(parts_[i].length) + " " +
                                    tensorflow::DataTypeString(wanted) + ", it has the shape " +
                                    part.shape().DebugString() + " and the dtype " +
                                    tensorflow::DataTypeString(part.dtype())));
    }
    char* to[2];
    for (int i = 0; i < 2; ++i) {
      Tensor* output;
      TensorShape shape;
      OP_REQUIRES_OK(context, TensorShape::BuildTensorShape({totals_[i]}, &shape));
      OP_REQUIRES_OK(context, context->allocate_output(i, shape, &output));
      to[i] = static_cast<char*>(output->data());
    }
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Tensor& part = tuple->parts[i];
      const size_t bytes = part.TotalBytes();
      char*& at = to[parts_[i].is_float];
      if (bytes > 0) std::memcpy(at, part.data(), bytes);
      at += bytes;
    }
  }
};

OPWRIGHT_REGISTER_CPU("ComputeDedupDataSize", SizeOp);
OPWRIGHT_REGISTER_CPU("ComputeDedupDataSizeV2", SizeOp);
OPWRIGHT_REGISTER_CPU("ComputeDedupDataTupleMask", TupleMaskOp);
OPWRIGHT_REGISTER_CPU("ComputeDedupDataTupleMaskV2", TupleMaskOp);
OPWRIGHT_REGISTER_CPU("MergeDedupData", MergeOp);
OPWRIGHT_REGISTER_CPU("SplitDedupData", SplitOp);

}  // namespace
}  // namespace opwright::embedding
