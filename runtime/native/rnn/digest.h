// Digests that distinguish byte sequences of equal length.
//
// Two different byte sequences have the same digest with a probability below 2^-60 over the
// random keys. Each digest has two independent sums. At each level of the digest's tree, two
// different inputs give the same sum with a probability of at most 2^-32. Each process draws
// its keys once and keeps them private, so an attacker cannot search for two inputs with the
// same digest.
#pragma once

#include <cstdint>

#include "rnn/kernels/digest.h"

namespace opwright::rnn {

// A digest is a tree. Each block of words is compressed to one digest. Blocks of those digests
// are compressed in the same way, and so on up to one digest. Each level has its own keys.
constexpr int kDigestLevels = 10;  // 10 levels suffice for any memory size.

// Returns the keys of this process, one for each level.
const DigestKey* DigestKeys();

// `compress` is the function of the current instruction set. The functions of all instruction
// sets give the same digest.
Digest DigestOf(CompressBlocks compress, int64_t bytes, const void* from);

}  // namespace opwright::rnn
