// The instruction set that the inner loops use.
#pragma once

namespace opwright {

// Instruction sets. Of two that a processor supports, the later one is better.
enum class Isa { kPortable, kNeon, kAvx2, kAvx512 };
constexpr Isa kIsas[] = {Isa::kPortable, Isa::kNeon, Isa::kAvx2, Isa::kAvx512};

// Returns the instruction set that UseIsa chose, or the best one that this processor supports.
Isa CurrentIsa();
const char* NameOf(Isa isa);

// Chooses "avx512", "avx2", "neon" or "portable", or "" for the best one. Returns false if this
// processor does not support it. The environment variable OPWRIGHT_ISA makes the initial
// choice. The function is for tests.
bool UseIsa(const char* name);

}  // namespace opwright
