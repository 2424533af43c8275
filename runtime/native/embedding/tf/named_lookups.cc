// A graph pass that adds information about the lookups of a graph before the graph runs.
//
// The ops of a step are not connected by edges. A lookup is enqueued, received and trained by
// three ops. Two other properties show which ops belong together.
//
// The first property is the name. Libraries enqueue every lookup for training, and mark its
// three ops with one name. The graph of an evaluation sends no gradients for that name, so the
// lookup is for inference. On a TPU, a pass of TensorFlow decides between training and
// inference. This pass decides it in TensorFlow builds without TPUs.
//
// The second property is the order. TensorFlow may run the enqueuing ops of one function in any
// order, and also calls of functions that write no common variable. If a function has several
// such ops, this pass makes each wait for the one before it.
//
// Both properties apply to each TensorCore separately. TensorCores must not wait for each other
// here, because the second step of one TensorCore is looked up only after all TensorCores have
// sent the gradients of the first step.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "embedding/tf/named_lookups.h"
#include "tensorflow/core/common_runtime/device_set.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace opwright::embedding {
namespace {

using tensorflow::AttrSlice;
using tensorflow::AttrValue;
using tensorflow::FunctionDef;
using tensorflow::FunctionLibraryDefinition;
using tensorflow::Graph;
using tensorflow::GraphOptimizationPassOptions;
using tensorflow::Node;
using tensorflow::NodeDef;

// The attr in which TensorFlow's TPUEmbedding writes the name.
constexpr char kName[] = "_tpu_embedding_layer";

// TensorCores by number, or one of two special values. kOfCaller is the TensorCore of the
// calling op. An op without a device has this value, because it runs where its function was
// called.
// kAnyCore is the value of an op that determines its TensorCore when it runs.
constexpr int64_t kOfCaller = -1, kAnyCore = -2;
using Cores = std::set<int64_t>;

// The TensorCores for which an op enqueues, receives or sends, by itself or in functions that
// it calls.
struct Uses {
  Cores enqueues;
  Cores steps;  // The TensorCores for which it receives batches or sends their gradients.

  bool operator==(const Uses& other) const {
    return enqueues == other.enqueues && steps == other.steps;
  }
  // Adds the uses of a function that an op of TensorCore `core` calls.
  void AddCalled(const Uses& called, int64_t core) {
    for (const int64_t one : called.enqueues) enqueues.insert(one == kOfCaller ? core : one);
    for (const int64_t one : called.steps) steps.insert(one == kOfCaller ? core : one);
  }
};

int64_t CoreOf(absl::string_view device) {
  tensorflow::DeviceNameUtils::ParsedName name;
  const bool parsed = tensorflow::DeviceNameUtils::ParseFullName(device, &name);
  return parsed && name.has_id ? name.id : kOfCaller;
}

// Returns the TensorCore that the kernel of the op determines when it runs.
int64_t CoreOf(absl::string_view op, const AttrSlice& attrs, absl::string_view device) {
  if (absl::StartsWith(op, "DynamicEnqueue")) return kAnyCore;
  const AttrValue* const ordinal = attrs.Find("device_ordinal");
  return ordinal && ordinal->i() >= 0 ? ordinal->i() : CoreOf(device);
}

enum class Kind { kOther, kEnqueue, kReceive, kSend };

Kind KindOf(absl::string_view op) {
  if (!absl::StrContains(op, "TPUEmbedding")) return Kind::kOther;
  if (op == "RecvTPUEmbeddingActivations") return Kind::kReceive;
  if (op == "SendTPUEmbeddingGradients") return Kind::kSend;
  if (absl::StartsWith(op, "EnqueueTPUEmbedding")) return Kind::kEnqueue;
  return absl::StartsWith(op, "DynamicEnqueueTPUEmbedding") ? Kind::kEnqueue : Kind::kOther;
}

// Calls `see` with the name of each function that an op may call.
template <class See>
void ForFunctionsOf(absl::string_view op, const AttrSlice& attrs, const See& see) {
  see(op);
  for (const auto& [name, value] : attrs) {
    if (value.has_func()) see(value.func().name());
    for (const auto& one : value.list().func()) see(one.name());
  }
}

// The uses of functions. Only functions that the graph may call are included, because the
// library may contain many others.
class Library {
 public:
  Library(const FunctionLibraryDefinition& functions, const Graph& graph) {
    std::vector<std::string> next, changed;
    const auto reach = [&](absl::string_view name) {
      if (uses_.find(name) != uses_.end()) return true;
      if (!functions.Contains(std::string(name))) return false;
      uses_[std::string(name)];
      next.emplace_back(name);
      return true;
    };
    for (const Node* node : graph.op_nodes()) {
      ForFunctionsOf(node->type_string(), node->attrs(), reach);
    }
    struct Caller {
      std::string name;
      int64_t core;
    };
    std::map<std::string, std::vector<Caller>, std::less<>> callers;
    while (!next.empty()) {
      const std::string name = std::move(next.back());
      next.pop_back();
      const auto record = functions.FindRecord(name);
      if (!record) continue;
      Uses uses;
      for (const NodeDef& node : record->fdef().node_def()) {
        AddOp(node.op(), AttrSlice(node), node.device(), &uses);
        ForFunctionsOf(node.op(), AttrSlice(node), [&](absl::string_view callee) {
          if (!reach(callee)) return;
          callers[std::string(callee)].push_back({name, CoreOf(node.device())});
        });
      }
      uses_[name] = uses;
      if (!(uses == Uses())) changed.push_back(name);
    }
    // Uses propagate from each function to its callers. Calls may be nested to any depth and
    // may be recursive.
    while (!changed.empty()) {
      const std::string callee = std::move(changed.back());
      changed.pop_back();
      for (const Caller& caller : callers[callee]) {
        const Uses before = uses_[caller.name];
        uses_[caller.name].AddCalled(Uses(uses_[callee]), caller.core);
        if (!(uses_[caller.name] == before)) changed.push_back(caller.name);
      }
    }
  }

