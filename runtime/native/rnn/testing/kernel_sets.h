// Helpers for tests of inner loops. They visit every kernel set that this processor supports,
// at every width. They provide arrays that end with their memory and are aligned only to an
// element.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/float16.h"
#include "base/isa.h"
#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "base/text.h"
#include "rnn/kernels/kernels.h"

namespace opwright::rnn {

// Calls visit(name) for each instruction set of this processor. During the call it is the
// current instruction set.
template <class Visit>
void ForEachIsa(const Visit& visit) {
  struct Restore {
    const std::string before = NameOf(CurrentIsa());
    ~Restore() { UseIsa(before.c_str()); }
  } restore;
  for (const Isa isa : kIsas) {
    if (UseIsa(NameOf(isa))) visit(NameOf(isa));
  }
}

// Calls visit(kernels) for each instruction set and each width of its vectors. The message of a
// failure names both.
template <class T, class Visit>
void ForEachKernels(const Visit& visit) {
  ForEachIsa([&](const char* isa) {
    for (const Kernels<T>* kernels = &SelectKernels<T>(); kernels;
         kernels = kernels->narrower) {
      try {
        visit(*kernels);
      } catch (const testing::Failure& failure) {
        throw testing::Failure{StrCat(failure.text, " (", isa, ", ", kernels->lanes,
                                      " lanes of ", sizeof(Compute<T>), " bytes, stored in ",
                                      sizeof(T), ")")};
      }
    }
  });
}

// Calls visit(T()) for each storage type T.
template <class Visit>
void ForEachType(const Visit& visit) {
  visit(float());
  visit(double());
  visit(Half());
  visit(BFloat16());
}

// Returns one unit in the last place of values around 1.
template <class T>
double EpsilonOf() {
  if constexpr (std::is_same_v<T, Half>) return 0x1p-10;
  if constexpr (std::is_same_v<T, BFloat16>) return 0x1p-7;
  if constexpr (std::is_same_v<T, float>) return std::numeric_limits<float>::epsilon();
  return std::numeric_limits<double>::epsilon();
}

// Returns random values between -scale / 2 and scale / 2.
template <class T>
std::vector<T> Draw(Random& random, int64_t size, double scale = 1) {
  std::vector<T> values(static_cast<size_t>(size));
  for (T& value : values) Store(static_cast<Compute<T>>(scale * random.Uniform()), &value);
  return values;
}

// An array that begins `offset` elements after an aligned address and ends where its memory
// ends.
template <class T>
class Misaligned {
 public:
  Misaligned(const std::vector<T>& values, int64_t offset)
      : memory_(static_cast<size_t>(offset)), offset_(offset) {
    memory_.insert(memory_.end(), values.begin(), values.end());
    memory_.shrink_to_fit();
  }
  T* data() { return memory_.data() + offset_; }
  const T* data() const { return memory_.data() + offset_; }
  T& operator[](int64_t i) { return data()[i]; }

 private:
  std::vector<T> memory_;
  int64_t offset_;
};

}  // namespace opwright::rnn
