// Loading and retrieving tables: one table of a given optimizer, or all of them.
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tf/device_host.h"
#include "tf/embedding_system.h"
#include "tf/register.h"
#include "tf/status.h"

namespace opwright {
namespace {

using embedding::Configuration;
using embedding::Engine;
using embedding::Maybe;
using embedding::OptimizerFacts;
using embedding::Shard;
using embedding::TableConfig;
using embedding::TableStore;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// Which rows an op is about.
class StateOp : public ConfiguredOp<OpKernel> {
 public:
  explicit StateOp(OpKernelConstruction* context) : ConfiguredOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("num_shards", &shards_));
    OP_REQUIRES_OK(context, context->GetAttr("shard_id", &shard_));
    OP_REQUIRES(context, shards_ > 0,
                Invalid("num_shards", absl::StrCat("must be positive, is ", shards_)));
    OP_REQUIRES(context, shard_ >= 0 && shard_ < shards_,
                Invalid("shard_id",
                        absl::StrCat("must be in [0, ", shards_, "), is ", shard_)));
  }

 protected:
  Shard RowsOf(const Configuration& configuration, int64_t table) const {
    return embedding::ShardOf(configuration.tables[table].rows, shards_, shard_,
                              configuration.shard_by_remainder);
  }

  absl::Status CheckShape(const std::string& argument, const Configuration& configuration,
                          int64_t table, const Tensor& tensor) const {
    const TensorShape shape(
        {RowsOf(configuration, table).count, configuration.tables[table].dimension});
    if (tensor.shape() == shape) return absl::OkStatus();
    return Invalid(argument, absl::StrCat("shard ", shard_, " of ", shards_, " of ",
                                          Describe(configuration, table),
                                          " must have the shape ", shape.DebugString(),
                                          ", has ", tensor.shape().DebugString()));
  }

 private:
  int64_t shards_, shard_;
};

// Load and Retrieve of one optimizer: the op's name says which, its arguments are the
// parameters and that optimizer's slots.
class OneTableOp : public StateOp {
 public:
  explicit OneTableOp(OpKernelConstruction* context) : StateOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("table_id", &table_));
    OP_REQUIRES_OK(context, context->GetAttr("table_name", &name_));
    OP_REQUIRES(context, (table_ >= 0) != !name_.empty(),
                absl::InvalidArgumentError(absl::StrCat(
                    "exactly one of table_id and table_name must be given, they are ", table_,
                    " and '", name_, "'")));
    for (int i = 0; i < embedding::kOptimizers; ++i) {
      const OptimizerFacts& facts = embedding::AllFacts()[i];
      if (facts.op_name &&
          absl::EndsWith(type_string(),
                         absl::StrCat("TPUEmbedding", facts.op_name, "Parameters"))) {
        facts_ = &facts;
      }
    }
    OP_REQUIRES(context, facts_, absl::InternalError("no optimizer of this name"));
  }

 protected:
  // The table, which must have this op's optimizer.
  absl::Status FindTable(const Configuration& configuration, int64_t* found) const {
    const int64_t count = static_cast<int64_t>(configuration.tables.size());
    *found = table_;
    if (!name_.empty()) {
      for (*found = 0; *found < count; ++*found) {
        if (configuration.tables[*found].name == name_) break;
      }
      if (*found == count) return Invalid("table_name", "no table is called '" + name_ + "'");
    }
    if (*found >= count) {
      return Invalid("table_id", absl::StrCat("must be in [0, ", count, "), is ", *found));
    }
    const TableConfig& table = configuration.tables[*found];
    if (table.optimizer != facts_->optimizer) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(configuration, *found), " has the optimizer ",
                       FactsOf(table.optimizer).field, ", this op is for ", facts_->field));
    }
    return absl::OkStatus();
  }

  const OptimizerFacts& facts() const { return *facts_; }

 private:
  int64_t table_;
  std::string name_;
  const OptimizerFacts* facts_ = nullptr;
};

class LoadOp : public OneTableOp {
 public:
  using OneTableOp::OneTableOp;

  void Compute(OpKernelContext* context) override {
    std::shared_ptr<Engine> engine;
    OP_REQUIRES_OK(context, EmbeddingSystem::Get().FindHere(context, config_, &engine));
    const Configuration& configuration = engine->configuration();
    int64_t table;
    OP_REQUIRES_OK(context, FindTable(configuration, &table));
    for (int i = 0; i < context->num_inputs(); ++i) {
      OP_REQUIRES_OK(context, CheckShape(i == 0 ? "parameters" : facts().slots[i - 1],
                                         configuration, table, context->input(i)));
    }
    DeviceHost host(context);
    OP_REQUIRES_OK(context, ToStatus(engine->Use(&host, [&](TableStore* store) -> Maybe {
      for (int i = 0; i < context->num_inputs(); ++i) {
        if (auto refusal = store->Write(&host, table, i - 1, RowsOf(configuration, table),
                                        context->input(i).flat<float>().data())) {
          return refusal;
        }
      }
      return {};
    })));
  }
};

