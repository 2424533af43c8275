#include "rnn/digest.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "rnn/testing/kernel_sets.h"

namespace opwright::rnn {
namespace {

std::vector<unsigned char> DrawBytes(Random& random, int64_t size) {
  std::vector<unsigned char> bytes(static_cast<size_t>(size));
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random.Below(256));
  return bytes;
}

// Returns the digest by the compression function of the current instruction set.
Digest DigestOfBytes(const std::vector<unsigned char>& bytes) {
  return DigestOf(SelectKernels<float>().compress, static_cast<int64_t>(bytes.size()),
                  bytes.data());
}

// Sizes that fill a level of the digest's tree, and sizes next to them.
constexpr int64_t kSizes[] = {0, 1, 7, 8, 1023, 1024, 1025, 65535, 65536, 65537, 66560, 300001};

TEST(Digest, ChangedByteChangesTheDigest) {
  Random random{testing::Seed()};
  for (const int64_t size : kSizes) {
    std::vector<unsigned char> bytes = DrawBytes(random, size);
    const Digest first = DigestOfBytes(bytes);
    EXPECT(DigestOfBytes(bytes) == first);
    for (int64_t i = 0; i < (size > 0 ? testing::Rounds(40) : 0); ++i) {
      const int64_t at = random.Below(size), other = at + (1 << random.Below(17));
      const unsigned char mask = static_cast<unsigned char>(1 << random.Below(8));
      const auto flip = [&] {
        bytes[static_cast<size_t>(at)] ^= mask;
        if (i % 2 == 1 && other < size) bytes[static_cast<size_t>(other)] ^= mask;
      };
      flip();
      EXPECT(!(DigestOfBytes(bytes) == first));
      flip();
    }
  }
}

// Changes each byte, of an input that fills a block and of inputs that do not.
TEST(Digest, EveryByteChangesTheDigest) {
  Random random{testing::Seed()};
  for (const int64_t size : {int64_t{13}, int64_t{1024}, int64_t{2055}}) {
    std::vector<unsigned char> bytes = DrawBytes(random, size);
    const Digest first = DigestOfBytes(bytes);
    for (unsigned char& byte : bytes) {
      byte ^= 1;
      EXPECT(!(DigestOfBytes(bytes) == first));
      byte ^= 1;
    }
  }
}

TEST(Digest, SwappedBlocksChangeTheDigest) {
  Random random{testing::Seed()};
  std::vector<unsigned char> bytes = DrawBytes(random, 130 * 1024);
  const Digest first = DigestOfBytes(bytes);
  for (const int64_t other : {1, 2, 63, 64, 65, 129}) {
    const auto swap = [&] {
      std::swap_ranges(bytes.begin(), bytes.begin() + 1024, bytes.begin() + other * 1024);
    };
    swap();
    EXPECT(!(DigestOfBytes(bytes) == first));
    swap();
  }
}

TEST(Digest, InstructionSetsAgree) {
  Random random{testing::Seed()};
  for (const int64_t size : kSizes) {
    const std::vector<unsigned char> bytes = DrawBytes(random, size);
    std::vector<Digest> found;
    ForEachKernels<float>([&](const Kernels<float>& kernels) {
      found.push_back(DigestOf(kernels.compress, size, bytes.data()));
      EXPECT(found.back() == found.front());
    });
  }
}

// Compares the compression with its definition in 128-bit integers. The words may be
// misaligned.
TEST(Digest, CompressionIsASumOfProducts) {
  Random random{testing::Seed()};
  const std::vector<unsigned char> bytes = DrawBytes(random, 3 * kDigestBlock * 8 + 3);
  const DigestKey& key = DigestKeys()[2];
  for (const int offset : {0, 3}) {
    ForEachKernels<float>([&](const Kernels<float>& kernels) {
      Digest found[3];
      kernels.compress(3, bytes.data() + offset, key, found);
      for (int64_t block = 0; block < 3; ++block) {
        for (int sum = 0; sum < 2; ++sum) {
          uint64_t wanted = 0;
          for (int64_t i = 0; i < kDigestBlock; ++i) {
            uint32_t halves[2], keys[2];
            std::memcpy(halves, bytes.data() + offset + (block * kDigestBlock + i) * 8, 8);
            std::memcpy(keys, &key.sums[sum][i], 8);
            const uint32_t low = halves[0] + keys[0], high = halves[1] + keys[1];
            wanted += static_cast<uint64_t>(low) * high;
          }
          EXPECT_EQ(found[block].words[sum], wanted);
        }
      }
    });
  }
}

// Compares the digest with its definition, level by level. Blocks are padded with zeros.
TEST(Digest, EachLevelHasItsOwnKey) {
  Random random{testing::Seed()};
  constexpr size_t kBytes = kDigestBlock * 8;
  for (const int64_t size : kSizes) {
    const std::vector<unsigned char> bytes = DrawBytes(random, size);
    ForEachKernels<float>([&](const Kernels<float>& kernels) {
      std::vector<unsigned char> level = bytes;
      std::vector<Digest> made;
      for (const DigestKey* key = DigestKeys(); made.size() != 1; ++key) {
        made.resize(std::max<size_t>(1, (level.size() + kBytes - 1) / kBytes));
        level.resize(made.size() * kBytes);
        kernels.compress(static_cast<int64_t>(made.size()), level.data(), *key, made.data());
        const auto* const first = reinterpret_cast<const unsigned char*>(made.data());
        level.assign(first, first + made.size() * sizeof(Digest));
      }
      EXPECT(DigestOf(kernels.compress, size, bytes.data()) == made.front());
    });
  }
}

TEST(Digest, KeysDiffer) {
  std::set<uint64_t> words;
  for (int level = 0; level < kDigestLevels; ++level) {
    for (const auto& sum : DigestKeys()[level].sums)
      words.insert(std::begin(sum), std::end(sum));
  }
  EXPECT_EQ(static_cast<int64_t>(words.size()), kDigestLevels * 2 * kDigestBlock);
}

}  // namespace
}  // namespace opwright::rnn
