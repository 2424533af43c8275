// The embedding engine of this process: configured, used and shut down by the ops.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "absl/status/statusor.h"
#include "embedding/engine.h"
#include "embedding/tf/config.h"
#include "embedding/tf/device.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

class System {
 public:
  static System& Get();

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

  // What the engine, if there is one, does when a call has ended; see Engine.
  void CallEnded(const CallRef& call, bool sure);
  bool Holds(const CallRef& call);
  // Steps that were sent by all cores, and what Engine::Abandon dropped; -1: no tables.
  int64_t Steps();
  int64_t Abandon(bool tell);

  // The engine, for an op wherever it runs.
  absl::StatusOr<std::shared_ptr<Engine>> Find();
  // The engine, for an op that uses the memory of its tables and was given this
  // configuration; an empty one fits any engine.
  absl::StatusOr<std::shared_ptr<Engine>> FindHere(tensorflow::OpKernelContext* context,
                                                   absl::string_view config);

 private:
  std::shared_ptr<Engine> engine();
  absl::StatusOr<std::shared_ptr<Engine>> FindLocked() const;
  // Whether the bytes stand for the configuration in use.
  bool Fits(absl::string_view config) const;

  std::mutex mutex_;
  std::shared_ptr<Engine> engine_;
  OpDevice device_;        // Of its tables.
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

// The core that an op works for, of those in the configuration: the number of its device, if
// that is not a GPU, where there is one core.
int64_t CoreOfDevice(tensorflow::OpKernelContext* context);

}  // namespace opwright::embedding
