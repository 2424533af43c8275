// The store of an engine whose tables are sharded over several hosts. Each host keeps a shard
// of every table. The configuration chooses between sharding by remainder and by division.
//
// A host requests units (request_plan.h) from the hosts that own their rows, and combines the
// replies. For each unit it sends one gradient. The owner sums the gradients of all hosts, in
// the order of the hosts, and then updates each row once. The tables therefore get the same
// values as those of a single host that has the batches of all hosts.
#pragma once

#include <memory>

#include "embedding/distributed_store.h"
#include "embedding/exchange.h"

namespace opwright::embedding {

// Makes the store of one host. `local` keeps the shards of this host. All hosts must prepare
// the same batches in the same order, and make the same calls with them. Only Write, and Read
// of exactly this host's shard, do not need the other hosts.
std::unique_ptr<DistributedStore> MakeHostsStore(std::shared_ptr<Exchange> exchange,
                                                 std::unique_ptr<TableStore> local);

}  // namespace opwright::embedding
