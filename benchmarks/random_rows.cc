// random_rows ROW_BYTES TABLE_BYTES ROWS: the bandwidth of all cores together for reads of
// random rows, in bytes a second: the best of several ways to prefetch. Next to STREAM's
// bandwidth, a bound of what lookups reach.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

constexpr long kLine = 64;
constexpr int kRounds = 9;
constexpr long kAhead[] = {0, 4, 8, 16, 32, 64};  // Rows.
constexpr int kDistances = sizeof kAhead / sizeof kAhead[0];

struct Share {
  const char* table;
  long row_bytes;
  const long* offsets;
  long count;
};

// Reads a float of every line of each row; prefetches the lines of the row `ahead` later, into
// the first or the second level of the cache.
template <int kLevel>
static float Read(const Share& share, long ahead) {
  float sums[8] = {};
  for (long i = 0; i < share.count; ++i) {
    const char* const row = share.table + share.offsets[i];
    const char* const next = share.table + share.offsets[std::min(i + ahead, share.count - 1)];
    for (long at = 0, k = 0; at < share.row_bytes; at += kLine, ++k) {
      if (ahead) __builtin_prefetch(next + at, 0, 4 - kLevel);
      sums[k % 8] += *reinterpret_cast<const float*>(row + at);
    }
  }
  return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

static std::atomic<float> sink;

// Threads that wait for each other without sleeping, so that none is late for what is timed.
class Barrier {
 public:
  explicit Barrier(long threads) : threads_(threads) {}
  void Wait() {
    const long round = round_;
    if (++arrived_ == threads_) {
      arrived_ = 0;
      ++round_;
    }
    while (round_ == round) {
    }
  }

 private:
  const long threads_;
  std::atomic<long> arrived_{0}, round_{0};
};

static double Seconds(const std::vector<Share>& shares, int level, long ahead) {
  Barrier barrier(static_cast<long>(shares.size()));
  const auto read = [&](const Share& share) {
    barrier.Wait();
    sink = level == 1 ? Read<1>(share, ahead) : Read<2>(share, ahead);
    barrier.Wait();
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < shares.size(); ++i) others.emplace_back([&, i] { read(shares[i]); });
  barrier.Wait();
  const auto start = std::chrono::steady_clock::now();
  sink = level == 1 ? Read<1>(shares[0], ahead) : Read<2>(shares[0], ahead);
  barrier.Wait();
  const auto end = std::chrono::steady_clock::now();
  for (std::thread& thread : others) thread.join();
  return std::chrono::duration<double>(end - start).count();
}

int main(int argc, char** argv) {
  if (argc != 4) return std::fprintf(stderr, "random_rows ROW_BYTES TABLE_BYTES ROWS\n"), 2;
  const long row_bytes = std::atol(argv[1]), bytes = std::atol(argv[2]),
             count = std::atol(argv[3]);
  const long rows = bytes / row_bytes;
  if (row_bytes < 4 || rows < 1 || count < 1) return 2;
  constexpr long kPage = 2 << 20;
  void* const memory = mmap(nullptr, static_cast<size_t>(bytes + kPage), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return std::perror("mmap"), 1;
  char* const table = static_cast<char*>(memory) +
                      (kPage - reinterpret_cast<unsigned long>(memory) % kPage) % kPage;
  madvise(table, static_cast<size_t>(bytes / kPage * kPage), MADV_HUGEPAGE);
  for (long at = 0; at < bytes; at += 4096) table[at] = 1;
  std::mt19937_64 random(1);
  const long threads = static_cast<long>(std::max(1u, std::thread::hardware_concurrency()));
  double best = 1e30;
  std::vector<long> offsets(static_cast<size_t>(count));
  for (int way = 0; way < 2 * kDistances; ++way) {
    const int level = 1 + way % 2;
    const long ahead = kAhead[way / 2];
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
      for (long& offset : offsets) offset = static_cast<long>(random() % rows) * row_bytes;
      std::vector<Share> shares;
      for (long t = 0; t < threads; ++t) {
        const long first = count * t / threads, end = count * (t + 1) / threads;
        shares.push_back({table, row_bytes, offsets.data() + first, end - first});
      }
      times.push_back(Seconds(shares, level, ahead));
    }
    std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
    best = std::min(best, times[kRounds / 2]);
  }
  std::printf("%.0f\n", static_cast<double>(count * row_bytes) / best);
}
