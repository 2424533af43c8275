// Tests the kernels of TPU embeddings under ThreadSanitizer, on a thread pool with TensorFlow's
// interface. Functions and sessions run concurrently, on one to three TensorCores. Some runs
// fail or are cancelled or interrupted, while the tables are configured again. This file does
// the work of an executor, because TensorFlow's executor is not instrumented.
//
// A step adds two to the row of its run in one table, and to the row of its TensorCore in
// another. The tables therefore show which steps were applied, and that none was applied
// partly.
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/testing/pool.h"
#include "base/testing/testing.h"
#include "embedding/tf/runs.h"
#include "embedding/tf/system.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/local_rendezvous.h"
#include "tensorflow/core/framework/node_def_builder.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/rendezvous.h"
#include "tensorflow/core/lib/core/threadpool.h"
#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"
#include "tensorflow/core/public/version.h"
#include "tsl/platform/threadpool_interface.h"

namespace opwright::embedding {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::CancellationManager;
using tensorflow::OpKernel;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::TensorValue;

constexpr int kMaxCores = 3;
constexpr int kThreads = 4;
constexpr int kDrivers = 4;
constexpr int kMaxSteps = 4;  // The largest number of steps of a run.
constexpr int64_t kSamples = 2;

// The objects of this file are never destroyed, because the program ends while threads still
// work.
Pool& ThePool() {
  static Pool* const pool = new Pool(kThreads);
  return *pool;
}

class Threads : public tsl::thread::ThreadPoolInterface {
 public:
  void Schedule(std::function<void()> task) override { ThePool().Schedule(std::move(task)); }
  int NumThreads() const override { return ThePool().size(); }
  int CurrentThreadId() const override { return -1; }
};

class Core : public tensorflow::DeviceBase {
 public:
  Core(int number, tensorflow::thread::ThreadPool* pool)
      : DeviceBase(tensorflow::Env::Default()),
        name_("/job:localhost/replica:0/task:0/device:CPU:" + std::to_string(number)) {
    tensorflow::DeviceNameUtils::ParseFullName(name_, &parsed_);
    workers_.num_threads = kThreads;
    workers_.workers = pool;
    set_tensorflow_cpu_worker_threads(&workers_);
  }

  const std::string& name() const override { return name_; }
  const tensorflow::DeviceNameUtils::ParsedName& parsed_name() const override {
    return parsed_;
  }
  tensorflow::Allocator* GetAllocator(tensorflow::AllocatorAttributes) override {
    return tensorflow::cpu_allocator();
  }

