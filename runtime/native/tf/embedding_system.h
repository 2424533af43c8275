// The embedding engine of this process: configured, used and shut down by the ops.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "core/embedding/engine.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/embedding_config.h"
#include "tf/embedding_device.h"

namespace opwright {

class EmbeddingSystem {
 public:
  static EmbeddingSystem& Get();

  // Makes the tables, at the place of the op. FailedPrecondition if there are some already:
  // nothing is thrown away without ShutDown.
  absl::Status Configure(tensorflow::OpKernelContext* context, absl::string_view config);
  // Throws the tables away, and refuses whatever waits for a step. False: there were none.
  bool ShutDown();

  // Whether there are tables, and with a configuration, whether they are those.
  bool Configured(absl::string_view config);

  // The engine, for an op wherever it runs.
  absl::Status Find(std::shared_ptr<embedding::Engine>* engine);
  // The engine, for an op that uses the memory of its tables and was given this
  // configuration; an empty one fits any engine.
  absl::Status FindHere(tensorflow::OpKernelContext* context, absl::string_view config,
                        std::shared_ptr<embedding::Engine>* engine);

 private:
  absl::Status FindLocked(std::shared_ptr<embedding::Engine>* engine) const;
  // Whether the bytes stand for the configuration in use.
  bool Fits(absl::string_view config) const;

  std::mutex mutex_;
  std::shared_ptr<embedding::Engine> engine_;
  Place place_;            // Of its tables.
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

}  // namespace opwright
