// The inputs of lookups and of their backward passes, in CSR format.
#pragma once

#include <cstdint>
#include <string>

#include "base/text.h"
#include "base/tf/status.h"
#include "sparsecore/csr.h"
#include "sparsecore/tf/kernel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {

// The number of SparseCores of a device if the op does not specify it. TPUEmbeddingV2 uses the
// same number if it cannot query the hardware.
constexpr int64_t kSparseCoresPerDevice = 4;

// The base class of kernels that read the buffers of a lookup: the lookup itself and its
// backward pass.
class CsrKernel : public Kernel {
 public:
  explicit CsrKernel(tensorflow::OpKernelConstruction* context)
      : Kernel(context), cores_(IntAttr(context, "num_sparsecores_per_device")) {
    if (cores_ == -1) cores_ = kSparseCoresPerDevice;
    OP_REQUIRES(context, cores_ > 0 && (cores_ & (cores_ - 1)) == 0,
                Invalid("num_sparsecores_per_device",
                        StrCat("must be -1 or a power of two, is ", cores_)));
    if (context->HasAttr("max_ids_per_sparse_core")) {
      limits_.ids = IntAttr(context, "max_ids_per_sparse_core");
      limits_.distinct_rows = IntAttr(context, "max_unique_ids_per_sparse_core");
    }
  }

 protected:
  absl::Status CheckTable(const tensorflow::Tensor& table) const {
    TF_RETURN_IF_ERROR(CheckRank("embedding_table", table, 2));
    if (table.dim_size(0) % cores_ == 0 && table.dim_size(0) <= kMaxInt32) {
      return absl::OkStatus();
    }
    return Invalid("embedding_table", "the number of rows must be a multiple of " + Cores() +
                                          ", has the shape " + table.shape().DebugString());
  }

  absl::Status Read(tensorflow::OpKernelContext* context, const char* samples_from,
                    int64_t samples, int64_t table_rows, Triples* triples) const {
    if (samples < 0 || samples % cores_ != 0 || samples > kMaxInt32) {
      return Invalid(samples_from, StrCat("the number of samples must be a multiple of ",
                                          Cores(), ", is ", samples));
    }
    const char* const names[] = {"row_pointers", "sorted_sample_ids", "sorted_token_ids",
                                 "sorted_gains"};
    for (int i = 0; i < 4; ++i) {
      TF_RETURN_IF_ERROR(CheckRank(names[i], context->input(i), 1));
    }
    for (int i = 2; i < 4; ++i) {
      TF_RETURN_IF_ERROR(CheckShape(names[i], context->input(i), context->input(1).shape(),
                                    "sorted_sample_ids"));
    }
    const tensorflow::Tensor* minibatches;
    const char* const name = "num_minibatches_per_physical_sparse_core";
    TF_RETURN_IF_ERROR(context->input(name, &minibatches));
    TF_RETURN_IF_ERROR(CheckRank(name, *minibatches, 0));
    const CsrView csr{Ints(context->input(0)),
                      context->input(0).dim_size(0),
                      {Ints(context->input(1)), Ints(context->input(2)),
                       Floats(context->input(3)), context->input(1).dim_size(0)},
                      minibatches->flat<int32_t>()(0),
                      cores_,
                      limits_};
    return ToAbsl(ReadCsr(csr, samples, table_rows, triples));
  }

 private:
  std::string Cores() const {
    return StrCat("the device's SparseCores, ", cores_, ", and fewer than 2^31");
  }

  int64_t cores_;
  CsrLimits limits_;
};

}  // namespace opwright::sparsecore
