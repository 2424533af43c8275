// RecvTPUEmbeddingActivations, SendTPUEmbeddingGradients, TPUEmbeddingActivations.
#include <memory>
#include <vector>

#include "base/checked.h"
#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/tf/output_tensors.h"
#include "embedding/tf/runs.h"
#include "embedding/tf/system.h"
#include "embedding/tf/wait.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;

absl::Status CheckCount(const char* name, int64_t count, const Configuration& configuration) {
  const int64_t features = static_cast<int64_t>(configuration.features.size());
  if (count == features) return absl::OkStatus();
  return Invalid(name,
                 "must be the number of the configuration's " +
                     std::string(configuration.by_num_features ? "tables, " : "features, ") +
                     std::to_string(features) + ", is " + std::to_string(count));
}

class RecvOp : public ConfiguredOp<AsyncOpKernel> {
 public:
  using ConfiguredOp::ConfiguredOp;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    // A cancelled run ends here with Cancelled, the status that its caller expects. The engine
    // would report that the run has failed.
    tensorflow::CancellationManager* const manager = context->cancellation_manager();
    OP_REQUIRES_ASYNC(context, !manager || !manager->IsCancelled(),
                      absl::CancelledError(type_string() + " was cancelled before its turn"),
                      done);
    const auto found = System::Get().FindHere(context, config_);
    OP_REQUIRES_OK_ASYNC(context, found.status(), done);
    const std::shared_ptr<Engine> engine = *found;
    const Configuration& configuration = engine->configuration();
    OP_REQUIRES_OK_ASYNC(
        context, CheckCount("num_outputs", context->num_outputs(), configuration), done);
    const int64_t core = CoreOfDevice(context);
    OP_REQUIRES_OK_ASYNC(context, ToAbsl(engine->CheckCore(core)), done);
    FindEndedRuns();
    const RunRef run = RunOf(context);
    RunOp(context, std::move(done), [=](const DoneCallback& done) {
      Waiting::Start(
          context, engine, done, [&](ExecutionContext* exec, Waiting::Resume resume) {
            return engine->Receive(
                exec, core,
                [=, resume = std::move(resume)](const Status& status,
                                                const Engine::Grant& grant) {
                  resume([=](ExecutionContext* exec) {
                    return status.ok() ? LookUp(context, engine.get(), exec, grant) : status;
                  });
                },
                run);
          });
    });
  }

 private:
  static Status LookUp(OpKernelContext* context, Engine* engine, ExecutionContext* exec,
                       const Engine::Grant& grant) {
    std::vector<float*> outputs;
    const absl::Status made =
        MakeOutputs(context, engine->configuration(), grant.prepared.get(), &outputs);
    return engine->Lookup(
        exec, grant, outputs.data(),
        made.ok() ? Status() : ResourceExhaustedError(std::string(made.message())));
  }

  // Sets the outputs of the op. If the lookup has already begun, the outputs are the tensors
  // that it fills.
  static absl::Status MakeOutputs(OpKernelContext* context, const Configuration& configuration,
                                  const PreparedBatch* prepared, std::vector<float*>* outputs) {
    const OutputBuffersRef buffers = prepared ? prepared->outputs() : nullptr;
    if (const auto* const made = dynamic_cast<const OutputTensors*>(buffers.get())) {
      for (int i = 0; i < context->num_outputs(); ++i) {
        context->set_output(i, At(made->tensors(), i));
      }
      *outputs = made->data();
      return absl::OkStatus();
    }
    outputs->reserve(static_cast<size_t>(context->num_outputs()));
    for (int i = 0; i < context->num_outputs(); ++i) {
      TensorShape shape;
      TF_RETURN_IF_ERROR(ActivationsShape(configuration, i, &shape));
      Tensor* output;
      TF_RETURN_IF_ERROR(context->allocate_output(i, shape, &output));
      outputs->push_back(output->flat<float>().data());
    }
    return absl::OkStatus();
  }
};

class SendOp : public ConfiguredOp<AsyncOpKernel> {
 public:
  using ConfiguredOp::ConfiguredOp;

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    FindEndedRuns();
    const RunRef run = RunOf(context);
    RunOp(context, std::move(done), [this, context, run](const DoneCallback& done) {
      context->SetStatus(Work(context, run));
      done();
    });
  }

 private:
  absl::Status Work(OpKernelContext* context, const RunRef& run) {
    const auto found = System::Get().FindHere(context, config_);
    TF_RETURN_IF_ERROR(found.status());
    const int64_t core = CoreOfDevice(context);
    TF_RETURN_IF_ERROR(ToAbsl((*found)->CheckCore(core)));
    return OfCore(**found, core, Send(context, found->get(), core, run));
  }

  static absl::Status Send(OpKernelContext* context, Engine* engine, int64_t core,
                           const RunRef& run) {
    const Configuration& configuration = engine->configuration();
    OpInputList gradients, rates;
    TF_RETURN_IF_ERROR(context->input_list("inputs", &gradients));
    TF_RETURN_IF_ERROR(context->input_list("learning_rates", &rates));
    TF_RETURN_IF_ERROR(CheckCount("inputs", gradients.size(), configuration));
    auto kept = std::make_shared<std::vector<Tensor>>();
    std::vector<const float*> values;
    for (int i = 0; i < gradients.size(); ++i) {
      TensorShape shape;
      TF_RETURN_IF_ERROR(ActivationsShape(configuration, i, &shape));
      if (gradients[i].shape() != shape) {
        return Invalid("inputs[" + std::to_string(i) + "]",
                       "the gradient of " + DescribeFeature(configuration, i) +
                           " must have the shape " + shape.DebugString() + ", has " +
                           gradients[i].shape().DebugString());
      }
      kept->push_back(gradients[i]);
      values.push_back(gradients[i].flat<float>().data());
    }
    std::vector<float> tagged;
    for (int i = 0; i < rates.size(); ++i) {
      if (rates[i].dims() != 0) {
        return Invalid("learning_rates[" + std::to_string(i) + "]",
                       "must be a scalar, has the shape " + rates[i].shape().DebugString());
      }
      tagged.push_back(rates[i].scalar<float>()());
    }
    DeviceContext exec(context);
    TF_RETURN_IF_ERROR(ToAbsl(engine->Send(&exec, core, values, std::move(kept), tagged, run)));
    if (run && !engine->Holds(run)) Untrack(run);
    return absl::OkStatus();
  }
};

// A marker in the graph. It returns the activations of one feature unchanged.
class ActivationsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override { context->set_output(0, context->input(1)); }
};

OPWRIGHT_REGISTER("RecvTPUEmbeddingActivations", , RecvOp);
OPWRIGHT_REGISTER("SendTPUEmbeddingGradients", .HostMemory("learning_rates"), SendOp);
OPWRIGHT_REGISTER("TPUEmbeddingActivations", , ActivationsOp);

}  // namespace
}  // namespace opwright::embedding
