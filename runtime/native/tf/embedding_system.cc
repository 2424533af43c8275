#include "tf/embedding_system.h"

#include "absl/strings/str_cat.h"
#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"

namespace opwright {

EmbeddingSystem& EmbeddingSystem::Get() {
  static EmbeddingSystem* const system = new EmbeddingSystem;  // Ops may outlive statics.
  return *system;
}

absl::Status EmbeddingSystem::Configure(tensorflow::OpKernelContext* context,
                                        absl::string_view config) {
  embedding::Configuration configuration;
  std::string canonical;
  if (auto status = ReadConfiguration(config, &configuration, &canonical); !status.ok()) {
    return status;
  }
  const Place place = PlaceOf(context);
  if (!place.gpu.empty() && configuration.cores != 1) {
    return absl::InvalidArgumentError("num_tensor_cores must be 1 for tables on a GPU, is " +
                                      std::to_string(configuration.cores));
  }
  std::lock_guard<std::mutex> lock(mutex_);
  if (engine_) {
    return absl::FailedPreconditionError(
        "embeddings are configured already, and configuring them again would lose their "
        "tables; run ShutdownDistributedTPU or ConfigureDistributedTPU first");
  }
  if (auto refusal =
          embedding::Engine::Create(configuration, MakeTableStore(context), &engine_)) {
    return ToStatus(refusal);
  }
  place_ = place;
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

absl::Status EmbeddingSystem::Find(std::shared_ptr<embedding::Engine>* engine) {
  std::lock_guard<std::mutex> lock(mutex_);
  return FindLocked(engine);
}

absl::Status EmbeddingSystem::FindHere(tensorflow::OpKernelContext* context,
                                       absl::string_view config,
                                       std::shared_ptr<embedding::Engine>* engine) {
  const Place place = PlaceOf(context);
  std::lock_guard<std::mutex> lock(mutex_);
  if (auto status = FindLocked(engine); !status.ok()) return status;
  if (!config.empty() && !Fits(config)) {
    return absl::InvalidArgumentError(
        "config is not the one that ConfigureTPUEmbedding was given");
  }
  if (place == place_) return absl::OkStatus();
  const auto name = [](const Place& one) { return one.gpu.empty() ? "the CPU" : one.gpu; };
  return absl::InvalidArgumentError(absl::StrCat(
      "the embedding tables lie on ", name(place_), ", where they were configured, and ",
      context->op_kernel().type_string(), " runs on ", name(place),
      "; put both on one device, with tf.device"));
}

absl::Status EmbeddingSystem::FindLocked(std::shared_ptr<embedding::Engine>* engine) const {
  *engine = engine_;
  if (engine_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "no embeddings are configured; run ConfigureTPUEmbedding first");
}

bool EmbeddingSystem::Fits(absl::string_view config) const {
  if (config == config_) return true;
  tensorflow::tpu::TPUEmbeddingConfiguration message;
  return message.ParseFromArray(config.data(), static_cast<int>(config.size())) &&
         message.SerializeAsString() == canonical_;
}

int64_t CoreOfDevice(tensorflow::OpKernelContext* context) {
  return PlaceOf(context).gpu.empty() ? context->device()->parsed_name().id : 0;
}

}  // namespace opwright
