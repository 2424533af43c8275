#include "embedding/tf/system.h"

#include "base/tf/status.h"
#include "base/tf/workers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/checked.h"
#include "embedding/cpu/hosts.h"
#include "embedding/tf/watch.h"
#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"

namespace opwright::embedding {

System& System::Get() {
  // Never destroyed, because ops may outlive static objects.
  static System* const system = new System;
  return *system;
}

absl::Status System::Configure(tensorflow::OpKernelContext* context, absl::string_view config,
                               IfConfigured if_configured) {
  Configuration configuration;
  std::string canonical;
  TF_RETURN_IF_ERROR(ReadConfiguration(config, &configuration, &canonical));
  const OpDevice device = DeviceOf(context);
  if (!device.gpu.empty() && configuration.cores != 1) {
    return absl::InvalidArgumentError("num_tensor_cores must be 1 for tables on a GPU, is " +
                                      std::to_string(configuration.cores));
  }
  std::shared_ptr<Engine> before;
  // If it is not needed, it is destroyed after the lock is released.
  std::unique_ptr<HostHeartbeat> heartbeat;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (engine_ && if_configured == IfConfigured::kRefuse) {
      return absl::FailedPreconditionError(
          "embeddings are configured already, and configuring them again would lose their "
          "tables; run ShutdownDistributedTPU or ConfigureDistributedTPU first");
    }
    std::string kept(config);
    std::unique_ptr<TableStore> store = MakeTableStore(context);
    std::shared_ptr<Exchange> exchange;
    if (hosts_.tasks.size() > 1) {
      if (!device.gpu.empty()) {
        return absl::UnimplementedError("tables on a GPU cannot be shared out over hosts");
      }
      auto made = MakeRuntimeExchange(context, hosts_, generation_ + 1);
      TF_RETURN_IF_ERROR(made.status());
      exchange = *std::move(made);
      if (!heartbeat_) {
        heartbeat = std::make_unique<HostHeartbeat>(context->collective_executor(), hosts_);
      }
    }
    StatusOr<std::shared_ptr<Engine>> made =
        exchange ? Engine::Create(configuration, MakeHostsStore(exchange, std::move(store)))
                 : Engine::Create(configuration, std::move(store));
    TF_RETURN_IF_ERROR(ToAbsl(made.status()));
    ++generation_;
    exchange_ = std::move(exchange);
    if (heartbeat) heartbeat_ = std::move(heartbeat);
    before = std::exchange(engine_, *std::move(made));
    device_ = device;
    threads_ = WorkerPool(context)->NumThreads();
    config_ = std::move(kept);
    canonical_ = std::move(canonical);
  }
  NoteInterrupts();
  if (before) before->Close("the embedding tables were configured anew");
  return absl::OkStatus();
}

int System::Threads() {
  std::lock_guard<std::mutex> lock(mutex_);
  return threads_;
}

void System::SetHosts(HostTasks hosts) {
  std::unique_ptr<HostHeartbeat> before;
  std::lock_guard<std::mutex> lock(mutex_);
  before = std::move(heartbeat_);
  hosts_ = std::move(hosts);
}

std::vector<int64_t> System::Sent() {
  std::vector<int64_t> sent(kChannels + 1);
  std::lock_guard<std::mutex> lock(mutex_);
  if (!exchange_) return sent;
  for (int i = 0; i < kChannels; ++i) sent[i] = exchange_->BytesSent(static_cast<Channel>(i));
  sent.back() = exchange_->MessagesSent();
  return sent;
}

void System::RunTask(std::function<void()> task) {
  std::shared_ptr<Exchange> exchange;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    exchange = exchange_;
  }
  exchange ? exchange->RunTask(std::move(task)) : task();
}

bool System::ShutDown() {
  std::shared_ptr<Engine> engine;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    engine.swap(engine_);
    exchange_.reset();
  }
  if (!engine) return false;
  engine->Close("the embedding tables were shut down");
  return true;
}

