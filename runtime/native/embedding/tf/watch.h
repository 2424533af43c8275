// Watches ops that wait. Ctrl-C ends their waits. After a while, a log message names what they
// wait for. Runs that have ended without a callback are found, because their end may end a
// wait.
#pragma once

#include <memory>
#include <string>

namespace opwright::embedding {

// An op that waits.
class Watched {
 public:
  virtual ~Watched() = default;
  // Returns text for the log: the op, and what it waits for. It is empty if the wait is over.
  virtual std::string Describe() = 0;
  // Ends the wait, if it is not over.
  virtual void Interrupt() = 0;
};

// Watches until the wait is over or the object is destroyed. One thread watches all waiting
// ops. It ends after it has had nothing to watch for some seconds.
void Watch(const std::shared_ptr<Watched>& waiting);

// Installs a signal handler that records Ctrl-C from now on, even if it comes just before a
// wait.
void NoteInterrupts();

}  // namespace opwright::embedding
