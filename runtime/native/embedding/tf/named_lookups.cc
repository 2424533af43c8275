// What a graph says of its lookups beside their ops, settled before it runs.
//
// The ops of a step are not connected: a lookup is enqueued, received and trained by three
// ops, and which of them belong together is written in two other ways.
//
// By name: libraries enqueue every lookup for training, and tag its three ops with one name. In
// the graph of an evaluation no gradients are sent for that name, so it is for inference. On a
// TPU a pass of TensorFlow's decides so; this one does in a TensorFlow without.
//
// By order: TensorFlow lets enqueuing ops of one function run in any order, and calls of
// functions as long as they write no variable in common. Where there are several, each comes
// after the one before it in the function.
#include <algorithm>
#include <functional>
#include <map>
#include <new>
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

// Where TensorFlow's TPUEmbedding writes the name.
constexpr char kName[] = "_tpu_embedding_layer";

// What an op does with batches, by itself or in functions that it calls.
struct Uses {
  bool enqueues = false;
  bool steps = false;  // Receives them, or sends their gradients.

  void operator|=(const Uses& other) {
    enqueues |= other.enqueues;
    steps |= other.steps;
  }
  bool operator==(const Uses& other) const {
    return enqueues == other.enqueues && steps == other.steps;
  }
};

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

// What functions do: all that a graph may call, and no others, of which there may be many.
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
    std::map<std::string, std::vector<std::string>, std::less<>> callers;
    while (!next.empty()) {
      const std::string name = std::move(next.back());
      next.pop_back();
      const auto record = functions.FindRecord(name);
      if (!record) continue;
      Uses uses;
      for (const NodeDef& node : record->fdef().node_def()) {
        uses |= OfOp(node.op());
        ForFunctionsOf(node.op(), AttrSlice(node), [&](absl::string_view callee) {
          if (reach(callee)) callers[std::string(callee)].push_back(name);
        });
      }
      uses_[name] = uses;
      if (!(uses == Uses())) changed.push_back(name);
    }
    // From each function to those that call it: calls may be of any depth, and in circles.
    while (!changed.empty()) {
      const std::string callee = std::move(changed.back());
      changed.pop_back();
      for (const std::string& caller : callers[callee]) {
        const Uses before = uses_[caller];
        uses_[caller] |= uses_[callee];
        if (!(uses_[caller] == before)) changed.push_back(caller);
      }
    }
  }

  Uses Of(absl::string_view op, const AttrSlice& attrs) const {
    Uses uses = OfOp(op);
    if (!(uses == Uses()) || uses_.empty()) return uses;
    ForFunctionsOf(op, attrs, [&](absl::string_view name) {
      const auto found = uses_.find(name);
      if (found != uses_.end()) uses |= found->second;
    });
    return uses;
  }

  // The functions that do something.
  std::vector<std::string> Used() const {
    std::vector<std::string> names;
    for (const auto& [name, uses] : uses_) {
      if (!(uses == Uses())) names.push_back(name);
    }
    return names;
  }

 private:
  static Uses OfOp(absl::string_view op) {
    const Kind kind = KindOf(op);
    return {kind == Kind::kEnqueue, kind == Kind::kReceive || kind == Kind::kSend};
  }

  std::map<std::string, Uses, std::less<>> uses_;
};

// A graph or a function: its nodes in the order in which they were made, and what is done to
// them.
class Body {
 public:
  virtual ~Body() = default;
  virtual size_t size() const = 0;
  virtual absl::string_view op(size_t node) const = 0;
  virtual AttrSlice attrs(size_t node) const = 0;
  // By node, those that it waits for.
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

// Named lookups are for training if gradients are sent for their name in the same body.
absl::Status SetModes(Body* body) {
  struct Lookup {
    std::vector<size_t> enqueues;
    int receives = 0, sends = 0;
  };
  std::map<std::string, Lookup> lookups;
  for (size_t i = 0; i < body->size(); ++i) {
    const Kind kind = KindOf(body->op(i));
    if (kind == Kind::kOther) continue;
    const AttrValue* const name = body->attrs(i).Find(kName);
    if (!name) continue;
    Lookup& lookup = lookups[name->s()];
    if (kind == Kind::kEnqueue) lookup.enqueues.push_back(i);
    if (kind == Kind::kReceive) ++lookup.receives;
    if (kind == Kind::kSend) ++lookup.sends;
  }
  for (const auto& [name, lookup] : lookups) {
    // The rules of TensorFlow's pass, which knows no other way to tell what belongs together.
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

// Whether a node waits for another, perhaps by others' way.
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

// The first form of control flow, where a node of a branch that is not taken stops all that
// wait for it.
bool IsControlFlow(absl::string_view op) {
  for (const char* const name : {"Switch", "Merge", "Enter", "Exit", "NextIteration"}) {
    if (op == name || op == absl::StrCat("Ref", name)) return true;
  }
  return op == "_SwitchN";
}

void SetOrder(const Library& library, Body* body) {
  std::vector<size_t> enqueues, steps;
  for (size_t i = 0; i < body->size(); ++i) {
    if (IsControlFlow(body->op(i))) return;
    const Uses uses = library.Of(body->op(i), body->attrs(i));
    if (uses.enqueues) enqueues.push_back(i);
    if (uses.steps) steps.push_back(i);
  }
  if (enqueues.size() < 2 && steps.size() < 2) return;
  std::vector<std::vector<size_t>> inputs = body->Inputs();
  for (const std::vector<size_t>* const chain : {&enqueues, &steps}) {
    for (size_t i = 1; i < chain->size(); ++i) {
      const size_t first = (*chain)[i - 1], second = (*chain)[i];
      if (Waits(inputs, second, first) || Waits(inputs, first, second)) continue;
      body->Order(first, second);
      inputs[second].push_back(first);
    }
  }
}

// XLA would say no more than that it has no kernel for an op.
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
  // On a TPU, TensorFlow's passes are in charge.
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
  // Whoever builds a graph for a session says himself what comes after what.
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

// Before functions are inlined and control flow is lowered, which is phase 10.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::PRE_PLACEMENT, 0, LookupsPass);

}  // namespace
}  // namespace opwright::embedding
