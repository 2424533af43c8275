// Two versions of one library, with a case each of what can change; NEXT is the second.
// Kernels are registered in C, which compiles in a fraction of the time.

#include <cstdint>

#include "tensorflow/c/kernels.h"
#include "tensorflow/c/tf_status.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"

// The only one with a shape function.
REGISTER_OP("Same")
    .Input("x: float")
    .Output("y: float")
    .Attr("times: int = 1")
    .SetShapeFn(tensorflow::shape_inference::UnchangedShape);

#ifndef NEXT

REGISTER_OP("Gone").Input("x: float").Output("y: float");

REGISTER_OP("GainsOutput").Input("x: float").Output("y: float");

REGISTER_OP("GainsThird").Input("x: float").Output("y: float").Output("z: float");

REGISTER_OP("GainsChoice").Input("x: float").Output("y: float");

REGISTER_OP("GainsInput").Input("x: float").Output("y: float");

REGISTER_OP("LosesChoice")
    .Input("x: float")
    .Output("y: float")
    .Attr("mode: {'fast', 'good'} = 'good'");

REGISTER_OP("Retyped").Input("x: float").Output("y: float").Attr("gain: int = 1");

REGISTER_OP("Defaulted").Input("x: float").Output("y: float").Attr("times: int = 2");

REGISTER_OP("Renamed")
    .Input("signal: float")
    .Input("count: int32")
    .Output("y: float")
    .Attr("T: {float, double} = DT_FLOAT")
    .Doc("Repeats a signal.");

REGISTER_OP("Documented")
    .Input("text: string")
    .Output("pieces: string")
    .Attr("limit: int = 10")
    .Doc(R"doc(
Cuts text into pieces

A piece is what stands between two spaces:

```python
documented("a b")
```

text: What is cut.
pieces: The pieces, in order.
limit: How many pieces there are at most.
)doc");

#else

REGISTER_OP("Come").Input("x: float").Output("y: float");

REGISTER_OP("GainsOutput").Input("x: float").Output("y: float").Output("z: float");

REGISTER_OP("GainsThird")
    .Input("x: float")
    .Output("y: float")
    .Output("z: float")
    .Output("third: float");

REGISTER_OP("GainsChoice").Input("x: float").Output("y: float").Attr("clip: bool = false");

REGISTER_OP("GainsInput").Input("x: float").Input("more: float").Output("y: float");

REGISTER_OP("LosesChoice").Input("x: float").Output("y: float");

REGISTER_OP("Retyped").Input("x: float").Output("y: float").Attr("gain: float = 1.0");

REGISTER_OP("Defaulted").Input("x: float").Output("y: float").Attr("times: int = 3");

REGISTER_OP("Renamed")
    .Input("samples: float")
    .Input("count: int32")
    .Output("y: float")
    .Attr("dtype: {float, double} = DT_FLOAT")
    .Doc("Repeats samples.");

REGISTER_OP("Documented")
    .Input("text: string")
    .Output("pieces: string")
    .Attr("limit: int = 10")
    .Doc(R"doc(
Splits text into pieces.

A piece is what stands between two spaces.

text: What is split.
pieces: The pieces, in order of the text.
limit: How many pieces there are at most.
)doc");

#endif

namespace {

// Every output is the first input.
void PassOn(void*, TF_OpKernelContext* context) {
  TF_Status* status = TF_NewStatus();
  TF_Tensor* input = nullptr;
  TF_GetInput(context, 0, &input, status);
  for (int i = 0; i < TF_NumOutputs(context) && TF_GetCode(status) == TF_OK; ++i) {
    TF_SetOutput(context, i, input, status);
  }
  if (TF_GetCode(status) != TF_OK) TF_OpKernelContext_Failure(context, status);
  TF_DeleteTensor(input);
  TF_DeleteStatus(status);
}

// The output is the attr `times`.
void* Keep(TF_OpKernelConstruction* construction) {
  TF_Status* status = TF_NewStatus();
  auto* times = new int64_t;
  TF_OpKernelConstruction_GetAttrInt64(construction, "times", times, status);
  TF_DeleteStatus(status);
  return times;
}

void Say(void* times, TF_OpKernelContext* context) {
  TF_Status* status = TF_NewStatus();
  TF_Tensor* output =
      TF_AllocateOutput(context, 0, TF_FLOAT, nullptr, 0, sizeof(float), status);
  *static_cast<float*>(TF_TensorData(output)) =
      static_cast<float>(*static_cast<int64_t*>(times));
  TF_DeleteTensor(output);
  TF_DeleteStatus(status);
}

void Drop(void* times) { delete static_cast<int64_t*>(times); }

int Register() {
  TF_Status* said = TF_NewStatus();
  TF_RegisterKernelBuilder("Defaulted",
                           TF_NewKernelBuilder("Defaulted", "CPU", Keep, Say, Drop), said);
  TF_DeleteStatus(said);
  for (const char* op : {"Same", "Gone", "Come", "GainsOutput", "GainsThird", "GainsChoice",
                         "GainsInput", "LosesChoice", "Retyped", "Renamed", "Documented"}) {
    TF_Status* status = TF_NewStatus();
    TF_RegisterKernelBuilder(op, TF_NewKernelBuilder(op, "CPU", nullptr, PassOn, nullptr),
                             status);
    TF_DeleteStatus(status);
  }
  return 0;
}

const int registered = Register();

}  // namespace
