// What one step of a digest (see rnn/digest.h) reads and writes.
#pragma once

#include <cstdint>

namespace opwright::rnn {

struct Digest {
  uint64_t words[2];

  bool operator==(const Digest& other) const {
    return words[0] == other.words[0] && words[1] == other.words[1];
  }
};

constexpr int64_t kDigestBlock = 128;  // In words of 64 bits.

struct DigestKey {
  // For each of the two sums: one addend for each half of each word.
  alignas(64) uint64_t sums[2][kDigestBlock];
};

// Compresses each block of contiguous words, aligned or not, to a digest. Each sum is that of
// (low half + key) * (high half + key) over the words, modulo 2^32 and 2^64.
using CompressBlocks = void (*)(int64_t blocks, const void* from, const DigestKey& key,
                                Digest* out);

}  // namespace opwright::rnn
