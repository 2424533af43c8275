// Replaces symbols of newer C and C++ libraries by older symbols. The library can then be
// loaded on every system on which TensorFlow can: glibc 2.27 and the C++ library of GCC 7.
//
// The symbols are hidden, so only calls from within this library use them.
#include <pthread.h>
#include <time.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>

#if (defined(__x86_64__) || defined(__aarch64__)) && defined(__GLIBC__) && defined(__GLIBCXX__)
// The first version of glibc for the processor.
#if defined(__x86_64__)
#define OPWRIGHT_FIRST "GLIBC_2.2.5"
#else
#define OPWRIGHT_FIRST "GLIBC_2.17"
#endif
#define OPWRIGHT_HIDDEN __attribute__((visibility("hidden")))

// glibc 2.29 has a new version of pow. It returns the same numbers and differs from the old
// version only in how it sets errno.
double OlderPow(double base, double exponent);
__asm__(".symver _Z8OlderPowdd, pow@" OPWRIGHT_FIRST);
OPWRIGHT_HIDDEN double Pow(double base, double exponent) __asm__("pow");
double Pow(double base, double exponent) { return OlderPow(base, exponent); }

// glibc 2.32 has a variable that is true while reference counts need no atomics. Here it is
// always false.
OPWRIGHT_HIDDEN extern char single_threaded __asm__("__libc_single_threaded");
char single_threaded = 0;

// glibc 2.30 has a wait with a deadline on any clock. This replacement converts the deadline to
// CLOCK_REALTIME, so the wait may end too early or too late. That is harmless, because callers
// read their clock afterwards.
OPWRIGHT_HIDDEN int ClockWait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                              clockid_t clock,
                              const timespec* until) __asm__("pthread_cond_clockwait");
int ClockWait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
              const timespec* until) {
  constexpr long kSecond = 1'000'000'000;
  timespec now, deadline;
  clock_gettime(clock, &now);
  clock_gettime(CLOCK_REALTIME, &deadline);
  deadline.tv_sec += until->tv_sec - now.tv_sec;
  deadline.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (deadline.tv_nsec < 0) {
    deadline.tv_nsec += kSecond;
    --deadline.tv_sec;
  } else if (deadline.tv_nsec >= kSecond) {
    deadline.tv_nsec -= kSecond;
    ++deadline.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &deadline);
}

// glibc 2.34 has moved pthread_once into libc. In older versions it is in libpthread.
int OlderOnce(pthread_once_t* once, void (*initialize)());
__asm__(".symver _Z9OlderOncePiPFvvE, pthread_once@" OPWRIGHT_FIRST);
OPWRIGHT_HIDDEN int Once(pthread_once_t* once, void (*initialize)()) __asm__("pthread_once");
int Once(pthread_once_t* once, void (*initialize)()) { return OlderOnce(once, initialize); }

// GCC 11 has std::__throw_bad_array_new_length.
[[noreturn]] OPWRIGHT_HIDDEN void ThrowBadLength() __asm__(
    "_ZSt28__throw_bad_array_new_lengthv");
void ThrowBadLength() { throw std::bad_array_new_length(); }

// GCC 11 counts the owners of an exception_ptr inline, with these two members.
void OlderCopy(void* copy,
               const void* original) __asm__("_ZNSt15__exception_ptr13exception_ptrC1ERKS0_");
void OlderDestroy(void* pointer) __asm__("_ZNSt15__exception_ptr13exception_ptrD1Ev");
OPWRIGHT_HIDDEN void AddOwner(void* pointer) __asm__(
    "_ZNSt15__exception_ptr13exception_ptr9_M_addrefEv");
void AddOwner(void* pointer) {
  alignas(std::exception_ptr) unsigned char never_destroyed[sizeof(std::exception_ptr)];
  OlderCopy(never_destroyed, pointer);
}
OPWRIGHT_HIDDEN void ReleaseOwner(void* pointer) __asm__(
    "_ZNSt15__exception_ptr13exception_ptr10_M_releaseEv");
void ReleaseOwner(void* pointer) { OlderDestroy(pointer); }

// GCC 12 has a new version of std::condition_variable::wait.
OPWRIGHT_HIDDEN void
Wait(std::condition_variable* condition, std::unique_lock<std::mutex>* lock) __asm__(
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE");
void Wait(std::condition_variable* condition, std::unique_lock<std::mutex>* lock) {
  pthread_cond_wait(condition->native_handle(), lock->mutex()->native_handle());
}
#endif