 private:
  const std::string name_;
  tensorflow::DeviceNameUtils::ParsedName parsed_;
  CpuWorkerThreads workers_;
};

struct Graph {
  Core* cores[kMaxCores];
  OpKernel* enqueue[kMaxCores];
  OpKernel* receive;
  OpKernel* send;
};

OpKernel* Make(Core* core, tensorflow::NodeDefBuilder& builder) {
  tensorflow::NodeDef node;
  absl::Status status = builder.Finalize(&node);
  std::unique_ptr<OpKernel> kernel;
  if (status.ok()) {
    kernel = tensorflow::CreateOpKernel(tensorflow::DeviceType("CPU"), core,
                                        tensorflow::cpu_allocator(), node, TF_GRAPH_DEF_VERSION,
                                        &status);
  }
  if (!status.ok()) {
    std::printf("%s\n", status.ToString().c_str());
    std::exit(1);
  }
  return kernel.release();
}

const Graph& TheGraph() {
  static const Graph* const graph = [] {
    using tensorflow::DT_FLOAT;
    using tensorflow::DT_INT32;
    using tensorflow::DT_STRING;
    using tensorflow::NodeDefBuilder;
    using Outs = std::vector<NodeDefBuilder::NodeOut>;
    auto* const made = new Graph;
    auto* const pool = new tensorflow::thread::ThreadPool(new Threads);
    for (int c = 0; c < kMaxCores; ++c) {
      made->cores[c] = new Core(c, pool);
      made->enqueue[c] =
          Make(made->cores[c], NodeDefBuilder("enqueue", "EnqueueTPUEmbeddingIntegerBatch")
                                   .Input(Outs{{"a", 0, DT_INT32}, {"b", 0, DT_INT32}})
                                   .Input("mode", 0, DT_STRING)
                                   .Attr("device_ordinal", c));
    }
    made->receive =
        Make(made->cores[0], NodeDefBuilder("receive", "RecvTPUEmbeddingActivations")
                                 .Attr("num_outputs", 2)
                                 .Attr("config", ""));
    made->send = Make(made->cores[0], NodeDefBuilder("send", "SendTPUEmbeddingGradients")
                                          .Input(Outs{{"a", 0, DT_FLOAT}, {"b", 0, DT_FLOAT}})
                                          .Input(Outs{})
                                          .Attr("NN", 0)
                                          .Attr("config", ""));
    return made;
  }();
  return *graph;
}

std::string Configuration(int64_t runs, int cores, bool pipelined) {
  tensorflow::tpu::TPUEmbeddingConfiguration made;
  for (const auto& [name, rows] : {std::pair<const char*, int64_t>("runs", runs),
                                   std::pair<const char*, int64_t>("cores", kMaxCores)}) {
    auto* const table = made.add_table_descriptor();
    table->set_name(name);
    table->set_vocabulary_size(static_cast<int>(rows));
    table->set_dimension(2);
    table->set_num_features(1);
    auto* const parameters = table->mutable_optimization_parameters();
    parameters->mutable_learning_rate()->set_constant(1);
    parameters->mutable_stochastic_gradient_descent();
  }
  made.set_mode(tensorflow::tpu::TPUEmbeddingConfiguration::TRAINING);
  made.set_batch_size_per_tensor_core(kSamples);
  made.set_num_hosts(1);
  made.set_num_tensor_cores(cores);
  made.set_pipeline_execution_with_tensor_core(pipelined);
  return made.SerializeAsString();
}

// The rendezvous of a session on one device. It has no reference count.
class PrivateRendezvous : public tensorflow::RendezvousInterface {
 public:
  absl::Status Send(const ParsedKey& key, const Args& args, const Tensor& value,
                    bool is_dead) override {
    return local_.Send(key, args, value, is_dead);
  }
  void RecvAsync(const ParsedKey& key, const Args& args, DoneCallback done) override {
    const std::lock_guard<std::recursive_mutex> lock(seen_);
    local_.RecvAsync(key, args, std::move(done));
  }
  void StartAbort(const absl::Status& status) override {
    const std::lock_guard<std::recursive_mutex> lock(seen_);
    local_.StartAbort(status);
  }

 private:
  // The sanitizer sees this mutex. It does not see TensorFlow's own.
  std::recursive_mutex seen_;
  tensorflow::LocalRendezvous local_{nullptr, 1};
};

// An op and its arguments.
struct Op {
  std::vector<Tensor> inputs;
  std::vector<TensorValue> values;
  std::vector<tensorflow::AllocatorAttributes> attributes;
  OpKernelContext::Params params;
  std::unique_ptr<OpKernelContext> context;
};

// The failures and cancellations of a run. Without them, the run succeeds.
struct Plan {
  int64_t id = 0;
  int cores = 1;
  int steps = 1;
  bool enqueues = true;
  int fails_at = -1;      // The run fails before the op of this number.
  int cancel_after = -1;  // In microseconds. -1 means never.
  // The run is that of a session on one device. Its rendezvous cannot be referenced.
  bool of_session = false;
};

// The run of a function or of a session. When all batches are enqueued, each TensorCore
// receives and sends step by step.
class ConcurrentRun : public std::enable_shared_from_this<ConcurrentRun> {
 public:
  explicit ConcurrentRun(const Plan& plan) : plan_(plan) {
    static std::atomic<int64_t> last_step{0};
    step_ = ++last_step;
    if (plan.of_session) {
      private_ = std::make_unique<PrivateRendezvous>();
    } else {
      shared_.reset(tensorflow::NewLocalRendezvous());
    }
  }

  // Returns why the run failed. Waits until everything that it began has ended.
  absl::Status Do() {
    Start();
    std::unique_lock<std::mutex> lock(mutex_);
    const auto over = [this] { return under_way_ == 0; };
    if (plan_.cancel_after >= 0 &&
        !changed_.wait_for(lock, std::chrono::microseconds(plan_.cancel_after), over)) {
      lock.unlock();
      manager_->StartCancel();
      lock.lock();
    }
    changed_.wait(lock, over);
    const absl::Status status = status_;
    lock.unlock();
    // TensorFlow destroys the manager and the rendezvous in either order. A session destroys
    // the rendezvous first.
    if (private_ || step_ % 2 == 0) {
      private_.reset();
      shared_.reset();
      manager_.reset();
    } else {
      manager_.reset();
      shared_.reset();
    }
    return status;
  }

