// SPDX-License-Identifier: Apache-2.0
// Weights that a file keeps inside subgraphs become initializers of the main graph, where training finds them.
#include "Proto.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

// Binary parsing has bounded the nesting.
LogicalResult proto::visitNodes(google::protobuf::RepeatedPtrField<NodeProto> &nodes,
                                llvm::function_ref<LogicalResult(NodeProto &)> visitor) {
  for (NodeProto &node : nodes) {
    if (failed(visitor(node)))
      return failure();
    for (AttributeProto &attr : *node.mutable_attribute()) {
      if (attr.has_g() && failed(visitNodes(*attr.mutable_g()->mutable_node(), visitor)))
        return failure();
      for (GraphProto &graph : *attr.mutable_graphs())
        if (failed(visitNodes(*graph.mutable_node(), visitor)))
          return failure();
    }
  }
  return success();
}

void proto::visitGraphs(const GraphProto &graph, llvm::function_ref<void(const GraphProto &)> visitor) {
  visitor(graph);
  for (const NodeProto &node : graph.node())
    for (const AttributeProto &attribute : node.attribute())
      if (attribute.has_g())
        visitGraphs(attribute.g(), visitor);
}

void proto::visitGraphs(GraphProto &graph, llvm::function_ref<void(GraphProto &)> visitor) {
  visitGraphs(std::as_const(graph), [&](const GraphProto &part) { visitor(const_cast<GraphProto &>(part)); });
}

const TensorProto *proto::floatConstant(const NodeProto &node) {
  if (node.op_type() != "Constant" || node.attribute_size() != 1 || node.output_size() != 1 ||
      node.attribute(0).name() != "value" || !node.attribute(0).has_t())
    return nullptr;
  const TensorProto &tensor = node.attribute(0).t();
  return proto::isFloat(tensor) && tensor.dims_size() > 0 ? &tensor : nullptr;
}

bool proto::holdsMatrices(const GraphProto &graph) {
  llvm::StringSet<> matrices;
  for (const NodeProto &node : graph.node())
    if (const TensorProto *tensor = floatConstant(node); tensor && tensor->dims_size() >= 2)
      matrices.insert(node.output(0));
  return !matrices.empty() && llvm::any_of(graph.node(), [&](const NodeProto &node) {
    bool contracts = llvm::is_contained({"Conv", "ConvTranspose", "MatMul", "Gemm"}, node.op_type());
    return contracts && node.input_size() > 1 && matrices.contains(node.input(1));
  });
}

namespace {
class Lifter {
public:
  explicit Lifter(ModelProto &model) : model(model), main(*model.mutable_graph()) { countNames(main); }

  void run() { liftOf(main, ""); }

private:
  ModelProto &model;
  GraphProto &main;
  llvm::StringMap<int> definitions; ///< how often a name is defined in the file

  void countNames(const GraphProto &graph);
  void liftOf(GraphProto &graph, const std::string &path);
  void lift(GraphProto &body, int inputs, const std::string &path);
  std::string nameFor(StringRef name, bool mayKeep, const std::string &path);
};
} // namespace

void Lifter::countNames(const GraphProto &graph) {
  llvm::StringSet<> listed; // an initializer may be an input too
  for (const ValueInfoProto &input : graph.input()) {
    listed.insert(input.name());
    ++definitions[input.name()];
  }
  for (const TensorProto &tensor : graph.initializer())
    if (!listed.contains(tensor.name()))
      ++definitions[tensor.name()];
  for (const NodeProto &node : graph.node()) {
    for (const std::string &output : node.output())
      ++definitions[output];
    for (const AttributeProto &attribute : node.attribute())
      if (attribute.has_g())
        countNames(attribute.g());
  }
}

/// Tensors whose numbers are extents: inference looks for these in the subgraph alone.
static llvm::StringSet<> extents(const GraphProto &graph) {
  llvm::StringSet<> names;
  for (const NodeProto &node : graph.node()) {
    bool resizes = node.op_type() == "Resize" || node.op_type() == "Upsample";
    for (int i = resizes; i < node.input_size() && (resizes || node.op_type() == "Range"); ++i)
      names.insert(node.input(i));
    for (const AttributeProto &attribute : node.attribute())
      if (attribute.has_g())
        names.insert_range(extents(attribute.g()).keys());
  }
  return names;
}

