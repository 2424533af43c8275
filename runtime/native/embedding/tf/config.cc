#include "embedding/tf/config.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/checked.h"
#include "base/tf/status.h"
#include "google/protobuf/unknown_field_set.h"
#include "tensorflow/core/framework/types.pb.h"
#include "tensorflow/core/platform/errors.h"
#include "tensorflow/core/protobuf/tpu/tpu_embedding_configuration.pb.h"

namespace opwright::embedding {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using tensorflow::tpu::ClippingLimits;
using tensorflow::tpu::OptimizationParameters;
using tensorflow::tpu::TPUEmbeddingConfiguration;

void ReadLimits(const ClippingLimits& limits, float* ends) {
  if (limits.has_lower()) ends[0] = limits.lower().value();
  if (limits.has_upper()) ends[1] = limits.upper().value();
}

const OptimizerTraits* FindTraits(absl::string_view field) {
  for (const OptimizerTraits& traits : kOptimizerRegistry) {
    if (field == traits.field) return &traits;
  }
  return nullptr;
}

// Some optimizers have no message in TensorFlow's proto. A user-defined program selects one:
// its name is this prefix and the name of the optimizer.
constexpr absl::string_view kNamedPrograms = "opwright.";

// Reads the optimizer that a program names. The attributes of the program are the
// hyperparameters.
absl::Status ReadNamedProgram(const xla::HloModuleProto& program, const std::string& where,
                              TableConfig* table) {
  const OptimizerTraits* const traits =
      FindTraits(absl::StripPrefix(program.name(), kNamedPrograms));
  const OptimizationParameters parameters;
  if (!traits || parameters.GetDescriptor()->FindFieldByName(traits->field)) {
    return absl::UnimplementedError(
        absl::StrCat(where, ": there is no optimizer '", program.name(), "'"));
  }
  table->optimizer = traits->optimizer;
  const auto& attributes = program.frontend_attributes().map();
  for (int i = 0; i < kMaxHyper && traits->hyper[i].name; ++i) {
    const auto found = attributes.find(traits->hyper[i].name);
    if (found == attributes.end() ||
        !absl::SimpleAtof(found->second, &table->hyper.values[i])) {
      return absl::InvalidArgumentError(absl::StrCat(
          where, ": ", traits->field, " must have the attribute ", traits->hyper[i].name,
          ", a number; it has ",
          found == attributes.end() ? "none" : absl::StrCat("'", found->second, "'")));
    }
  }
  return absl::OkStatus();
}

// Reads the optimizer whose message is set, and the values of the fields that its traits name.
absl::Status ReadOptimizer(const OptimizationParameters& parameters, const std::string& where,
                           TableConfig* table) {
  const Reflection* const reflection = parameters.GetReflection();
  const FieldDescriptor* const set = reflection->GetOneofFieldDescriptor(
      parameters, parameters.GetDescriptor()->FindOneofByName("parameters"));
  if (!set) {
    return absl::InvalidArgumentError(where + ": optimization_parameters names no optimizer");
  }
  if (parameters.has_user_defined_program()) {
    const auto& program = parameters.user_defined_program().program();
    if (absl::StartsWith(program.name(), kNamedPrograms)) {
      return ReadNamedProgram(program, where, table);
    }
  }
  const OptimizerTraits* const traits = FindTraits(set->name());
  if (!traits) {
    return absl::UnimplementedError(where + ": the optimizer " + std::string(set->name()) +
                                    " is not known");
  }
  table->optimizer = traits->optimizer;
  const Message& message = reflection->GetMessage(parameters, set);
  for (int i = 0; i < kMaxHyper && traits->hyper[i].name; ++i) {
    const FieldDescriptor* const field =
        message.GetDescriptor()->FindFieldByName(traits->hyper[i].name);
    if (!field) {
      return absl::InternalError(std::string(traits->field) + " has no field " +
                                 traits->hyper[i].name);
    }
    table->hyper.values[i] = field->cpp_type() == FieldDescriptor::CPPTYPE_BOOL
                                 ? message.GetReflection()->GetBool(message, field)
                                 : message.GetReflection()->GetFloat(message, field);
  }
  table->every_row = traits->non_lazy() >= 0 && table->hyper.values[traits->non_lazy()] != 0;
  if (parameters.has_user_defined_program()) {
    // A user-defined program has gradients and the complete state as inputs, and returns the
    // new state.
    const auto& shape = parameters.user_defined_program().program().host_program_shape();
    table->program_slots = shape.result().tuple_shapes_size() - 1;
    if (table->program_slots < 0 || table->program_slots > kMaxSlots) {
      return absl::InvalidArgumentError(where +
                                        ": its program must return parameters and at "
                                        "most " +
                                        std::to_string(kMaxSlots) + " slots, returns " +
                                        std::to_string(shape.result().tuple_shapes_size()) +
                                        " arrays");
    }
  }
  return absl::OkStatus();
}

// TensorFlow's TableDescriptor has no dtype. This field has it, a DataType. Protobuf keeps
// fields that it does not know, and a TPU ignores this one.
constexpr int kRowDtype = 1000;

absl::Status ReadRowDtype(const TPUEmbeddingConfiguration::TableDescriptor& from,
                          const std::string& where, RowDtype* dtype) {
  const auto& fields = from.GetReflection()->GetUnknownFields(from);
  for (int i = 0; i < fields.field_count(); ++i) {
    const google::protobuf::UnknownField& field = fields.field(i);
    if (field.number() != kRowDtype) continue;
    const bool is_number = field.type() == google::protobuf::UnknownField::TYPE_VARINT;
    switch (is_number ? field.varint() : 0) {
      case tensorflow::DT_FLOAT: *dtype = RowDtype::kFloat32; break;
      case tensorflow::DT_HALF: *dtype = RowDtype::kFloat16; break;
      case tensorflow::DT_BFLOAT16: *dtype = RowDtype::kBfloat16; break;
      case tensorflow::DT_INT8: *dtype = RowDtype::kInt8; break;
      default:
        return absl::InvalidArgumentError(absl::StrCat(
            where, ": the dtype of rows (field ", kRowDtype,
            ") must be the DataType float32 (1), float16 (19), bfloat16 (14) or int8 (6), is ",
            is_number ? absl::StrCat(field.varint()) : "no number"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadTable(const TPUEmbeddingConfiguration::TableDescriptor& from,
                       const std::string& where, TableConfig* table) {
  const OptimizationParameters& parameters = from.optimization_parameters();
  table->name = from.name();
  table->rows = from.vocabulary_size();
  table->dimension = from.dimension();
  table->features = from.num_features();
  Hyper& hyper = table->hyper;
  table->dynamic_rate = parameters.learning_rate().has_dynamic();
  table->has_rate = parameters.learning_rate().learning_rate_case() !=
                    tensorflow::tpu::LearningRate::LEARNING_RATE_NOT_SET;
  table->tag = parameters.learning_rate().dynamic().tag();
  hyper.learning_rate = parameters.learning_rate().constant();
  ReadLimits(parameters.clipping_limits(), hyper.clip_weight);
  ReadLimits(parameters.gradient_clipping_limits(), hyper.clip_gradient);
  hyper.decay = parameters.weight_decay_factor();
  table->decay_times_rate = parameters.multiply_weight_decay_factor_by_learning_rate();
  table->accumulate = parameters.gradient_accumulation_status() !=
                      tensorflow::tpu::GradientAccumulationStatus::DISABLED;
  const auto& quantization = parameters.simulated_quantization();
  if (quantization.enabled()) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    float limits[2] = {-kInfinity, kInfinity};
    ReadLimits(quantization.clipping_limits(), limits);
    table->quantization = {true, limits[0], limits[1], quantization.num_buckets()};
  }
  TF_RETURN_IF_ERROR(ReadRowDtype(from, where, &table->dtype));
  return ReadOptimizer(parameters, where, table);
}

Mode ModeOf(TPUEmbeddingConfiguration::Mode mode) {
  switch (mode) {
    case TPUEmbeddingConfiguration::INFERENCE: return Mode::kInference;
    case TPUEmbeddingConfiguration::BACKWARD_PASS_ONLY: return Mode::kBackwardOnly;
    default: return Mode::kTraining;
  }
}

}  // namespace

absl::Status ReadConfiguration(absl::string_view serialized, Configuration* configuration,
                               std::string* canonical) {
  if (serialized.empty()) {
    return absl::InvalidArgumentError("config is empty, must be a TPUEmbeddingConfiguration");
  }
  TPUEmbeddingConfiguration from;
  int size;
  if (!Narrow(serialized.size(), &size) || !from.ParseFromArray(serialized.data(), size)) {
    return absl::InvalidArgumentError("config is no serialized TPUEmbeddingConfiguration");
  }
  if (canonical) *canonical = from.SerializeAsString();
  for (int i = 0; i < from.table_descriptor_size(); ++i) {
    const auto& table = from.table_descriptor(i);
    const std::string where = "table " + std::to_string(i) + " ('" + table.name() + "')";
    configuration->tables.emplace_back();
    TF_RETURN_IF_ERROR(ReadTable(table, where, &configuration->tables.back()));
  }
  for (const auto& feature : from.feature_descriptor()) {
    configuration->features.push_back(
        {feature.name(),
         feature.table_id(),
         {feature.input_shape().begin(), feature.input_shape().end()}});
  }
  configuration->mode = ModeOf(from.mode());
  configuration->batch = from.batch_size_per_tensor_core();
  configuration->hosts = from.num_hosts();
  configuration->cores = from.num_tensor_cores();
  configuration->shard_by_remainder =
      from.sharding_strategy() == TPUEmbeddingConfiguration::MOD;
  configuration->pipelined = from.pipeline_execution_with_tensor_core();
  return ToAbsl(Complete(configuration));
}

}  // namespace opwright::embedding
