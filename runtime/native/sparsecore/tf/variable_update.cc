// OpwrightSparseCoreUpdate updates tables in variables, by the gradients of all devices. It
// updates either all tables or, if it returns an error, none.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/huge_pages.h"
#include "base/text.h"
#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/cpu/rows.h"
#include "embedding/optimizers.h"
#include "sparsecore/row_arrays.h"
#include "sparsecore/tf/csr_kernel.h"
#include "sparsecore/tf/kernel.h"
#include "sparsecore/tf/known_values.h"
#include "sparsecore/tf/variables.h"
#include "sparsecore/update.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace opwright::sparsecore {
namespace {

// Lists of batches have the devices of the first table, then those of the second, and so on.
REGISTER_OP("OpwrightSparseCoreUpdate")
    .Input("row_pointers: num_batches * int32")
    .Input("sorted_sample_ids: num_batches * int32")
    .Input("sorted_token_ids: num_batches * int32")
    .Input("sorted_gains: num_batches * float")
    .Input("num_minibatches_per_physical_sparse_core: num_batches * int32")
    .Input("activation_gradients: num_batches * float")
    .Input("learning_rates: num_tables * float")
    // Of each table: the shards of its devices, then those of its slots.
    .Input("variables: num_variables * resource")
    .Attr("num_batches: int >= 1")
    .Attr("num_tables: int >= 1")
    .Attr("num_variables: int >= 1")
    .Attr("table_names: list(string)")
    // Names of fields in OptimizationParameters.
    .Attr("optimizers: list(string)")
    // Six of each table, in the order of the optimizer's traits; unused ones are 0.
    .Attr("hyperparameters: list(float)")
    .Attr("max_ids: list(int)")
    .Attr("max_unique_ids: list(int)")
    .Attr("num_sparsecores_per_device: int = -1")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

class VariableUpdateOp : public CsrKernel {
 public:
  explicit VariableUpdateOp(tensorflow::OpKernelConstruction* context) : CsrKernel(context) {
    OP_REQUIRES_OK(context, ReadAttrs(context));
  }

 protected:
  absl::Status Run(tensorflow::OpKernelContext* context) override {
    Inputs inputs;
    TF_RETURN_IF_ERROR(inputs.Read(context));
    DeviceContext exec(context);
    for (int i = 0; i < devices_ * tables(); ++i) {
      TF_RETURN_IF_ERROR(CheckGradients(i, inputs.gradients[i], exec));
    }
    Variables variables("variables", Variables::Access::kWrite);
    TF_RETURN_IF_ERROR(variables.Lock(context));
    std::vector<bool> checked;
    TF_RETURN_IF_ERROR(Own(context, &variables, exec, &checked));
    std::vector<Prepared> prepared(tables_.size());
    std::vector<absl::Status> statuses(tables_.size());
    exec.For(tables(), [&](int64_t i) {
      At(statuses, i) = Prepare(inputs, variables, i, &At(prepared, i), exec);
    });
    for (const absl::Status& status : statuses) TF_RETURN_IF_ERROR(status);
    for (int64_t i = 0; i < tables(); ++i) {
      if (checked[static_cast<size_t>(i)]) continue;
      if (const auto wrong = At(prepared, i).step->FindError(exec)) return Refused(i, *wrong);
    }
    // The variables are locked, so the rows are still the same.
    for (const Prepared& one : prepared) one.step->ApplyChecked(exec);
    return absl::OkStatus();
  }

 private:
  struct Table {
    std::string name;
    embedding::Optimizer optimizer;
    embedding::Hyper hyper;
    CsrLimits limits;
    int64_t first_variable;

    const embedding::OptimizerTraits& traits() const { return embedding::TraitsOf(optimizer); }
  };
  struct Inputs {
    tensorflow::OpInputList row_pointers, samples, rows, gains, minibatches, gradients, rates;

    absl::Status Read(tensorflow::OpKernelContext* context) {
      TF_RETURN_IF_ERROR(context->input_list("row_pointers", &row_pointers));
      TF_RETURN_IF_ERROR(context->input_list("sorted_sample_ids", &samples));
      TF_RETURN_IF_ERROR(context->input_list("sorted_token_ids", &rows));
      TF_RETURN_IF_ERROR(context->input_list("sorted_gains", &gains));
      TF_RETURN_IF_ERROR(
          context->input_list("num_minibatches_per_physical_sparse_core", &minibatches));
      TF_RETURN_IF_ERROR(context->input_list("activation_gradients", &gradients));
      return context->input_list("learning_rates", &rates);
    }
  };
  // The step refers to the triples.
  struct Prepared {
    Triples triples;
    std::optional<TableStep> step;
  };

  int64_t tables() const { return static_cast<int64_t>(tables_.size()); }

