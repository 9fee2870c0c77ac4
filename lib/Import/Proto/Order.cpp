// SPDX-License-Identifier: Apache-2.0
// Nodes in an order in which each value is made before it is read: some tools write them in another one.
#include "Proto.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <functional>
#include <queue>

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {
using Nodes = google::protobuf::RepeatedPtrField<NodeProto>;

/// Sorts the nodes of graphs, the inner ones first.
class Sorter {
public:
  explicit Sorter(MLIRContext *context) : context(context) {}

  LogicalResult sort(Nodes &nodes);
  bool hasMoved() const { return moved; }

private:
  LogicalResult sortBodies(NodeProto &node);
  static void addReads(const NodeProto &node, llvm::StringSet<> &reads);
  static void addFree(const GraphProto &graph, llvm::StringSet<> &reads);
  LogicalResult failCycle(const Nodes &nodes, ArrayRef<SmallVector<int>> needs, ArrayRef<bool> isPlaced) const;

  MLIRContext *context;
  bool moved = false;
};
} // namespace

/// The values that a node reads, from inside its subgraphs too.
void Sorter::addReads(const NodeProto &node, llvm::StringSet<> &reads) {
  reads.insert_range(node.input());
  for (const AttributeProto &attribute : node.attribute()) {
    if (attribute.has_g())
      addFree(attribute.g(), reads);
    for (const GraphProto &graph : attribute.graphs())
      addFree(graph, reads);
  }
}

/// The values that a subgraph reads of the graphs around it.
void Sorter::addFree(const GraphProto &graph, llvm::StringSet<> &reads) {
  llvm::StringSet<> inner, own;
  for (const NodeProto &node : graph.node()) {
    addReads(node, inner);
    own.insert_range(node.output());
  }
  for (const ValueInfoProto &input : graph.input())
    own.insert(input.name());
  for (const TensorProto &tensor : graph.initializer())
    own.insert(tensor.name());
  for (const ValueInfoProto &output : graph.output())
    inner.insert(output.name());
  for (const auto &name : inner)
    if (!own.contains(name.getKey()))
      reads.insert(name.getKey());
}

LogicalResult Sorter::sortBodies(NodeProto &node) {
  for (AttributeProto &attribute : *node.mutable_attribute()) {
    if (attribute.has_g() && failed(sort(*attribute.mutable_g()->mutable_node())))
      return failure();
    for (GraphProto &graph : *attribute.mutable_graphs())
      if (failed(sort(*graph.mutable_node())))
        return failure();
  }
  return success();
}

/// Names a node of the cycle: a node that is left waits for one, or is in it.
LogicalResult Sorter::failCycle(const Nodes &nodes, ArrayRef<SmallVector<int>> needs, ArrayRef<bool> isPlaced) const {
  auto waitsFor = [&](int node) { return *llvm::find_if(needs[node], [&](int need) { return !isPlaced[need]; }); };
  std::vector<bool> seen(nodes.size(), false);
  int at = static_cast<int>(llvm::find(isPlaced, false) - isPlaced.begin());
  for (; !seen[at]; at = waitsFor(at))
    seen[at] = true;
  int first = at; // the first one of the cycle in the file
  for (int next = waitsFor(at); next != at; next = waitsFor(next))
    first = std::min(first, next);
  llvm::StringSet<> reads;
  addReads(nodes[first], reads);
  const auto &outputs = nodes[waitsFor(first)].output();
  auto read = llvm::find_if(outputs, [&](const std::string &output) { return reads.contains(output); });
  return emitError(proto::namedLoc(context, proto::nodeName(nodes[first])))
         << "expected a graph without cycles, got use of '" << *read << "', which is computed from this node's result";
}

LogicalResult Sorter::sort(Nodes &nodes) {
  llvm::StringMap<int> makers;
  for (auto [i, node] : llvm::enumerate(nodes)) {
    if (failed(sortBodies(node)))
      return failure();
    for (const std::string &output : node.output())
      if (!output.empty())
        makers.try_emplace(output, static_cast<int>(i));
  }
  const int count = nodes.size();
  auto forEachNeed = [&](int node, auto note) {
    llvm::StringSet<> reads;
    addReads(nodes[node], reads);
    for (const auto &name : reads)
      if (auto maker = makers.find(name.getKey()); maker != makers.end())
        note(maker->second);
  };
  // Most files are sorted, and lists for each node would outgrow a file of small ones.
  bool isSorted = true;
  for (int i = 0; i < count && isSorted; ++i)
    forEachNeed(i, [&](int need) { isSorted &= need < i; });
  if (isSorted)
    return success();
  std::vector<SmallVector<int>> needs(count), readers(count);
  std::vector<int> open(count, 0);
  for (int i = 0; i < count; ++i)
    forEachNeed(i, [&](int need) {
      needs[i].push_back(need);
      readers[need].push_back(i);
      ++open[i];
    });
  // Of the nodes that are ready, the first one in the file.
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < count; ++i)
    if (open[i] == 0)
      ready.push(i);
  std::vector<int> order;
  SmallVector<bool> isPlaced(count, false);
  while (!ready.empty()) {
    int node = ready.top();
    ready.pop();
    order.push_back(node);
    isPlaced[node] = true;
    for (int reader : readers[node])
      if (--open[reader] == 0)
        ready.push(reader);
  }
  if (static_cast<int>(order.size()) != count)
    return failCycle(nodes, needs, isPlaced);
  Nodes sorted;
  sorted.Reserve(count);
  for (int node : order)
    sorted.Add(std::move(nodes[node]));
  nodes.Swap(&sorted);
  moved = true;
  return success();
}

LogicalResult proto::sortNodes(ModelProto &model, Location loc) {
  Sorter sorter(loc.getContext());
  if (model.has_graph() && failed(sorter.sort(*model.mutable_graph()->mutable_node())))
    return failure();
  for (FunctionProto &function : *model.mutable_functions())
    if (failed(sorter.sort(*function.mutable_node())))
      return failure();
  for (TrainingInfoProto &info : *model.mutable_training_info())
    if ((info.has_algorithm() && failed(sorter.sort(*info.mutable_algorithm()->mutable_node()))) ||
        (info.has_initialization() && failed(sorter.sort(*info.mutable_initialization()->mutable_node()))))
      return failure();
  if (sorter.hasMoved())
    emitRemark(loc) << "nodes were not in topological order, and are sorted";
  return success();
}
