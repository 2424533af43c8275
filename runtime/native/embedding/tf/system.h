// The embedding engine of this process. Ops configure it, use it and shut it down.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tf/guard.h"
#include "embedding/engine.h"
#include "embedding/tf/config.h"
#include "embedding/tf/device.h"
#include "embedding/tf/host_heartbeat.h"
#include "embedding/tf/runtime_exchange.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

class System {
 public:
  static System& Get();

  // Sets the hosts over which tables are sharded from the next configuration on. The hosts send
  // each other heartbeats. With at most one host, this process has all rows.
  void SetHosts(HostTasks hosts);
  // Returns how many bytes this host has sent to others for the current tables, for each
  // channel, and then the number of messages. The values are zero without other hosts.
  std::vector<int64_t> Sent();
  // Runs a task that may wait for other hosts. If there are other hosts, the task runs outside
  // the threads of ops. Otherwise the calling thread runs it immediately.
  void RunTask(std::function<void()> task);

  // Creates the tables on the device of the op. If tables exist already, kRefuse returns
  // FailedPrecondition, and kReplace frees the old tables after the new ones are created. If
  // the call fails, nothing has changed.
  enum class IfConfigured { kRefuse, kReplace };
  absl::Status Configure(tensorflow::OpKernelContext* context, absl::string_view config,
                         IfConfigured if_configured = IfConfigured::kRefuse);
  // Frees the tables and refuses every op that waits for a step. Returns false if there were no
  // tables.
  bool ShutDown();

  // Returns whether there are tables. If `config` is not empty, also checks that they have this
  // configuration.
  bool Configured(absl::string_view config);
  // Returns the serialized configuration in use. It is empty if there are no tables.
  std::string Config();

  // These functions call the functions of Engine, if there is an engine.
  void RunEnded(const RunRef& run, bool sure);
  bool Holds(const RunRef& run);
  // Steps returns the number of steps whose gradients all TensorCores have sent. Abandon
  // returns how many batches Engine::Abandon dropped. QueuedBatches returns how many batches a
  // TensorCore's queue has. Each returns -1 if there are no tables.
  int64_t Steps();
  int64_t QueuedBatches(int64_t core);
  int64_t Abandon(bool tell);

  // Returns the engine for an op with this configuration. An empty configuration fits any
  // engine.
  absl::StatusOr<std::shared_ptr<Engine>> Find(absl::string_view config = {});
  // Returns the number of threads that ops had when the tables were configured.
  int Threads();
  // Returns whether the engine's tables are on the device that the op runs on.
  bool LiesHere(tensorflow::OpKernelContext* context, const Engine& engine);
  // Does the same as Find, for an op that must run on the device of the tables.
  absl::StatusOr<std::shared_ptr<Engine>> FindHere(tensorflow::OpKernelContext* context,
                                                   absl::string_view config);

 private:
  std::shared_ptr<Engine> engine();
  absl::StatusOr<std::shared_ptr<Engine>> FindLocked(absl::string_view config) const;
  // Returns whether the bytes are a serialization of the configuration in use.
  bool Fits(absl::string_view config) const;

  std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
  HostTasks hosts_;
  int64_t generation_ = 0;              // How many times tables were configured.
  std::shared_ptr<Exchange> exchange_;  // Null without other hosts.
  // Created with the first tables that the hosts share.
  std::unique_ptr<HostHeartbeat> heartbeat_;
  OpDevice device_;  // The device of the tables.
  int threads_ = 1;
  std::string config_;  // The configuration as the op passed it.
  // The canonical serialization of the configuration, which can be compared.
  std::string canonical_;
};

// An op with the attr `config`, a serialized TPUEmbeddingConfiguration.
template <class Kernel>
class ConfiguredOp : public Kernel {
 public:
  explicit ConfiguredOp(tensorflow::OpKernelConstruction* context) : Kernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("config", &config_));
  }

 protected:
  std::string config_;
};

// Runs the work of an op. The work may wait for other hosts, and calls `done` at its end. If
// the work throws, the exception becomes the status of the op.
template <class Work>
void RunOp(tensorflow::OpKernelContext* context, tensorflow::AsyncOpKernel::DoneCallback done,
           Work work) {
  System::Get().RunTask([context, done = std::move(done), work = std::move(work)] {
    try {
      work(done);
    } catch (...) {
      context->SetStatus(StatusOfException(context->op_kernel().type_string()));
      done();
    }
  });
}

// Appends the dimensions of a feature's activations to an empty shape. Gradients have the same
// shape.
absl::Status ActivationsShape(const Configuration& configuration, int64_t feature,
                              tensorflow::TensorShape* shape);

// Returns the TensorCore of the configuration that an op works for. It is the number of the
// op's device. A GPU has only one TensorCore, number 0.
int64_t CoreOfDevice(tensorflow::OpKernelContext* context);
// Returns the status. If there are several TensorCores, the message also names this one.
absl::Status OfCore(const Engine& engine, int64_t core, const absl::Status& status);

}  // namespace opwright::embedding
