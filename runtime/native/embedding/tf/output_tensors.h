// Activations as the tensors that RecvTPUEmbeddingActivations returns.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "embedding/store.h"
#include "tensorflow/core/framework/tensor.h"

namespace opwright::embedding {

class OutputTensors : public OutputBuffers {
 public:
  // By feature.
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
