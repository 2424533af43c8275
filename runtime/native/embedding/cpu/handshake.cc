#include "embedding/cpu/handshake.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/checked.h"
#include "embedding/text.h"

namespace opwright::embedding {
namespace {

using Buffers = std::vector<Exchange::Buffer>;  // One for each host.

// If the text of the settings has more bytes, hosts compare only its fingerprint.
constexpr int64_t kMostBytes = int64_t{64} << 20;
// The most differences that an error lists for each host.
constexpr int kMostListed = 3;

// Escapes line breaks and tabs, so that each setting has one line of text. Names may have any
// bytes.
std::string Line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    switch (c) {
      case '\n': line += "\\n"; break;
      case '\t': line += "\\t"; break;
      case '\\': line += "\\\\"; break;
      default: line += c;
    }
  }
  return line;
}

std::string NameOf(Mode mode) {
  switch (mode) {
    case Mode::kInference: return "inference";
    case Mode::kTraining: return "training";
    case Mode::kBackwardOnly: return "backward pass only";
    default: return "unspecified";
  }
}

std::string RateOf(const TableConfig& table) {
  if (table.dynamic_rate) return "dynamic, of tag " + Text(table.tag);
  return table.has_rate ? Number(table.hyper.learning_rate) : "none";
}

std::string LimitsOf(const float (&limits)[2]) {
  return Number(limits[0]) + " to " + Number(limits[1]);
}

std::string QuantizationOf(const Quantization& quantization) {
  if (!quantization.enabled) return "none";
  return Text(quantization.buckets) + " buckets from " + Number(quantization.lower) + " to " +
         Number(quantization.upper);
}

void AddTable(const Configuration& configuration, int64_t t, std::vector<Setting>* settings) {
  const TableConfig& table = At(configuration.tables, t);
  const OptimizerTraits& traits = TraitsOf(table.optimizer);
  const std::string of = " of " + Describe(configuration, t);
  const auto add = [&](const std::string& name, std::string value) {
    settings->push_back({name + of, std::move(value)});
  };
  settings->push_back({"name of table " + Text(t), table.name});
  add("rows", Text(table.rows));
  add("dimension", Text(table.dimension));
  add("dtype of rows", embedding::NameOf(table.dtype));
  add("num_features", Text(table.features));
  add("optimizer", traits.field);
  add("learning rate", RateOf(table));
  for (int i = 0; i < kMaxHyper && traits.hyper[i].name; ++i) {
    add(traits.hyper[i].name, Number(table.hyper.values[i]));
  }
  add("slots", Text(table.slots()));
  add("gradient_clipping_limits", LimitsOf(table.hyper.clip_gradient));
  add("clipping_limits", LimitsOf(table.hyper.clip_weight));
  add("weight_decay_factor", Number(table.hyper.decay));
  add("multiply_weight_decay_factor_by_learning_rate", Text(table.decay_times_rate));
  add("gradient accumulation", Text(table.accumulate));
  add("updates of all rows", Text(table.every_row));
  add("simulated_quantization", QuantizationOf(table.quantization));
}

void AddFeature(const Configuration& configuration, int64_t f, std::vector<Setting>* settings) {
  const FeatureConfig& feature = At(configuration.features, f);
  const std::string of = " of feature " + Text(f) + " ('" + feature.name + "')";
  settings->push_back({"name of feature " + Text(f), feature.name});
  settings->push_back({"table" + of, Text(feature.table)});
  std::string shape;
  for (const int64_t size : feature.shape) shape += (shape.empty() ? "" : ", ") + Text(size);
  settings->push_back({"input_shape" + of, "[" + shape + "]"});
}

std::string TextOf(const std::vector<Setting>& settings) {
  std::string text;
  for (const Setting& one : settings) text += one.name + "\t" + one.value + "\n";
  return text;
}

// Parses the settings that another host has sent. The text may be malformed.
std::vector<Setting> SettingsIn(const char* text, int64_t size) {
  std::vector<Setting> settings;
  for (const char *at = text, *end = text + size; at < end;) {
    const char* const line = std::find(at, end, '\n');
    const char* const tab = std::find(at, line, '\t');
    settings.push_back({std::string(at, tab), std::string(std::min(tab + 1, line), line)});
    at = line == end ? end : line + 1;
  }
  return settings;
}

// Describes the differences between the settings of two hosts. Stops at the first setting that
// only one of the hosts has, because the lists do not match after it.
std::string DifferencesOf(const std::vector<Setting>& others, const std::vector<Setting>& own,
                          const std::string& other_host, const std::string& own_host) {
  std::string found;
  int listed = 0;
  for (size_t i = 0; i < std::min(others.size(), own.size()) && listed < kMostListed; ++i) {
    if (others[i].name != own[i].name) break;
    if (others[i].value == own[i].value) continue;
    found += std::string(found.empty() ? "" : "; ") + own[i].name + " is " + others[i].value +
             " on " + other_host + " and " + own[i].value + " on " + own_host;
    ++listed;
  }
  return found.empty() ? other_host + " has other settings than " + own_host : found;
}

