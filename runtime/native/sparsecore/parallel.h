// Loops over triples and groups of rows on several threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/execution_context.h"

namespace opwright::sparsecore {

// Returns into how many parts threads divide triples. Each thread gets one part.
inline int64_t PartsOf(int64_t triples, const ExecutionContext& exec) {
  constexpr int64_t kLeast = 8 << 10;  // A part has at least about this many triples.
  return std::clamp<int64_t>(triples / kLeast, 1, exec.Threads());
}

// Calls task(first, last) in parallel for ranges of groups. Group i has the rows begins[i] to
// begins[i + 1] - 1. All ranges have about as many rows. A row has `width` elements.
template <class Begins, class Task>
void ParallelForGroups(const Begins& begins, int64_t width, ExecutionContext& exec,
                       const Task& task) {
  constexpr int64_t kElements = 16 << 10;  // A task has at least about this many elements.
  const int64_t groups = static_cast<int64_t>(begins.size()) - 1;
  // Each group counts as one row more, because an empty group has a cost too.
  const int64_t all = begins.back() + groups;
  const int64_t tasks = std::min({groups, int64_t{8} * exec.Threads(),
                                  1 + all / (1 + kElements / std::max<int64_t>(1, width))});
  if (tasks <= 0) return;
  const auto first = [&](int64_t task_number) {
    int64_t low = 0, high = groups;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (begins[middle] + middle < task_number * all / tasks) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  };
  exec.For(tasks, [&](int64_t i) { task(first(i), i + 1 == tasks ? groups : first(i + 1)); });
}

}  // namespace opwright::sparsecore
