// A small library of custom ops, as a user might write it. WITH_CLIP is its next
// version; OPS_ONLY leaves the kernels out, which take most of the time to compile.

#include "tensorflow/core/framework/op.h"

REGISTER_OP("Addons>Gain")
    .Input("signal: float")
    .Output("louder: float")
    .Attr("gain: float = 2.0")
#ifdef WITH_CLIP
    .Attr("clip: bool = false")
#endif
    .Doc("Multiplies a signal.");

REGISTER_OP("Mix")
    .Input("tracks: N * T")
    .Output("mix: T")
    .Attr("N: int >= 1")
    .Attr("T: {float, double}");

#ifndef OPS_ONLY
#include "tensorflow/core/framework/op_kernel.h"

namespace {

using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;

class Gain : public OpKernel {
 public:
  explicit Gain(OpKernelConstruction* c) : OpKernel(c) {
    OP_REQUIRES_OK(c, c->GetAttr("gain", &gain_));
  }

  void Compute(OpKernelContext* c) override {
    Tensor* louder;
    OP_REQUIRES_OK(c, c->allocate_output(0, c->input(0).shape(), &louder));
    const auto signal = c->input(0).flat<float>();
    for (int64_t i = 0; i < signal.size(); ++i) {
      louder->flat<float>()(i) = gain_ * signal(i);
    }
  }

 private:
  float gain_;
};

template <typename T>
class Mix : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* c) override {
    Tensor* mix;
    OP_REQUIRES_OK(c, c->allocate_output(0, c->input(0).shape(), &mix));
    for (int64_t i = 0; i < mix->NumElements(); ++i) {
      T sum = 0;
      for (int track = 0; track < c->num_inputs(); ++track) {
        sum += c->input(track).flat<T>()(i);
      }
      mix->flat<T>()(i) = sum;
    }
  }
};

#define CPU_KERNEL(name) Name(name).Device(tensorflow::DEVICE_CPU)
REGISTER_KERNEL_BUILDER(CPU_KERNEL("Addons>Gain"), Gain);
REGISTER_KERNEL_BUILDER(CPU_KERNEL("Mix").TypeConstraint<float>("T"), Mix<float>);
REGISTER_KERNEL_BUILDER(CPU_KERNEL("Mix").TypeConstraint<double>("T"), Mix<double>);

}  // namespace
#endif  // OPS_ONLY
