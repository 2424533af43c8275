// OpwrightSparseCoreLookup looks up rows of a table whose shards are variables. The lookup ops
// of TensorFlow take a tensor, which has the shards of one device only.
#include <cstdint>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/spec.h"
#include "sparsecore/lookup.h"
#include "sparsecore/row_arrays.h"
#include "sparsecore/tf/csr_kernel.h"
#include "sparsecore/tf/kernel.h"
#include "sparsecore/tf/quantization.h"
#include "sparsecore/tf/variables.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace opwright::sparsecore {
namespace {

using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;

absl::Status InferActivations(InferenceContext* context) {
  int64_t samples;
  TF_RETURN_IF_ERROR(context->GetAttr("input_size", &samples));
  DimensionHandle width = context->UnknownDim();
  const auto* const table = context->input_handle_shapes_and_types(5);
  if (table && table->size() == 1 && context->Rank((*table)[0].shape) == 2) {
    width = context->Dim((*table)[0].shape, 1);
  }
  context->set_output(
      0, context->MakeShape(std::vector<DimensionHandle>{context->MakeDim(samples), width}));
  return absl::OkStatus();
}

// The attrs and inputs have the names of XlaSparseDenseMatmulWithStaticBufferSize.
REGISTER_OP("OpwrightSparseCoreLookup")
    .Input("row_pointers: int32")
    .Input("sorted_sample_ids: int32")
    .Input("sorted_token_ids: int32")
    .Input("sorted_gains: float")
    .Input("num_minibatches_per_physical_sparse_core: int32")
    .Input("tables: num_devices * resource")  // The shards of each device, in their order.
    .Output("activations: float")             // [input_size, columns of the table]
    .Attr("num_devices: int >= 1")
    .Attr("input_size: int >= 0")
    .Attr("quantization_config_low: float = 0.0")
    .Attr("quantization_config_high: float = 0.0")
    .Attr("quantization_config_num_buckets: int = 0")
    .Attr("max_ids_per_sparse_core: int >= 1")
    .Attr("max_unique_ids_per_sparse_core: int >= 1")
    .Attr("num_sparsecores_per_device: int = -1")
    .SetIsStateful()
    .SetShapeFn(InferActivations);

class VariableLookupOp : public CsrKernel {
 public:
  explicit VariableLookupOp(tensorflow::OpKernelConstruction* context)
      : CsrKernel(context), samples_(IntAttr(context, "input_size")) {
    OP_REQUIRES_OK(context, ReadQuantization(context, &quantization_));
  }

 protected:
  absl::Status Run(tensorflow::OpKernelContext* context) override {
    Variables tables("tables", Variables::Access::kRead);
    TF_RETURN_IF_ERROR(tables.Lock(context));
    const int64_t devices = tables.size();
    TF_RETURN_IF_ERROR(CheckShards(tables, 0, devices, cores(), devices));
    const int64_t rows = tables.shape(0).dim_size(0), width = tables.shape(0).dim_size(1);
    CsrView csr{};
    csr.limits = limits();
    csr.devices = devices;
    DeviceContext exec(context);
    Triples triples;
    TF_RETURN_IF_ERROR(Read({context->input(0), context->input(1), context->input(2),
                             context->input(3), context->input(4), ""},
                            "input_size", samples_, rows * devices, csr, &triples, exec));
    tensorflow::TensorShape shape;
    TF_RETURN_IF_ERROR(tensorflow::TensorShape::BuildTensorShape({samples_, width}, &shape));
    tensorflow::Tensor* activations;
    TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &activations));
    std::vector<const float*> arrays;
    for (int64_t i = 0; i < devices; ++i) arrays.push_back(tables.data(i));
    SumRows(triples, {std::move(arrays), rows, width}, quantization_, samples_,
            Floats(activations), exec);
    return absl::OkStatus();
  }

 private:
  const int64_t samples_;
  embedding::Quantization quantization_;
};

OPWRIGHT_REGISTER_CPU("OpwrightSparseCoreLookup", VariableLookupOp);

}  // namespace
}  // namespace opwright::sparsecore
