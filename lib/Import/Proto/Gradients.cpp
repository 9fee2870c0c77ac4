// SPDX-License-Identifier: Apache-2.0
// Gradient nodes: the tensors that they name become operands, and they move behind the producers of these.
#include "Proto.h"

#include "mpt/Dialect/ONNX/Schemas.h"

#include "mlir/IR/Diagnostics.h"

#include "onnx/defs/schema.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

const AttributeProto *find(const NodeProto &node, StringRef name) {
  for (const AttributeProto &attribute : node.attribute())
    if (attribute.name() == name)
      return &attribute;
  return nullptr;
}

SmallVector<std::string> names(const NodeProto &node, StringRef attribute) {
  const AttributeProto *list = find(node, attribute);
  return list ? SmallVector<std::string>(list->strings().begin(), list->strings().end()) : SmallVector<std::string>();
}

/// Every name that a node or a subgraph of it reads.
void forEachUse(const NodeProto &node, function_ref<void(StringRef)> visit) {
  for (const std::string &input : node.input())
    visit(input);
  for (const AttributeProto &attribute : node.attribute())
    if (attribute.has_g())
      for (const NodeProto &inner : attribute.g().node())
        forEachUse(inner, visit);
}

/// The nodes, each after the ones that it needs, else in their order.
class NodeOrder {
public:
  explicit NodeOrder(GraphProto &graph) : graph(graph), state(graph.node_size()) {
    for (int i = 0; i < graph.node_size(); ++i)
      for (const std::string &output : graph.node(i).output())
        if (!output.empty())
          producer.try_emplace(output, i);
  }

  void sort() {
    google::protobuf::RepeatedPtrField<NodeProto> sorted;
    for (int i = 0; i < graph.node_size(); ++i)
      place(i);
    for (int i : order)
      sorted.Add(std::move(*graph.mutable_node(i)));
    graph.mutable_node()->Swap(&sorted);
  }

private:
  enum State : char { untouched, open, placed };

  /// Places node `first` after the nodes that it needs. Nodes of a cycle stay: the check of names reports them.
  void place(int first) {
    SmallVector<int> stack{first};
    while (!stack.empty()) {
      int at = stack.back();
      if (state[at] == placed) {
        stack.pop_back();
        continue;
      }
      bool ready = state[at] == open;
      state[at] = open;
      if (!ready)
        forEachUse(graph.node(at), [&](StringRef name) {
          if (auto found = producer.find(name); found != producer.end() && state[found->second] == untouched)
            stack.push_back(found->second);
        });
      if (ready || stack.back() == at) {
        state[at] = placed;
        order.push_back(at);
        stack.pop_back();
      }
    }
  }

  GraphProto &graph;
  llvm::StringMap<int> producer;
  std::vector<State> state;
  std::vector<int> order;
};

} // namespace

bool proto::isTrainingOperator(const NodeProto &node) {
  // A producer writes Gradient into the shorter domain, which has operators of its own.
  return node.domain() == kTrainingDomain || (node.domain() == "ai.onnx.preview" &&
                                              mpt::onnx::schemas().GetSchema(node.op_type(), 1, kTrainingDomain.str()));
}

LogicalResult proto::takeGradientOperands(ModelProto &model, MLIRContext *context) {
  GraphProto &graph = *model.mutable_graph();
  bool any = false;
  for (NodeProto &node : *graph.mutable_node()) {
    if (!isTrainingOperator(node))
      continue;
    any = true;
    node.set_domain(kTrainingDomain.str());
    if (node.op_type() != "Gradient")
      continue;
    Location loc = namedLoc(context, nodeName(node));
    SmallVector<std::string> xs = names(node, "xs"), zs = names(node, "zs");
    const AttributeProto *y = find(node, "y");
    if (xs.empty() || !y || y->s().empty())
      return emitError(loc) << "expected attributes xs and y that name tensors, got "
                            << (xs.empty() ? "no xs" : "no y");
    SmallVector<std::string> named(xs);
    named.append(zs);
    SmallVector<std::string> points(node.input().begin(), node.input().end());
    if (points.size() != named.size() && points.size() != xs.size())
      return emitError(loc) << "expected an input for each of " << named.size() << " tensors in xs and zs, got "
                            << points.size();
    node.clear_input();
    node.add_input(y->s());
    for (const std::string &name : named)
      node.add_input(name);
    // Where the inputs are the tensors themselves, the point is the one at which the graph computes y.
    if (ArrayRef(points) == ArrayRef(named).take_front(points.size()))
      continue;
    points.append(zs.begin() + (points.size() - xs.size()), zs.end());
    for (const std::string &name : points)
      node.add_input(name);
  }
  if (!any)
    return success();
  if (!opsetVersion(model, kTrainingDomain)) {
    OperatorSetIdProto &opset = *model.add_opset_import();
    opset.set_domain(kTrainingDomain.str());
    opset.set_version(1);
  }
  NodeOrder(graph).sort();
  return success();
}