  absl::Status ReadAttrs(tensorflow::OpKernelConstruction* context) {
    std::vector<std::string> names, optimizers;
    std::vector<float> hyper;
    std::vector<int64_t> ids, unique_ids;
    TF_RETURN_IF_ERROR(context->GetAttr("table_names", &names));
    TF_RETURN_IF_ERROR(context->GetAttr("optimizers", &optimizers));
    TF_RETURN_IF_ERROR(context->GetAttr("hyperparameters", &hyper));
    TF_RETURN_IF_ERROR(context->GetAttr("max_ids", &ids));
    TF_RETURN_IF_ERROR(context->GetAttr("max_unique_ids", &unique_ids));
    int64_t batches, count, variables;
    TF_RETURN_IF_ERROR(context->GetAttr("num_batches", &batches));
    TF_RETURN_IF_ERROR(context->GetAttr("num_tables", &count));
    TF_RETURN_IF_ERROR(context->GetAttr("num_variables", &variables));
    const auto size = static_cast<size_t>(count);
    if (names.size() != size || optimizers.size() != size || ids.size() != size ||
        unique_ids.size() != size || hyper.size() != size * embedding::kMaxHyper) {
      return Invalid("table_names",
                     StrCat("the attrs must have one value, hyperparameters ",
                            embedding::kMaxHyper, ", for each of the ", count, " tables"));
    }
    if (batches % count != 0) {
      return Invalid("row_pointers", StrCat("there must be as many for each of the ", count,
                                            " tables, there are ", batches));
    }
    devices_ = batches / count;
    Checked next = 0;
    for (size_t i = 0; i < size; ++i) {
      Table table{names[i], {}, {}, {ids[i], unique_ids[i]}, next.value()};
      TF_RETURN_IF_ERROR(
          ReadOptimizer(optimizers[i], &hyper[i * embedding::kMaxHyper], &table));
      next += Checked(devices_) * (1 + table.traits().slot_count());
      tables_.push_back(std::move(table));
    }
    if (next.overflowed() || next.value() != variables) {
      return Invalid("variables", StrCat("there must be one for each device and each table and "
                                         "slot, there are ",
                                         variables));
    }
    return absl::OkStatus();
  }

  static absl::Status ReadOptimizer(const std::string& name, const float* hyper, Table* table) {
    using embedding::Optimizer;
    for (const Optimizer one :
         {Optimizer::kSgd, Optimizer::kAdagrad, Optimizer::kAdagradMomentum, Optimizer::kAdam,
          Optimizer::kFtrl}) {
      const embedding::OptimizerTraits& traits = embedding::TraitsOf(one);
      if (name != traits.field) continue;
      table->optimizer = one;
      for (int i = 0; i < embedding::kMaxHyper; ++i) {
        if (traits.hyper[i].name && !Within(traits.hyper[i].range, hyper[i])) {
          return Invalid(
              "hyperparameters",
              StrCat("table ", table->name, ": ", traits.hyper[i].name, " must be ",
                     Words(traits.hyper[i].range), ", is ", embedding::Number(hyper[i])));
        }
        if (traits.hyper[i].range == embedding::Range::kNonLazyFlag && hyper[i] != 0) {
          return Invalid("hyperparameters", StrCat("table ", table->name, ": ",
                                                   traits.hyper[i].name, " must be 0"));
        }
        table->hyper.values[i] = hyper[i];
      }
      return absl::OkStatus();
    }
    return Invalid("optimizers", "table " + table->name + ": there is no update for " + name);
  }

  absl::Status CheckGradients(int i, const tensorflow::Tensor& gradients,
                              ExecutionContext& exec) const {
    const std::string name = StrCat("activation_gradients[", i, "]");
    TF_RETURN_IF_ERROR(CheckRank(name.c_str(), gradients, 2));
    return CheckFinite(name, gradients, exec,
                       StrCat("table ", At(tables_, i / devices_).name, ": "));
  }

  // Makes the op the only user of the variables' memory. Sets `checked` of each table whose
  // values are all in their ranges. Others may have rows that no step updates and that are not.
  absl::Status Own(tensorflow::OpKernelContext* context, Variables* variables,
                   ExecutionContext& exec, std::vector<bool>* checked) const {
    const auto for_all = [&](const auto& visit) {
      for (int64_t i = 0; i < tables(); ++i) {
        const Table& table = At(tables_, i);
        for (int64_t part = 0; part <= table.traits().slot_count(); ++part) {
          for (int64_t device = 0; device < devices_; ++device) {
            visit(i, table.first_variable + part * devices_ + device,
                  table.traits().range(part - 1));
          }
        }
      }
    };
    std::vector<std::optional<bool>> known(static_cast<size_t>(variables->size()));
    for_all([&](int64_t, int64_t v, embedding::Range range) {
      At(known, v) = TakeKnown(variables->var(v), range);
    });
    TF_RETURN_IF_ERROR(variables->Own(context, exec));
    checked->assign(tables_.size(), true);
    for_all([&](int64_t i, int64_t v, embedding::Range range) {
      if (!At(known, v)) {
        const int64_t count = variables->shape(v).num_elements();
        UseHugePages(variables->data(v), static_cast<size_t>(count) * sizeof(float));
        At(known, v) = !embedding::FindOutside(exec, range, count, variables->data(v));
      }
      KeepKnown(variables->var(v), range, *At(known, v));
      if (!*At(known, v)) (*checked)[static_cast<size_t>(i)] = false;
    });
    return absl::OkStatus();
  }

