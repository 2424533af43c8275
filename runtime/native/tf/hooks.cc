// What native.py calls by name.
#include "core/embedding/optimizers.h"
#include "core/isa.h"

#define OPWRIGHT_EXPORT extern "C" __attribute__((visibility("default")))

OPWRIGHT_EXPORT const char* opwright_isa() { return opwright::NameOf(opwright::CurrentIsa()); }
OPWRIGHT_EXPORT bool opwright_use_isa(const char* name) { return opwright::UseIsa(name); }
OPWRIGHT_EXPORT const char* opwright_embedding_optimizers() {
  return opwright::embedding::FactsAsJson().c_str();
}
