// Attrs of ops that enqueue, which passes over graphs write.
#pragma once

namespace opwright::embedding {

// "train" or "inference": what a lookup with a name is for, whatever mode_override says. See
// named_lookups.cc.
constexpr char kModeOfName[] = "_opwright_mode";
// By feature, whether ids may have any shape: see narrow_ids.cc.
constexpr char kIdsOfAnyShape[] = "_opwright_any_shape";

}  // namespace opwright::embedding
