// The types of one compression step of a digest (see rnn/digest.h).
#pragma once

#include <cstdint>

namespace opwright::rnn {

struct Digest {
  uint64_t words[2];

  bool operator==(const Digest& other) const {
    return words[0] == other.words[0] && words[1] == other.words[1];
  }
};

constexpr int64_t kDigestBlock = 128;  // The number of 64-bit words in a block.

struct DigestKey {
  // For each of the two sums, each word has two 32-bit addends, one for each half of the word.
  alignas(64) uint64_t sums[2][kDigestBlock];
};

// Compresses each block of contiguous words to one digest. The words need not be aligned. Each
// of the two sums adds (low half + key) * (high half + key) over the words of a block. The
// factors are computed modulo 2^32 and the sum modulo 2^64.
using CompressBlocks = void (*)(int64_t blocks, const void* from, const DigestKey& key,
                                Digest* out);

}  // namespace opwright::rnn
