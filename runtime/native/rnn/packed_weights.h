// The packed weights of a stack, as the forward pass reads them. Each layer has one block,
// which contains the panels of all directions. In inference, a call reuses weights that an
// earlier call packed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/execution_context.h"
#include "rnn/kernels/kernels.h"
#include "rnn/layout.h"
#include "rnn/packing.h"
#include "rnn/plan.h"
#include "rnn/spec.h"
#include "rnn/weight_cache.h"

namespace opwright::rnn {

// The packed weights of one layer and direction.
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

  // With `only_biases`, only the biases are packed, and the products read the other weights
  // unpacked.
  Packing(const StackSpec& stack, const Kernels<T>& kernels, bool only_biases)
      : stack_(stack),
        layout_(ParamsLayout(stack)),
        panels_(CellPanels(kernels, stack)),
        projected_(PlainPanels(kernels.lanes, stack.projection)),
        packs_(!only_biases) {}

  int64_t Size(int64_t layer) const { return stack_.dirs() * DirSize(layer); }
  int64_t LargestSize() const {
    return std::max(Size(0), Size(std::min<int64_t>(1, stack_.layers - 1)));
  }
  int64_t TotalSize() const {
    return Size(0) + (stack_.layers - 1) * Size(std::min<int64_t>(1, stack_.layers - 1));
  }

  // Returns the addresses of the weights of one direction in the block of a layer.
  Weights<S> At(S* block, int64_t layer, int64_t dir) const {
    S* const input = block + dir * DirSize(layer);
    S* const recurrent = input + InputSize(layer);
    S* const projection = recurrent + RecurrentSize();
    return {input, recurrent, projection, projection + ProjectionSize()};
  }
  int64_t input_stride(int64_t layer) const { return Inputs(layer) * panels_.packed_width(0); }
  int64_t recurrent_stride() const { return stack_.hidden() * panels_.packed_width(0); }

  void Pack(int64_t layer, const T* params, S* block, ExecutionContext& exec) const {
    const int64_t panels = packs_ ? panels_.count() : 0;
    ParallelFor(exec, stack_.dirs() * panels, Operations(layer), [&](int64_t i) {
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

  // Packs the weights of a stack of one layer and one direction.
  void Pack(const KerasWeights<T>& weights, S* block, ExecutionContext& exec) const {
    const Weights<S> to = At(block, 0, 0);
    ParallelFor(exec, panels_.count(), Operations(0), [&](int64_t panel) {
      PackKerasRows(panels_, 0, panel, weights.kernel, Inputs(0),
                    to.input + panel * input_stride(0));
      PackKerasRows(panels_, panels_.recurrent_vector(), panel, weights.recurrent_kernel,
                    stack_.hidden(), to.recurrent + panel * recurrent_stride());
    });
    const int64_t rows = stack_.gates() * stack_.units;
    std::vector<T> biases(static_cast<size_t>(2 * rows));
    for (int64_t bias = 0; bias < weights.biases; ++bias) {
      for (int64_t gate = 0; gate < stack_.gates(); ++gate) {
        std::copy_n(weights.bias + bias * rows + KerasGate(stack_.cell, gate) * stack_.units,
                    stack_.units, biases.data() + bias * rows + gate * stack_.units);
      }
    }
    PackBiases(panels_, biases.data(), biases.data() + rows, to.biases);
  }

 private:
  double Operations(int64_t layer) const {
    return rnn::Operations(8, stack_.dirs(), panels_.padded_units(),
                           Inputs(layer) + stack_.hidden(), stack_.gates());
  }
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

  const StackSpec stack_;
  const std::vector<LayerParams> layout_;
  const Panels panels_;
  const Panels projected_;
  const bool packs_;
};

// Returns the contiguous blocks of all layers. If the cache has no entry, pack(packing, blocks)
// fills new blocks, and they are inserted into the cache. `params` is the address of the
// parameters.
template <class T, class Pack>
std::shared_ptr<Compute<T>> FindOrPack(WeightCache& cache, const StackSpec& stack,
                                       const Digest& digest, const T* params,
                                       const Pack& pack) {
  using S = Compute<T>;
  const Kernels<T>& kernels = SelectKernels<T>();
  const WeightCache::Key key{stack, kernels.lanes, digest};
  if (auto found = cache.Find(key)) return std::static_pointer_cast<S>(std::move(found));

  const Packing<T> packing(stack, kernels, false);
  const int64_t bytes = packing.TotalSize() * static_cast<int64_t>(sizeof(S));
  // The blocks are aligned by hand. For aligned allocations, the allocator does not always
  // reuse the memory of a freed block of equal size.
  constexpr size_t kAlignment = 64;
  void* const memory = ::operator new(static_cast<size_t>(bytes) + kAlignment);
  const size_t before = kAlignment - reinterpret_cast<uintptr_t>(memory) % kAlignment;
  const std::shared_ptr<S> blocks(reinterpret_cast<S*>(static_cast<char*>(memory) + before),
                                  [memory](S*) { ::operator delete(memory); });
  pack(packing, blocks.get());
  cache.Insert(key, params, blocks, bytes);
  return blocks;
}

template <class T>
std::shared_ptr<Compute<T>> PackedWeights(WeightCache& cache, const StackSpec& stack,
                                          const T* params, ExecutionContext& exec) {
  const Digest digest = DigestOf(SelectKernels<T>().compress,
                                 ParamsSize(stack) * static_cast<int64_t>(sizeof(T)), params);
  const auto pack = [&](const Packing<T>& packing, Compute<T>* block) {
    for (int64_t layer = 0; layer < stack.layers; ++layer) {
      packing.Pack(layer, params, block, exec);
      block += packing.Size(layer);
    }
  };
  return FindOrPack<T>(cache, stack, digest, params, pack);
}

template <class T>
std::shared_ptr<Compute<T>> PackedWeights(WeightCache& cache, const StackSpec& stack,
                                          const KerasWeights<T>& weights,
                                          ExecutionContext& exec) {
  const CompressBlocks compress = SelectKernels<T>().compress;
  const int64_t rows = stack.gates() * stack.units;
  const T* const arrays[] = {weights.kernel, weights.recurrent_kernel, weights.bias};
  const int64_t sizes[] = {stack.input_size * rows, stack.units * rows, weights.biases * rows};
  // The digests of the arrays. The last element contains the number of biases.
  Digest digests[4] = {{}, {}, {}, {{static_cast<uint64_t>(weights.biases), 0}}};
  ParallelFor(exec, 3, static_cast<double>(sizes[0] + sizes[1]), [&](int64_t i) {
    digests[i] = DigestOf(compress, sizes[i] * static_cast<int64_t>(sizeof(T)), arrays[i]);
  });
  const auto pack = [&](const Packing<T>& packing, Compute<T>* block) {
    packing.Pack(weights, block, exec);
  };
  return FindOrPack<T>(cache, stack, DigestOf(compress, sizeof digests, digests),
                       weights.kernel, pack);
}

}  // namespace opwright::rnn