  // Reads the batches of a table, and groups them by row.
  absl::Status Prepare(const Inputs& inputs, const Variables& variables, int64_t number,
                       Prepared* prepared, ExecutionContext& exec) const {
    const Table& table = At(tables_, number);
    const int64_t parts = 1 + table.traits().slot_count();
    TF_RETURN_IF_ERROR(
        CheckShards(variables, table.first_variable, devices_ * parts, cores(), devices_));
    const tensorflow::TensorShape& shape = variables.shape(table.first_variable);
    const int64_t rows = shape.dim_size(0), width = shape.dim_size(1);
    const int first = static_cast<int>(number * devices_);
    const int64_t samples = inputs.gradients[first].dim_size(0);
    if (!(Checked(samples) * devices_).AtMost(kMaxInt32)) {
      return Invalid(
          StrCat("activation_gradients[", first, "]"),
          StrCat("all devices must have fewer than 2^31 samples, one has ", samples));
    }
    std::vector<const float*> gradients;
    for (int i = first; i < first + devices_; ++i) {
      const tensorflow::Tensor& from = inputs.gradients[i];
      const std::string name = StrCat("activation_gradients[", i, "]");
      if (from.dim_size(0) != samples || from.dim_size(1) != width) {
        return Invalid(name, StrCat("must have the shape [", samples, ",", width,
                                    "], as the first device and the table say, has ",
                                    from.shape().DebugString()));
      }
      gradients.push_back(Floats(from));
      CsrView csr{};
      csr.limits = table.limits;
      csr.devices = devices_;
      csr.first_sample = (i - first) * samples;
      absl::Status status = Read({inputs.row_pointers[i], inputs.samples[i], inputs.rows[i],
                                  inputs.gains[i], inputs.minibatches[i], StrCat("[", i, "]")},
                                 name, samples, rows * devices_, csr, &prepared->triples, exec);
      if (!status.ok()) return InTable(table, status);
    }
    embedding::Hyper hyper = table.hyper;
    TF_RETURN_IF_ERROR(ReadRate(inputs.rates[static_cast<int>(number)], table, &hyper));
    std::vector<RowArrays<float>> arrays;
    for (int64_t part = 0; part < parts; ++part) {
      std::vector<float*> shards;
      for (int64_t device = 0; device < devices_; ++device) {
        shards.push_back(variables.data(table.first_variable + part * devices_ + device));
      }
      arrays.push_back({std::move(shards), rows, width});
    }
    prepared->step.emplace(prepared->triples,
                           RowArrays<const float>(std::move(gradients), samples, width),
                           table.optimizer, hyper, std::move(arrays), exec);
    return absl::OkStatus();
  }

  static absl::Status ReadRate(const tensorflow::Tensor& from, const Table& table,
                               embedding::Hyper* hyper) {
    TF_RETURN_IF_ERROR(CheckRank("learning_rates", from, 0));
    hyper->learning_rate = Floats(from)[0];
    const std::string wrong = WrongRate(table.optimizer, *hyper);
    if (wrong.empty()) return absl::OkStatus();
    return Invalid("learning_rates", "table " + table.name + ": " + wrong);
  }

  static absl::Status InTable(const Table& table, const absl::Status& status) {
    return absl::Status(status.code(),
                        StrCat("table ", table.name, ": ", std::string(status.message())));
  }

  absl::Status Refused(int64_t number, const RowError& wrong) const {
    const Table& table = At(tables_, number);
    const int64_t slot = wrong.table - 1;
    return Invalid("variables",
                   StrCat("table ", table.name, ": ",
                          slot < 0 ? "weights" : table.traits().slots[slot].name, " must be ",
                          Words(wrong.range), " in rows that are updated, row ", wrong.row,
                          " of the stacked shards, column ", wrong.column, " is ",
                          embedding::Number(wrong.value)));
  }

  std::vector<Table> tables_;
  int64_t devices_ = 1;
};

OPWRIGHT_REGISTER_CPU("OpwrightSparseCoreUpdate", VariableUpdateOp);

}  // namespace
}  // namespace opwright::sparsecore
