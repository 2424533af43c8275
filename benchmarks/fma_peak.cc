// Prints what this machine's cores reach in multiply-adds of floats, in GFLOP/s.
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
typedef float V __attribute__((vector_size(kBytes)));
constexpr int kSums = 12;
constexpr long kRounds = 20000000;

static volatile float sink;

static void Spin(float seed) {
  V sums[kSums], a = seed - V{}, b = 0.999f - V{};
  for (int i = 0; i < kSums; ++i) sums[i] = a * static_cast<float>(i);
  for (long r = 0; r < kRounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      sums[i] = sums[i] * b + a;
      asm volatile("" : "+v"(sums[i]));
    }
  }
  V total{};
  for (int i = 0; i < kSums; ++i) total += sums[i];
  sink = total[0];
}

int main() {
  const unsigned cores = std::thread::hardware_concurrency();
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < cores; ++i) threads.emplace_back(Spin, 0.5f);
    for (auto& thread : threads) thread.join();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    const double operations = 2.0 * cores * kRounds * kSums * (kBytes / sizeof(float));
    if (operations / took.count() > best) best = operations / took.count();
  }
  std::printf("%.1f\n", best / 1e9);
}
