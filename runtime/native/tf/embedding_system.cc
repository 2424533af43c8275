#include "tf/embedding_system.h"

#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"

namespace opwright {

EmbeddingSystem& EmbeddingSystem::Get() {
  static EmbeddingSystem* const system = new EmbeddingSystem;  // Ops may outlive statics.
  return *system;
}

absl::Status EmbeddingSystem::Configure(absl::string_view config) {
  embedding::Configuration configuration;
  std::string canonical;
  if (auto status = ReadConfiguration(config, &configuration, &canonical); !status.ok()) {
    return status;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (engine_) {
    return absl::FailedPreconditionError(
        "embeddings are configured already, and configuring them again would lose their "
        "tables; run ShutdownDistributedTPU or ConfigureDistributedTPU first");
  }
  if (auto refusal = embedding::Engine::Create(configuration, embedding::MakeCpuTableStore(),
                                               &engine_)) {
    return ToStatus(refusal);
  }
  config_ = std::string(config);
  canonical_ = std::move(canonical);
  return absl::OkStatus();
}

bool EmbeddingSystem::ShutDown() {
  std::shared_ptr<embedding::Engine> engine;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    engine.swap(engine_);
  }
  if (!engine) return false;
  engine->Close("the embedding tables were shut down");
  return true;
}

bool EmbeddingSystem::Configured(absl::string_view config) {
  std::lock_guard<std::mutex> lock(mutex_);
  return engine_ && (config.empty() || Fits(config));
}

absl::Status EmbeddingSystem::Find(absl::string_view config,
                                   std::shared_ptr<embedding::Engine>* engine) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!engine_) {
    return absl::FailedPreconditionError(
        "no embeddings are configured; run ConfigureTPUEmbedding first");
  }
  if (!config.empty() && !Fits(config)) {
    return absl::InvalidArgumentError(
        "config is not the one that ConfigureTPUEmbedding was given");
  }
  *engine = engine_;
  return absl::OkStatus();
}

bool EmbeddingSystem::Fits(absl::string_view config) const {
  if (config == config_) return true;
  tensorflow::tpu::TPUEmbeddingConfiguration message;
  return message.ParseFromArray(config.data(), static_cast<int>(config.size())) &&
         message.SerializeAsString() == canonical_;
}

int64_t CoreOfDevice(tensorflow::OpKernelContext* context) {
  return context->device()->parsed_name().id;
}

}  // namespace opwright
