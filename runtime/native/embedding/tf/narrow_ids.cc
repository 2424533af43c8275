// A graph pass through which ids reach the enqueuing ops without reshapes and casts.
//
// TensorFlow's TPUEmbedding flattens the ids of each feature and casts them to int64. The
// overhead of these two ops for each feature and TensorCore exceeds their work. The enqueuing
// kernels accept int32 ids of any shape, so this pass bypasses both ops.
#include <new>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "base/checked.h"
#include "embedding/tf/named_lookups.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/attr_value_util.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/tensor.pb.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/util/device_name_utils.h"

namespace opwright::embedding {
namespace {

using tensorflow::DataType;
using tensorflow::DT_INT32;
using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::GraphOptimizationPassOptions;
using tensorflow::Node;
using tensorflow::NodeDef;

bool EnqueuesOnCpu(const Node& node) {
  tensorflow::DeviceNameUtils::ParsedName device;
  return absl::EndsWith(node.type_string(), "EnqueueTPUEmbeddingArbitraryTensorBatch") &&
         tensorflow::DeviceNameUtils::ParseFullName(node.assigned_device_name(), &device) &&
         device.type == tensorflow::DEVICE_CPU;
}

DataType TypeOf(const Edge& edge) { return edge.src()->output_type(edge.src_output()); }

bool WaitsForNothing(const Node& node) {
  for (const Edge* edge : node.in_edges()) {
    if (edge->IsControlEdge() && !edge->src()->IsSource()) return false;
  }
  return true;
}

// Returns whether a reshape flattens to a vector: its shape is a constant with one element.
bool Flattens(const Node& reshape) {
  const Node* shape;
  const tensorflow::TensorProto* value;
  return reshape.input_node(1, &shape).ok() && shape->IsConstant() && WaitsForNothing(*shape) &&
         tensorflow::GetNodeAttr(shape->attrs(), "value", &value).ok() &&
         value->tensor_shape().dim_size() == 1 && value->tensor_shape().dim(0).size() == 1;
}

// Returns whether an op may be bypassed. An op with control inputs stays, because it must run
// after the ops of these inputs.
bool MayBePassed(const Node& node) {
  if (!WaitsForNothing(node)) return false;
  return node.type_string() == "Cast" || (node.type_string() == "Reshape" && Flattens(node));
}

// The edge that the ids have before they are flattened and cast.
struct Source {
  const Edge* edge;
  bool flattened = false;
};
Source SourceOf(const Edge* ids) {
  Source source{ids};
  const Edge* before;
  while (MayBePassed(*source.edge->src()) && source.edge->src()->input_edge(0, &before).ok() &&
         (TypeOf(*before) == TypeOf(*source.edge) || TypeOf(*before) == DT_INT32)) {
    source.flattened = source.flattened || source.edge->src()->type_string() == "Reshape";
    source.edge = before;
  }
  return source;
}

// Removes a node, and the inputs that only this node used.
void RemoveUnused(Graph* graph, Node* node) {
  std::vector<Node*> unused = {node};
  while (!unused.empty()) {
    Node* const one = unused.back();
    unused.pop_back();
    std::set<Node*> inputs;
    for (Node* const input : one->in_nodes()) {
      if (MayBePassed(*input)) inputs.insert(input);
    }
    graph->RemoveNode(one);
    for (Node* const input : inputs) {
      if (input->out_edges().empty()) unused.push_back(input);
    }
  }
}

// Bypasses the reshapes and casts of one enqueuing op. The op does not change if the graph
// differs from what TensorFlow creates.
void TakeIdsAsTheyCome(Graph* graph, Node* node) {
  int count;
  if (!tensorflow::GetNodeAttr(node->attrs(), "N", &count).ok()) return;
  const auto is_ids = [=](int input) { return input >= count && input < 2 * count; };
  std::vector<Source> sources;
  std::vector<bool> any_shape(static_cast<size_t>(count));
  bool passes = false;
  for (const Edge* edge : node->in_edges()) {
    sources.push_back(is_ids(edge->dst_input()) ? SourceOf(edge) : Source{edge});
    if (!is_ids(edge->dst_input())) continue;
    const Source& source = sources.back();
    if (TypeOf(*source.edge) != DT_INT32) return;
    At(any_shape, edge->dst_input() - count) = source.flattened;
    passes = passes || source.edge != edge;
  }
  if (!passes) return;
  NodeDef changed = node->def();
  tensorflow::SetAttrValue(DT_INT32, &(*changed.mutable_attr())["T2"]);
  tensorflow::SetAttrValue(any_shape, &(*changed.mutable_attr())[kIdsOfAnyShape]);
  absl::Status status;
  Node* const made = graph->AddNode(changed, &status);
  if (!status.ok()) return;
  made->set_assigned_device_name(node->assigned_device_name());
  int64_t at = 0;
  for (const Edge* edge : node->in_edges()) {
    const Edge* const source = At(sources, at++).edge;
    graph->AddEdge(source->src(), source->src_output(), made, edge->dst_input());
  }
  for (const Edge* edge : node->out_edges()) graph->AddControlEdge(made, edge->dst());
  RemoveUnused(graph, node);
}

class NarrowIdsPass : public tensorflow::GraphOptimizationPass {
 public:
  absl::Status Run(const GraphOptimizationPassOptions& options) override {
    if (!options.graph || !*options.graph) return absl::OkStatus();
    Graph* const graph = options.graph->get();
    try {
      std::vector<Node*> enqueues;
      for (Node* node : graph->op_nodes()) {
        if (EnqueuesOnCpu(*node)) enqueues.push_back(node);
      }
      for (Node* node : enqueues) TakeIdsAsTheyCome(graph, node);
      return absl::OkStatus();
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError("no memory to look at the ids of a graph");
    }
  }
};

// In this phase functions have been inlined and ops have devices.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_PLACEMENT, 0, NarrowIdsPass);

}  // namespace
}  // namespace opwright::embedding
