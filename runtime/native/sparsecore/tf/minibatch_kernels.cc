// The ops that cut the batch of a chip into minibatches, and keep what batches requested. On a
// TPU, their limits are those of a compiled program. Here they are the stored statistics.
#include <cstdint>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/text.h"
#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "sparsecore/csr.h"
#include "sparsecore/limits.h"
#include "sparsecore/minibatches.h"
#include "sparsecore/sort.h"
#include "sparsecore/tf/kernel.h"
#include "sparsecore/tf/pack_kernel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// The program key is a vector of at least one key. No key names a program here.
absl::Status CheckProgramKey(OpKernelContext* context) {
  const Tensor& key = context->input(0);
  if (key.dims() == 1 && key.dim_size(0) >= 1) return absl::OkStatus();
  return Invalid("program_key", "must be a vector of at least one key, has the shape " +
                                    key.shape().DebugString());
}

absl::Status CheckSamples(OpKernelConstruction* context, int64_t samples) {
  const int64_t cores = IntAttr(context, "num_sc_per_chip");
  TF_RETURN_IF_ERROR(context->status());
  if (samples >= 1 && samples <= kMaxInt32 && cores >= 1 && samples % cores == 0) {
    return absl::OkStatus();
  }
  return Invalid("sample_count", StrCat("must be a multiple of num_sc_per_chip, which is ",
                                        cores, ", and fit in int32, is ", samples));
}

// Reads the triples of the inputs 1 to 3.
absl::Status ReadTriples(OpKernelContext* context, TriplesView* triples) {
  const char* const names[] = {"row_ids", "col_ids", "gains"};
  for (int i = 0; i < 3; ++i) {
    TF_RETURN_IF_ERROR(CheckRank(names[i], context->input(1 + i), 1));
    TF_RETURN_IF_ERROR(
        CheckShape(names[i], context->input(1 + i), context->input(1).shape(), names[0]));
  }
  *triples = {Ints(context->input(1)), Ints(context->input(2)), Floats(context->input(3)),
              context->input(1).dim_size(0)};
  return absl::OkStatus();
}

// The attrs that describe the batch of a chip.
absl::Status ReadShape(OpKernelConstruction* context, ChipShape* shape) {
  shape->samples = IntAttr(context, "sample_count");
  shape->sparse_cores = IntAttr(context, "num_sc_per_chip");
  shape->vocabulary = IntAttr(context, "table_vocab_size");
  const int64_t replicas = IntAttr(context, "num_replica");
  TF_RETURN_IF_ERROR(CheckSamples(context, shape->samples));
  // No pod has more. This limit bounds the memory for the counts of each division.
  constexpr int64_t kMaxShards = 1 << 20;
  const Checked shards = Checked(replicas) * shape->sparse_cores;
  if (replicas < 1 || !(shards * shape->sparse_cores).AtMost(kMaxShards)) {
    return Invalid(
        "num_replica",
        StrCat("must be at least 1, and times num_sc_per_chip twice at most ", kMaxShards,
               ", is ", replicas, " times ", shape->sparse_cores, " twice"));
  }
  shape->shards = shards.value();
  if (shape->vocabulary < 1 || shape->vocabulary > kMaxInt32) {
    return Invalid("table_vocab_size", StrCat("must be at least 1 and at most ", kMaxInt32,
                                              ", is ", shape->vocabulary));
  }
  return absl::OkStatus();
}

class SplitsOp : public Kernel {
 public:
  explicit SplitsOp(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, ReadShape(context, &shape_));
    OP_REQUIRES_OK(context, context->GetAttr("table_name", &table_));
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    TF_RETURN_IF_ERROR(CheckProgramKey(context));
    TriplesView triples;
    TF_RETURN_IF_ERROR(ReadTriples(context, &triples));
    std::vector<ShardedTriples> of_cores;
    DeviceContext exec(context);
    TF_RETURN_IF_ERROR(ToAbsl(SortChip(shape_, triples, &of_cores, exec)));
    int64_t size = 0;
    for (const ShardedTriples& one : of_cores) size += one.triples.size();
    Tensor *samples, *rows, *gains, *splits, *id_counts;
    TF_RETURN_IF_ERROR(NewVector(context, 0, size, &samples));
    TF_RETURN_IF_ERROR(NewVector(context, 1, size, &rows));
    TF_RETURN_IF_ERROR(NewVector(context, 2, size, &gains));
    TF_RETURN_IF_ERROR(context->allocate_output("splits", TensorShape({}), &splits));
    TF_RETURN_IF_ERROR(NewVector(context, 4, shape_.counts(), &id_counts));
    const ChipDemand demand = WriteChip(shape_, of_cores, StatisticsOf(table_), Ints(id_counts),
                                        Ints(samples), Ints(rows), Floats(gains));
    splits->flat<int64_t>()(0) = demand.splits;
    TF_RETURN_IF_ERROR(SetScalar(context, "max_ids", demand.ids));
    return SetScalar(context, "max_uniques", demand.distinct_rows);
  }

 private:
  ChipShape shape_{};
  std::string table_;
};

