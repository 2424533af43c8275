// The ops that load and retrieve tables: one table with a given optimizer, or all tables.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/tf/device_context.h"
#include "base/tf/status.h"
#include "embedding/cpu/rows.h"
#include "embedding/tf/device.h"
#include "embedding/tf/system.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::OpOutputList;
using tensorflow::Tensor;
using tensorflow::TensorShape;

// The base class of these ops. Its attrs select the rows that an op loads or retrieves.
class StateOp : public ConfiguredOp<AsyncOpKernel> {
 public:
  explicit StateOp(OpKernelConstruction* context) : ConfiguredOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("num_shards", &shards_));
    OP_REQUIRES_OK(context, context->GetAttr("shard_id", &shard_));
    OP_REQUIRES(context, shards_ > 0,
                Invalid("num_shards", absl::StrCat("must be positive, is ", shards_)));
    OP_REQUIRES(
        context, shard_ >= 0 && shard_ < shards_,
        Invalid("shard_id", absl::StrCat("must be in [0, ", shards_, "), is ", shard_)));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    RunOp(context, std::move(done), [this, context](const DoneCallback& done) {
      context->SetStatus(Work(context));
      done();
    });
  }

 protected:
  virtual absl::Status Work(OpKernelContext* context) = 0;

  Shard RowsOf(const Configuration& configuration, int64_t table) const {
    return ShardOf(configuration.tables[table].rows, shards_, shard_,
                   configuration.shard_by_remainder);
  }

  // Returns the shape of the weights (slot -1) or of a slot.
  TensorShape ShapeOf(const Configuration& configuration, int64_t table, int64_t slot) const {
    return TensorShape(
        {RowsOf(configuration, table).count, configuration.tables[table].columns(slot)});
  }

  absl::Status CheckShape(const std::string& argument, const Configuration& configuration,
                          int64_t table, int64_t slot, const Tensor& tensor) const {
    const TensorShape shape = ShapeOf(configuration, table, slot);
    if (tensor.shape() == shape) return absl::OkStatus();
    return Invalid(argument,
                   absl::StrCat("shard ", shard_, " of ", shards_, " of ",
                                Describe(configuration, table), " must have the shape ",
                                shape.DebugString(), ", has ", tensor.shape().DebugString()));
  }

  // Checks values that are to be loaded. `tensor` is a matrix of a shard's rows, or empty.
  Status CheckValues(DeviceContext* exec, const Configuration& configuration, int64_t table,
                     Range range, const Tensor& tensor, const std::string& argument) const {
    const std::optional<Outside> found =
        FindOutside(*exec, range, tensor.NumElements(), tensor.flat<float>().data());
    if (!found) return {};
    const int64_t columns = tensor.dim_size(1);
    const Shard rows = RowsOf(configuration, table);
    return InvalidArgumentError(
        absl::StrCat(argument, ": ", Describe(configuration, table), " must be ", Words(range),
                     " throughout, row ", rows.first + found->at / columns * rows.step,
                     ", column ", found->at % columns, " is ", Number(found->value)));
  }

 private:
  int64_t shards_, shard_;
};

// For some optimizers TensorFlow has no load and retrieve ops, and it has none for the
// optimizers that only opwright has. These two ops support every optimizer.
REGISTER_OP("OpwrightLoadEmbeddingTable")
    .Input("parameters: float")
    .Input("slots: N * float")  // In the order of the optimizer's traits.
    .Attr("N: int >= 0")
    .Attr("table_id: int = -1")
    .Attr("table_name: string = ''")
    .Attr("num_shards: int")
    .Attr("shard_id: int")
    .Attr("config: string = ''")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);
REGISTER_OP("OpwrightRetrieveEmbeddingTable")
    .Output("parameters: float")
    .Output("slots: N * float")
    .Attr("N: int >= 0")
    .Attr("table_id: int = -1")
    .Attr("table_name: string = ''")
    .Attr("num_shards: int")
    .Attr("shard_id: int")
    .Attr("config: string = ''")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape);

