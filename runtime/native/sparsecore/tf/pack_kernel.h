// The base class of the ops that pack the triples of a chip into the buffers of a lookup.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/text.h"
#include "base/tf/status.h"
#include "sparsecore/csr.h"
#include "sparsecore/limits.h"
#include "sparsecore/tf/kernel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {

class PackKernel : public Kernel {
 public:
  // The product of the attrs `samples` is the number of samples of a chip.
  PackKernel(tensorflow::OpKernelConstruction* context,
             std::initializer_list<const char*> samples)
      : Kernel(context),
        cores_(IntAttr(context, "num_sc_per_chip")),
        per_sample_(IntAttr(context, "max_ids_per_chip_per_sample")) {
    shape_.max_minibatches = IntAttr(context, "max_minibatches_per_sc");
    const int64_t replicas = IntAttr(context, "num_replica");
    std::vector<int64_t> factors = {per_sample_};
    for (const char* const name : samples) factors.push_back(IntAttr(context, name));
    if (!context->status().ok()) return;
    OP_REQUIRES_OK(context, Product("num_replica", {replicas, cores_}, &shape_.shards));
    OP_REQUIRES_OK(context, Product("max_ids_per_chip_per_sample", factors, &shape_.capacity));
    OP_REQUIRES_OK(context,
                   Product("max_minibatches_per_sc",
                           {shape_.max_minibatches, cores_, shape_.stride()}, &pointers_));
  }

 protected:
  // Hosts join their cuts by or.
  static int64_t JoinedSplits(const tensorflow::Tensor& splits) {
    const auto given = splits.flat<int64_t>();
    int64_t joined = 0;
    for (int64_t i = 0; i < given.size(); ++i) joined |= given(i);
    return joined;
  }

  // Writes the four buffers. Requires sources that passed the checks.
  absl::Status Pack(tensorflow::OpKernelContext* context, int64_t splits,
                    const std::vector<CsrSource>& sources, CsrBuffers* buffers) const {
    tensorflow::Tensor* outputs[4];
    for (int i = 0; i < 4; ++i) {
      TF_RETURN_IF_ERROR(
          NewVector(context, i, i == 0 ? pointers_ : shape_.capacity, &outputs[i]));
    }
    buffers->row_pointers = Ints(outputs[0]);
    buffers->samples = Ints(outputs[1]);
    buffers->rows = Ints(outputs[2]);
    buffers->gains = Floats(outputs[3]);
    PackCsr(shape_, splits, sources, buffers);
    return absl::OkStatus();
  }

  // The error of triples that do not fit. `more` says what else helps.
  absl::Status TooSmall(const CsrBuffers& buffers, const std::string& more = "") const {
    return Invalid(
        "max_ids_per_chip_per_sample",
        StrCat("is ", per_sample_, ", which gives a chip space for ", shape_.capacity,
               " triples, padding included; ", buffers.dropped, " of ", buffers.triples,
               " do not fit. This batch fits with max_ids_per_chip_per_sample=",
               LeastPerSample(buffers), more));
  }
  int64_t LeastPerSample(const CsrBuffers& buffers) const {
    return sparsecore::LeastPerSample(buffers.needed_size, shape_.capacity / per_sample_,
                                      per_sample_);
  }

  absl::Status WriteSizes(tensorflow::OpKernelContext* context, const CsrBuffers& buffers,
                          const char* minibatches) const {
    TF_RETURN_IF_ERROR(
        SetScalar(context, "row_pointers_unpadded_size", buffers.row_pointers_size));
    TF_RETURN_IF_ERROR(SetScalar(context, "ids_unpadded_size", buffers.ids_size));
    return SetScalar(context, minibatches, buffers.minibatches);
  }

  const CsrShape& shape() const { return shape_; }
  int64_t cores() const { return cores_; }
  int64_t per_sample() const { return per_sample_; }

 private:
  static absl::Status Product(const char* name, const std::vector<int64_t>& factors,
                              int64_t* product) {
    Checked checked = 1;
    for (const int64_t factor : factors) {
      if (factor < 1) {
        return Invalid(
            name, StrCat("and what it is multiplied by must be at least 1, one is ", factor));
      }
      checked *= factor;
    }
    if (!checked.AtMost(kMaxInt32)) {
      return Invalid(name,
                     StrCat("makes a buffer too large for int32 positions, is ", factors[0]));
    }
    *product = checked.value();
    return absl::OkStatus();
  }

  CsrShape shape_{};
  int64_t pointers_ = 0;
  const int64_t cores_, per_sample_;
};

}  // namespace opwright::sparsecore
