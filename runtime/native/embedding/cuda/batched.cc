#include "embedding/cuda/batched.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace opwright::embedding::cuda {
namespace {

// Upper bounds of the bytes that an image contains: for a task of any rule, for a table, and
// for a source.
constexpr int64_t kMostTaskBytes = 512;
constexpr int64_t kMostTableBytes = kMostTaskBytes + 256;
constexpr int64_t kMostSourceBytes = sizeof(UpdateSource) + 64;

Spread SpreadAt(const std::vector<int64_t>& firsts, const char* at) {
  return {reinterpret_cast<const int64_t*>(at), static_cast<int64_t>(firsts.size()) - 1,
          firsts.front(), firsts.back()};
}

}  // namespace

std::vector<int64_t> FirstsOf(const std::vector<int64_t>& sizes, int64_t unit) {
  std::vector<int64_t> firsts{0};
  for (const int64_t size : sizes) {
    firsts.push_back(firsts.back() + (size + unit - 1) / unit * unit);
  }
  return firsts;
}

TableView ViewOf(const TableConfig& table, const Chunks& chunks, float* const* addresses,
                 int64_t first_key) {
  TableView view;
  view.rows.chunks = addresses;
  view.rows.rows = chunks.rows;
  view.rows.stride = chunks.stride;
  view.rows.shift = chunks.shift;
  view.shape = PlanShape(table.dimension);
  view.first_key = first_key;
  const Quantization& q = table.quantization;
  view.quantized = q.enabled;
  if (q.enabled) view.lower = q.lower, view.upper = q.upper, view.size = q.step();
  return view;
}

int64_t LookupImageBytes(size_t sources) {
  const size_t firsts = (sources + 1) * sizeof(int64_t);
  return static_cast<int64_t>((firsts + 15) / 16 * 16 + sources * sizeof(Source));
}

LookupCall MakeLookup(const std::vector<TableView>& tables, std::vector<Source> sources) {
  LookupCall call;
  std::vector<int64_t> threads;
  for (const Source& source : sources) {
    threads.push_back(
        ThreadsOf(tables[static_cast<size_t>(source.table)].shape, source.samples));
  }
  call.firsts = FirstsOf(threads, kWarp);
  call.firsts_at = call.image.Add(call.firsts);
  call.sources_at = call.image.Add(sources);
  call.sources = std::move(sources);
  return call;
}

int64_t ArrivalImageBytes(size_t arrived) {
  if (arrived == 0) return 0;
  const size_t firsts = 2 * (arrived + 1) * sizeof(int64_t);
  const size_t bytes = arrived * sizeof(Arrived) + firsts + sizeof(DeviceErrors);
  return static_cast<int64_t>((bytes + 4 * 16) / 16 * 16);
}

ArrivalCall MakeArrival(const std::vector<Arrived>& all) {
  ArrivalCall call;
  if (all.empty()) return call;
  std::vector<int64_t> starts, weights;
  for (const Arrived& one : all) {
    starts.push_back(one.ToStart());
    weights.push_back(one.ToWeigh());
  }
  call.starts = FirstsOf(starts, kWarp);
  call.weights = FirstsOf(weights, kWarp);
  call.all_at = call.image.Add(all);
  call.starts_at = call.image.Add(call.starts);
  call.weights_at = call.image.Add(call.weights);
  DeviceErrors none;
  std::fill_n(none.first, kErrorKinds, DeviceErrors::kNone);
  call.errors_at = call.image.Add(std::vector<DeviceErrors>{none});
  return call;
}

int64_t UpdateImageBytes(size_t tables, int64_t sources) {
  return static_cast<int64_t>(tables) * kMostTableBytes + sources * kMostSourceBytes + 256;
}

std::vector<int64_t> IdsOf(size_t tables, const std::vector<Source>& sources) {
  std::vector<int64_t> ids(tables);
  for (const Source& source : sources) ids[static_cast<size_t>(source.table)] += source.count;
  return ids;
}

