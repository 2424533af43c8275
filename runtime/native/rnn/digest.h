// Digests that tell contents of one length apart. For any two of them, the chance over the keys
// that they have the same digest is at most 2^-32 for each of two independent sums at each
// level of a tree, so below 2^-60 for both. Keys are drawn once a process and never leave it:
// whoever chooses contents cannot search for two that meet.
#pragma once

#include <cstdint>

namespace opwright::rnn {

struct Digest {
  uint64_t words[2];

  bool operator==(const Digest& other) const {
    return words[0] == other.words[0] && words[1] == other.words[1];
  }
};

// Blocks of words are compressed to a digest each, blocks of those digests likewise, and so on,
// each level under keys of its own.
constexpr int64_t kDigestBlock = 128;  // In words of 64 bits.
constexpr int kDigestLevels = 10;      // Enough for any memory.

struct DigestKey {
  // By sum: what each half word is added to before it is multiplied by the other half.
  alignas(64) uint64_t sums[2][kDigestBlock];
};

// The keys of this process, by level.
const DigestKey* DigestKeys();

// The digests of blocks that lie one after the other, aligned or not: for each sum, of
// (low half + key) * (high half + key) over the words, modulo 2^32 and 2^64.
using CompressBlocks = void (*)(int64_t blocks, const void* from, const DigestKey& key,
                                Digest* out);

// By a compression of the instruction set in use; all of them agree.
Digest DigestOf(CompressBlocks compress, int64_t bytes, const void* from);

}  // namespace opwright::rnn
