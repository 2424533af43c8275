// Samples for custom combiners. Such a combiner is a function of the rows of a sample, in the
// order in which the ids stand in the sample. The valency of a sample is its number of ids.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "sparsecore/triples.h"

namespace opwright::sparsecore {

// Replaces each triple's sample by sample * max_valency + position. A lookup of these triples
// puts each row at its position, and an update takes the gradient from there. Sets the valency
// of each sample. `samples` * `max_valency` must fit in int32. Refuses triples whose positions
// are not 0, 1, ... in each sample, and gains other than 1.
Status SeparatePositions(int64_t samples, int64_t max_valency, Triples* triples,
                         int32_t* valencies);

}  // namespace opwright::sparsecore
