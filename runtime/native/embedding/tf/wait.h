// An op that waits for its turn at the engine. It blocks no thread meanwhile, can be cancelled,
// and calls its done callback exactly once.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/tf/device_context.h"
#include "base/tf/status.h"
#include "embedding/engine.h"
#include "embedding/tf/config.h"
#include "embedding/tf/system.h"
#include "embedding/tf/watch.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {

class Waiting : public Watched, public std::enable_shared_from_this<Waiting> {
 public:
  using Done = tensorflow::AsyncOpKernel::DoneCallback;
  // The rest of the op's work, which runs when it is the op's turn. It returns the status of
  // the op.
  using Rest = std::function<Status(ExecutionContext*)>;
  // The engine calls this once, from any thread.
  using Resume = std::function<void(Rest)>;
  // Registers the op with the engine. The engine calls the Resume function when the wait is
  // over.
  using Request = std::function<Engine::WaiterId(ExecutionContext*, Resume)>;

  std::string Describe() override {
    const std::string what = engine_->WhatFor(waiter_);
    return what.empty() ? what : name_ + " waits " + what;
  }

  void Interrupt() override {
    if (!engine_->Cancel(waiter_)) return;
    Schedule([self = shared_from_this()] {
      self->StopListening();
      self->End(absl::CancelledError(self->name_ + " was interrupted while it waited for its "
                                                   "turn"));
    });
  }

  static void Start(tensorflow::OpKernelContext* context, std::shared_ptr<Engine> engine,
                    Done done, const Request& request) {
    std::shared_ptr<Waiting>(new Waiting(context, std::move(engine), std::move(done)))
        ->Submit(request);
  }

 private:
  Waiting(tensorflow::OpKernelContext* context, std::shared_ptr<Engine> engine, Done done)
      : context_(context),
        engine_(std::move(engine)),
        done_(std::move(done)),
        name_(context->op_kernel().type_string()),
        caller_(std::this_thread::get_id()) {}

  void Submit(const Request& request) {
    DeviceContext exec(context_);
    const auto self = shared_from_this();
    waiter_ = request(&exec, [self](Rest rest) { self->OnGrant(std::move(rest)); });
    caller_ = std::thread::id();
    if (now_) {
      Finish(now_);
    } else {
      AwaitCancellation();
    }
  }

  void OnGrant(Rest rest) {
    if (caller_.load() == std::this_thread::get_id()) {
      now_ = std::move(rest);
      return;
    }
    // Another op ended this wait. The thread of that op should not do this op's work, so a
    // thread of the pool does.
    Schedule([self = shared_from_this(), rest = std::move(rest)] {
      self->StopListening();
      self->Finish(rest);
    });
  }

  void StopListening() {
    if (token_) context_->cancellation_manager()->TryDeregisterCallback(*token_);
  }

  void AwaitCancellation() {
    tensorflow::CancellationManager* const manager = context_->cancellation_manager();
    bool cancelled = false;
    if (manager) {
      token_ = manager->get_cancellation_token();
      const auto self = shared_from_this();
      // The done callback may destroy the manager, so it is not called from within the
      // manager's callback.
      cancelled = !manager->RegisterCallback(*token_, [self] {
        if (self->engine_->Cancel(self->waiter_)) {
          self->Schedule([self] { self->Cancelled(); });
        }
      });
    }
    const bool end = cancelled && engine_->Cancel(waiter_);
    Watch(shared_from_this());
    started_.Notify();
    if (end) Cancelled();
  }

  // Runs a task in another thread, after this function's caller has stopped using the context.
  void Schedule(std::function<void()> task) {
    WorkerPool(context_)->Schedule([self = shared_from_this(), task = std::move(task)] {
      self->started_.WaitForNotification();
      System::Get().RunTask(task);
    });
  }

  void Cancelled() {
    End(absl::CancelledError(name_ + " was cancelled while it waited for its turn"));
  }

  void End(const absl::Status& status) {
    context_->SetStatus(status);
    BeDone();
  }

  void Finish(const Rest& rest) {
    DeviceContext exec(context_);
    End(ToAbsl(rest(&exec)));
  }

  // `done` may delete the context and everything that belongs to it.
  void BeDone() {
    const Done done = std::move(done_);
    done();
  }

  tensorflow::OpKernelContext* const context_;
  const std::shared_ptr<Engine> engine_;
  Done done_;
  // The name of the op. It is a copy, because the op may be destroyed before this object.
  const std::string name_;
  std::atomic<std::thread::id> caller_;
  Rest now_;  // The rest of the work, if it was the op's turn immediately.
  Engine::WaiterId waiter_ = 0;
  std::optional<tensorflow::CancellationToken> token_;
  absl::Notification started_;
};

}  // namespace opwright::embedding
