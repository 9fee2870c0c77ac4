// SPDX-License-Identifier: Apache-2.0
// Running statistics of batch normalizations that a file's optimizer has merged: each gets its own again.
#include "Proto.h"
#include "Sites.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

constexpr int firstStatistic = 3;
constexpr StringLiteral names[] = {".running_mean", ".running_var"};
/// Bytes of a statistic that is copied, at most: files must not grow by what they repeat.
constexpr size_t mostBytes = size_t(1) << 20;

/// True for a node that computes new running statistics.
bool updatesStatistics(const NodeProto &node) {
  if (node.op_type() == "BatchNormInternal")
    return true;
  if (node.op_type() != "BatchNormalization" || !node.domain().empty())
    return false;
  for (const AttributeProto &attribute : node.attribute())
    if (attribute.name() == "training_mode")
      return attribute.i() != 0;
  return node.output_size() > 1; // the training form before opset 14
}

/// What the statistic is called beside the node's scale, as frameworks name both.
std::string nameFor(const NodeProto &node, int i) {
  StringRef scale = node.input(1);
  return (scale.consume_back(".weight") ? scale : proto::nodeName(node)).str() + names[i].str();
}

} // namespace

void proto::separateStatistics(ModelProto &model) {
  GraphProto &graph = *model.mutable_graph();
  llvm::StringMap<unsigned> uses;
  for (const NodeProto &node : graph.node())
    for (int i = firstStatistic; updatesStatistics(node) && i < std::min(node.input_size(), firstStatistic + 2); ++i)
      ++uses[node.input(i)];
  llvm::StringSet<> taken;
  llvm::StringMap<int> index;
  for (const NodeProto &node : graph.node())
    taken.insert_range(node.output());
  for (const ValueInfoProto &input : graph.input())
    taken.insert(input.name());
  for (auto [i, tensor] : llvm::enumerate(graph.initializer())) {
    taken.insert(tensor.name());
    index[tensor.name()] = static_cast<int>(i);
  }
  for (NodeProto &node : *graph.mutable_node())
    for (int i = firstStatistic; updatesStatistics(node) && i < std::min(node.input_size(), firstStatistic + 2); ++i) {
      auto found = index.find(node.input(i));
      std::string name = nameFor(node, i - firstStatistic);
      if (found == index.end() || uses.lookup(node.input(i)) < 2 || name == node.input(i))
        continue;
      const TensorProto &merged = graph.initializer(found->second);
      if (merged.ByteSizeLong() > mostBytes || !taken.insert(name).second)
        continue;
      TensorProto own = merged;
      own.set_name(name);
      proto::noteUse(own, node, i);
      *graph.add_initializer() = std::move(own);
      node.set_input(i, name);
    }
}
