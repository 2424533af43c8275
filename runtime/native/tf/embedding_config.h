// From TPUEmbeddingConfiguration to core's words.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "core/embedding/config.h"

namespace opwright {

absl::Status ToStatus(const embedding::Refusal& refusal);
inline absl::Status ToStatus(const embedding::Maybe& refusal) {
  return refusal ? ToStatus(*refusal) : absl::OkStatus();
}

// Reads and checks a serialized configuration; `canonical`, if not null, becomes bytes that
// are the same for equal messages.
absl::Status ReadConfiguration(absl::string_view serialized,
                               embedding::Configuration* configuration,
                               std::string* canonical);

}  // namespace opwright