 private:
  using Next = std::function<void()>;

  void Start() {
    Begin();  // Counts this function as work of the run.
    const auto self = shared_from_this();
    if (plan_.enqueues) {
      auto left = std::make_shared<std::atomic<int>>(plan_.cores * plan_.steps);
      for (int c = 0; c < plan_.cores; ++c) {
        Schedule([self, c, left] { self->Enqueue(c, 0, left); });
      }
    } else {
      for (int c = 0; c < plan_.cores; ++c) Schedule([self, c] { self->Receive(c, 0); });
    }
    End();
  }

  void Enqueue(int core, int step, const std::shared_ptr<std::atomic<int>>& left) {
    auto op = std::make_unique<Op>();
    Tensor runs(tensorflow::DT_INT32, TensorShape({kSamples}));
    Tensor cores(tensorflow::DT_INT32, TensorShape({kSamples}));
    for (int i = 0; i < kSamples; ++i) {
      runs.flat<int32_t>()(i) = static_cast<int32_t>(plan_.id);
      cores.flat<int32_t>()(i) = core;
    }
    Tensor mode(tensorflow::DT_STRING, TensorShape({}));
    mode.scalar<tensorflow::tstring>()() = "unspecified";
    op->inputs = {runs, cores, mode};
    Call(std::move(op), TheGraph().enqueue[core], core, [=, self = shared_from_this()](Op*) {
      if (step + 1 < plan_.steps) {
        Schedule([self, core, step, left] { self->Enqueue(core, step + 1, left); });
      }
      if (left->fetch_sub(1) > 1) return;
      for (int c = 0; c < plan_.cores; ++c) Schedule([self, c] { self->Receive(c, 0); });
    });
  }

  void Receive(int core, int step) {
    Call(std::make_unique<Op>(), TheGraph().receive, core,
         [=, self = shared_from_this()](Op* op) {
           // All values are from the same state of the tables.
           for (int i = 0; i < 2; ++i) {
             const auto values = op->context->mutable_output(i)->flat<float>();
             for (int64_t j = 0; j < values.size(); ++j) {
               if (values(j) == values(0) && values(j) >= 0) continue;
               std::printf("run %lld: %g and %g\n", static_cast<long long>(plan_.id), values(0),
                           values(j));
               std::exit(1);
             }
           }
           Schedule([self, core, step] { self->Send(core, step); });
         });
  }

  void Send(int core, int step) {
    auto op = std::make_unique<Op>();
    for (int i = 0; i < 2; ++i) {
      Tensor gradients(tensorflow::DT_FLOAT, TensorShape({kSamples, 2}));
      gradients.flat<float>().setConstant(-1);
      op->inputs.push_back(gradients);
    }
    Call(std::move(op), TheGraph().send, core, [=, self = shared_from_this()](Op*) {
      if (step + 1 < plan_.steps) {
        Schedule([self, core, step] { self->Receive(core, step + 1); });
      }
    });
  }

  // Runs an op as an executor does in one of its threads.
  void Call(std::unique_ptr<Op> given, OpKernel* kernel, int core,
            std::function<void(Op*)> next) {
    if (calls_.fetch_add(1) == plan_.fails_at) Fail(absl::InternalError("as planned"));
    Op* const op = given.release();
    for (Tensor& input : op->inputs) op->values.emplace_back(&input);
    op->attributes.resize(static_cast<size_t>(kernel->num_outputs()));
    OpKernelContext::Params& params = op->params;
    params.step_id = step_;
    params.op_kernel = kernel;
    params.device = TheGraph().cores[core];
    params.output_attr_array = op->attributes.data();
    params.rendezvous =
        shared_ ? static_cast<tensorflow::RendezvousInterface*>(shared_.get()) : private_.get();
    params.cancellation_manager = manager_.get();
    params.inputs = op->values;
    params.frame_iter = tensorflow::FrameAndIter(0, 0);
    params.inc_num_deferred_ops_function = [] {};
    params.dec_num_deferred_ops_function = [] {};
    op->context = std::make_unique<OpKernelContext>(&params);
    Begin();
    const auto done = [self = shared_from_this(), op, next = std::move(next)] {
      const std::unique_ptr<Op> kept(op);
      const absl::Status status = op->context->status();
      if (status.ok()) {
        if (!self->Failed()) next(op);
      } else {
        self->Fail(status);
      }
      for (int i = 0; i < op->context->num_outputs(); ++i) {
        delete op->context->release_output(i).tensor;
      }
      self->End();
    };
    if (AsyncOpKernel* const async = kernel->AsAsync()) {
      async->ComputeAsync(op->context.get(), done);
    } else {
      kernel->Compute(op->context.get());
      done();
    }
  }