  Uses Of(absl::string_view op, const AttrSlice& attrs, absl::string_view device) const {
    Uses uses;
    AddOp(op, attrs, device, &uses);
    if (!(uses == Uses()) || uses_.empty()) return uses;
    ForFunctionsOf(op, attrs, [&](absl::string_view name) {
      const auto found = uses_.find(name);
      if (found != uses_.end()) uses.AddCalled(found->second, CoreOf(device));
    });
    return uses;
  }

  // Returns the functions that enqueue, receive or send.
  std::vector<std::string> Used() const {
    std::vector<std::string> names;
    for (const auto& [name, uses] : uses_) {
      if (!(uses == Uses())) names.push_back(name);
    }
    return names;
  }

 private:
  static void AddOp(absl::string_view op, const AttrSlice& attrs, absl::string_view device,
                    Uses* uses) {
    const Kind kind = KindOf(op);
    if (kind == Kind::kOther) return;
    Cores& cores = kind == Kind::kEnqueue ? uses->enqueues : uses->steps;
    cores.insert(CoreOf(op, attrs, device));
  }

  std::map<std::string, Uses, std::less<>> uses_;
};

// A graph or a function. Its methods read and change the nodes, in the order in which they were
// created.
class Body {
 public:
  virtual ~Body() = default;
  virtual size_t size() const = 0;
  virtual absl::string_view op(size_t node) const = 0;
  virtual AttrSlice attrs(size_t node) const = 0;
  virtual absl::string_view device(size_t node) const = 0;
  // Returns for each node the nodes that it waits for.
  virtual std::vector<std::vector<size_t>> Inputs() const = 0;
  virtual void SetMode(size_t node, const char* mode) = 0;
  virtual void Order(size_t first, size_t second) = 0;
};

class GraphBody : public Body {
 public:
  explicit GraphBody(Graph* graph) : graph_(graph) {
    for (Node* node : graph->op_nodes()) nodes_.push_back(node);
    std::sort(nodes_.begin(), nodes_.end(),
              [](const Node* a, const Node* b) { return a->id() < b->id(); });
  }

  size_t size() const override { return nodes_.size(); }
  absl::string_view op(size_t node) const override { return nodes_[node]->type_string(); }
  AttrSlice attrs(size_t node) const override { return nodes_[node]->attrs(); }
  absl::string_view device(size_t node) const override {
    return nodes_[node]->requested_device();
  }
  std::vector<std::vector<size_t>> Inputs() const override {
    std::map<const Node*, size_t> places;
    for (size_t i = 0; i < size(); ++i) places[nodes_[i]] = i;
    std::vector<std::vector<size_t>> inputs(size());
    for (size_t i = 0; i < size(); ++i) {
      for (const Node* input : nodes_[i]->in_nodes()) {
        const auto place = places.find(input);
        if (place != places.end()) inputs[i].push_back(place->second);
      }
    }
    return inputs;
  }
  void SetMode(size_t node, const char* mode) override {
    nodes_[node]->AddAttr(kModeOfName, std::string(mode));
  }
  void Order(size_t first, size_t second) override {
    graph_->AddControlEdge(nodes_[first], nodes_[second]);
  }

