// Prints what this machine's cores reach in multiply-adds of floats, in GFLOP/s: the sum
// over one thread a core, each by its own CPU time, so that other work takes nothing away.
#include <time.h>

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
constexpr long kRounds = 5000000;

static volatile float sink;

static double Now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec + 1e-9 * now.tv_nsec;
}

static void Spin(float seed, double* rate) {
  V sums[kSums], a = seed - V{}, b = 0.999f - V{};
  // Unrolled, every one of them: an index that varies would keep the sums in memory.
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) sums[i] = a * static_cast<float>(i);
  const double start = Now();
  for (long r = 0; r < kRounds; ++r) {
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      sums[i] = sums[i] * b + a;
      asm volatile("" : "+v"(sums[i]));
    }
  }
  *rate = 2.0 * kRounds * kSums * (kBytes / sizeof(float)) / (Now() - start);
  V total{};
#pragma GCC unroll 12
  for (int i = 0; i < kSums; ++i) total += sums[i];
  sink = total[0];
}

int main() {
  const unsigned cores = std::thread::hardware_concurrency();
  double best = 0;
  for (int attempt = 0; attempt < 8; ++attempt) {
    std::vector<double> rates(cores);
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < cores; ++i) threads.emplace_back(Spin, 0.5f, &rates[i]);
    double sum = 0;
    for (unsigned i = 0; i < cores; ++i) {
      threads[i].join();
      sum += rates[i];
    }
    if (sum > best) best = sum;
  }
  std::printf("%.1f\n", best / 1e9);
}
