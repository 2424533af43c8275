#include "rnn/digest.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace opwright::rnn {
namespace {

constexpr int64_t kBlockBytes = kDigestBlock * 8;
// The number of digests that fill one block.
constexpr int64_t kFan = kBlockBytes / static_cast<int64_t>(sizeof(Digest));

std::vector<DigestKey> DrawKeys() {
  std::random_device random;
  std::vector<DigestKey> keys(kDigestLevels);
  for (DigestKey& key : keys) {
    for (auto& sum : key.sums) {
      for (uint64_t& word : sum) word = static_cast<uint64_t>(random()) << 32 | random();
    }
  }
  return keys;
}

}  // namespace

const DigestKey* DigestKeys() {
  static const std::vector<DigestKey>& keys = *new std::vector<DigestKey>(DrawKeys());
  return keys.data();
}

Digest DigestOf(CompressBlocks compress, int64_t bytes, const void* from) {
  const DigestKey* const keys = DigestKeys();
  // The incomplete block of each level. Level 0 is unused, because its words are read from the
  // caller's memory.
  Digest block[kDigestLevels][kFan];
  int64_t filled[kDigestLevels] = {};
  const auto raise = [&](int level) {
    std::fill(block[level] + filled[level], block[level] + kFan, Digest{});
    compress(1, block[level], keys[level], block[level + 1] + filled[level + 1]++);
    filled[level] = 0;
  };
  const auto carry = [&] {
    for (int level = 1; filled[level] == kFan; ++level) raise(level);
  };

  const char* at = static_cast<const char*>(from);
  int64_t left = bytes;
  while (left >= kBlockBytes) {
    const int64_t count = std::min(left / kBlockBytes, kFan - filled[1]);
    compress(count, at, keys[0], block[1] + filled[1]);
    filled[1] += count;
    at += count * kBlockBytes;
    left -= count * kBlockBytes;
    carry();
  }
  if (left > 0 || bytes == 0) {
    alignas(64) char last[kBlockBytes] = {};
    if (left > 0) std::memcpy(last, at, static_cast<size_t>(left));
    compress(1, last, keys[0], block[1] + filled[1]++);
    carry();
  }
  int top = kDigestLevels - 1;
  while (filled[top] == 0) --top;
  for (int level = 1; level < top || filled[level] > 1; ++level) {
    if (filled[level] > 0) raise(level);
    top = std::max(top, level + 1);
  }
  return block[top][0];
}

}  // namespace opwright::rnn
