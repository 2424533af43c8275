// The weights of a stack as the forward pass reads them: in panels, all directions of a layer
// in one block. Where nothing trains, a call finds those of the call before.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "config.h"
#include "host.h"
#include "kernels.h"
#include "layers.h"
#include "panels.h"

namespace opwright {

// Where the weights of one layer and direction are.
template <class S>
struct Weights {
  S* input;       // [panel][layer_input][vectors * lanes]
  S* recurrent;   // [panel][hidden][vectors * lanes]
  S* projection;  // [panel of the projection][units][panel width]
  S* biases;      // [panel][panel width]
};

template <class T>
class Packing {
 public:
  using S = Compute<T>;

  // With `only_biases` the products read the weights where they are.
  Packing(const Stack& stack, const Kernels<T>& kernels, bool only_biases)
      : stack_(stack),
        layout_(ParamsLayout(stack)),
        panels_(CellPanels(kernels, stack)),
        projected_(PlainPanels(kernels.lanes, stack.projection)),
        packs_(!only_biases) {}

  int64_t Size(int64_t layer) const { return stack_.dirs() * DirSize(layer); }
  int64_t LargestSize() const {
    return std::max(Size(0), Size(std::min<int64_t>(1, stack_.layers - 1)));
  }
  int64_t WholeSize() const {
    return Size(0) + (stack_.layers - 1) * Size(std::min<int64_t>(1, stack_.layers - 1));
  }

  // What lies where in a layer's block.
  Weights<S> At(S* block, int64_t layer, int64_t dir) const {
    S* const input = block + dir * DirSize(layer);
    S* const recurrent = input + InputSize(layer);
    S* const projection = recurrent + RecurrentSize();
    return {input, recurrent, projection, projection + ProjectionSize()};
  }
  int64_t input_stride(int64_t layer) const { return Inputs(layer) * panels_.packed_width(0); }
  int64_t recurrent_stride() const { return stack_.hidden() * panels_.packed_width(0); }

  void Pack(int64_t layer, const T* params, S* block, Host& host) const {
    const int64_t panels = packs_ ? panels_.count() : 0;
    const double size = 8.0 * stack_.dirs() * panels_.padded_units() *
                        (Inputs(layer) + stack_.hidden()) * stack_.gates();
    Run(host, stack_.dirs() * panels, size, [&](int64_t i) {
      const int64_t dir = i / panels;
      const int64_t panel = i % panels;
      const LayerParams& at = layout_[layer * stack_.dirs() + dir];
      const Weights<S> to = At(block, layer, dir);
      PackRows(panels_, 0, panel, params + at.input_weights, Inputs(layer),
               to.input + panel * input_stride(layer));
      PackRows(panels_, panels_.recurrent_vector(), panel, params + at.recurrent_weights,
               stack_.hidden(), to.recurrent + panel * recurrent_stride());
    });
    for (int64_t dir = 0; dir < stack_.dirs(); ++dir) {
      const LayerParams& at = layout_[layer * stack_.dirs() + dir];
      const Weights<S> to = At(block, layer, dir);
      PackBiases(panels_, params + at.input_bias, params + at.recurrent_bias, to.biases);
      for (int64_t panel = 0; panel < projected_.count(); ++panel) {
        PackRows(projected_, 0, panel, params + at.projection, stack_.units,
                 to.projection + panel * stack_.units * projected_.width());
      }
    }
  }

 private:
  int64_t Inputs(int64_t layer) const {
    return stack_.has_input_weights(layer) ? stack_.layer_input(layer) : 0;
  }
  int64_t InputSize(int64_t layer) const {
    return packs_ ? panels_.count() * input_stride(layer) : 0;
  }
  int64_t RecurrentSize() const { return packs_ ? panels_.count() * recurrent_stride() : 0; }
  int64_t ProjectionSize() const {
    return projected_.count() * stack_.units * projected_.width();
  }
  int64_t DirSize(int64_t layer) const {
    return InputSize(layer) + RecurrentSize() + ProjectionSize() +
           panels_.count() * panels_.width();
  }

  const Stack stack_;
  const std::vector<LayerParams> layout_;
  const Panels panels_;
  const Panels projected_;
  const bool packs_;
};

// Packed weights of earlier calls, found again by what the parameters are, not by where they
// lie: whoever changes them in place is noticed. Safe for callers at once.
template <class T>
class WeightCache {
 public:
  using S = Compute<T>;

  // All layers' blocks, one after the other, for as long as the caller holds them.
  std::shared_ptr<S> Get(const Stack& stack, const T* params, Host& host) {
    const Kernels<T>& kernels = SelectKernels<T>();
    Entry entry;
    entry.stack = stack;
    entry.lanes = kernels.lanes;
    kernels.digest(ParamsSize(stack) * static_cast<int64_t>(sizeof(T)), params,
                   entry.digest);
    if (auto found = Find(entry)) return found;

    const Packing<T> packing(stack, kernels, false);
    entry.size = packing.WholeSize();
    entry.blocks = Allocate(entry.size);
    S* block = entry.blocks.get();
    for (int64_t layer = 0; layer < stack.layers; ++layer) {
      packing.Pack(layer, params, block, host);
      block += packing.Size(layer);
    }
    Keep(entry);
    return entry.blocks;
  }

 private:
  // One entry always, more where they are small: layers that share a kernel.
  static constexpr int64_t kMostBytes = 64 << 20;

  struct Entry {
    Stack stack;
    int lanes;
    uint64_t digest[kDigestWords];
    int64_t size;
    std::shared_ptr<S> blocks;

    bool Matches(const Entry& other) const {
      return lanes == other.lanes && SameStack(stack, other.stack) &&
             !std::memcmp(digest, other.digest, sizeof digest);
    }
  };

  static std::shared_ptr<S> Allocate(int64_t size) {
    constexpr std::align_val_t kAlignment{64};
    void* const memory = ::operator new(size * sizeof(S), kAlignment);
    return {static_cast<S*>(memory),
            [](S* blocks) { ::operator delete(blocks, kAlignment); }};
  }

  std::shared_ptr<S> Find(const Entry& wanted) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!entries_[i].Matches(wanted)) continue;
      std::rotate(entries_.begin(), entries_.begin() + i, entries_.begin() + i + 1);
      return entries_[0].blocks;
    }
    return nullptr;
  }

  void Keep(const Entry& entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Entry& other : entries_) {
      if (other.Matches(entry)) return;  // Another caller was quicker.
    }
    entries_.insert(entries_.begin(), entry);
    int64_t bytes = 0;
    for (size_t i = 0; i < entries_.size(); ++i) {
      bytes += entries_[i].size * static_cast<int64_t>(sizeof(S));
      if (i > 0 && bytes > kMostBytes) entries_.resize(i);
    }
  }

  std::mutex mutex_;
  std::vector<Entry> entries_;  // The last one used first.
};

}  // namespace opwright