  void Schedule(Next task) {
    Begin();
    ThePool().Schedule([self = shared_from_this(), task = std::move(task)] {
      if (!self->Failed()) task();
      self->End();
    });
  }

  bool Failed() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return !status_.ok();
  }
  // Only the first call has an effect. It aborts the rendezvous and then cancels what waits.
  void Fail(const absl::Status& status) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!status_.ok()) return;
      status_ = status;
    }
    if (shared_) shared_->StartAbort(status);
    if (private_) private_->StartAbort(status);
    manager_->StartCancelWithStatus(status);
  }

  void Begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++under_way_;
  }
  void End() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--under_way_ == 0) changed_.notify_all();
  }

  const Plan plan_;
  int64_t step_;
  std::unique_ptr<CancellationManager> manager_ = std::make_unique<CancellationManager>();
  tsl::core::RefCountPtr<tensorflow::Rendezvous> shared_;
  std::unique_ptr<PrivateRendezvous> private_;
  std::atomic<int> calls_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status status_;
  int under_way_ = 0;
};

absl::Status Do(const Plan& plan) { return std::make_shared<ConcurrentRun>(plan)->Do(); }

absl::Status Configure(const std::string& config) {
  Op op;
  op.params.op_kernel = TheGraph().receive;
  op.params.device = TheGraph().cores[0];
  op.context = std::make_unique<OpKernelContext>(&op.params, 0);
  return System::Get().Configure(op.context.get(), config, System::IfConfigured::kReplace);
}

std::vector<float> Read(Engine* engine, int64_t table, int64_t rows) {
  std::vector<float> values(static_cast<size_t>(2 * rows));
  PoolContext exec(ThePool());
  const auto status = engine->Use(&exec, [&](TableStore* store) {
    return store->Read(&exec, table, -1, ShardOf(rows, 1, 0, false), values.data());
  });
  if (!status.ok()) values.clear();
  return values;
}

// Expects that ended runs have left no batch that other runs cannot receive.
void NothingIsKept(Engine* engine, int cores) {
  FindEndedRuns();
  engine->Abandon(/*tell=*/false);
  PoolContext exec(ThePool());
  for (int c = 0; c < cores; ++c) {
    const Engine::WaiterId waiter =
        engine->Receive(&exec, c, [](const Status&, const Engine::Grant&) {});
    const std::string what = engine->WhatFor(waiter);
    if (!absl::StrContains(what, "none is enqueued")) testing::Fail(__FILE__, __LINE__, what);
    EXPECT(engine->Cancel(waiter));
  }
}

// The conditions of many concurrent runs. If `gentle`, some runs fail, and the test expects
// exact results of the others. Otherwise runs are also cancelled and interrupted, and tables
// are configured again under them. The test then expects only that no step is applied partly.
struct Weather {
  int cores;
  bool pipelined;
  bool gentle;
};

