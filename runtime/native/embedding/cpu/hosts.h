// Tables whose rows are shared out over several hosts, as an engine's store: each host keeps a
// shard of every table, by remainder or by division as the configuration says.
//
// A host asks the owners of the rows that its batch needs, for each row once or for what
// samples have of them (asks.h), and combines what it gets. Of gradients it sends one for each
// of those items, and the owner adds up what all hosts sent, in the order of the hosts, before
// it updates a row once. So tables are what one host with all batches would have.
#pragma once

#include <memory>

#include "embedding/exchange.h"
#include "embedding/store.h"

namespace opwright::embedding {

// `local` keeps this host's shards. Every host prepares the same batches in the same order, and
// makes the same calls with them; only to write, and to read rows that are its own, it does so
// alone.
std::unique_ptr<TableStore> MakeHostsStore(std::shared_ptr<Exchange> exchange,
                                           std::unique_ptr<TableStore> local);

}  // namespace opwright::embedding