// The base class of Load and Retrieve for one table. The arguments are the parameters and the
// optimizer's slots. The name of a TensorFlow op determines the optimizer.
class OneTableOp : public StateOp {
 public:
  explicit OneTableOp(OpKernelConstruction* context) : StateOp(context) {
    OP_REQUIRES_OK(context, context->GetAttr("table_id", &table_));
    OP_REQUIRES_OK(context, context->GetAttr("table_name", &name_));
    OP_REQUIRES(context, (table_ >= 0) != !name_.empty(),
                absl::InvalidArgumentError(absl::StrCat(
                    "exactly one of table_id and table_name must be given, they are ", table_,
                    " and '", name_, "'")));
    for (int i = 0; i < kOptimizers; ++i) {
      const OptimizerTraits& traits = kOptimizerRegistry[i];
      if (traits.op_name &&
          absl::EndsWith(type_string(),
                         absl::StrCat("TPUEmbedding", traits.op_name, "Parameters"))) {
        traits_ = &traits;
      }
    }
    OP_REQUIRES(context, traits_ || absl::StartsWith(type_string(), "Opwright"),
                absl::InternalError("no optimizer of this name"));
  }

 protected:
  // Finds the table. It must have this op's optimizer and `slots` slots.
  absl::Status FindTable(const Configuration& configuration, int64_t slots,
                         int64_t* found) const {
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
    if (traits_ && table.optimizer != traits_->optimizer) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(configuration, *found), " has the optimizer ",
                       TraitsOf(table.optimizer).field, ", this op is for ", traits_->field));
    }
    if (table.slots() != slots) {
      return Invalid("slots",
                     absl::StrCat(Describe(configuration, *found), " has the optimizer ",
                                  TraitsOf(table.optimizer).field, " with ", table.slots(),
                                  " slots, not ", slots));
    }
    return absl::OkStatus();
  }

  static std::string ArgumentOf(const TableConfig& table, int64_t slot) {
    return slot < 0 ? "parameters" : table.slot_name(slot);
  }

 private:
  int64_t table_;
  std::string name_;
  const OptimizerTraits* traits_ = nullptr;  // Null means any optimizer.
};

class LoadOp : public OneTableOp {
 public:
  using OneTableOp::OneTableOp;

  absl::Status Work(OpKernelContext* context) override {
    const auto found = System::Get().Find(config_);
    TF_RETURN_IF_ERROR(found.status());
    const std::shared_ptr<Engine> engine = *found;
    const Configuration& configuration = engine->configuration();
    int64_t table;
    TF_RETURN_IF_ERROR(FindTable(configuration, context->num_inputs() - 1, &table));
    const TableConfig& config = configuration.tables[table];
    for (int i = 0; i < context->num_inputs(); ++i) {
      TF_RETURN_IF_ERROR(CheckShape(ArgumentOf(config, i - 1), configuration, table, i - 1,
                                    context->input(i)));
    }
    DeviceContext exec(context);
    TF_RETURN_IF_ERROR(ToAbsl(engine->Use(&exec, [&](TableStore* store) -> Status {
      for (int i = 0; i < context->num_inputs(); ++i) {
        OPWRIGHT_RETURN_IF_ERROR(CheckValues(&exec, configuration, table,
                                             TraitsOf(config.optimizer).range(i - 1),
                                             context->input(i), ArgumentOf(config, i - 1)));
      }
      for (int i = 0; i < context->num_inputs(); ++i) {
        OPWRIGHT_RETURN_IF_ERROR(store->Write(&exec, table, i - 1, RowsOf(configuration, table),
                                              context->input(i).flat<float>().data()));
      }
      return {};
    })));
    return absl::OkStatus();
  }
};

class RetrieveOp : public OneTableOp {
 public:
  using OneTableOp::OneTableOp;

  absl::Status Work(OpKernelContext* context) override {
    const auto found = System::Get().Find(config_);
    TF_RETURN_IF_ERROR(found.status());
    const std::shared_ptr<Engine> engine = *found;
    const Configuration& configuration = engine->configuration();
    int64_t table;
    TF_RETURN_IF_ERROR(FindTable(configuration, context->num_outputs() - 1, &table));
    const Shard rows = RowsOf(configuration, table);
    std::vector<float*> outputs(context->num_outputs());
    for (int i = 0; i < context->num_outputs(); ++i) {
      Tensor* output;
      TF_RETURN_IF_ERROR(
          context->allocate_output(i, ShapeOf(configuration, table, i - 1), &output));
      outputs[i] = output->flat<float>().data();
    }
    DeviceContext exec(context);
    TF_RETURN_IF_ERROR(ToAbsl(engine->Use(&exec, [&](TableStore* store) -> Status {
      for (size_t i = 0; i < outputs.size(); ++i) {
        OPWRIGHT_RETURN_IF_ERROR(
            store->Read(&exec, table, static_cast<int64_t>(i) - 1, rows, outputs[i]));
      }
      return {};
    })));
    return absl::OkStatus();
  }
};