namespace {

// Returns where an update marks the rows that have ids. Returns null if its optimizer does not
// update the other rows.
uint32_t* TouchedBits(const TableConfig& table, const Workspace::Part& plan, char* workspace) {
  return table.every_row ? reinterpret_cast<uint32_t*>(workspace + plan.touched) : nullptr;
}

Part MakePart(const TableView& view, const Workspace::Part& plan, char* workspace,
              uint32_t* touched) {
  Part part;
  part.rows = view.rows;
  part.shape = view.shape;
  part.first_key = view.first_key;
  part.begin = plan.first_id;
  part.end = plan.first_id + plan.ids;
  part.tiles = plan.tiles;
  part.partials = reinterpret_cast<double*>(workspace + plan.partials);
  part.touched = touched;
  return part;
}

// Adds the tables of `group` to the image. They have the same rule.
void AddGroup(const std::vector<TableConfig>& tables, const std::vector<TableView>& views,
              const std::vector<Hyper>& hypers, const Workspace& plan, char* workspace,
              UpdateCall::GroupPlan* group, Image* image) {
  group->lane_bits = 0;
  group->blocks = 1;
  std::vector<int64_t> threads, tiles, rest;
  std::vector<Part> parts;
  for (const int64_t number : group->tables) {
    const size_t t = static_cast<size_t>(number);
    const Shape& shape = views[t].shape;
    const Part part = MakePart(views[t], plan.tables[t], workspace,
                               TouchedBits(tables[t], plan.tables[t], workspace));
    parts.push_back(part);
    group->lane_bits = std::max(group->lane_bits, shape.lane_bits);
    group->blocks = std::max(group->blocks, shape.blocks);
    threads.push_back(ThreadsOf(shape, part.tiles));
    tiles.push_back(part.tiles);
    rest.push_back(tables[t].every_row ? ThreadsOf(shape, views[t].rows.rows) : 0);
  }
  group->threads = FirstsOf(threads, kWarp);
  group->tiles = FirstsOf(tiles, 1);
  group->rest = FirstsOf(rest, kWarp);
  group->threads_at = image->Add(group->threads);
  group->tiles_at = image->Add(group->tiles);
  group->rest_at = image->Add(group->rest);
  group->counters_at = image->Add(std::vector<uint32_t>(2));
  VisitElementRule(group->optimizer, [&](auto tag) {
    using Rule = typename decltype(tag)::type;
    static_assert(sizeof(Task<Rule>) <= kMostTaskBytes);
    std::vector<Task<Rule>> tasks;
    for (size_t i = 0; i < parts.size(); ++i) {
      const size_t t = static_cast<size_t>(group->tables[i]);
      tasks.push_back({parts[i], Step<Rule>(hypers[t])});
    }
    group->tasks_at = image->Add(tasks);
  });
}

}  // namespace

UpdateCall MakeUpdate(const std::vector<TableConfig>& tables,
                      const std::vector<TableView>& views, const TableView* device_views,
                      const std::vector<Source>& sources, const std::vector<Hyper>& hypers,
                      const Workspace& plan, char* workspace, DeviceErrors* errors) {
  UpdateCall call;
  char* const image = workspace + plan.image;

  // Descriptors of the sources.
  std::vector<UpdateSource> all;
  std::vector<int64_t> to_check, to_expand;
  std::vector<char> wide(tables.size());
  for (size_t t = 0; t < tables.size(); ++t) wide[t] = tables[t].dimension % kFloats == 0;
  int64_t position = 0;
  for (const Source& source : sources) {
    const size_t t = static_cast<size_t>(source.table);
    const int lane_bits = SampleLaneBits(source.samples, source.count);
    all.push_back(
        {source, position, TouchedBits(tables[t], plan.tables[t], workspace), lane_bits});
    position += source.count;
    wide[t] = wide[t] && Aligned(source.gradients);
    to_check.push_back((source.samples * tables[t].dimension + kFloats - 1) / kFloats);
    to_expand.push_back(source.samples << lane_bits);
  }
  const auto sources_at = reinterpret_cast<const UpdateSource*>(image + call.image.Add(all));
  const auto spread_over = [&](const std::vector<int64_t>& sizes) {
    const std::vector<int64_t> firsts = FirstsOf(sizes, kWarp);
    return SpreadAt(firsts, image + call.image.Add(firsts));
  };
  call.check = {spread_over(to_check), device_views, sources_at, errors};
  call.expand = {spread_over(to_expand),
                 device_views,
                 sources_at,
                 {workspace + plan.keys[0], plan.wide_keys},
                 reinterpret_cast<uint32_t*>(workspace + plan.positions[0]),
                 reinterpret_cast<Contribution*>(workspace + plan.contributions),
                 errors};

  // Descriptors of the tables, in groups with the same rule.
  std::map<std::tuple<Optimizer, bool, bool>, std::vector<int64_t>> groups;
  for (size_t t = 0; t < tables.size(); ++t) {
    if (plan.tables[t].tiles == 0 && !tables[t].every_row) continue;
    groups[{tables[t].optimizer, tables[t].accumulate, wide[t]}].push_back(
        static_cast<int64_t>(t));
  }
  int64_t first_tile = 0;
  for (auto& [key, of_group] : groups) {
    UpdateCall::GroupPlan group;
    std::tie(group.optimizer, group.accumulate, group.wide) = key;
    group.first_tile = first_tile;
    group.tables = std::move(of_group);
    AddGroup(tables, views, hypers, plan, workspace, &group, &call.image);
    for (const int64_t t : group.tables)
      first_tile += plan.tables[static_cast<size_t>(t)].tiles;
    call.groups.push_back(std::move(group));
  }
  return call;
}

}  // namespace opwright::embedding::cuda