void RunsStandOrFall(const Weather& weather, int64_t steps, uint64_t seed) {
  const int64_t runs = steps * 2 / (1 + kMaxSteps);
  const std::string config = Configuration(runs, weather.cores, weather.pipelined);
  EXPECT(Configure(config).ok());
  std::vector<Plan> plans(static_cast<size_t>(runs));
  std::vector<absl::Status> results(plans.size());
  Random random{seed};
  for (size_t i = 0; i < plans.size(); ++i) {
    Plan& plan = plans[i];
    plan.id = static_cast<int64_t>(i);
    plan.cores = weather.cores;
    plan.steps = static_cast<int>(1 + random.Below(kMaxSteps));
    plan.of_session = random.Below(3) == 0;
    if (random.Below(4) == 0) plan.fails_at = static_cast<int>(random.Below(12));
    if (!weather.gentle && random.Below(4) == 0) {
      plan.cancel_after = static_cast<int>(random.Below(3000));
    }
  }
  std::atomic<size_t> next{0};
  std::vector<std::thread> drivers;
  for (int d = 0; d < kDrivers; ++d) {
    drivers.emplace_back([&] {
      for (size_t i; (i = next.fetch_add(1)) < plans.size();) results[i] = Do(plans[i]);
    });
  }
  if (!weather.gentle) {
    while (next < plans.size() / 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT(Configure(config).ok());
    raise(SIGINT);
  }
  for (std::thread& driver : drivers) driver.join();

  const std::shared_ptr<Engine> engine = System::Get().Find().value();
  NothingIsKept(engine.get(), weather.cores);
  const std::vector<float> by_run = Read(engine.get(), 0, runs);
  const std::vector<float> by_core = Read(engine.get(), 1, kMaxCores);
  EXPECT(!by_run.empty() && !by_core.empty());
  const double made = static_cast<double>(kSamples * engine->Steps());
  for (int c = 0; c < kMaxCores; ++c) {
    EXPECT(by_core[2 * c] == (c < weather.cores ? made : 0));
    EXPECT(by_core[2 * c] == by_core[2 * c + 1]);
  }
  double sum = 0;
  int64_t good = 0;
  for (size_t i = 0; i < plans.size(); ++i) {
    const double value = by_run[2 * i];
    const double most = kSamples * plans[i].steps * weather.cores;
    EXPECT(value == by_run[2 * i + 1] && value >= 0 && value <= most);
    good += results[i].ok();
    sum += value;
    if (!weather.gentle) continue;
    const bool fails =
        plans[i].fails_at >= 0 && plans[i].fails_at < 3 * plans[i].steps * weather.cores;
    if (results[i].ok() == fails || (!fails && value != most)) {
      testing::Fail(
          __FILE__, __LINE__,
          absl::StrCat("run ", i, ": ", results[i].ToString(), ", ", value, " of ", most));
    }
    EXPECT(static_cast<int64_t>(value) % (kSamples * weather.cores) == 0);
  }
  EXPECT(sum == made * weather.cores);
  EXPECT(good > runs / 8);
}

// Installs a signal handler, as Python does.
void NoteInterrupt() {
  struct sigaction noted = {};
  noted.sa_handler = [](int) {};
  sigaction(SIGINT, &noted, nullptr);
}

// Ops that have waited for longer than a second end on Ctrl-C. All waiting ops end when the
// tables are shut down.
TEST(Adapter, InterruptAndShutdownEndWaits) {
  NoteInterrupt();
  EXPECT(Configure(Configuration(1, 2, false)).ok());
  for (const bool interrupt : {true, false}) {
    std::vector<absl::Status> results(3);
    std::vector<std::thread> waiting;
    for (absl::Status& result : results) {
      waiting.emplace_back([&result] {
        Plan plan;
        plan.cores = 2;
        plan.enqueues = false;
        result = Do(plan);
      });
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(interrupt ? 1500 : 100));
    if (interrupt) {
      raise(SIGINT);
    } else {
      EXPECT(System::Get().ShutDown());
    }
    for (std::thread& thread : waiting) thread.join();
    for (const absl::Status& result : results) {
      EXPECT(absl::StrContains(result.message(), interrupt ? "interrupted" : "shut down") ||
             (interrupt && absl::IsCancelled(result)));
    }
  }
}

// Each combination of conditions runs about a thousand steps.
TEST(Adapter, RunsAreAppliedCompletelyOrUndone) {
  NoteInterrupt();
  for (int64_t round = 0; round < testing::Rounds(1); ++round) {
    for (int i = 0; i < 12; ++i) {
      const Weather weather{1 + i % 3, i / 3 % 2 == 1, i / 6 % 2 == 0};
      try {
        RunsStandOrFall(weather, 1000, testing::Seed());
      } catch (testing::Failure& failure) {
        absl::StrAppend(&failure.text, ", with ", weather.cores, " cores",
                        weather.pipelined ? ", pipelined" : "",
                        weather.gentle ? ", gentle" : ", rough");
        throw;
      }
    }
  }
}

// This must be the last test. The program ends while runs are active and others wait for
// batches that never come.
TEST(Adapter, ProcessEndsDuringRuns) {
  constexpr int64_t kRuns = 1000;
  EXPECT(Configure(Configuration(kRuns, 2, true)).ok());
  for (int d = 0; d < kDrivers; ++d) {
    std::thread([d] {
      Plan plan;
      plan.cores = 2;
      plan.enqueues = d > 0;
      for (int64_t i = d; true; i += kDrivers) {
        plan.id = i % kRuns;
        Do(plan).IgnoreError();
      }
    }).detach();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

}  // namespace
}  // namespace opwright::embedding
