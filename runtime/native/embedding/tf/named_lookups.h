// Attrs of enqueuing ops that graph passes write.
#pragma once

namespace opwright::embedding {

// The value "train" or "inference": the purpose of a named lookup. It takes precedence over the
// input mode_override. named_lookups.cc writes it.
constexpr char kModeOfName[] = "_opwright_mode";
// For each feature, whether its ids may have any shape. narrow_ids.cc writes it.
constexpr char kIdsOfAnyShape[] = "_opwright_any_shape";

}  // namespace opwright::embedding
