// The compression that rnn/kernels/digest.h declares.
// This file is a part of kernels_body.h, whose comment describes how it is compiled.

typedef uint64_t Words __attribute__((vector_size(kBytes)));
typedef uint32_t HalfWords __attribute__((vector_size(kBytes)));

// Returns the product of the low half and the high half of each word.
template <class W>
inline W MultiplyHalves(W x) {
#if defined(__x86_64__)
  // This intrinsic is one instruction. GCC does not generate it from the general expression.
  const W high = x >> 32;
  if constexpr (sizeof(W) == 16) {
    return (W)_mm_mul_epu32((__m128i)x, (__m128i)high);
#ifdef __AVX2__
  } else if constexpr (sizeof(W) == 32) {
    return (W)_mm256_mul_epu32((__m256i)x, (__m256i)high);
#endif
#ifdef __AVX512F__
  } else if constexpr (sizeof(W) == 64) {
    return (W)_mm512_maskz_mul_epu32(0xff, (__m512i)x, (__m512i)high);
#endif
  }
#elif defined(__aarch64__)
  // Three instructions. GCC would multiply the words one by one.
  return (W)vmull_u32(vmovn_u64((uint64x2_t)x), vshrn_n_u64((uint64x2_t)x, 32));
#else
  return (x & 0xffffffffu) * (x >> 32);
#endif
}

inline void Compress(int64_t blocks, const void* from, const DigestKey& key, Digest* out) {
  typedef uint64_t Anywhere __attribute__((vector_size(kBytes), aligned(8), may_alias));
  typedef uint64_t Bytes __attribute__((vector_size(kBytes), aligned(1), may_alias));
  constexpr int kLanes64 = kBytes / 8;
  const char* at = static_cast<const char*>(from);
  for (int64_t block = 0; block < blocks; ++block) {
    Words first{}, second{};
    for (int i = 0; i < kDigestBlock; i += kLanes64, at += kBytes) {
      const HalfWords word = (HalfWords)(Words) * reinterpret_cast<const Bytes*>(at);
      const Words a = *reinterpret_cast<const Anywhere*>(key.sums[0] + i);
      const Words b = *reinterpret_cast<const Anywhere*>(key.sums[1] + i);
      first += MultiplyHalves<Words>((Words)(word + (HalfWords)a));
      second += MultiplyHalves<Words>((Words)(word + (HalfWords)b));
    }
    Digest made{};
    for (int i = 0; i < kLanes64; ++i) {
      made.words[0] += first[i];
      made.words[1] += second[i];
    }
    out[block] = made;
  }
}
