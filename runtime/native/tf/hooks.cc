// What native.py calls by name.
#include "core/kernels.h"

#define OPWRIGHT_EXPORT extern "C" __attribute__((visibility("default")))

OPWRIGHT_EXPORT const char* opwright_isa() { return opwright::CurrentIsa(); }
OPWRIGHT_EXPORT bool opwright_use_isa(const char* name) { return opwright::UseIsa(name); }
