// The handshake of hosts that share tables. They compare their configurations before the first
// batch, because all hosts must run the same program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "embedding/exchange.h"
#include "embedding/spec.h"

namespace opwright::embedding {

// The version of the messages between hosts. Every change of a message needs a new number.
constexpr int64_t kHostProtocol = 1;
// The handshake uses the numbers 0 to kHandshakeExchanges - 1 of Channel::kConfigurations.
constexpr int64_t kHandshakeExchanges = 2;

// A setting that must be the same on all hosts. Name and value have one line each.
struct Setting {
  std::string name;   // "learning rate of table 0 ('users')".
  std::string value;  // "0.5".
};
std::vector<Setting> SettingsOf(const Configuration& configuration);

// A hash of a text.
int64_t FingerprintOf(const std::string& text);

// Compares this host's configuration with those of all other hosts. The error names settings
// that differ, with the values of two hosts. If there is a difference, every host returns an
// error.
Status Handshake(Exchange* exchange, const Configuration& configuration);

}  // namespace opwright::embedding