 private:
  Graph* const graph_;
  std::vector<Node*> nodes_;
};

class FunctionBody : public Body {
 public:
  explicit FunctionBody(FunctionDef* function) {
    for (NodeDef& node : *function->mutable_node_def()) nodes_.push_back(&node);
  }

  size_t size() const override { return nodes_.size(); }
  absl::string_view op(size_t node) const override { return nodes_[node]->op(); }
  AttrSlice attrs(size_t node) const override { return AttrSlice(*nodes_[node]); }
  absl::string_view device(size_t node) const override { return nodes_[node]->device(); }
  std::vector<std::vector<size_t>> Inputs() const override {
    std::map<absl::string_view, size_t> places;
    for (size_t i = 0; i < size(); ++i) places[nodes_[i]->name()] = i;
    std::vector<std::vector<size_t>> inputs(size());
    for (size_t i = 0; i < size(); ++i) {
      for (absl::string_view input : nodes_[i]->input()) {
        if (absl::StartsWith(input, "^")) input.remove_prefix(1);
        const auto place = places.find(input.substr(0, input.find(':')));
        if (place != places.end()) inputs[i].push_back(place->second);
      }
    }
    return inputs;
  }
  void SetMode(size_t node, const char* mode) override {
    (*nodes_[node]->mutable_attr())[kModeOfName].set_s(mode);
    changed_ = true;
  }
  void Order(size_t first, size_t second) override {
    nodes_[second]->add_input(absl::StrCat("^", nodes_[first]->name()));
    changed_ = true;
  }

  bool changed() const { return changed_; }

 private:
  std::vector<NodeDef*> nodes_;
  bool changed_ = false;
};

// Sets the mode of named lookups. A lookup is for training if gradients are sent for its name
// in the same body by the same TensorCore.
absl::Status SetModes(Body* body) {
  struct Lookup {
    std::vector<size_t> enqueues;
    int receives = 0, sends = 0;
  };
  std::map<std::pair<std::string, int64_t>, Lookup> lookups;
  for (size_t i = 0; i < body->size(); ++i) {
    const Kind kind = KindOf(body->op(i));
    if (kind == Kind::kOther) continue;
    const AttrValue* const name = body->attrs(i).Find(kName);
    if (!name) continue;
    // An op without a device runs on the first TensorCore.
    const int64_t core = CoreOf(body->op(i), body->attrs(i), body->device(i));
    Lookup& lookup = lookups[{name->s(), std::max<int64_t>(core, 0)}];
    if (kind == Kind::kEnqueue) lookup.enqueues.push_back(i);
    if (kind == Kind::kReceive) ++lookup.receives;
    if (kind == Kind::kSend) ++lookup.sends;
  }
  for (const auto& [key, lookup] : lookups) {
    const std::string& name = key.first;
    // TensorFlow's pass for TPUs refuses these two cases as well. It knows the ops of a lookup
    // by their name. Here, lookups of different TensorCores may share a name.
    if (lookup.enqueues.size() > 1 || lookup.receives > 1 || lookup.sends > 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("the lookup named '", name, "' is there more than once in a function: ",
                       lookup.enqueues.size(), " times enqueued, ", lookup.receives,
                       " times received, gradients sent ", lookup.sends,
                       " times; give each enqueue, with its dequeue and apply_gradients, a "
                       "name of its own"));
    }
    if (lookup.enqueues.empty() != (lookup.receives == 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the lookup named '", name, "' is ",
          lookup.enqueues.empty() ? "received and not enqueued" : "enqueued and not received",
          " in a function; with a name, enqueue and dequeue must be in the same one"));
    }
    for (const size_t enqueue : lookup.enqueues) {
      body->SetMode(enqueue, lookup.sends > 0 ? "train" : "inference");
    }
  }
  return absl::OkStatus();
}