// Returns the name that LoadAll and RetrieveAll use for argument `auxiliary` 1 to 7 of a table.
// These are its slots, then its gradient accumulators if it has them. In this library,
// accumulators are always zero between steps.
std::string AuxiliaryName(int i) { return absl::StrCat("auxiliary", i); }
std::string ArgumentName(int i, int table) {
  return absl::StrCat(i == 0 ? "parameters" : AuxiliaryName(i), "[", table, "]");
}
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

  absl::Status Work(OpKernelContext* context) override {
    const auto found = System::Get().Find(config_);
    TF_RETURN_IF_ERROR(found.status());
    const std::shared_ptr<Engine> engine = *found;
    const Configuration& configuration = engine->configuration();
    OpInputList lists[1 + kMaxSlots];
    TF_RETURN_IF_ERROR(context->input_list("parameters", &lists[0]));
    TF_RETURN_IF_ERROR(CheckTables(configuration, lists[0].size()));
    for (int i = 1; i <= kMaxSlots; ++i) {
      TF_RETURN_IF_ERROR(context->input_list(AuxiliaryName(i), &lists[i]));
    }
    for (int t = 0; t < lists[0].size(); ++t) {
      TF_RETURN_IF_ERROR(Check(configuration, t, lists));
    }
    DeviceContext exec(context);
    TF_RETURN_IF_ERROR(ToAbsl(engine->Use(&exec, [&](TableStore* store) -> Status {
      for (int t = 0; t < lists[0].size(); ++t) {
        OPWRIGHT_RETURN_IF_ERROR(CheckTable(&exec, configuration, t, lists));
      }
      for (int t = 0; t < lists[0].size(); ++t) {
        for (int i = 0; i <= configuration.tables[t].slots(); ++i) {
          OPWRIGHT_RETURN_IF_ERROR(store->Write(&exec, t, i - 1, RowsOf(configuration, t),
                                                lists[i][t].flat<float>().data()));
        }
      }
      return {};
    })));
    return absl::OkStatus();
  }

 private:
  absl::Status Check(const Configuration& configuration, int t,
                     const OpInputList* lists) const {
    const TableConfig& table = configuration.tables[t];
    for (int i = 0; i <= kMaxSlots; ++i) {
      const Tensor& tensor = lists[i][t];
      const std::string argument = ArgumentName(i, t);
      if (i <= table.slots()) {
        TF_RETURN_IF_ERROR(CheckShape(argument, configuration, t, i - 1, tensor));
        continue;
      }
      if (tensor.NumElements() == 0) continue;
      if (i == table.slots() + 1 && table.accumulate) {
        TF_RETURN_IF_ERROR(CheckShape(argument, configuration, t, -1, tensor));
        continue;
      }
      return Invalid(argument, absl::StrCat(Describe(configuration, t), " has no more than ",
                                            table.slots(),
                                            " slots, and this must be empty; "
                                            "it has the shape ",
                                            tensor.shape().DebugString()));
    }
    return absl::OkStatus();
  }

  // Checks the weights, the slots and, if there are any, the gradient accumulators.
  Status CheckTable(DeviceContext* exec, const Configuration& configuration, int t,
                    const OpInputList* lists) const {
    const TableConfig& table = configuration.tables[t];
    const int64_t slots = table.slots();
    const int64_t last = std::min<int64_t>(slots + (table.accumulate ? 1 : 0), kMaxSlots);
    for (int i = 0; i <= last; ++i) {
      const Range range = i > slots ? Range::kClear : TraitsOf(table.optimizer).range(i - 1);
      OPWRIGHT_RETURN_IF_ERROR(
          CheckValues(exec, configuration, t, range, lists[i][t],
                      ArgumentName(i, t) + (i > slots ? ", gradient accumulators" : "")));
    }
    return {};
  }
};

class RetrieveAllOp : public AllTablesOp {
 public:
  using AllTablesOp::AllTablesOp;