class RetrieveOp : public OneTableOp {
 public:
  using OneTableOp::OneTableOp;

  void Compute(OpKernelContext* context) override {
    std::shared_ptr<Engine> engine;
    OP_REQUIRES_OK(context, EmbeddingSystem::Get().FindHere(context, config_, &engine));
    const Configuration& configuration = engine->configuration();
    int64_t table;
    OP_REQUIRES_OK(context, FindTable(configuration, &table));
    const Shard rows = RowsOf(configuration, table);
    std::vector<float*> outputs(context->num_outputs());
    for (int i = 0; i < context->num_outputs(); ++i) {
      Tensor* output;
      OP_REQUIRES_OK(
          context,
          context->allocate_output(
              i, TensorShape({rows.count, configuration.tables[table].dimension}), &output));
      outputs[i] = output->flat<float>().data();
    }
    DeviceHost host(context);
    OP_REQUIRES_OK(context, ToStatus(engine->Use(&host, [&](TableStore* store) -> Maybe {
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (auto refusal =
                store->Read(&host, table, static_cast<int64_t>(i) - 1, rows, outputs[i])) {
          return refusal;
        }
      }
      return {};
    })));
  }
};

// What LoadAll and RetrieveAll call `auxiliary` 1 to 7 of a table: its slots, then the
// gradient accumulators where there are some. Ours are always clear between steps.
std::string AuxiliaryName(int i) { return absl::StrCat("auxiliary", i); }
std::string ArgumentName(int i, int table) {
  return absl::StrCat(i == 0 ? "parameters" : AuxiliaryName(i), "[", table, "]");
}
// As TPUs mark an accumulator without a gradient: the smallest denormal.
constexpr uint32_t kClear = 1;

class AllTablesOp : public StateOp {
 public:
  using StateOp::StateOp;

 protected:
  absl::Status CheckTables(const Configuration& configuration, int64_t count) const {
    const int64_t tables = static_cast<int64_t>(configuration.tables.size());
    if (count == tables) return absl::OkStatus();
    return Invalid("NumTables", absl::StrCat("must be the number of the configuration's "
                                             "tables, ",
                                             tables, ", is ", count));
  }
};

class LoadAllOp : public AllTablesOp {
 public:
  using AllTablesOp::AllTablesOp;

  void Compute(OpKernelContext* context) override {
    std::shared_ptr<Engine> engine;
    OP_REQUIRES_OK(context, EmbeddingSystem::Get().FindHere(context, config_, &engine));
    const Configuration& configuration = engine->configuration();
    OpInputList lists[1 + embedding::kMaxSlots];
    OP_REQUIRES_OK(context, context->input_list("parameters", &lists[0]));
    OP_REQUIRES_OK(context, CheckTables(configuration, lists[0].size()));
    for (int i = 1; i <= embedding::kMaxSlots; ++i) {
      OP_REQUIRES_OK(context, context->input_list(AuxiliaryName(i), &lists[i]));
    }
    for (int t = 0; t < lists[0].size(); ++t) {
      OP_REQUIRES_OK(context, Check(configuration, t, lists));
    }
    DeviceHost host(context);
    OP_REQUIRES_OK(context, ToStatus(engine->Use(&host, [&](TableStore* store) -> Maybe {
      for (int t = 0; t < lists[0].size(); ++t) {
        if (auto refusal = CheckClear(&host, configuration, t, lists, store)) return refusal;
      }
      for (int t = 0; t < lists[0].size(); ++t) {
        for (int i = 0; i <= configuration.tables[t].slots(); ++i) {
          if (auto refusal = store->Write(&host, t, i - 1, RowsOf(configuration, t),
                                          lists[i][t].flat<float>().data())) {
            return refusal;
          }
        }
      }
      return {};
    })));
  }

 private:
  absl::Status Check(const Configuration& configuration, int t,
                     const OpInputList* lists) const {
    const TableConfig& table = configuration.tables[t];
    for (int i = 0; i <= embedding::kMaxSlots; ++i) {
      const Tensor& tensor = lists[i][t];
      const std::string argument = ArgumentName(i, t);
      if (i <= table.slots()) {
        if (auto status = CheckShape(argument, configuration, t, tensor); !status.ok()) {
          return status;
        }
        continue;
      }
      if (tensor.NumElements() == 0) continue;
      if (i == table.slots() + 1 && table.accumulate) {
        if (auto status = CheckShape(argument, configuration, t, tensor); !status.ok()) {
          return status;
        }
        continue;
      }
      return Invalid(argument, absl::StrCat(Describe(configuration, t), " has no more than ",
                                            table.slots(), " slots, and this must be empty; "
                                            "it has the shape ",
                                            tensor.shape().DebugString()));
    }
    return absl::OkStatus();
  }

