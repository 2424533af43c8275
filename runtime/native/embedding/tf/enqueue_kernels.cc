// The ops that enqueue the ids of a step: dense, with sample indices, with row splits, or
// serialized.
#include <memory>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/checked.h"
#include "base/tf/device_context.h"
#include "base/tf/register.h"
#include "base/tf/status.h"
#include "embedding/tf/lookup_args.h"
#include "embedding/tf/named_lookups.h"
#include "embedding/tf/output_tensors.h"
#include "embedding/tf/runs.h"
#include "embedding/tf/system.h"
#include "embedding/tf/wait.h"
#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/wire_format_lite.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace opwright::embedding {
namespace {

using tensorflow::AsyncOpKernel;
using tensorflow::OpInputList;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

Floats FloatsOf(const Tensor& tensor) {
  return {tensor.data(), tensor.dtype() == tensorflow::DT_DOUBLE, tensor.NumElements()};
}

// `settled` is the mode that named_lookups.cc wrote for a named lookup. If it is empty, the
// input mode_override determines the mode.
absl::Status ReadMode(OpKernelContext* context, Mode configured, const std::string& settled,
                      Mode* mode) {
  const Tensor* tensor;
  TF_RETURN_IF_ERROR(context->input("mode_override", &tensor));
  if (tensor->NumElements() != 1) {
    return Invalid("mode_override",
                   "must be a scalar, has the shape " + tensor->shape().DebugString());
  }
  const std::string name = settled.empty() ? std::string(tensor->flat<tstring>()(0)) : settled;
  if (name == "unspecified") {
    *mode = configured;
  } else if (name == "train") {
    *mode = Mode::kTraining;
  } else if (name == "inference") {
    *mode = Mode::kInference;
  } else {
    return Invalid("mode_override",
                   "must be 'unspecified', 'train' or 'inference', is '" + name + "'");
  }
  if (*mode != Mode::kInference && configured == Mode::kInference) {
    return Invalid("mode_override",
                   "the embeddings are configured for inference, and cannot "
                   "be trained");
  }
  return absl::OkStatus();
}

// The ids of one feature or, in a num_features configuration, the ids of one input of the op.
struct Input {
  // The tensors that `lookups` refers to. They are empty in an op that creates the ids itself.
  struct Tensors {
    Tensor where, ids, weights;
  };

  void View(Tensors of) {
    tensors = std::move(of);
    lookups.where = IntsOf(tensors.where);
    lookups.ids = IntsOf(tensors.ids);
    lookups.weights = FloatsOf(tensors.weights);
  }

