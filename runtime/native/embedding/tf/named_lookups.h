// An attr of ops that enqueue, which a pass over graphs writes: see named_lookups.cc.
#pragma once

namespace opwright::embedding {

// "train" or "inference": what a lookup with a name is for, whatever mode_override says.
constexpr char kModeOfName[] = "_opwright_mode";

}  // namespace opwright::embedding
