// Which instruction set the inner loops use.
#pragma once

namespace opwright {

// In the order of growing vectors.
enum class Isa { kPortable, kAvx2, kAvx512 };

// The best that this processor runs, or the one chosen by UseIsa.
Isa CurrentIsa();
const char* NameOf(Isa isa);

// Chooses "avx512", "avx2" or "portable" from now on, "" the best; false if this processor
// cannot. The environment variable OPWRIGHT_ISA does the same at start. For tests.
bool UseIsa(const char* name);

}  // namespace opwright
