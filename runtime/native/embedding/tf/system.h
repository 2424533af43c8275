// The embedding engine of this process: configured, used and shut down by the ops.
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

  // From the next configuration on, tables are sharded over these hosts, which send each other
  // heartbeats. With none or one, this process has all rows.
  void SetHosts(HostTasks hosts);
  // What this host has sent to others for the tables in use, in bytes by channel; then how many
  // messages. Zeros without other hosts.
  std::vector<int64_t> Sent();
  // Runs what may wait for other hosts, if there are some, apart from the threads of ops; else
  // here and now.
  void RunTask(std::function<void()> task);

  // Makes the tables, on the device of the op. With tables there already, it is refused as
  // FailedPrecondition, or they are thrown away once the new ones are made. Refused, all is as
  // it was.
  enum class IfConfigured { kRefuse, kReplace };
  absl::Status Configure(tensorflow::OpKernelContext* context, absl::string_view config,
                         IfConfigured if_configured = IfConfigured::kRefuse);
  // Throws the tables away, and refuses whatever waits for a step. False: there were none.
  bool ShutDown();

  // Whether there are tables, and with a configuration, whether they are those.
  bool Configured(absl::string_view config);
  // The serialized configuration in use; empty: no tables.
  std::string Config();

  // What the engine, if there is one, does when a run has ended; see Engine.
  void RunEnded(const RunRef& run, bool sure);
  bool Holds(const RunRef& run);
  // Steps that were sent by all cores, and what Engine::Abandon dropped; -1: no tables.
  int64_t Steps();
  int64_t Abandon(bool tell);

  // The engine, for an op that was given this configuration; an empty one fits any engine.
  absl::StatusOr<std::shared_ptr<Engine>> Find(absl::string_view config = {});
  // Of ops, when the tables were configured.
  int Threads();
  // Whether its tables lie where the op runs.
  bool LiesHere(tensorflow::OpKernelContext* context, const Engine& engine);
  // As Find, for an op that has to run where the tables lie.
  absl::StatusOr<std::shared_ptr<Engine>> FindHere(tensorflow::OpKernelContext* context,
                                                   absl::string_view config);

 private:
  std::shared_ptr<Engine> engine();
  absl::StatusOr<std::shared_ptr<Engine>> FindLocked(absl::string_view config) const;
  // Whether the bytes stand for the configuration in use.
  bool Fits(absl::string_view config) const;

  std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
  HostTasks hosts_;
  int64_t generation_ = 0;                    // Of tables since the hosts were set.
  std::shared_ptr<Exchange> exchange_;        // Null: no other hosts.
  std::unique_ptr<HostHeartbeat> heartbeat_;  // From the first tables on that they share.
  OpDevice device_;                           // Of its tables.
  int threads_ = 1;
  std::string config_;     // As it was given,
  std::string canonical_;  // and in bytes that can be compared.
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

// Does the work of an op, which may wait for other hosts, and which calls `done` at its end.
// What the work throws becomes the op's status.
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

// Turns an empty shape into that of a feature's activations and of their gradient.
absl::Status ActivationsShape(const Configuration& configuration, int64_t feature,
                              tensorflow::TensorShape* shape);

// The core that an op works for, of those in the configuration: the number of its device, if
// that is not a GPU, where there is one core.
int64_t CoreOfDevice(tensorflow::OpKernelContext* context);
// The same, and whose it is where there are several cores.
absl::Status OfCore(const Engine& engine, int64_t core, const absl::Status& status);

}  // namespace opwright::embedding
