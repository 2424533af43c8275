// An op that waits for its turn at the engine: it holds no thread meanwhile, can be
// cancelled, and is done exactly once.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "core/embedding/engine.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/device_host.h"
#include "tf/embedding_config.h"

namespace opwright {

class Waiting : public std::enable_shared_from_this<Waiting> {
 public:
  using Engine = embedding::Engine;
  using Done = tensorflow::AsyncOpKernel::DoneCallback;
  // Asks the engine for a turn, and uses it.
  using Ask = std::function<Engine::Ticket(Host*, Engine::OnTurn)>;
  using Use = std::function<embedding::Maybe(Host*, const Engine::Turn&)>;

  static void Start(tensorflow::OpKernelContext* context, std::shared_ptr<Engine> engine,
                    Done done, const Ask& ask, Use use) {
    std::shared_ptr<Waiting>(
        new Waiting(context, std::move(engine), std::move(done), std::move(use)))
        ->Run(ask);
  }

 private:
  struct Outcome {
    embedding::Maybe refusal;
    Engine::Turn turn;
  };

  Waiting(tensorflow::OpKernelContext* context, std::shared_ptr<Engine> engine, Done done,
          Use use)
      : context_(context),
        engine_(std::move(engine)),
        done_(std::move(done)),
        use_(std::move(use)),
        caller_(std::this_thread::get_id()) {}

  void Run(const Ask& ask) {
    DeviceHost host(context_);
    const auto self = shared_from_this();
    ticket_ = ask(&host, [self](embedding::Maybe refusal, const Engine::Turn& turn) {
      self->OnTurn({std::move(refusal), turn});
    });
    caller_ = std::thread::id();
    if (now_) {
      Finish(*now_);
    } else {
      AwaitCancellation();
    }
  }

  void OnTurn(Outcome outcome) {
    if (caller_.load() == std::this_thread::get_id()) {
      now_ = std::move(outcome);
      return;
    }
    // Another op made it this one's turn, and should not have to do this one's work.
    Schedule([self = shared_from_this(), outcome = std::move(outcome)] {
      if (self->token_) {
        self->context_->cancellation_manager()->TryDeregisterCallback(*self->token_);
      }
      self->Finish(outcome);
    });
  }

  void AwaitCancellation() {
    tensorflow::CancellationManager* const manager = context_->cancellation_manager();
    bool cancelled = false;
    if (manager) {
      token_ = manager->get_cancellation_token();
      const auto self = shared_from_this();
      // Being done may destroy the manager, so not from within its callback.
      cancelled = !manager->RegisterCallback(*token_, [self] {
        if (self->engine_->Cancel(self->ticket_)) {
          self->Schedule([self] { self->Cancelled(); });
        }
      });
    }
    const bool end = cancelled && engine_->Cancel(ticket_);
    started_.Notify();
    if (end) Cancelled();
  }

  // Runs a task in the device's pool, once nothing here uses the context any more.
  void Schedule(std::function<void()> task) {
    context_->device()->tensorflow_cpu_worker_threads()->workers->Schedule(
        [self = shared_from_this(), task = std::move(task)] {
          self->started_.WaitForNotification();
          task();
        });
  }

  void Cancelled() {
    context_->SetStatus(absl::CancelledError(
        context_->op_kernel().type_string() + " was cancelled while it waited for its turn"));
    BeDone();
  }

  void Finish(const Outcome& outcome) {
    if (outcome.refusal) {
      context_->SetStatus(ToStatus(outcome.refusal));
    } else {
      DeviceHost host(context_);
      context_->SetStatus(ToStatus(use_(&host, outcome.turn)));
    }
    BeDone();
  }

  // The callback may delete the context, and all that hangs on it.
  void BeDone() {
    const Done done = std::move(done_);
    done();
  }

  tensorflow::OpKernelContext* const context_;
  const std::shared_ptr<Engine> engine_;
  Done done_;
  const Use use_;
  std::atomic<std::thread::id> caller_;
  std::optional<Outcome> now_;
  Engine::Ticket ticket_ = 0;
  std::optional<tensorflow::CancellationToken> token_;
  absl::Notification started_;
};

}  // namespace opwright
