// Conversion of a TPUEmbeddingConfiguration to the engine's Configuration.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "embedding/spec.h"

namespace opwright::embedding {

// Parses and checks a serialized configuration. If `canonical` is not null, it receives a
// serialization that is the same for equal messages.
absl::Status ReadConfiguration(absl::string_view serialized, Configuration* configuration,
                               std::string* canonical);

}  // namespace opwright::embedding
