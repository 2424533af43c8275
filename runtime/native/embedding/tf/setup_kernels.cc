// The ops that set up and shut down embeddings. ConfigureTPUEmbedding sets them up in one op.
// TensorFlow can replace it by a chain of ops. The ops of the chain pass blobs, which identify
// the configuration.
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/system_number.h"
#include "embedding/tf/system.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/lib/random/random.h"
#include "tensorflow/core/platform/fingerprint.h"
#include "tensorflow/core/protobuf/tpu/topology.pb.h"

namespace opwright::embedding {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

template <class T>
absl::Status WriteScalar(OpKernelContext* context, int i, T value) {
  Tensor* output;
  TF_RETURN_IF_ERROR(context->allocate_output(i, TensorShape({}), &output));
  output->scalar<T>()() = std::move(value);
  return absl::OkStatus();
}
absl::Status WriteString(OpKernelContext* context, int i, const std::string& value) {
  return WriteScalar<tstring>(context, i, value);
}

class ConfigureOp : public ConfiguredOp<OpKernel> {
 public:
  using ConfiguredOp::ConfiguredOp;

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, System::Get().Configure(context, config_));
  }
};

class IsInitializedOp : public ConfiguredOp<OpKernel> {
 public:
  using ConfiguredOp::ConfiguredOp;

  void Compute(OpKernelContext* context) override {
    OP_REQUIRES_OK(context, WriteScalar(context, 0, System::Get().Configured(config_)));
  }
};

// Reports a TPU system that consists of this process and has one TensorCore.
class ConfigureSystemOp : public OpKernel {
 public:
  explicit ConfigureSystemOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("tpu_embedding_config", &config_));
  }

  void Compute(OpKernelContext* context) override {
    auto& system = System::Get();
    if (config_.empty()) {
      system.ShutDown();
    } else {
      OP_REQUIRES_OK(context,
                     system.Configure(context, config_, System::IfConfigured::kReplace));
    }
    BeginSystem();
    tensorflow::tpu::TopologyProto topology;
    for (int i = 0; i < 4; ++i) {
      topology.add_mesh_shape(1);  // x, y, z, TensorCore.
      topology.add_device_coordinates(0);
    }
    topology.set_num_tasks(1);
    topology.set_num_tpu_devices_per_task(1);
    OP_REQUIRES_OK(context, WriteString(context, 0, topology.SerializeAsString()));
  }

 private:
  std::string config_;
};

class ShutDownOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    System::Get().ShutDown();
    BeginSystem();
    if (context->num_outputs() == 1) OP_REQUIRES_OK(context, WriteScalar(context, 0, true));
  }
};

// The value that one op of the chain passes to the next. A blob identifies its own kind, the
// process and the configuration. Blobs of some kinds have a payload.
struct Blob {
  std::string kind;
  uint64_t process = 0;
  uint64_t configuration = 0;
  int64_t hosts = 0;
  std::string payload;

  std::string Serialize() const {
    return absl::StrCat("opwright ", kind, " ", absl::Hex(process), " ",
                        absl::Hex(configuration), " ", hosts, "\n", payload);
  }
};

uint64_t ThisProcess() {
  static const uint64_t id = tensorflow::random::New64();
  return id;
}

absl::Status ReadBlob(const char* argument, const char* kind, const tstring& bytes,
                      Blob* blob) {
  const absl::string_view all = bytes;
  constexpr size_t kLongestHeader = 256;
  const size_t end = all.substr(0, kLongestHeader).find('\n');
  const std::vector<absl::string_view> words =
      absl::StrSplit(all.substr(0, end == absl::string_view::npos ? 0 : end), ' ');
  if (end == absl::string_view::npos || words.size() != 5 || words[0] != "opwright" ||
      !absl::SimpleHexAtoi(words[2], &blob->process) ||
      !absl::SimpleHexAtoi(words[3], &blob->configuration) ||
      !absl::SimpleAtoi(words[4], &blob->hosts)) {
    return Invalid(argument,
                   absl::StrCat("is no ", kind, " blob of this TensorFlow's embedding ops"));
  }
  if (words[1] != kind) {
    return Invalid(argument,
                   absl::StrCat("must be a ", kind, " blob, is a ", words[1], " blob"));
  }
  blob->kind = kind;
  blob->payload = std::string(all.substr(end + 1));
  if (blob->process != ThisProcess()) {
    return absl::UnimplementedError(
        absl::StrCat(argument,
                     " comes from another process; all hosts of an embedding system "
                     "on CPUs are one process"));
  }
  return absl::OkStatus();
}

absl::Status SameConfiguration(const char* argument, const Blob& a, const Blob& b) {
  if (a.configuration == b.configuration) return absl::OkStatus();
  return Invalid(argument, "belongs to another configuration than the blob before it");
}

// Creates the common blob of a serialized configuration. Its payload is the canonical
// serialization.
absl::Status MakeCommon(absl::string_view config, Blob* blob) {
  Configuration configuration;
  std::string canonical;
  TF_RETURN_IF_ERROR(ReadConfiguration(config, &configuration, &canonical));
  *blob = {"common", ThisProcess(), tensorflow::Fingerprint64(canonical), configuration.hosts,
           canonical};
  return absl::OkStatus();
}

class PartitionerOp : public ConfiguredOp<OpKernel> {
 public:
  using ConfiguredOp::ConfiguredOp;

  void Compute(OpKernelContext* context) override {
    Blob common;
    OP_REQUIRES_OK(context, MakeCommon(config_, &common));
    OP_REQUIRES_OK(context, WriteString(context, 0, common.Serialize()));
  }
};

