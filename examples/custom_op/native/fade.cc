// Fade on the CPU. This file is yours: opwright-codegen wrote it once and leaves it alone.
#include <algorithm>

#include "generated/fade.h"

namespace {

template <typename T>
class Fade : public FadeKernel {
 public:
  using FadeKernel::FadeKernel;

 protected:
  absl::Status Run([[maybe_unused]] tensorflow::OpKernelContext* c, const Arguments& arguments,
                   const Results& results) override {
    const auto signal = arguments.signal.matrix<T>();
    const auto gains = arguments.gains.vec<T>();
    auto faded = results.faded->matrix<T>();
    const int64_t samples = signal.dimension(1);
    for (int64_t channel = 0; channel < signal.dimension(0); ++channel) {
      for (int64_t i = 0; i < samples; ++i) {
        T factor = std::min<T>(1, T(i + 1) / T(attrs.length));
        if (attrs.both) factor *= std::min<T>(1, T(samples - i) / T(attrs.length));
        faded(channel, i) = signal(channel, i) * gains(channel) * factor;
      }
    }
    return absl::OkStatus();
  }
};

REGISTER_FADE_KERNELS(DEVICE_CPU, Fade);

}  // namespace
