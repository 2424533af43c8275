// Buffers of activations that RecvTPUEmbeddingActivations returns as tensors.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "embedding/store.h"
#include "tensorflow/core/framework/tensor.h"

namespace opwright::embedding {

class OutputTensors : public OutputBuffers {
 public:
  // `tensors` has one tensor for each feature.
  explicit OutputTensors(std::vector<tensorflow::Tensor> tensors)
      : OutputBuffers(DataOf(&tensors)), tensors_(std::move(tensors)) {}

  const std::vector<tensorflow::Tensor>& tensors() const { return tensors_; }

 private:
  static std::vector<float*> DataOf(std::vector<tensorflow::Tensor>* tensors) {
    std::vector<float*> data;
    for (tensorflow::Tensor& one : *tensors) data.push_back(one.flat<float>().data());
    return data;
  }

  const std::vector<tensorflow::Tensor> tensors_;
};

}  // namespace opwright::embedding