  Lookups lookups;
  Tensors tensors;
  bool on_device = false;  // Whether the tensors are in the memory of a device.
};

struct Inputs {
  Mode mode = Mode::kTraining;
  std::vector<Input> list;
  // For a num_features configuration: the place of each input.
  std::vector<Placement> places;
  std::shared_ptr<const void> owner;  // Owns ids that are not in a tensor.
};

// The base class of all enqueuing ops. It reads the TensorCore, the mode and the combiners. A
// subclass reads the ids of a feature or, in a num_features configuration, of an input.
class EnqueueOp : public AsyncOpKernel {
 public:
  explicit EnqueueOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    ordinal_is_input_ = !context->HasAttr("device_ordinal");
    if (!ordinal_is_input_) {
      OP_REQUIRES_OK(context, context->GetAttr("device_ordinal", &device_ordinal_));
    }
    if (context->HasAttr(kModeOfName)) {
      OP_REQUIRES_OK(context, context->GetAttr(kModeOfName, &mode_of_name_));
    }
    if (context->HasAttr("combiners")) {
      OP_REQUIRES_OK(context, ReadCombiners(context, &combiners_));
    }
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const auto found = System::Get().Find();
    OP_REQUIRES_OK_ASYNC(context, found.status(), done);
    const std::shared_ptr<Engine> engine = *found;
    int64_t core;
    OP_REQUIRES_OK_ASYNC(context, ReadCore(context, *engine, &core), done);
    const auto inputs = std::make_shared<Inputs>();
    const absl::Status read = Read(context, engine->configuration(), inputs.get());
    OP_REQUIRES_OK_ASYNC(context, ToAll(engine.get(), core, read), done);
    FindEndedRuns();
    const RunRef run = RunOf(context);
    auto enqueue = [=](const DoneCallback& done) {
      auto batch = std::make_shared<Batch>();
      const absl::Status made =
          MakeBatch(context, engine->configuration(), inputs, batch.get());
      OP_REQUIRES_OK_ASYNC(context, ToAll(engine.get(), core, made), done);
      Waiting::Start(
          context, engine, done, [&](ExecutionContext* exec, Waiting::Resume resume) {
            return engine->Enqueue(
                exec, core, std::move(*batch),
                [resume = std::move(resume)](const Status& status) {
                  resume([status](ExecutionContext*) { return status; });
                },
                run, [&] { return AllocateTensors(context, engine->configuration()); });
          });
    };
    const std::vector<Input*> to_fetch = ToFetch(context, *engine, inputs.get());
    if (to_fetch.empty()) {
      RunOp(context, std::move(done), std::move(enqueue));
      return;
    }
    std::vector<Tensor> from;
    for (const Input* input : to_fetch) {
      const Input::Tensors& of = input->tensors;
      from.insert(from.end(), {of.where, of.ids, of.weights});
    }
    CopyToHost(context, std::move(from),
               [=](const absl::Status& status, std::vector<Tensor> tensors) {
                 OP_REQUIRES_OK_ASYNC(context, ToAll(engine.get(), core, status), done);
                 for (size_t i = 0; i < to_fetch.size(); ++i) {
                   const Tensor* const of = &tensors[3 * i];
                   to_fetch[i]->View({of[0], of[1], of[2]});
                   to_fetch[i]->on_device = false;
                 }
                 // A thread that reports the completion of the device's work may run this
                 // callback. That thread must not be blocked, so another thread enqueues.
                 WorkerPool(context)->Schedule([=] { RunOp(context, done, enqueue); });
               });
  }

 protected:
  Combiner CombinerOf(const Configuration& configuration, int64_t feature) const {
    return combiners_.empty() ? Combiner::kSum
                              : At(combiners_, At(configuration.features, feature).table);
  }

  // Reads the inputs and does the checks that do not need the ids.
  virtual absl::Status ReadInputs(OpKernelContext* context, Inputs* inputs) const = 0;

  // For ops whose inputs name their tables: sets the place of each input in a num_features
  // configuration.
  virtual absl::Status MakePlacements(const Configuration&, size_t,
                                      std::vector<Placement>*) const {
    return absl::OkStatus();
  }
  virtual int64_t TableOf(const Configuration& configuration, size_t input) const {
    return configuration.features[input].table;
  }

 private:
  // Reports the error of a refused batch to the caller, and to the hosts that wait for the
  // batch.
  static absl::Status ToAll(Engine* engine, int64_t core, const absl::Status& status) {
    if (!status.ok()) engine->Refuse(InvalidArgumentError(std::string(status.message())));
    return OfCore(*engine, core, status);
  }
  absl::Status ReadCore(OpKernelContext* context, const Engine& engine, int64_t* core) const {
    *core = device_ordinal_;
    if (ordinal_is_input_) {
      const Tensor* ordinal;
      TF_RETURN_IF_ERROR(context->input("device_ordinal", &ordinal));
      if (ordinal->NumElements() != 1) {
        return Invalid("device_ordinal",
                       "must be a scalar, has the shape " + ordinal->shape().DebugString());
      }
      *core = ordinal->flat<int32_t>()(0);
    }
    if (*core == -1) *core = CoreOfDevice(context);
    return ToAbsl(engine.CheckCore(*core));
  }

