// Whether the hosts that share tables run the same program: what they compare before the first
// all-to-all.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "embedding/exchange.h"
#include "embedding/spec.h"

namespace opwright::embedding {

// The version of the messages between hosts. Every change of one of them has a new number.
constexpr int64_t kHostProtocol = 1;
// Exchanges of Channel::kConfigurations that a handshake takes: numbers from 0 on.
constexpr int64_t kHandshakeExchanges = 2;

// What all hosts must have alike, as text of one line.
struct Setting {
  std::string name;   // "learning rate of table 0 ('users')".
  std::string value;  // "0.5".
};
std::vector<Setting> SettingsOf(const Configuration& configuration);

// A number that hardly any two texts share.
int64_t FingerprintOf(const std::string& text);

// Compares this host's configuration with those of all others. The error says which settings
// differ, and what two hosts have. Every host finds a difference, or none does.
Status Handshake(Exchange* exchange, const Configuration& configuration);

}  // namespace opwright::embedding
