// Ops that bring a batch to the device, cut to the part that is filled.
#include <cstdint>

#include "base/text.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "sparsecore/tf/kernel.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::sparsecore {
namespace {

using tensorflow::OpInputList;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;

// Returns the filled parts of tensors. They share the memory of the tensors. On a TPU, the
// rest of each tensor is padding that the program does not see.
class CopyOp : public Kernel {
 public:
  using Kernel::Kernel;

 protected:
  absl::Status Run(OpKernelContext* context) override {
    OpInputList tensors, sizes;
    TF_RETURN_IF_ERROR(context->input_list("tensors", &tensors));
    TF_RETURN_IF_ERROR(context->input_list("unpadded_sizes", &sizes));
    OpOutputList copies;
    TF_RETURN_IF_ERROR(context->output_list("tpu_tensors", &copies));
    if (sizes.size() != tensors.size()) {
      return Invalid("unpadded_sizes", StrCat("there must be one for each of the ",
                                              tensors.size(), " tensors, are ", sizes.size()));
    }
    for (int i = 0; i < tensors.size(); ++i) {
      int64_t size = 0;
      TF_RETURN_IF_ERROR(ReadSize(i, tensors[i], sizes[i], &size));
      copies.set(i, tensors[i].Slice(0, size));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status ReadSize(int i, const Tensor& tensor, const Tensor& from, int64_t* size) {
    if (tensor.dims() == 0) {
      return Invalid(StrCat("tensors[", i, "]"), "must be of rank 1 or more, is a scalar");
    }
    if (from.NumElements() != 1) {
      return Invalid(StrCat("unpadded_sizes[", i, "]"),
                     "must be one number, has the shape " + from.shape().DebugString());
    }
    // The number is read only once, because another thread may change the input.
    *size = Ints(from)[0];
    if (*size >= 0 && *size <= tensor.dim_size(0)) return absl::OkStatus();
    return Invalid(StrCat("unpadded_sizes[", i, "]"),
                   StrCat("must be at least 0 and at most ", tensor.dim_size(0),
                          ", the first dimension of tensors[", i, "], is ", *size));
  }
};

// Passes tensors on. The mark is for XLA. Here, tensors have their true sizes already.
class AnnotateOp : public Kernel {
 public:
  using Kernel::Kernel;

 protected:
  absl::Status Run(OpKernelContext* context) override {
    for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
    return absl::OkStatus();
  }
};

OPWRIGHT_REGISTER_CPU("TPUCopyWithDynamicShape", CopyOp);
OPWRIGHT_REGISTER_CPU("TPUAnnotateTensorsWithDynamicShape", AnnotateOp);

}  // namespace
}  // namespace opwright::sparsecore