absl::Status ReadInput(OpKernelContext* context, const char* name, const char* kind,
                       Blob* blob) {
  const Tensor* tensor;
  TF_RETURN_IF_ERROR(context->input(name, &tensor));
  if (tensor->NumElements() != 1) {
    return Invalid(name, "must be a scalar, has the shape " + tensor->shape().DebugString());
  }
  return ReadBlob(name, kind, tensor->flat<tstring>()(0), blob);
}

// Reads all blobs of a list. There must be one for each host, and all must have the same
// configuration.
absl::Status ReadInputs(OpKernelContext* context, const char* name, const char* kind,
                        Blob* first) {
  OpInputList list;
  TF_RETURN_IF_ERROR(context->input_list(name, &list));
  for (int i = 0; i < list.size(); ++i) {
    const std::string argument = absl::StrCat(name, "[", i, "]");
    if (list[i].NumElements() != 1) {
      return Invalid(argument,
                     "must be a scalar, has the shape " + list[i].shape().DebugString());
    }
    Blob blob;
    TF_RETURN_IF_ERROR(ReadBlob(argument.c_str(), kind, list[i].flat<tstring>()(0), &blob));
    if (i == 0) *first = blob;
    TF_RETURN_IF_ERROR(SameConfiguration(argument.c_str(), blob, *first));
  }
  if (first->hosts != list.size()) {
    return Invalid(name, absl::StrCat("must have one blob for each of the ", first->hosts,
                                      " hosts, has ", list.size()));
  }
  return absl::OkStatus();
}

class MemoryOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    Blob blob;
    OP_REQUIRES_OK(context, ReadInput(context, "common_config", "common", &blob));
    blob.kind = "memory";
    blob.payload.clear();
    OP_REQUIRES_OK(context, WriteString(context, 0, blob.Serialize()));
  }
};

class CollateOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    Blob blob;
    OP_REQUIRES_OK(context, ReadInputs(context, "memory_configs", "memory", &blob));
    blob.kind = "merged";
    OP_REQUIRES_OK(context, WriteString(context, 0, blob.Serialize()));
  }
};

class HostOp : public ConfiguredOp<OpKernel> {
 public:
  using ConfiguredOp::ConfiguredOp;

  void Compute(OpKernelContext* context) override {
    Blob common, memory, given;
    OP_REQUIRES_OK(context, ReadInput(context, "common_config", "common", &common));
    OP_REQUIRES_OK(context, ReadInput(context, "memory_config", "merged", &memory));
    OP_REQUIRES_OK(context, SameConfiguration("memory_config", memory, common));
    OP_REQUIRES_OK(context, MakeCommon(config_, &given));
    OP_REQUIRES_OK(context, SameConfiguration("config", given, common));
    memory.kind = "network";
    OP_REQUIRES_OK(context, WriteString(context, 0, memory.Serialize()));
  }
};

class ConnectOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    Blob blob;
    OP_REQUIRES_OK(context, ReadInputs(context, "network_configs", "network", &blob));
  }
};

// The last op of the chain. It creates the tables.
class FinalizeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    Blob common, memory;
    OP_REQUIRES_OK(context, ReadInput(context, "common_config", "common", &common));
    OP_REQUIRES_OK(context, ReadInput(context, "memory_config", "merged", &memory));
    OP_REQUIRES_OK(context, SameConfiguration("memory_config", memory, common));
    OP_REQUIRES_OK(context, System::Get().Configure(context, common.payload));
    if (context->num_outputs() == 2) {
      memory.kind = "partitions";
      OP_REQUIRES_OK(context, WriteString(context, 0, memory.Serialize()));
      memory.kind = "buffers";
      OP_REQUIRES_OK(context, WriteString(context, 1, memory.Serialize()));
    }
  }
};

// The tables are on the device of the op that creates them. All inputs and outputs are in host
// memory.
#define COMMON .HostMemory("common_config")
#define COMMON_AND_MEMORY COMMON.HostMemory("memory_config")

OPWRIGHT_REGISTER("ConfigureTPUEmbedding", , ConfigureOp);
OPWRIGHT_REGISTER("IsTPUEmbeddingInitialized", .HostMemory("is_tpu_embedding_initialized"),
                  IsInitializedOp);
OPWRIGHT_REGISTER("ConfigureDistributedTPU", .HostMemory("topology"), ConfigureSystemOp);
OPWRIGHT_REGISTER("ShutdownDistributedTPU", , ShutDownOp);
OPWRIGHT_REGISTER("ShutdownTPUSystem", .HostMemory("success"), ShutDownOp);
OPWRIGHT_REGISTER("ExecuteTPUEmbeddingPartitioner", COMMON, PartitionerOp);
OPWRIGHT_REGISTER("ConfigureTPUEmbeddingMemory", COMMON_AND_MEMORY, MemoryOp);
OPWRIGHT_REGISTER("CollateTPUEmbeddingMemory",
                  .HostMemory("memory_configs").HostMemory("merged_memory_config"), CollateOp);
OPWRIGHT_REGISTER("ConfigureTPUEmbeddingHost", COMMON_AND_MEMORY.HostMemory("network_config"),
                  HostOp);
OPWRIGHT_REGISTER("ConnectTPUEmbeddingHosts", .HostMemory("network_configs"), ConnectOp);
OPWRIGHT_REGISTER("FinalizeTPUEmbedding", COMMON_AND_MEMORY, FinalizeOp);
OPWRIGHT_REGISTER(
    "FinalizeTPUEmbeddingV2",
    COMMON_AND_MEMORY.HostMemory("embedding_partitions").HostMemory("hbm_buffers_config"),
    FinalizeOp);

}  // namespace
}  // namespace opwright::embedding