  absl::Status Work(OpKernelContext* context) override {
    const auto found = System::Get().Find(config_);
    TF_RETURN_IF_ERROR(found.status());
    const std::shared_ptr<Engine> engine = *found;
    const Configuration& configuration = engine->configuration();
    OpOutputList lists[1 + kMaxSlots];
    TF_RETURN_IF_ERROR(context->output_list("parameters", &lists[0]));
    TF_RETURN_IF_ERROR(CheckTables(configuration, lists[0].size()));
    for (int i = 1; i <= kMaxSlots; ++i) {
      TF_RETURN_IF_ERROR(context->output_list(AuxiliaryName(i), &lists[i]));
    }
    std::vector<std::vector<float*>> outputs(lists[0].size());
    std::vector<Tensor*> accumulators;
    for (int t = 0; t < lists[0].size(); ++t) {
      const TableConfig& table = configuration.tables[t];
      for (int i = 0; i <= kMaxSlots; ++i) {
        const bool state = i <= table.slots();
        const bool accumulator = i == table.slots() + 1 && table.accumulate;
        Tensor* output;
        TF_RETURN_IF_ERROR(lists[i].allocate(t,
                                             state         ? ShapeOf(configuration, t, i - 1)
                                             : accumulator ? ShapeOf(configuration, t, -1)
                                                           : TensorShape({0, 0}),
                                             &output));
        if (state) outputs[t].push_back(output->flat<float>().data());
        if (accumulator) accumulators.push_back(output);
      }
    }
    DeviceContext exec(context);
    TF_RETURN_IF_ERROR(ToAbsl(engine->Use(&exec, [&](TableStore* store) -> Status {
      for (size_t t = 0; t < outputs.size(); ++t) {
        for (size_t i = 0; i < outputs[t].size(); ++i) {
          OPWRIGHT_RETURN_IF_ERROR(
              store->Read(&exec, static_cast<int64_t>(t), static_cast<int64_t>(i) - 1,
                          RowsOf(configuration, static_cast<int64_t>(t)), outputs[t][i]));
        }
      }
      for (Tensor* const one : accumulators) {
        FillWithBits(kClearBits, one->NumElements(), one->flat<float>().data());
      }
      return {};
    })));
    return absl::OkStatus();
  }
};

// Values are always in host memory, even if the tables and the op are on another device.
#define HOST(NAME) .HostMemory(NAME)
#define REGISTER_OPTIMIZER(NAME, SLOTS)                                                      \
  OPWRIGHT_REGISTER("LoadTPUEmbedding" NAME "Parameters", HOST("parameters") SLOTS, LoadOp); \
  OPWRIGHT_REGISTER("RetrieveTPUEmbedding" NAME "Parameters", HOST("parameters") SLOTS,      \
                    RetrieveOp)

REGISTER_OPTIMIZER("ADAM", HOST("momenta") HOST("velocities"));
REGISTER_OPTIMIZER("Adadelta", HOST("accumulators") HOST("updates"));
REGISTER_OPTIMIZER("Adagrad", HOST("accumulators"));
REGISTER_OPTIMIZER("AdagradMomentum", HOST("accumulators") HOST("momenta"));
REGISTER_OPTIMIZER("CenteredRMSProp", HOST("ms") HOST("mom") HOST("mg"));
REGISTER_OPTIMIZER("FTRL", HOST("accumulators") HOST("linears"));
REGISTER_OPTIMIZER("FrequencyEstimator", HOST("last_hit_step"));
REGISTER_OPTIMIZER("MDLAdagradLight", HOST("accumulators") HOST("weights") HOST("benefits"));
REGISTER_OPTIMIZER("Momentum", HOST("momenta"));
REGISTER_OPTIMIZER("ProximalAdagrad", HOST("accumulators"));
REGISTER_OPTIMIZER("ProximalYogi", HOST("v") HOST("m"));
REGISTER_OPTIMIZER("RMSProp", HOST("ms") HOST("mom"));
REGISTER_OPTIMIZER("StochasticGradientDescent", );

OPWRIGHT_REGISTER("OpwrightLoadEmbeddingTable", HOST("parameters") HOST("slots"), LoadOp);
OPWRIGHT_REGISTER("OpwrightRetrieveEmbeddingTable", HOST("parameters") HOST("slots"),
                  RetrieveOp);

#define SOME HOST("parameters") HOST("auxiliary1") HOST("auxiliary2") HOST("auxiliary3")
#define ALL SOME HOST("auxiliary4") HOST("auxiliary5") HOST("auxiliary6") HOST("auxiliary7")
OPWRIGHT_REGISTER("LoadAllTPUEmbeddingParameters", ALL, LoadAllOp);
OPWRIGHT_REGISTER("RetrieveAllTPUEmbeddingParameters", ALL, RetrieveAllOp);

}  // namespace
}  // namespace opwright::embedding