  absl::Status Read(OpKernelContext* context, const Configuration& configuration,
                    Inputs* inputs) const {
    TF_RETURN_IF_ERROR(ReadMode(context, configuration.mode, mode_of_name_, &inputs->mode));
    if (!combiners_.empty() && combiners_.size() != configuration.tables.size()) {
      return Invalid("combiners",
                     absl::StrCat("must be one for each of the ", configuration.tables.size(),
                                  " tables or none, are ", combiners_.size()));
    }
    try {
      TF_RETURN_IF_ERROR(ReadInputs(context, inputs));
      const size_t count = inputs->list.size();
      TF_RETURN_IF_ERROR(MakePlacements(configuration, count, &inputs->places));
      if (inputs->places.empty() && count != configuration.features.size()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "there must be one input for each of the ", configuration.features.size(),
            configuration.by_num_features ? " tables" : " features",
            " of the configuration, there are ", count));
      }
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("no memory for the ids of a batch");
    }
    return absl::OkStatus();
  }

  // Returns the inputs that are in device memory and must be copied to the host. This is
  // necessary if the tables are on another device, or if only the host can convert the ids to
  // bags.
  static std::vector<Input*> ToFetch(OpKernelContext* context, const Engine& engine,
                                     Inputs* inputs) {
    std::vector<Input*> all;
    if (inputs->owner || !HasDeviceMemory(context)) return all;
    const bool here = System::Get().LiesHere(context, engine) && inputs->places.empty();
    for (size_t i = 0; i < inputs->list.size(); ++i) {
      Input& input = inputs->list[i];
      input.on_device = true;
      if (here &&
          CanStayOnDevice(engine.configuration(), static_cast<int64_t>(i), input.lookups)) {
        continue;
      }
      all.push_back(&input);
    }
    return all;
  }

  absl::Status MakeBatch(OpKernelContext* context, const Configuration& configuration,
                         const std::shared_ptr<const Inputs>& inputs, Batch* batch) const {
    batch->mode = inputs->mode;
    batch->features.resize(configuration.features.size());
    std::vector<Status> statuses(batch->features.size());
    const int64_t features = static_cast<int64_t>(batch->features.size());
    DeviceContext exec(context);
    // Waking threads costs more than copying this many ids.
    constexpr int64_t kFewIds = 8000;
    Checked ids = 0;
    for (const Input& input : inputs->list) ids += input.on_device ? 0 : input.lookups.ids.size;
    const bool few = ids.AtMost(kFewIds);
    ExecutionContext* const within = few || features >= exec.Threads() ? nullptr : &exec;
    const auto make = [&](int64_t f) {
      Status& status = At(statuses, f);
      try {
        StatusOr<Bags> bags = MakeBags(configuration, f, *inputs, within);
        status = bags.status();
        if (status.ok()) At(batch->features, f) = *std::move(bags);
      } catch (const std::bad_alloc&) {
        status = ResourceExhaustedError(DescribeFeature(configuration, f) +
                                        ": no memory for its ids");
      }
    };
    if (few) {
      for (int64_t f = 0; f < features; ++f) make(f);
    } else {
      exec.For(features, make);
    }
    for (const Status& status : statuses) {
      if (!status.ok()) return ToAbsl(status);
    }
    if (batch->on_device()) batch->owner = inputs;
    return absl::OkStatus();
  }

  // Allocates the tensors that RecvTPUEmbeddingActivations will return. Returns null if there
  // is not enough memory.
  static OutputBuffersRef AllocateTensors(OpKernelContext* context,
                                          const Configuration& configuration) {
    std::vector<Tensor> tensors(configuration.features.size());
    int64_t feature = 0;
    for (Tensor& tensor : tensors) {
      TensorShape shape;
      if (!ActivationsShape(configuration, feature++, &shape).ok() ||
          !context->allocate_temp(tensorflow::DT_FLOAT, shape, &tensor).ok()) {
        return nullptr;
      }
    }
    return std::make_shared<const OutputTensors>(std::move(tensors));
  }

  StatusOr<Bags> MakeBags(const Configuration& configuration, int64_t feature,
                          const Inputs& inputs, ExecutionContext* exec) const {
    const Combiner combiner = CombinerOf(configuration, feature);
    if (inputs.places.empty()) {
      const Input& input = At(inputs.list, feature);
      if (input.on_device) {
        return MakeDeviceBags(configuration, feature, input.lookups, combiner);
      }
      return embedding::MakeBags(configuration, feature, input.lookups, combiner, exec);
    }
    std::vector<Lookups> own;
    std::vector<Placement> own_places;
    for (size_t i = 0; i < inputs.list.size(); ++i) {
      if (TableOf(configuration, i) != At(configuration.features, feature).table) continue;
      own.push_back(inputs.list[i].lookups);
      own_places.push_back(inputs.places[i]);
    }
    return embedding::MakeBags(configuration, feature, own, own_places, combiner);
  }

  bool ordinal_is_input_ = false;
  int64_t device_ordinal_ = -1;
  std::string mode_of_name_;
  std::vector<Combiner> combiners_;
};