bool System::Configured(absl::string_view config) {
  std::lock_guard<std::mutex> lock(mutex_);
  return engine_ && (config.empty() || Fits(config));
}

std::string System::Config() {
  std::lock_guard<std::mutex> lock(mutex_);
  return engine_ ? config_ : "";
}

std::shared_ptr<Engine> System::engine() {
  std::lock_guard<std::mutex> lock(mutex_);
  return engine_;
}

void System::RunEnded(const RunRef& run, bool sure) {
  if (const auto found = engine()) found->RunEnded(run, sure);
}

bool System::Holds(const RunRef& run) {
  const auto found = engine();
  return found && found->Holds(run);
}

int64_t System::Steps() {
  const auto found = engine();
  return found ? found->Steps() : -1;
}

int64_t System::QueuedBatches(int64_t core) {
  const auto found = engine();
  return found ? found->QueuedBatches(core) : -1;
}

int64_t System::Abandon(bool tell) {
  const auto found = engine();
  return found ? found->Abandon(tell) : -1;
}

absl::StatusOr<std::shared_ptr<Engine>> System::Find(absl::string_view config) {
  std::lock_guard<std::mutex> lock(mutex_);
  return FindLocked(config);
}

absl::StatusOr<std::shared_ptr<Engine>> System::FindHere(tensorflow::OpKernelContext* context,
                                                         absl::string_view config) {
  const OpDevice device = DeviceOf(context);
  std::lock_guard<std::mutex> lock(mutex_);
  absl::StatusOr<std::shared_ptr<Engine>> engine = FindLocked(config);
  if (!engine.ok() || device == device_) return engine;
  const auto name = [](const OpDevice& one) { return one.gpu.empty() ? "the CPU" : one.gpu; };
  return absl::InvalidArgumentError(
      absl::StrCat("the embedding tables lie on ", name(device_),
                   ", where they were configured, and ", context->op_kernel().type_string(),
                   " runs on ", name(device), "; put both on one device, with tf.device"));
}

bool System::LiesHere(tensorflow::OpKernelContext* context, const Engine& engine) {
  const OpDevice device = DeviceOf(context);
  std::lock_guard<std::mutex> lock(mutex_);
  return engine_.get() == &engine && device == device_;
}

absl::StatusOr<std::shared_ptr<Engine>> System::FindLocked(absl::string_view config) const {
  if (!engine_) {
    return absl::FailedPreconditionError(
        "no embeddings are configured; run ConfigureTPUEmbedding first");
  }
  if (config.empty() || Fits(config)) return engine_;
  return absl::InvalidArgumentError(
      "config is not the one that ConfigureTPUEmbedding was given");
}

bool System::Fits(absl::string_view config) const {
  if (config == config_) return true;
  tensorflow::tpu::TPUEmbeddingConfiguration message;
  int size;
  return Narrow(config.size(), &size) && message.ParseFromArray(config.data(), size) &&
         message.SerializeAsString() == canonical_;
}

absl::Status ActivationsShape(const Configuration& configuration, int64_t feature,
                              tensorflow::TensorShape* shape) {
  const FeatureConfig& config = At(configuration.features, feature);
  for (const int64_t size : config.shape) TF_RETURN_IF_ERROR(shape->AddDimWithStatus(size));
  return shape->AddDimWithStatus(At(configuration.tables, config.table).dimension);
}

int64_t CoreOfDevice(tensorflow::OpKernelContext* context) {
  return DeviceOf(context).gpu.empty() ? context->device()->parsed_name().id : 0;
}

absl::Status OfCore(const Engine& engine, int64_t core, const absl::Status& status) {
  if (status.ok() || engine.configuration().cores == 1) return status;
  return absl::Status(status.code(), absl::StrCat("core ", core, ": ", status.message()));
}

}  // namespace opwright::embedding
