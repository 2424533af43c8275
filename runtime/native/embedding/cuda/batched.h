// The descriptors that the host passes to the kernels of a call on many features and tables.
// They reach the device in one copy. This file does not need CUDA.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "embedding/cuda/arrival.h"
#include "embedding/cuda/kernels.h"
#include "embedding/cuda/plan.h"
#include "embedding/spec.h"

namespace opwright::embedding::cuda {

// Arrays that are copied to the device together.
class Image {
 public:
  // Adds an array. Returns its offset in bytes from the beginning of the image.
  template <class X>
  int64_t Add(const std::vector<X>& values) {
    static_assert(std::is_trivially_copyable_v<X>);
    const size_t at = (bytes_.size() + 15) / 16 * 16;
    bytes_.resize(at + values.size() * sizeof(X));
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), bytes_.size() - at);
    return static_cast<int64_t>(at);
  }
  const std::vector<char>& bytes() const { return bytes_; }

 private:
  std::vector<char> bytes_;
};

// Returns where the parts of these sizes begin, each at a multiple of `unit`, and where the
// last part ends.
std::vector<int64_t> FirstsOf(const std::vector<int64_t>& sizes, int64_t unit);

// Returns what the kernels of a call read of a table. `addresses` is the device address of the
// chunks' addresses.
TableView ViewOf(const TableConfig& table, const Chunks& chunks, float* const* addresses,
                 int64_t first_key);

// The sources of a lookup, and the first thread of each.
struct LookupCall {
  std::vector<Source> sources;
  std::vector<int64_t> firsts;
  int64_t sources_at = 0, firsts_at = 0;  // Offsets in the image.
  Image image;
};
int64_t LookupImageBytes(size_t sources);
LookupCall MakeLookup(const std::vector<TableView>& tables, std::vector<Source> sources);

// A call of the kernels of arrival.h, for ids that were in device memory when they were
// enqueued.
struct ArrivalCall {
  // The first thread of each feature in the two kernels.
  std::vector<int64_t> starts, weights;
  int64_t all_at = 0, starts_at = 0, weights_at = 0, errors_at = 0;  // Offsets in the image.
  Image image;
};
// Returns an upper bound of the image's size. It is a multiple of 16.
int64_t ArrivalImageBytes(size_t arrived);
ArrivalCall MakeArrival(const std::vector<Arrived>& all);

// An update. Some kernels process all sources. Each of the others processes a group of tables
// that have the same optimizer, `accumulate` and `wide`.
struct UpdateCall {
  struct GroupPlan {
    Optimizer optimizer;
    bool accumulate, wide;
    std::vector<int64_t> tables;
    // The first thread or tile of each table in a Spread.
    std::vector<int64_t> threads, tiles, rest;
    int64_t threads_at, tiles_at, rest_at, tasks_at, counters_at;  // Offsets in the image.
    int64_t first_tile;  // The offset of the group's tiles in the workspace's `crossing`.
    int lane_bits, blocks;
  };
  CheckGradients check;
  Expand expand;
  std::vector<GroupPlan> groups;
  Image image;
};

// Returns an upper bound of the size of an UpdateCall's image.
int64_t UpdateImageBytes(size_t tables, int64_t sources);

// Returns the number of ids of all sources for each table of the configuration.
std::vector<int64_t> IdsOf(size_t tables, const std::vector<Source>& sources);

// `device_views` is the device address of `views`. `plan` must be the plan for these sources.
// The image must be copied to workspace + plan.image.
UpdateCall MakeUpdate(const std::vector<TableConfig>& tables,
                      const std::vector<TableView>& views, const TableView* device_views,
                      const std::vector<Source>& sources, const std::vector<Hyper>& hypers,
                      const Workspace& plan, char* workspace, DeviceErrors* errors);

// Returns the group as an argument of the kernels of its rule.
template <class Rule>
Group<Rule> GroupOf(const UpdateCall::GroupPlan& plan, const Workspace& workspace, char* base,
                    const DeviceErrors* errors) {
  char* const image = base + workspace.image;
  const auto spread = [&](const std::vector<int64_t>& firsts, int64_t at) {
    return Spread{reinterpret_cast<const int64_t*>(image + at),
                  static_cast<int64_t>(firsts.size()) - 1, firsts.front(), firsts.back()};
  };
  Group<Rule> group;
  group.threads = spread(plan.threads, plan.threads_at);
  group.tiles = spread(plan.tiles, plan.tiles_at);
  group.rest = spread(plan.rest, plan.rest_at);
  group.tasks = reinterpret_cast<const Task<Rule>*>(image + plan.tasks_at);
  group.sorted = {{base + workspace.keys[1], workspace.wide_keys},
                  reinterpret_cast<const uint32_t*>(base + workspace.positions[1]),
                  reinterpret_cast<const Contribution*>(base + workspace.contributions),
                  workspace.tile};
  group.crossing = reinterpret_cast<int32_t*>(base + workspace.crossing) + plan.first_tile;
  group.counters = reinterpret_cast<uint32_t*>(image + plan.counters_at);
  group.lane_bits = plan.lane_bits;
  group.errors = errors;
  return group;
}

}  // namespace opwright::embedding::cuda
