// What the host tells the kernels of a call that is for many features and tables: how their
// descriptors are laid out and come to the device in one copy. Nothing here needs CUDA.
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
  // Where an array comes to lie, from the image's begin on.
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

// Where parts begin that are so large, each at a multiple of `unit`, and where the last ends.
std::vector<int64_t> FirstsOf(const std::vector<int64_t>& sizes, int64_t unit);

// What a call's kernels see of tables; chunks are the device's addresses.
TableView ViewOf(const TableConfig& table, const Chunks& chunks, float* const* addresses,
                 int64_t first_key);

// The sources of lookups, and where the threads of each begin.
struct LookupCall {
  std::vector<Source> sources;
  std::vector<int64_t> firsts;
  int64_t sources_at = 0, firsts_at = 0;  // In the image.
  Image image;
};
int64_t LookupImageBytes(size_t sources);
LookupCall MakeLookup(const std::vector<TableView>& tables, std::vector<Source> sources);

// What is still to be made of ids that lie on the device as they came.
struct ArrivalCall {
  std::vector<int64_t> starts, weights;  // Where the threads of each begin.
  int64_t all_at = 0, starts_at = 0, weights_at = 0, errors_at = 0;  // In the image.
  Image image;
};
// Not less than the bytes of its image: a multiple of 16.
int64_t ArrivalImageBytes(size_t arrived);
ArrivalCall MakeArrival(const std::vector<Arrived>& all);

// An update: kernels for all sources, and groups of tables with the same rule.
struct UpdateCall {
  struct GroupPlan {
    Optimizer optimizer;
    bool accumulate, wide;
    std::vector<int64_t> tables;
    std::vector<int64_t> threads, tiles, rest;  // Where the parts of each begin.
    int64_t threads_at, tiles_at, rest_at, tasks_at, counters_at;  // In the image.
    int64_t first_tile;  // Of its place in the workspace's `crossing`.
    int lane_bits, blocks;
  };
  CheckGradients check;
  Expand expand;
  std::vector<GroupPlan> groups;
  Image image;
};

// Not less than the bytes of an UpdateCall's image.
int64_t UpdateImageBytes(size_t tables, int64_t sources);

// By table of the configuration, the ids of all sources.
std::vector<int64_t> IdsOf(size_t tables, const std::vector<Source>& sources);

// `views` are at `device_views` on the device, `workspace` is planned for these sources. The
// image goes to workspace + plan.image.
UpdateCall MakeUpdate(const std::vector<TableConfig>& tables,
                      const std::vector<TableView>& views, const TableView* device_views,
                      const std::vector<Source>& sources, const std::vector<Hyper>& hypers,
                      const Workspace& plan, char* workspace, DeviceErrors* errors);

// A group as the kernels of its rule take it.
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
