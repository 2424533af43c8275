// From TPUEmbeddingConfiguration to core's words.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "embedding/spec.h"

namespace opwright::embedding {

// Reads and checks a serialized configuration; `canonical`, if not null, becomes bytes that
// are the same for equal messages.
absl::Status ReadConfiguration(absl::string_view serialized, Configuration* configuration,
                               std::string* canonical);

}  // namespace opwright::embedding
