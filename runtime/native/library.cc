// The functions that native.py calls through ctypes.
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/isa.h"
#include "base/tf/dlpack.h"
#include "base/tf/workers.h"
#include "embedding/optimizers.h"
#include "embedding/tf/packed_lookup.h"
#include "embedding/tf/runs.h"
#include "embedding/tf/system.h"
#include "rnn/weight_cache.h"
#include "sparsecore/limits.h"
#include "sparsecore/tf/known_values.h"

#define OPWRIGHT_EXPORT extern "C" __attribute__((visibility("default")))

OPWRIGHT_EXPORT const char* opwright_isa() { return opwright::NameOf(opwright::CurrentIsa()); }
OPWRIGHT_EXPORT bool opwright_use_isa(const char* name) { return opwright::UseIsa(name); }
OPWRIGHT_EXPORT void opwright_use_own_threads(int threads) {
  opwright::UseDedicatedPool(threads);
}
OPWRIGHT_EXPORT const char* opwright_embedding_optimizers() {
  return opwright::embedding::RegistryAsJson().c_str();
}

OPWRIGHT_EXPORT void opwright_embedding_begin_step() { opwright::embedding::BeginStep(); }
OPWRIGHT_EXPORT void opwright_embedding_end_step(bool failed) {
  opwright::embedding::EndStep(failed);
}
OPWRIGHT_EXPORT int64_t opwright_embedding_step_of_thread() {
  return opwright::embedding::StepOfThread();
}
OPWRIGHT_EXPORT void opwright_embedding_join_step(int64_t step) {
  opwright::embedding::JoinStep(step);
}
OPWRIGHT_EXPORT void opwright_embedding_leave_step() { opwright::embedding::LeaveStep(); }
OPWRIGHT_EXPORT int64_t opwright_embedding_step_count() {
  return opwright::embedding::System::Get().Steps();
}
OPWRIGHT_EXPORT int64_t opwright_embedding_queued_batches(int64_t core) {
  return opwright::embedding::System::Get().QueuedBatches(core);
}
// Returns the serialized configuration in use, and its number of bytes in `size`. The bytes are
// valid until the calling thread calls this function again.
OPWRIGHT_EXPORT const char* opwright_embedding_configuration(int64_t* size) {
  thread_local std::string bytes;
  bytes = opwright::embedding::System::Get().Config();
  *size = static_cast<int64_t>(bytes.size());
  return bytes.data();
}
// Looks up embeddings without an op. Returns null if this path cannot do the lookup. The caller
// then calls the op, which reports the reason.
OPWRIGHT_EXPORT DLManagedTensor* opwright_embedding_lookup(const DLManagedTensor* ids,
                                                           const DLManagedTensor* row_splits,
                                                           const DLManagedTensor* weights,
                                                           const char* combiners) {
  try {
    return opwright::embedding::LookUpAtOnce(
        ids->dl_tensor, row_splits ? &row_splits->dl_tensor : nullptr,
        weights ? &weights->dl_tensor : nullptr, combiners);
  } catch (...) {
    return nullptr;
  }
}
OPWRIGHT_EXPORT void opwright_release(DLManagedTensor* lent) { lent->deleter(lent); }
OPWRIGHT_EXPORT int64_t opwright_embedding_abandon(bool tell) {
  return opwright::embedding::System::Get().Abandon(tell);
}

// Sets the hosts that share the tables that are created from now on. `tasks` has one task a
// line. `own` is the index of this process. Without tasks, this process has all rows.
OPWRIGHT_EXPORT void opwright_embedding_set_hosts(const char* tasks, int64_t own,
                                                  double timeout) {
  opwright::embedding::HostTasks hosts;
  std::istringstream lines(tasks);
  for (std::string task; std::getline(lines, task);) hosts.tasks.push_back(task);
  hosts.own = own;
  hosts.timeout = timeout;
  opwright::embedding::System::Get().SetHosts(std::move(hosts));
}
// Writes `count` numbers: the bytes by channel that this host has sent for its tables, then the
// number of messages.
OPWRIGHT_EXPORT void opwright_embedding_sent(int64_t* to, int64_t count) {
  const std::vector<int64_t> sent = opwright::embedding::System::Get().Sent();
  for (int64_t i = 0; i < count; ++i) {
    to[i] = i < static_cast<int64_t>(sent.size()) ? sent[static_cast<size_t>(i)] : 0;
  }
}

// Writes what lookups in a stack of tables dropped: ids, batches, and the number of ids a
// sample with which they had fitted.
OPWRIGHT_EXPORT void opwright_sparse_core_dropped_ids(const char* stack, int64_t* dropped) {
  const opwright::sparsecore::DroppedIds now = opwright::sparsecore::DroppedIdsOf(stack);
  dropped[0] = now.ids;
  dropped[1] = now.batches;
  dropped[2] = now.per_sample;
}
OPWRIGHT_EXPORT void opwright_sparse_core_forget_dropped_ids() {
  opwright::sparsecore::ForgetDroppedIds();
}

OPWRIGHT_EXPORT void opwright_sparse_core_forget_values() {
  opwright::sparsecore::ForgetKnown();
}

OPWRIGHT_EXPORT void opwright_set_weight_cache_limit(int64_t bytes) {
  opwright::rnn::WeightCache::SetLimit(bytes);
}
// Writes the number of entries of the weight cache, their bytes, and the limit.
OPWRIGHT_EXPORT void opwright_weight_cache_usage(int64_t* usage) {
  const opwright::rnn::WeightCache::Usage now = opwright::rnn::WeightCache::InUse();
  usage[0] = now.entries;
  usage[1] = now.bytes;
  usage[2] = now.limit;
}
