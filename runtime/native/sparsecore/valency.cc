#include "sparsecore/valency.h"

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "embedding/optimizers.h"

namespace opwright::sparsecore {

Status SeparatePositions(int64_t samples, int64_t max_valency, Triples* triples,
                         int32_t* valencies) {
  std::fill_n(valencies, samples, 0);
  for (const int32_t sample : triples->samples) ++valencies[sample];
  for (int64_t sample = 0; sample < samples; ++sample) {
    if (valencies[sample] <= max_valency) continue;
    return InvalidArgumentError("max_valency", StrCat("is ", max_valency, ", sample ", sample,
                                                      " has ", valencies[sample], " ids"));
  }
  std::vector<bool> taken(static_cast<size_t>(samples * max_valency));
  for (int64_t i = 0; i < triples->size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const int32_t sample = triples->samples[at], position = triples->positions[at];
    if (triples->gains[at] != 1) {
      return InvalidArgumentError(
          "sorted_gains", StrCat("must be 1, as a custom combiner does not take gains; one of "
                                 "sample ",
                                 sample, " is ", embedding::Number(triples->gains[at])));
    }
    const bool within = position >= 0 && position < valencies[sample];
    const int64_t to = sample * max_valency + (within ? position : 0);
    if (!within || taken[static_cast<size_t>(to)]) {
      return InvalidArgumentError(
          "sorted_pos_ids", StrCat("must be 0 to ", valencies[sample] - 1, " for the ",
                                   valencies[sample], " ids of sample ", sample,
                                   ", each once; one is ", position, within ? " again" : ""));
    }
    taken[static_cast<size_t>(to)] = true;
    triples->samples[at] = static_cast<int32_t>(to);
  }
  return OkStatus();
}

}  // namespace opwright::sparsecore