/// Renames the uses of an outer value, but where a subgraph defines the name anew.
static void renameUses(GraphProto &graph, StringRef from, StringRef to) {
  for (NodeProto &node : *graph.mutable_node()) {
    for (std::string &input : *node.mutable_input())
      if (input == from)
        input = to.str();
    for (AttributeProto &attribute : *node.mutable_attribute()) {
      if (!attribute.has_g())
        continue;
      auto defines = [&](const auto &list) {
        return llvm::any_of(list, [&](const auto &value) { return value.name() == from; });
      };
      GraphProto &body = *attribute.mutable_g();
      if (!defines(body.input()) && !defines(body.initializer()))
        renameUses(body, from, to);
    }
  }
}

/// The name where nothing else has it, or one with the path of its subgraph.
std::string Lifter::nameFor(StringRef name, bool mayKeep, const std::string &path) {
  if (mayKeep && definitions.lookup(name) == 1)
    return name.str();
  std::string base = path + name.str(), unique = base;
  for (int i = 2; definitions.contains(unique); ++i)
    unique = (base + "_" + llvm::Twine(i)).str();
  definitions[unique] = 1;
  return unique;
}

void Lifter::lift(GraphProto &body, int inputs, const std::string &path) {
  if (proto::holdsMatrices(body)) {
    google::protobuf::RepeatedPtrField<NodeProto> kept;
    for (NodeProto &node : *body.mutable_node()) {
      if (!proto::floatConstant(node)) {
        kept.Add(std::move(node));
        continue;
      }
      TensorProto &tensor = *body.add_initializer();
      tensor.Swap(node.mutable_attribute(0)->mutable_t());
      tensor.set_name(node.output(0));
    }
    body.mutable_node()->Swap(&kept);
  }
  llvm::StringMap<int> counts;
  for (const TensorProto &tensor : body.initializer())
    ++counts[tensor.name()];
  llvm::StringSet<> given, results, known = extents(body);
  if (body.input_size() <= inputs) // else the rest are initializers that are listed
    for (const ValueInfoProto &input : body.input())
      given.insert(input.name());
  for (const ValueInfoProto &output : body.output())
    results.insert(output.name());
  llvm::StringSet<> lifted;
  google::protobuf::RepeatedPtrField<TensorProto> kept;
  for (TensorProto &tensor : *body.mutable_initializer()) {
    const std::string &name = tensor.name();
    bool isWeight = proto::isFloat(tensor) && tensor.dims_size() > 0 && counts.lookup(name) == 1 && !name.empty() &&
                    !given.contains(name) && !known.contains(name);
    if (!isWeight) {
      kept.Add(std::move(tensor));
      continue;
    }
    lifted.insert(name);
    std::string unique = nameFor(name, !results.contains(name), path);
    if (unique != name)
      renameUses(body, name, unique);
    if (results.contains(name)) { // a result is a value of the subgraph's own
      NodeProto &same = *body.add_node();
      same.set_op_type("Identity");
      same.add_input(unique);
      same.add_output(name);
    }
    tensor.set_name(unique);
    proto::addInitializer(model, std::move(tensor));
  }
  body.mutable_initializer()->Swap(&kept);
  auto &listed = *body.mutable_input();
  listed.erase(llvm::remove_if(listed, [&](const ValueInfoProto &input) { return lifted.contains(input.name()); }),
               listed.end());
}

void Lifter::liftOf(GraphProto &graph, const std::string &path) {
  for (NodeProto &node : *graph.mutable_node())
    for (AttributeProto &attribute : *node.mutable_attribute()) {
      if (!attribute.has_g())
        continue;
      std::string inner = path + proto::nodeName(node).str() + "." + attribute.name() + ".";
      bool lengths = node.op_type() == "Scan" && proto::opsetVersion(model, "") < 9; // no input of the body's
      lift(*attribute.mutable_g(), node.op_type() == "If" ? 0 : node.input_size() - lengths, inner);
      liftOf(*attribute.mutable_g(), inner);
    }
}

void proto::liftSubgraphWeights(ModelProto &model) { Lifter(model).run(); }
