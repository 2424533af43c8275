// Digests that tell contents of equal length apart.
//
// Two different contents have the same digest with a probability below 2^-60, over the random
// keys. Each digest has two independent sums. At each level of its tree two contents meet in
// one sum with a probability of at most 2^-32. Each process draws its keys once and keeps them
// private, so an attacker who chooses contents cannot search for two with the same digest.
#pragma once

#include <cstdint>

#include "rnn/kernels/digest.h"

namespace opwright::rnn {

// Blocks of words are compressed to a digest each, then blocks of those digests, and so on.
// Each level has its own keys.
constexpr int kDigestLevels = 10;  // Enough for any memory.

// The keys of this process, by level.
const DigestKey* DigestKeys();

// Uses a compression of the current instruction set. All of them give the same digest.
Digest DigestOf(CompressBlocks compress, int64_t bytes, const void* from);

}  // namespace opwright::rnn