// Each feature has an int32 vector with one id for each sample.
class EnqueueIntegerOp : public EnqueueOp {
 public:
  using EnqueueOp::EnqueueOp;

 protected:
  absl::Status ReadInputs(OpKernelContext* context, Inputs* inputs) const override {
    OpInputList batch;
    TF_RETURN_IF_ERROR(context->input_list("batch", &batch));
    inputs->list.reserve(static_cast<size_t>(batch.size()));
    for (const Tensor& ids : batch) {
      inputs->list.emplace_back().View({Tensor(), ids, Tensor()});
    }
    return absl::OkStatus();
  }
};

// The base class of ops with three lists of inputs: the positions of ids, ids, and weights.
class EnqueueTripleOp : public EnqueueOp {
 public:
  EnqueueTripleOp(OpKernelConstruction* context, const char* where)
      : EnqueueOp(context), where_(where) {
    if (context->HasAttr(kIdsOfAnyShape)) {
      OP_REQUIRES_OK(context, context->GetAttr(kIdsOfAnyShape, &any_shape_));
    }
  }

 protected:
  // Sets the form of an input, from the tensor `where` with the positions of its ids. The error
  // is about that tensor.
  virtual absl::Status ReadForm(const Tensor& where, const Tensor& ids,
                                Lookups* input) const = 0;

