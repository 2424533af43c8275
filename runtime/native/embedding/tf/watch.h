// Watches over ops that wait: it ends their waits on Ctrl-C, says after a while what they wait
// for, and finds runs whose end lets them go on.
#pragma once

#include <memory>
#include <string>

namespace opwright::embedding {

// An op that waits.
class Watched {
 public:
  virtual ~Watched() = default;
  // Text for the log: what waits, and for what. Empty if the wait is over.
  virtual std::string Describe() = 0;
  // Ends the wait, if it is not over.
  virtual void Interrupt() = 0;
};

// Until it is over, or gone. One thread serves all that wait, and ends when none has for some
// seconds.
void Watch(const std::shared_ptr<Watched>& waiting);

// Sees to it that Ctrl-C is noted from now on, also when it comes just before a wait.
void NoteInterrupts();

}  // namespace opwright::embedding