class MinibatchesOp : public PackKernel {
 public:
  explicit MinibatchesOp(OpKernelConstruction* context)
      : PackKernel(context, {"sample_count"}) {
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, ReadShape(context, &chip_));
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    TF_RETURN_IF_ERROR(CheckProgramKey(context));
    TriplesView triples;
    TF_RETURN_IF_ERROR(ReadTriples(context, &triples));
    const Tensor &splits_tensor = context->input(4), &id_counts = context->input(5);
    TF_RETURN_IF_ERROR(CheckRank("splits", splits_tensor, 1));
    TF_RETURN_IF_ERROR(CheckRank("id_counts", id_counts, 1));
    if (id_counts.dim_size(0) != chip_.counts()) {
      return Invalid("id_counts", StrCat("must have ", kDivisions, " elements for each of the ",
                                         shape().shards, " shards of ", cores(),
                                         " SparseCores, and one more, which makes ",
                                         chip_.counts(), ", has ", id_counts.dim_size(0)));
    }
    const int64_t splits = JoinedSplits(splits_tensor);
    TF_RETURN_IF_ERROR(ToAbsl(CheckCsrShape(shape(), splits)));
    // All numbers that are checked are copied first, because another thread may change them.
    UninitializedVector<int32_t> samples, rows;
    TF_RETURN_IF_ERROR(
        ToAbsl(CopyWithin("row_ids", "the number of samples of a SparseCore",
                          chip_.core_samples(), triples.samples, triples.size, &samples)));
    TF_RETURN_IF_ERROR(
        ToAbsl(CopyWithin("col_ids", "the number of rows of a shard", chip_.shard_rows(),
                          triples.rows, triples.size, &rows)));
    const TriplesView checked = {samples.data(), rows.data(), triples.gains, triples.size};
    std::vector<int32_t> counts(Ints(id_counts), Ints(id_counts) + id_counts.dim_size(0));
    TF_RETURN_IF_ERROR(ToAbsl(CheckIdCounts(
        "id_counts", {checked, counts.data(), static_cast<int64_t>(counts.size())})));
    if (counts.front() != 0 || counts.back() != triples.size) {
      return Invalid("id_counts",
                     StrCat("must begin with 0 and end with the number of triples, "
                            "which is ",
                            triples.size, "; has ", counts.front(), " and ", counts.back()));
    }
    CsrBuffers buffers{};
    TF_RETURN_IF_ERROR(Pack(context, splits, SourcesOf(checked, counts), &buffers));
    if (buffers.dropped > 0) return TooSmall(buffers);
    return WriteSizes(context, buffers, "num_minibatches_per_physical_sparse_core");
  }

 private:
  // The counts of a SparseCore are those of its shards, and the first one of the next
  // SparseCore.
  std::vector<CsrSource> SourcesOf(const TriplesView& triples,
                                   const std::vector<int32_t>& counts) const {
    const int64_t of_core = shape().shards * kDivisions;
    std::vector<CsrSource> sources;
    for (int64_t core = 0; core < cores(); ++core) {
      sources.push_back({triples, counts.data() + core * of_core, of_core + 1});
    }
    return sources;
  }

  ChipShape chip_{};
};

class StatisticsOp : public Kernel {
 public:
  explicit StatisticsOp(OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, CheckSamples(context, IntAttr(context, "sample_count")));
    OP_REQUIRES_OK(context, context->GetAttr("table_name", &table_));
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    TF_RETURN_IF_ERROR(CheckProgramKey(context));
    int64_t numbers[2];
    const char* const names[] = {"max_ids", "max_uniques"};
    for (int i = 0; i < 2; ++i) {
      const Tensor& tensor = context->input(1 + i);
      TF_RETURN_IF_ERROR(CheckRank(names[i], tensor, 0));
      numbers[i] = tensor.flat<int32_t>()(0);
      if (numbers[i] < 0) {
        return Invalid(names[i], StrCat("must not be negative, is ", numbers[i]));
      }
    }
    return ToAbsl(StoreStatistics(table_, numbers[0], numbers[1]));
  }

 private:
  std::string table_;
};

OPWRIGHT_REGISTER_CPU("GetMinibatchSplitsWithPhysicalReplica", SplitsOp);
OPWRIGHT_REGISTER_CPU("GetMinibatchesInCsrWithPhysicalReplica", MinibatchesOp);
OPWRIGHT_REGISTER_CPU("StoreMinibatchStatisticsInFdo", StatisticsOp);

}  // namespace
}  // namespace opwright::sparsecore