  absl::Status ReadInputs(OpKernelContext* context, Inputs* inputs) const override {
    OpInputList where, ids, weights;
    TF_RETURN_IF_ERROR(context->input_list(where_, &where));
    TF_RETURN_IF_ERROR(context->input_list("embedding_indices", &ids));
    TF_RETURN_IF_ERROR(context->input_list("aggregation_weights", &weights));
    inputs->list.reserve(static_cast<size_t>(ids.size()));
    for (int i = 0; i < ids.size(); ++i) {
      const bool any_shape = i < static_cast<int64_t>(any_shape_.size()) && At(any_shape_, i);
      if (!any_shape) TF_RETURN_IF_ERROR(CheckVector("embedding_indices", i, ids[i]));
      TF_RETURN_IF_ERROR(CheckVector("aggregation_weights", i, weights[i]));
      Input& input = inputs->list.emplace_back();
      input.View({where[i], ids[i], weights[i]});
      const absl::Status wrong = ReadForm(where[i], ids[i], &input.lookups);
      if (!wrong.ok()) {
        return Invalid(absl::StrCat(where_, "[", i, "]"), std::string(wrong.message()));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status CheckVector(const char* name, int i, const Tensor& tensor) {
    if (tensor.dims() == 1) return absl::OkStatus();
    return Invalid(absl::StrCat(name, "[", i, "]"),
                   "must be of rank 1, has the shape " + tensor.shape().DebugString());
  }

  // Reads `where` as a vector of samples with one element for each id.
  static absl::Status ReadSamples(const Tensor& where, const Tensor& ids, Lookups* input) {
    input->form = Lookups::Form::kSamples;
    if (where.NumElements() == ids.NumElements()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        "must be as many as ids, ", ids.NumElements(), ", are ", where.NumElements()));
  }

  static absl::Status ReadIndices(const Tensor& where, const Tensor& ids, Lookups* input) {
    input->form = Lookups::Form::kIndices;
    input->rank = where.dim_size(1);
    if (where.dim_size(0) == ids.NumElements()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("must have one row for each of the ",
                                                   ids.NumElements(), " ids, has the shape ",
                                                   where.shape().DebugString()));
  }

 private:
  const char* const where_;
  std::vector<bool> any_shape_;
};

class EnqueueSparseOp : public EnqueueTripleOp {
 public:
  explicit EnqueueSparseOp(OpKernelConstruction* context)
      : EnqueueTripleOp(context, "sample_indices") {}

 protected:
  absl::Status ReadForm(const Tensor& where, const Tensor& ids, Lookups* input) const override {
    if (where.dims() == 1) return ReadSamples(where, ids, input);
    return absl::InvalidArgumentError("must be of rank 1, has the shape " +
                                      where.shape().DebugString());
  }
};

// Dense, sparse and ragged tensors. The shape of `where` distinguishes them.
class EnqueueArbitraryOp : public EnqueueTripleOp {
 public:
  explicit EnqueueArbitraryOp(OpKernelConstruction* context)
      : EnqueueTripleOp(context, "sample_indices_or_row_splits") {}

 protected:
  absl::Status ReadForm(const Tensor& where, const Tensor& ids, Lookups* input) const override {
    if (where.dims() == 2) return ReadIndices(where, ids, input);
    if (where.dims() != 1) {
      return absl::InvalidArgumentError("must be of rank 1 or 2, has the shape " +
                                        where.shape().DebugString());
    }
    input->form = where.NumElements() == 0 ? Lookups::Form::kDense : Lookups::Form::kSplits;
    if (input->form == Lookups::Form::kDense && input->weights.size != 0) {
      return absl::InvalidArgumentError("a dense input takes no weights");
    }
    return absl::OkStatus();
  }
};

// The base class of ops whose inputs name their tables. In a num_features configuration, the
// features of a table are next to each other.
class EnqueueByTableOp : public EnqueueTripleOp {
 public:
  EnqueueByTableOp(OpKernelConstruction* context, const char* where)
      : EnqueueTripleOp(context, where) {
    OP_REQUIRES_OK(context, context->GetAttr("table_ids", &table_ids_));
    OP_REQUIRES_OK(context, context->GetAttr("max_sequence_lengths", &lengths_));
    OP_REQUIRES_OK(context, context->GetAttr("num_features", &counts_));
    int n;
    OP_REQUIRES_OK(context, context->GetAttr("N", &n));
    const size_t inputs = static_cast<size_t>(n);
    OP_REQUIRES(context, table_ids_.size() == inputs,
                Invalid("table_ids", absl::StrCat("must be one for each of the ", inputs,
                                                  " inputs, are ", table_ids_.size())));
    OP_REQUIRES(context, lengths_.empty() || lengths_.size() == inputs,
                Invalid("max_sequence_lengths",
                        absl::StrCat("must be one for each of the ", inputs,
                                     " inputs or none, are ", lengths_.size())));
    OP_REQUIRES(context, counts_.empty() || counts_.size() == inputs,
                Invalid("num_features", absl::StrCat("must be one for each of the ", inputs,
                                                     " inputs or none, are ", counts_.size())));
    for (size_t i = 0; i < inputs; ++i) {
      OP_REQUIRES(context, lengths_.empty() || lengths_[i] >= 0,
                  Invalid("max_sequence_lengths",
                          absl::StrCat("must not be negative, one is ", lengths_[i])));
      OP_REQUIRES(
          context, counts_.empty() || counts_[i] > 0,
          Invalid("num_features", absl::StrCat("must be positive, one is ", counts_[i])));
      OP_REQUIRES(context,
                  lengths_.empty() || counts_.empty() || lengths_[i] == 0 || counts_[i] == 1,
                  Invalid("num_features", "must be 1 for a sequence"));
    }
  }

 protected:
  int64_t TableOf(const Configuration&, size_t input) const override {
    return table_ids_[input];
  }

  absl::Status MakePlacements(const Configuration& configuration, size_t inputs,
                              std::vector<Placement>* places) const override {
    const int64_t tables = static_cast<int64_t>(configuration.tables.size());
    std::vector<int64_t> used(configuration.tables.size());
    for (size_t i = 0; i < inputs; ++i) {
      const int64_t table = table_ids_[i];
      if (table < 0 || table >= tables) {
        return Invalid("table_ids",
                       absl::StrCat("each must be in [0, ", tables, "), one is ", table));
      }
      if (!configuration.by_num_features) {
        TF_RETURN_IF_ERROR(CheckFeature(configuration, i));
        continue;
      }
      Placement place;
      place.sequence = lengths_.empty() ? 0 : lengths_[i];
      place.count = counts_.empty() ? 1 : counts_[i];
      int64_t& taken = At(used, table);
      place.stride = At(configuration.tables, table).features;
      place.first = taken;
      // The sum is never above the table's number of features, so values computed from it
      // cannot overflow.
      const int64_t own = place.sequence > 0 ? place.sequence : place.count;
      if (own > place.stride - taken) {
        return Invalid(place.sequence > 0 ? "max_sequence_lengths" : "num_features",
                       absl::StrCat("input ", i, " makes ", own, " features of ",
                                    Describe(configuration, table), " after ", taken,
                                    ", more than its num_features, ", place.stride));
      }
      taken += own;
      places->push_back(place);
    }
    if (!configuration.by_num_features) return absl::OkStatus();
    for (size_t t = 0; t < used.size(); ++t) {
      if (used[t] == configuration.tables[t].features) continue;
      return Invalid(
          "table_ids",
          absl::StrCat("the inputs of ", Describe(configuration, static_cast<int64_t>(t)),
                       " make ", used[t], " features, its num_features is ",
                       configuration.tables[t].features));
    }
    return absl::OkStatus();
  }

 private:
  // If the configuration describes features, the inputs must be in the order of the features.
  absl::Status CheckFeature(const Configuration& configuration, size_t input) const {
    // Another check reports the wrong number of inputs.
    if (input >= configuration.features.size()) return absl::OkStatus();
    const FeatureConfig& feature = configuration.features[input];
    if (feature.table != table_ids_[input]) {
      return Invalid(
          "table_ids",
          absl::StrCat("input ", input, " is ",
                       DescribeFeature(configuration, static_cast<int64_t>(input)),
                       ", and must be looked up there, not in table ", table_ids_[input]));
    }
    const int64_t length = lengths_.empty() ? 0 : lengths_[input];
    if (length != 0 && (feature.shape.size() < 2 || feature.shape.back() != length)) {
      return Invalid("max_sequence_lengths",
                     absl::StrCat("the input_shape of ",
                                  DescribeFeature(configuration, static_cast<int64_t>(input)),
                                  " must end in the length of its sequences, ", length));
    }
    return absl::OkStatus();
  }

  std::vector<int64_t> table_ids_, lengths_, counts_;
};

class EnqueueSparseTensorOp : public EnqueueByTableOp {
 public:
  explicit EnqueueSparseTensorOp(OpKernelConstruction* context)
      : EnqueueByTableOp(context, "sample_indices") {}

 protected:
  absl::Status ReadForm(const Tensor& where, const Tensor& ids, Lookups* input) const override {
    if (where.dims() == 1) return ReadSamples(where, ids, input);
    if (where.dims() == 2) return ReadIndices(where, ids, input);
    return absl::InvalidArgumentError("must be of rank 1 or 2, has the shape " +
                                      where.shape().DebugString());
  }
};

class EnqueueRaggedTensorOp : public EnqueueByTableOp {
 public:
  explicit EnqueueRaggedTensorOp(OpKernelConstruction* context)
      : EnqueueByTableOp(context, "sample_splits") {}

 protected:
  absl::Status ReadForm(const Tensor& where, const Tensor&, Lookups* input) const override {
    input->form = Lookups::Form::kSplits;
    if (where.dims() == 1) return absl::OkStatus();
    return absl::InvalidArgumentError("must be of rank 1, has the shape " +
                                      where.shape().DebugString());
  }
};

// Each feature has a vector of strings. Each string is one sample: a SparseFeatures message of
// SyntaxNet's sparse.proto. Field 1 contains the ids (uint64) and field 2 the weights (float).
// Without weights, all weights are 1.
class EnqueueSerializedOp : public EnqueueOp {
 public:
  using EnqueueOp::EnqueueOp;

 protected:
  absl::Status ReadInputs(OpKernelContext* context, Inputs* inputs) const override {
    OpInputList batch;
    TF_RETURN_IF_ERROR(context->input_list("batch", &batch));
    auto parsed = std::make_shared<std::vector<Parsed>>(static_cast<size_t>(batch.size()));
    for (int i = 0; i < batch.size(); ++i) {
      Parsed& input = At(*parsed, i);
      input.splits.push_back(0);
      const auto strings = batch[i].flat<tstring>();
      for (int64_t s = 0; s < strings.size(); ++s) {
        if (!Parse(strings(s), &input)) {
          return Invalid(absl::StrCat("batch[", i, "]"),
                         absl::StrCat("string ", s,
                                      " is no SparseFeatures message with as "
                                      "many weights as ids or none"));
        }
      }
      Lookups lookups;
      lookups.form = Lookups::Form::kSplits;
      lookups.where = {input.splits.data(), true, static_cast<int64_t>(input.splits.size())};
      lookups.ids = {input.ids.data(), true, static_cast<int64_t>(input.ids.size())};
      lookups.weights = {input.weights.data(), false,
                         static_cast<int64_t>(input.weights.size())};
      inputs->list.push_back({lookups, {}, false});
    }
    inputs->owner = std::move(parsed);
    return absl::OkStatus();
  }

 private:
  struct Parsed {
    std::vector<int64_t> splits, ids;
    std::vector<float> weights;
  };

  static bool Parse(const tstring& bytes, Parsed* to) {
    using Wire = google::protobuf::internal::WireFormatLite;
    int length;
    if (!Narrow(bytes.size(), &length)) return false;
    google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                              length);
    size_t weights = 0;
    const size_t first = to->ids.size();
    const auto id = [&] {
      uint64_t value;
      if (!in.ReadVarint64(&value)) return false;
      to->ids.push_back(static_cast<int64_t>(value));
      return true;
    };
    const auto weight = [&] {
      uint32_t bits;
      if (!in.ReadLittleEndian32(&bits)) return false;
      to->weights.push_back(Wire::DecodeFloat(bits));
      ++weights;
      return true;
    };
    const auto packed = [&](const auto& one) {
      uint32_t given;
      int size;
      if (!in.ReadVarint32(&given) || !Narrow(given, &size)) return false;
      // A packed list must not extend beyond its message.
      if (size > in.BytesUntilLimit()) return false;
      const auto limit = in.PushLimit(size);
      while (in.BytesUntilLimit() > 0) {
        if (!one()) return false;
      }
      in.PopLimit(limit);
      return true;
    };
    while (const uint32_t tag = in.ReadTag()) {
      const int field = Wire::GetTagFieldNumber(tag);
      const auto type = Wire::GetTagWireType(tag);
      const bool list = type == Wire::WIRETYPE_LENGTH_DELIMITED;
      const bool good = field == 1 && list                            ? packed(id)
                        : field == 1 && type == Wire::WIRETYPE_VARINT ? id()
                        : field == 2 && list                          ? packed(weight)
                        : field == 2 && type == Wire::WIRETYPE_FIXED32
                            ? weight()
                            : Wire::SkipField(&in, tag);
      if (!good) return false;
    }
    if (!in.ConsumedEntireMessage()) return false;
    const size_t ids = to->ids.size() - first;
    if (weights != 0 && weights != ids) return false;
    if (weights == 0 && !to->weights.empty()) to->weights.resize(to->ids.size(), 1);
    if (weights != 0 && to->weights.size() != to->ids.size()) {
      // Samples before this one had no weights, so their weights are 1.
      to->weights.insert(to->weights.begin(), to->ids.size() - to->weights.size(), 1);
    }
    to->splits.push_back(static_cast<int64_t>(to->ids.size()));
    return true;
  }
};

// An op without a device runs on the CPU, because most ids come from a pipeline on the host. An
// op on a GPU accepts ids that a program computed there. Strings are always in host memory.
#define MODE .HostMemory("mode_override")
#define MODE_AND_ORDINAL MODE.HostMemory("device_ordinal")

OPWRIGHT_REGISTER_CPU_FIRST("EnqueueTPUEmbeddingIntegerBatch", MODE, EnqueueIntegerOp);
OPWRIGHT_REGISTER_CPU_FIRST("EnqueueTPUEmbeddingBatch", MODE.HostMemory("batch"),
                            EnqueueSerializedOp);
OPWRIGHT_REGISTER_CPU_FIRST("EnqueueTPUEmbeddingSparseBatch", MODE, EnqueueSparseOp);
OPWRIGHT_REGISTER_CPU_FIRST("EnqueueTPUEmbeddingArbitraryTensorBatch", MODE,
                            EnqueueArbitraryOp);
OPWRIGHT_REGISTER_CPU_FIRST("DynamicEnqueueTPUEmbeddingArbitraryTensorBatch", MODE_AND_ORDINAL,
                            EnqueueArbitraryOp);
OPWRIGHT_REGISTER_CPU_FIRST("EnqueueTPUEmbeddingSparseTensorBatch", MODE,
                            EnqueueSparseTensorOp);
OPWRIGHT_REGISTER_CPU_FIRST("EnqueueTPUEmbeddingRaggedTensorBatch", MODE,
                            EnqueueRaggedTensorOp);
OPWRIGHT_REGISTER_CPU_FIRST("DynamicEnqueueTPUEmbeddingRaggedTensorBatch", MODE_AND_ORDINAL,
                            EnqueueRaggedTensorOp);

}  // namespace
}  // namespace opwright::embedding
