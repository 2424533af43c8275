// Ops that sort COO tensors by shard, or count the ids and distinct rows of each shard.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/text.h"
#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "sparsecore/sort.h"
#include "sparsecore/tf/kernel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

// The base class of kernels that process the features that one SparseCore looks up in one
// stacked table.
class StackedFeaturesKernel : public Kernel {
 public:
  explicit StackedFeaturesKernel(OpKernelConstruction* context)
      : Kernel(context), vocabulary_(IntAttr(context, "table_vocab_size")) {
    std::vector<int32_t> counts;
    OP_REQUIRES_OK(context, context->GetAttr("sample_count_list", &counts));
    OP_REQUIRES_OK(context, context->GetAttr("col_offset_list", &col_offsets_));
    const int64_t features = IntAttr(context, "N");
    for (const auto& [name, size] : {std::pair("sample_count_list", counts.size()),
                                     std::pair("col_offset_list", col_offsets_.size())}) {
      OP_REQUIRES(context, static_cast<int64_t>(size) == features,
                  Invalid(name, StrCat("must have one element for each of the ", features,
                                       " features, has ", size)));
    }
    Checked samples = 0;
    for (const int32_t count : counts) {
      OP_REQUIRES(
          context, count >= 0,
          Invalid("sample_count_list", StrCat("must not have negative elements, has ", count)));
      samples += count;
    }
    OP_REQUIRES(context, samples.AtMost(kMaxInt32),
                Invalid("sample_count_list", StrCat("must sum up to at most ", kMaxInt32,
                                                    ", makes ", samples.value())));
    samples_ = samples.value();
    OP_REQUIRES(context, samples_ > 0,
                Invalid("sample_count_list", "must sum up to at least 1, is all 0"));
    const int64_t replicas = IntAttr(context, "num_replica");
    const int64_t cores = IntAttr(context, "num_sc_per_chip");
    if (!context->status().ok()) return;
    const Checked shards = Checked(replicas) * cores;
    OP_REQUIRES(
        context, replicas >= 1 && cores >= 1 && shards.AtMost(kMaxShards),
        Invalid("num_replica", StrCat("times num_sc_per_chip must be at least 1 and at most ",
                                      kMaxShards, ", is ", replicas, " times ", cores)));
    shards_ = shards.value();
    OP_REQUIRES(
        context, (shards_ & (shards_ - 1)) == 0,
        absl::FailedPreconditionError(
            StrCat("num_replica: times num_sc_per_chip must be a power of two, is ", shards_)));
  }

 protected:
  absl::Status Merge(OpKernelContext* context, ShardedTriples* merged) const {
    OpInputList samples, rows, gains;
    TF_RETURN_IF_ERROR(context->input_list("row_ids_list", &samples));
    TF_RETURN_IF_ERROR(context->input_list("col_ids_list", &rows));
    TF_RETURN_IF_ERROR(context->input_list("gains_list", &gains));
    std::vector<TriplesView> features;
    TF_RETURN_IF_ERROR(ReadTripleLists(
        samples, rows, gains, {"row_ids_list", "col_ids_list", "gains_list"}, &features));
    DeviceContext exec(context);
    return ToAbsl(MergeFeatures(features, col_offsets_, shards_, vocabulary_, merged, exec));
  }

  int64_t samples() const { return samples_; }

 private:
  // No pod has more shards. This limit bounds the memory for the counts of each shard.
  static constexpr int64_t kMaxShards = 1 << 20;

  const int64_t vocabulary_;
  std::vector<int32_t> col_offsets_;
  int64_t samples_ = 0, shards_ = 1;
};

class SortOp : public StackedFeaturesKernel {
 public:
  explicit SortOp(OpKernelConstruction* context)
      : StackedFeaturesKernel(context),
        max_ids_(IntAttr(context, "max_ids_per_sparse_core")),
        max_distinct_(IntAttr(context, "max_unique_ids_per_sparse_core")) {
    OP_REQUIRES_OK(context, context->GetAttr("table_name", &table_));
  }

 protected:
  absl::Status Run(OpKernelContext* context) override {
    ShardedTriples merged;
    TF_RETURN_IF_ERROR(Merge(context, &merged));
    TF_RETURN_IF_ERROR(CheckLimit("max_ids_per_sparse_core", max_ids_, merged.ids));
    TF_RETURN_IF_ERROR(
        CheckLimit("max_unique_ids_per_sparse_core", max_distinct_, merged.distinct_rows));
    const int64_t size = merged.triples.size();
    Tensor *sorted_samples, *sorted_rows, *sorted_gains, *id_counts;
    TF_RETURN_IF_ERROR(NewVector(context, 0, size, &sorted_samples));
    TF_RETURN_IF_ERROR(NewVector(context, 1, size, &sorted_rows));
    TF_RETURN_IF_ERROR(NewVector(context, 2, size, &sorted_gains));
    TF_RETURN_IF_ERROR(
        NewVector(context, 3, static_cast<int64_t>(merged.ids.size()) + 1, &id_counts));
    PartitionByShard(merged, samples(), Ints(id_counts), Ints(sorted_samples),
                     Ints(sorted_rows), Floats(sorted_gains));
    return absl::OkStatus();
  }

 private:
  absl::Status CheckLimit(const char* name, int64_t limit,
                          const std::vector<int32_t>& counts) const {
    const auto most = std::max_element(counts.begin(), counts.end());
    if (*most <= limit) return absl::OkStatus();
    return Invalid(name, StrCat("is ", limit, " for the table ", table_, ", shard ",
                                most - counts.begin(), " needs ", *most));
  }

  const int64_t max_ids_, max_distinct_;
  std::string table_;
};

class StatsOp : public StackedFeaturesKernel {
 public:
  using StackedFeaturesKernel::StackedFeaturesKernel;

 protected:
  absl::Status Run(OpKernelContext* context) override {
    ShardedTriples merged;
    TF_RETURN_IF_ERROR(Merge(context, &merged));
    const auto most = [](const std::vector<int32_t>& counts) {
      return *std::max_element(counts.begin(), counts.end());
    };
    TF_RETURN_IF_ERROR(SetScalar(context, "max_ids_per_sparse_core", most(merged.ids)));
    return SetScalar(context, "max_unique_ids_per_sparse_core", most(merged.distinct_rows));
  }
};

OPWRIGHT_REGISTER_CPU("SortListOfSparseCoreCooTensors", SortOp);
OPWRIGHT_REGISTER_CPU("GetStatsFromListOfSparseCoreCooTensors", StatsOp);

}  // namespace
}  // namespace opwright::sparsecore
