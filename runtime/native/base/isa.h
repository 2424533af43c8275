// The instruction set that the inner loops use.
#pragma once

namespace opwright {

// In the order of vector width.
enum class Isa { kPortable, kAvx2, kAvx512 };

// The best that this processor supports, or the choice of UseIsa.
Isa CurrentIsa();
const char* NameOf(Isa isa);

// Chooses "avx512", "avx2", "portable", or "" for the best one. Returns false if this processor
// does not support it. The environment variable OPWRIGHT_ISA makes the first choice. For tests.
bool UseIsa(const char* name);

}  // namespace opwright
