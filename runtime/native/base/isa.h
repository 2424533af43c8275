// The instruction set that the inner loops use.
#pragma once

namespace opwright {

// Instruction sets in ascending order of vector width.
enum class Isa { kPortable, kAvx2, kAvx512 };

// Returns the instruction set that UseIsa chose, or the best one that this processor supports.
Isa CurrentIsa();
const char* NameOf(Isa isa);

// Chooses "avx512", "avx2" or "portable", or "" for the best one. Returns false if this
// processor does not support it. The environment variable OPWRIGHT_ISA makes the initial
// choice. The function is for tests.
bool UseIsa(const char* name);

}  // namespace opwright