// Returns whether `node` waits for `other`, directly or through other nodes.
bool Waits(const std::vector<std::vector<size_t>>& inputs, size_t node, size_t other) {
  std::vector<bool> seen(inputs.size());
  std::vector<size_t> next = {node};
  while (!next.empty()) {
    const size_t one = next.back();
    next.pop_back();
    if (one == other) return true;
    if (seen[one]) continue;
    seen[one] = true;
    next.insert(next.end(), inputs[one].begin(), inputs[one].end());
  }
  return false;
}

// Returns whether an op belongs to control flow version 1. There, a node of a branch that is
// not taken stops all nodes that wait for it.
bool IsControlFlow(absl::string_view op) {
  for (const char* const name : {"Switch", "Merge", "Enter", "Exit", "NextIteration"}) {
    if (op == name || op == absl::StrCat("Ref", name)) return true;
  }
  return op == "_SwitchN";
}

void SetOrder(const Library& library, Body* body) {
  using Chain = std::vector<std::pair<size_t, Cores>>;
  Chain enqueues, steps;
  Cores cores;
  for (size_t i = 0; i < body->size(); ++i) {
    if (IsControlFlow(body->op(i))) return;
    const Uses uses = library.Of(body->op(i), body->attrs(i), body->device(i));
    if (!uses.enqueues.empty()) enqueues.emplace_back(i, uses.enqueues);
    if (!uses.steps.empty()) steps.emplace_back(i, uses.steps);
    for (const Cores* const used : {&uses.enqueues, &uses.steps}) {
      cores.insert(used->begin(), used->end());
    }
  }
  if (enqueues.size() < 2 && steps.size() < 2) return;
  std::vector<std::vector<size_t>> inputs = body->Inputs();
  for (const int64_t core : cores) {
    for (const Chain* const chain : {&enqueues, &steps}) {
      const size_t* last = nullptr;
      for (const auto& [node, used] : *chain) {
        // A node that may be for any TensorCore is in the chain of every TensorCore.
        if (!used.count(core) && *used.begin() >= 0) continue;
        if (last && !Waits(inputs, node, *last) && !Waits(inputs, *last, node)) {
          body->Order(*last, node);
          inputs[node].push_back(*last);
        }
        last = &node;
      }
    }
  }
}

// Refuses functions that XLA must compile. XLA's own error would only report an op without a
// kernel.
absl::Status RefuseToCompile(const FunctionDef& function) {
  const auto compiled = function.attr().find("_XlaMustCompile");
  if (compiled == function.attr().end() || !compiled->second.b()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a step with TPU embeddings stands in a tf.function with jit_compile=True, ",
                   function.signature().name(),
                   ". The tables lie beside the program, and XLA cannot reach them. Leave "
                   "jit_compile away from the function that strategy.run runs, and put it on "
                   "a function that the step calls with activations"));
}

absl::Status Settle(const GraphOptimizationPassOptions& options) {
  if (!options.graph || !*options.graph || !options.flib_def) return absl::OkStatus();
  FunctionLibraryDefinition& functions = *options.flib_def;
  // On a TPU, TensorFlow's passes do this work.
  if (options.device_set) {
    for (const auto* device : options.device_set->devices()) {
      if (device->device_type() == "TPU") return absl::OkStatus();
    }
  }
  const Library library(functions, **options.graph);
  for (const std::string& name : library.Used()) {
    const auto record = functions.FindRecord(name);
    if (!record) continue;
    TF_RETURN_IF_ERROR(RefuseToCompile(record->fdef()));
    FunctionDef function = record->fdef();
    FunctionBody body(&function);
    TF_RETURN_IF_ERROR(SetModes(&body));
    SetOrder(library, &body);
    if (body.changed()) TF_RETURN_IF_ERROR(functions.ReplaceFunction(name, function));
  }
  GraphBody body(options.graph->get());
  TF_RETURN_IF_ERROR(SetModes(&body));
  // In a session's graph, the author of the graph adds control edges.
  if (options.is_function_graph) SetOrder(library, &body);
  return absl::OkStatus();
}

class LookupsPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const GraphOptimizationPassOptions& options) override {
    try {
      return Settle(options);
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("no memory to look at the lookups of a graph");
    }
  }
};

// The pass runs before functions are inlined and control flow is lowered, which is phase 10.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, 0, LookupsPass);

}  // namespace
}  // namespace opwright::embedding
