// A pause in a loop that waits for another thread.
#pragma once

namespace opwright {

// Lets the processor wait for some ten cycles. It leaves more of a shared core to the other
// thread.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // Most processors ignore `yield`, and wait for this barrier.
  asm volatile("isb");
#endif
}

}  // namespace opwright