struct Greeting {
  int64_t protocol, fingerprint, bytes;
};

Status SwapGreetings(Exchange* exchange, const Greeting& own,
                     std::vector<Greeting>* greetings) {
  Buffers out, in;
  for (int64_t h = 0; h < exchange->hosts(); ++h) {
    out.push_back(exchange->Allocate(sizeof(Greeting)));
    in.push_back(exchange->Allocate(sizeof(Greeting)));
    std::memcpy(out.back().data, &own, sizeof own);
    std::memcpy(in.back().data, &own, sizeof own);
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange->AllToAll(Channel::kConfigurations, 0, out, in));
  for (const Exchange::Buffer& one : in) {
    greetings->emplace_back();
    std::memcpy(&greetings->back(), one.data, sizeof(Greeting));
  }
  return {};
}

// Exchanges all settings, and returns an error that describes the differences. The fingerprints
// have shown that at least one host has other settings.
Status Compare(Exchange* exchange, const std::vector<Setting>& own,
               const std::vector<Greeting>& greetings) {
  const std::string text = TextOf(own);
  const std::string own_host = exchange->Describe(exchange->host());
  Buffers out, in;
  for (int64_t h = 0; h < exchange->hosts(); ++h) {
    const int64_t bytes = h == exchange->host() ? 0 : At(greetings, h).bytes;
    out.push_back(exchange->Allocate(bytes == 0 ? 0 : static_cast<int64_t>(text.size())));
    in.push_back(exchange->Allocate(bytes));
    if (out.back().size > 0) std::memcpy(out.back().data, text.data(), text.size());
  }
  OPWRIGHT_RETURN_IF_ERROR(exchange->AllToAll(Channel::kConfigurations, 1, out, in));
  std::string found;
  for (int64_t h = 0; h < exchange->hosts(); ++h) {
    const Exchange::Buffer& one = At(in, h);
    if (h == exchange->host() || std::string(one.data, one.data + one.size) == text) continue;
    found += (found.empty() ? "" : "; ") + DifferencesOf(SettingsIn(one.data, one.size), own,
                                                         exchange->Describe(h), own_host);
  }
  return InvalidArgumentError("the hosts have different configurations: " + found +
                              "; all hosts must run the same program");
}

}  // namespace

// The FNV-1a hash.
int64_t FingerprintOf(const std::string& text) {
  uint64_t sum = 14695981039346656037u;
  for (const char c : text) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return static_cast<int64_t>(sum);
}

std::vector<Setting> SettingsOf(const Configuration& configuration) {
  const int64_t tables = static_cast<int64_t>(configuration.tables.size());
  const int64_t features = static_cast<int64_t>(configuration.features.size());
  std::vector<Setting> settings = {
      {"number of tables", Text(tables)},
      {"number of features", Text(features)},
      {"dtype of tables", "float32"},
      {"sharding_strategy", configuration.shard_by_remainder ? "MOD" : "DIV_DEFAULT"},
      {"mode", NameOf(configuration.mode)},
      {"num_hosts", Text(configuration.hosts)},
      {"num_tensor_cores", Text(configuration.cores)},
      {"batch_size_per_tensor_core", Text(configuration.batch)},
      {"pipeline_execution_with_tensor_core", Text(configuration.pipelined)}};
  for (int64_t t = 0; t < tables; ++t) AddTable(configuration, t, &settings);
  for (int64_t f = 0; f < features; ++f) AddFeature(configuration, f, &settings);
  for (Setting& one : settings) one = {Line(one.name), Line(one.value)};
  return settings;
}

Status Handshake(Exchange* exchange, const Configuration& configuration) {
  const std::vector<Setting> own = SettingsOf(configuration);
  const std::string text = TextOf(own);
  const Greeting greeting{kHostProtocol, FingerprintOf(text),
                          static_cast<int64_t>(text.size())};
  std::vector<Greeting> greetings;
  OPWRIGHT_RETURN_IF_ERROR(SwapGreetings(exchange, greeting, &greetings));
  bool differ = false, comparable = true;
  for (int64_t h = 0; h < exchange->hosts(); ++h) {
    const Greeting& other = At(greetings, h);
    if (other.protocol != kHostProtocol) {
      return InvalidArgumentError(exchange->Describe(h) + " sends version " +
                                  Text(other.protocol) + " of the messages between hosts, " +
                                  exchange->Describe(exchange->host()) + " version " +
                                  Text(kHostProtocol) +
                                  "; install the same version of opwright on all hosts");
    }
    differ =
        differ || other.fingerprint != greeting.fingerprint || other.bytes != greeting.bytes;
    comparable = comparable && other.bytes > 0 && other.bytes <= kMostBytes;
  }
  if (!differ) return {};
  if (comparable) return Compare(exchange, own, greetings);
  return InvalidArgumentError(
      "the hosts have different configurations; all hosts must run the same program");
}

}  // namespace opwright::embedding
