// RecvTPUEmbeddingActivations, SendTPUEmbeddingGradients, TPUEmbeddingActivations.
#include <memory>
#include <vector>

#include "tensorflow/core/framework/op_kernel.h"
#include "tf/device_host.h"
#include "tf/embedding_system.h"
#include "tf/embedding_wait.h"
#include "tf/register.h"
#include "tf/status.h"

namespace opwright {
namespace {

using embedding::Configuration;
using embedding::Engine;
using tensorflow::AsyncOpKernel;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

TensorShape ShapeOf(const Configuration& configuration, int64_t feature) {
  TensorShape shape;
  for (const int64_t size : configuration.features[feature].shape) shape.AddDim(size);
  shape.AddDim(configuration.tables[configuration.features[feature].table].dimension);
  return shape;
}

absl::Status CheckCount(const char* name, int64_t count, const Configuration& configuration) {
  const int64_t features = static_cast<int64_t>(configuration.features.size());
  if (count == features) return absl::OkStatus();
  return Invalid(name, "must be the number of the configuration's " +
                           std::string(configuration.legacy ? "tables, " : "features, ") +
                           std::to_string(features) + ", is " + std::to_string(count));
}

class RecvOp : public ConfiguredOp<AsyncOpKernel> {
 public:
  using ConfiguredOp::ConfiguredOp;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    std::shared_ptr<Engine> engine;
    OP_REQUIRES_OK_ASYNC(context, EmbeddingSystem::Get().FindHere(context, config_, &engine), done);
    const Configuration& configuration = engine->configuration();
    OP_REQUIRES_OK_ASYNC(
        context, CheckCount("num_outputs", context->num_outputs(), configuration), done);
    const int64_t core = CoreOfDevice(context);
    OP_REQUIRES_OK_ASYNC(context, ToStatus(engine->CheckCore(core)), done);
    std::vector<float*> outputs(context->num_outputs());
    for (int i = 0; i < context->num_outputs(); ++i) {
      Tensor* output;
      OP_REQUIRES_OK_ASYNC(
          context, context->allocate_output(i, ShapeOf(configuration, i), &output), done);
      outputs[i] = output->flat<float>().data();
    }
    Waiting::Start(
        context, engine, std::move(done),
        [=](Host* host, Engine::OnTurn on_turn) {
          return engine->Receive(host, core, std::move(on_turn));
        },
        [=](Host* host, const Engine::Turn& turn) {
          return engine->Lookup(host, turn, outputs.data());
        });
  }
};

class SendOp : public ConfiguredOp<OpKernel> {
 public:
  using ConfiguredOp::ConfiguredOp;

  void Compute(OpKernelContext* context) override {
    std::shared_ptr<Engine> engine;
    OP_REQUIRES_OK(context, EmbeddingSystem::Get().FindHere(context, config_, &engine));
    const Configuration& configuration = engine->configuration();
    const int64_t core = CoreOfDevice(context);
    OP_REQUIRES_OK(context, ToStatus(engine->CheckCore(core)));
    OpInputList gradients, rates;
    OP_REQUIRES_OK(context, context->input_list("inputs", &gradients));
    OP_REQUIRES_OK(context, context->input_list("learning_rates", &rates));
    OP_REQUIRES_OK(context, CheckCount("inputs", gradients.size(), configuration));
    auto kept = std::make_shared<std::vector<Tensor>>();
    std::vector<const float*> values;
    for (int i = 0; i < gradients.size(); ++i) {
      const TensorShape shape = ShapeOf(configuration, i);
      OP_REQUIRES(context, gradients[i].shape() == shape,
                  Invalid("inputs[" + std::to_string(i) + "]",
                          "the gradient of " + embedding::DescribeFeature(configuration, i) +
                              " must have the shape " + shape.DebugString() + ", has " +
                              gradients[i].shape().DebugString()));
      kept->push_back(gradients[i]);
      values.push_back(gradients[i].flat<float>().data());
    }
    std::vector<float> tagged;
    for (int i = 0; i < rates.size(); ++i) {
      OP_REQUIRES(context, rates[i].dims() == 0,
                  Invalid("learning_rates[" + std::to_string(i) + "]",
                          "must be a scalar, has the shape " + rates[i].shape().DebugString()));
      tagged.push_back(rates[i].scalar<float>()());
    }
    DeviceHost host(context);
    OP_REQUIRES_OK(context,
                   ToStatus(engine->Send(&host, core, values, std::move(kept), tagged)));
  }
};

// A marker in the graph: the activations of one feature of a table, as they are.
class ActivationsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    context->set_output(0, context->input(1));
  }
};

OPWRIGHT_REGISTER("RecvTPUEmbeddingActivations", , RecvOp);
OPWRIGHT_REGISTER("SendTPUEmbeddingGradients", .HostMemory("learning_rates"), SendOp);
OPWRIGHT_REGISTER("TPUEmbeddingActivations", , ActivationsOp);

}  // namespace
}  // namespace opwright
