// Tables with rows sharded over several hosts, as an engine's store. Each host keeps a shard of
// every table, by remainder or by division as the configuration says.
//
// A host requests units of rows from their owners (request_plan.h) and combines the replies.
// For each unit it sends one gradient. The owner sums the gradients of all hosts, in the order
// of the hosts, and then updates each row once. Tables are therefore those that one host with
// all batches would have.
#pragma once

#include <memory>

#include "embedding/distributed_store.h"
#include "embedding/exchange.h"

namespace opwright::embedding {

// `local` keeps this host's shards. Every host prepares the same batches in the same order, and
// makes the same calls with them; only to write, and to read rows that are its own, it does so
// alone.
std::unique_ptr<DistributedStore> MakeHostsStore(std::shared_ptr<Exchange> exchange,
                                                 std::unique_ptr<TableStore> local);

}  // namespace opwright::embedding
