// The inputs of lookups and of their backward passes, in CSR format.
#pragma once

#include <cstdint>
#include <string>

#include "base/text.h"
#include "base/tf/device_context.h"
#include "base/tf/status.h"
#include "embedding/cpu/rows.h"
#include "embedding/optimizers.h"
#include "sparsecore/csr.h"
#include "sparsecore/tf/kernel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {

// The number of SparseCores of a device if the op does not specify it. TPUEmbeddingV2 uses the
// same number if it cannot query the hardware.
constexpr int64_t kSparseCoresPerDevice = 4;

// The tensors of a lookup of one device.
struct CsrTensors {
  const tensorflow::Tensor &row_pointers, &samples, &rows, &gains, &minibatches;
  // What messages add to the names of the tensors, such as an index.
  std::string suffix;
};

// Refuses gradients [samples, width] that are not finite. `where` begins the error.
inline absl::Status CheckFinite(const std::string& name, const tensorflow::Tensor& gradients,
                                ExecutionContext& exec, const std::string& where = "") {
  const auto wrong = embedding::FindOutside(exec, embedding::Range::kFinite,
                                            gradients.NumElements(), Floats(gradients));
  if (!wrong) return absl::OkStatus();
  const int64_t width = gradients.dim_size(1);
  return Invalid(
      name, StrCat(where, "must be finite, that of sample ", wrong->at / width, ", column ",
                   wrong->at % width, " is ", embedding::Number(wrong->value)));
}

// The base class of kernels that read the buffers of a lookup: the lookup itself and its
// backward pass. `Base` is Kernel, or AsyncKernel for those that call functions.
template <class Base>
class CsrKernelOn : public Base {
 public:
  explicit CsrKernelOn(tensorflow::OpKernelConstruction* context)
      : Base(context), cores_(IntAttr(context, "num_sparsecores_per_device")) {
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
  absl::Status CheckTable(const tensorflow::Tensor& table,
                          const char* name = "embedding_table") const {
    TF_RETURN_IF_ERROR(CheckRank(name, table, 2));
    if (table.dim_size(0) % cores_ == 0 && table.dim_size(0) <= kMaxInt32) {
      return absl::OkStatus();
    }
    return Invalid(name, "the number of rows must be a multiple of " + Cores() +
                             ", has the shape " + table.shape().DebugString());
  }

  // Reads the buffers of a device that has the whole table.
  absl::Status Read(tensorflow::OpKernelContext* context, const char* samples_from,
                    int64_t samples, int64_t table_rows, Triples* triples) const {
    const tensorflow::Tensor* minibatches;
    TF_RETURN_IF_ERROR(context->input(kMinibatches, &minibatches));
    CsrView csr{};
    csr.limits = limits_;
    DeviceContext exec(context);
    return Read({context->input(0), context->input(1), context->input(2), context->input(3),
                 *minibatches, ""},
                samples_from, samples, table_rows, csr, triples, exec);
  }

  // Adds the triples of buffers. `csr` has the limits, the number of devices and the first
  // sample. The samples over all devices must fit in int32.
  absl::Status Read(const CsrTensors& tensors, const std::string& samples_from, int64_t samples,
                    int64_t table_rows, CsrView csr, Triples* triples,
                    ExecutionContext& exec) const {
    if (samples < 0 || samples % cores_ != 0 || samples > kMaxInt32) {
      return Invalid(samples_from, StrCat("the number of samples must be a multiple of ",
                                          Cores(), ", is ", samples));
    }
    const auto name = [&](const char* input) { return input + tensors.suffix; };
    const tensorflow::Tensor* const vectors[] = {&tensors.row_pointers, &tensors.samples,
                                                 &tensors.rows, &tensors.gains};
    const char* const names[] = {"row_pointers", "sorted_sample_ids", "sorted_token_ids",
                                 "sorted_gains"};
    for (int i = 0; i < 4; ++i) {
      TF_RETURN_IF_ERROR(CheckRank(name(names[i]).c_str(), *vectors[i], 1));
    }
    for (int i = 2; i < 4; ++i) {
      TF_RETURN_IF_ERROR(CheckShape(name(names[i]), *vectors[i], tensors.samples.shape(),
                                    "sorted_sample_ids"));
    }
    TF_RETURN_IF_ERROR(CheckRank(name(kMinibatches).c_str(), tensors.minibatches, 0));
    csr.row_pointers = Ints(tensors.row_pointers);
    csr.row_pointers_size = tensors.row_pointers.dim_size(0);
    csr.triples = {Ints(tensors.samples), Ints(tensors.rows), Floats(tensors.gains),
                   tensors.samples.dim_size(0)};
    csr.minibatches = tensors.minibatches.flat<int32_t>()(0);
    csr.sparse_cores = cores_;
    return ToAbsl(ReadCsr(csr, samples, table_rows, triples, exec));
  }

  int64_t cores() const { return cores_; }
  const CsrLimits& limits() const { return limits_; }

 private:
  static constexpr char kMinibatches[] = "num_minibatches_per_physical_sparse_core";

  std::string Cores() const {
    return StrCat("the device's SparseCores, ", cores_, ", and fewer than 2^31");
  }

  int64_t cores_;
  CsrLimits limits_;
};
using CsrKernel = CsrKernelOn<Kernel>;

}  // namespace opwright::sparsecore