  // The gradient accumulators of a table, where there are some.
  static Maybe CheckClear(DeviceHost* host, const Configuration& configuration, int t,
                          const OpInputList* lists, TableStore* store) {
    const TableConfig& table = configuration.tables[t];
    const int64_t i = table.slots() + 1;
    if (!table.accumulate || i > embedding::kMaxSlots) return {};
    const Tensor& tensor = lists[i][t];
    TableStore::Found found;
    if (auto refusal = store->FindAbove(host, kClear, tensor.NumElements(),
                                        tensor.flat<float>().data(), &found)) {
      return refusal;
    }
    if (found.at < 0) return {};
    return embedding::Invalid(absl::StrCat(
        ArgumentName(static_cast<int>(i), t), ": the gradient accumulators of ",
        Describe(configuration, t), " must be clear, element ", found.at, " is ",
        found.value));
  }
};

class RetrieveAllOp : public AllTablesOp {
 public:
  using AllTablesOp::AllTablesOp;

  void Compute(OpKernelContext* context) override {
    std::shared_ptr<Engine> engine;
    OP_REQUIRES_OK(context, EmbeddingSystem::Get().FindHere(context, config_, &engine));
    const Configuration& configuration = engine->configuration();
    OpOutputList lists[1 + embedding::kMaxSlots];
    OP_REQUIRES_OK(context, context->output_list("parameters", &lists[0]));
    OP_REQUIRES_OK(context, CheckTables(configuration, lists[0].size()));
    for (int i = 1; i <= embedding::kMaxSlots; ++i) {
      OP_REQUIRES_OK(context, context->output_list(AuxiliaryName(i), &lists[i]));
    }
    std::vector<std::vector<float*>> outputs(lists[0].size());
    std::vector<Tensor*> accumulators;
    for (int t = 0; t < lists[0].size(); ++t) {
      const TableConfig& table = configuration.tables[t];
      const TensorShape shape({RowsOf(configuration, t).count, table.dimension});
      for (int i = 0; i <= embedding::kMaxSlots; ++i) {
        const bool state = i <= table.slots();
        const bool accumulator = i == table.slots() + 1 && table.accumulate;
        Tensor* output;
        OP_REQUIRES_OK(context, lists[i].allocate(
                                    t, state || accumulator ? shape : TensorShape({0, 0}),
                                    &output));
        if (state) outputs[t].push_back(output->flat<float>().data());
        if (accumulator) accumulators.push_back(output);
      }
    }
    DeviceHost host(context);
    OP_REQUIRES_OK(context, ToStatus(engine->Use(&host, [&](TableStore* store) -> Maybe {
      for (size_t t = 0; t < outputs.size(); ++t) {
        for (size_t i = 0; i < outputs[t].size(); ++i) {
          if (auto refusal = store->Read(
                  &host, static_cast<int64_t>(t), static_cast<int64_t>(i) - 1,
                  RowsOf(configuration, static_cast<int64_t>(t)), outputs[t][i])) {
            return refusal;
          }
        }
      }
      for (Tensor* const one : accumulators) {
        if (auto refusal = store->Fill(&host, kClear, one->NumElements(),
                                       one->flat<float>().data())) {
          return refusal;
        }
      }
      return {};
    })));
  }
};

#define REGISTER_OPTIMIZER(NAME)                                     \
  OPWRIGHT_REGISTER("LoadTPUEmbedding" NAME "Parameters", , LoadOp); \
  OPWRIGHT_REGISTER("RetrieveTPUEmbedding" NAME "Parameters", , RetrieveOp)

REGISTER_OPTIMIZER("ADAM");
REGISTER_OPTIMIZER("Adadelta");
REGISTER_OPTIMIZER("Adagrad");
REGISTER_OPTIMIZER("AdagradMomentum");
REGISTER_OPTIMIZER("CenteredRMSProp");
REGISTER_OPTIMIZER("FTRL");
REGISTER_OPTIMIZER("FrequencyEstimator");
REGISTER_OPTIMIZER("MDLAdagradLight");
REGISTER_OPTIMIZER("Momentum");
REGISTER_OPTIMIZER("ProximalAdagrad");
REGISTER_OPTIMIZER("ProximalYogi");
REGISTER_OPTIMIZER("RMSProp");
REGISTER_OPTIMIZER("StochasticGradientDescent");
OPWRIGHT_REGISTER("LoadAllTPUEmbeddingParameters", , LoadAllOp);
OPWRIGHT_REGISTER("RetrieveAllTPUEmbeddingParameters", , RetrieveAllOp);

}  // namespace
}  // namespace opwright
