// Ids go to the ops that enqueue them as they were brought.
//
// TensorFlow's TPUEmbedding flattens each feature's ids and casts them to int64: two ops a
// feature and core, which cost more than what they do. Ids of int32 and of any shape are as
// good to the kernel, so this pass has them go past both.
#include <new>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "embedding/tf/named_lookups.h"
#include "tensorflow/core/common_runtime/optimization_registry.h"
#include "tensorflow/core/framework/node_def.pb.h"
#include "tensorflow/core/framework/node_def_util.h"
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

// What somebody has put behind another op stays where it is. A shape may be that too.
bool MayBePassed(const Node& node) {
  if (node.type_string() == "Cast") return WaitsForNothing(node);
  const Node* shape;
  return node.type_string() == "Reshape" && WaitsForNothing(node) &&
         node.input_node(1, &shape).ok() && shape->IsConstant() && WaitsForNothing(*shape);
}

// The edge on which ids come before they are flattened and cast.
const Edge* SourceOf(const Edge* ids) {
  const Edge* before;
  while (MayBePassed(*ids->src()) && ids->src()->input_edge(0, &before).ok() &&
         (TypeOf(*before) == TypeOf(*ids) || TypeOf(*before) == DT_INT32)) {
    ids = before;
  }
  return ids;
}

// A node and what it alone needed.
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

// Left as it is, if something is unlike what TensorFlow makes.
void TakeIdsAsTheyCome(Graph* graph, Node* node) {
  int count;
  if (!tensorflow::GetNodeAttr(node->attrs(), "N", &count).ok()) return;
  const auto is_ids = [=](int input) { return input >= count && input < 2 * count; };
  std::vector<const Edge*> sources;
  for (const Edge* edge : node->in_edges()) {
    sources.push_back(is_ids(edge->dst_input()) ? SourceOf(edge) : edge);
    if (is_ids(edge->dst_input()) && TypeOf(*sources.back()) != DT_INT32) return;
  }
  NodeDef changed = node->def();
  (*changed.mutable_attr())["T2"].set_type(DT_INT32);
  (*changed.mutable_attr())[kIdsOfAnyShape].set_b(true);
  absl::Status status;
  Node* const made = graph->AddNode(changed, &status);
  if (!status.ok()) return;
  made->set_assigned_device_name(node->assigned_device_name());
  size_t at = 0;
  for (const Edge* edge : node->in_edges()) {
    const Edge* const source = sources[at++];
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

// Functions are inlined by then, and devices known.
REGISTER_OPTIMIZATION(tensorflow::OptimizationPassRegistry::POST_PLACEMENT, 0, NarrowIdsPass);

}  // namespace
}  // namespace opwright::embedding
