// SPDX-License-Identifier: Apache-2.0
// Matcher: Identity and BatchNormalization of a file.
// Running statistics that an exporter has merged with others, or with scales and biases that began as ones and zeros:
// each batch normalization gets its own again.
#include "Proto.h"
#include "Sites.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

constexpr int firstStatistic = 3;
constexpr StringLiteral names[] = {".running_mean", ".running_var"};
/// Bytes of a statistic that is copied, at most: files must not grow by repeated tensors.
constexpr size_t mostBytes = size_t(1) << 20;

bool isNorm(const NodeProto &node) {
  return node.op_type() == "BatchNormInternal" || (node.op_type() == "BatchNormalization" && node.domain().empty());
}

/// True for a node that computes new running statistics.
bool updatesStatistics(const NodeProto &node) {
  if (node.op_type() == "BatchNormInternal")
    return true;
  for (const AttributeProto &attribute : node.attribute())
    if (attribute.name() == "training_mode")
      return attribute.i() != 0;
  return node.output_size() > 1; // the training form before opset 14
}

bool isStatistic(const NodeProto &node, int operand) {
  return isNorm(node) && (operand == firstStatistic || operand == firstStatistic + 1);
}

class Statistics {
public:
  explicit Statistics(GraphProto &graph) : graph(graph) {
    for (auto [i, tensor] : llvm::enumerate(graph.initializer())) {
      taken.insert(tensor.name());
      index[tensor.name()] = static_cast<int>(i);
    }
    for (const ValueInfoProto &input : graph.input())
      taken.insert(input.name());
    for (const NodeProto &node : graph.node()) {
      taken.insert_range(node.output());
      bool isAlias = node.op_type() == "Identity" && node.domain().empty() && node.output_size() == 1;
      if (isAlias && node.input_size() == 1)
        origins[node.output(0)] = originOf(node.input(0));
      for (int i = 0; i < node.input_size() && !isAlias; ++i) {
        ++readers[node.input(i)];
        Uses &of = uses[originOf(node.input(i))];
        ++(!isStatistic(node, i) ? of.others : updatesStatistics(node) ? of.moving : of.still);
      }
    }
  }

  void separate() {
    for (NodeProto &node : *graph.mutable_node())
      for (int i = firstStatistic; isNorm(node) && i < std::min(node.input_size(), firstStatistic + 2); ++i)
        if (needsOwn(node, i))
          giveOwn(node, i);
    auto &nodes = *graph.mutable_node();
    auto gone = [&](const NodeProto &node) { return node.output_size() == 1 && replaced.contains(node.output(0)); };
    nodes.erase(llvm::remove_if(nodes, gone), nodes.end());
  }

private:
  /// Operands that read a tensor: statistics that move, statistics that stay, and all others.
  struct Uses {
    unsigned moving = 0, still = 0, others = 0;
  };

  std::string originOf(const std::string &name) const {
    auto found = origins.find(name);
    return found == origins.end() ? name : found->second;
  }

  bool needsOwn(const NodeProto &node, int i) const {
    Uses of = uses.lookup(originOf(node.input(i)));
    return of.others > 0 || (updatesStatistics(node) ? of.moving + of.still > 1 : of.moving > 0);
  }

  void giveOwn(NodeProto &node, int i) {
    const std::string before = node.input(i);
    auto found = index.find(originOf(before));
    if (found == index.end() || graph.initializer(found->second).ByteSizeLong() > mostBytes)
      return;
    TensorProto own = graph.initializer(found->second);
    StringRef scale = node.input(1), ending = names[i - firstStatistic];
    std::string name = scale.consume_back(".weight") ? (scale + ending).str() : "";
    if (origins.contains(before) && readers.lookup(before) == 1) {
      // The tensor takes the place of its alias, whose name it has. In the file the alias stays.
      name = before;
      replaced.insert(before);
      proto::noteName(own, taken.take(before, before));
    } else if (name == before) {
      return;
    } else if (name.empty() || !taken.insert(name).second) { // two scales may be merged as well
      name = (proto::nodeName(node) + ending).str();
      if (!taken.insert(name).second)
        return;
    }
    own.set_name(name);
    proto::noteUse(own, node, i);
    *graph.add_initializer() = std::move(own);
    node.set_input(i, name);
  }

  GraphProto &graph;
  llvm::StringMap<int> index;
  llvm::StringMap<Uses> uses;
  llvm::StringMap<unsigned> readers;
  llvm::StringMap<std::string> origins; ///< of aliases that Identity nodes give
  proto::TakenNames taken;
  llvm::StringSet<> replaced;
};

} // namespace

std::string proto::TakenNames::take(std::string wanted, StringRef base) {
  if (!wanted.empty() && insert(wanted).second)
    return wanted;
  unsigned &number = numbers.try_emplace(base, 1).first->second;
  do
    wanted = (base + "." + Twine(++number)).str();
  while (!insert(wanted).second);
  return wanted;
}

void proto::separateStatistics(ModelProto &model) { Statistics(*model.mutable_graph()).separate(); }

static bool isInferenceNorm(const NodeProto &node, int64_t version) {
  if (node.op_type() != "BatchNormalization" || !node.domain().empty() || version < 7)
    return false;
  bool trains = version < 14 && node.output_size() > 1;
  for (const AttributeProto &attribute : node.attribute())
    trains |= version >= 14 && attribute.name() == "training_mode" && attribute.i() != 0;
  return !trains;
}

FailureOr<int64_t> proto::settleBatchNorms(ModelProto &model, const ImportOptions &options, Location loc) {
  int64_t version = opsetVersion(model, ""), count = 0;
  for (NodeProto &node : *model.mutable_graph()->mutable_node()) {
    if (!isInferenceNorm(node, version))
      continue;
    ++count;
    if (options.batchNorm != "train")
      continue;
    if (version >= 14) {
      auto given = llvm::find_if(*node.mutable_attribute(), [](auto &a) { return a.name() == "training_mode"; });
      AttributeProto &mode = given == node.mutable_attribute()->end() ? *node.add_attribute() : *given;
      mode.set_name("training_mode");
      mode.set_type(AttributeProto::INT);
      mode.set_i(1);
    }
    SmallVector<StringRef> results{"running_mean", "running_var"};
    if (version < 14) // one result, or all
      results.append({"saved_mean", "saved_var"});
    for (StringRef name : results)
      node.add_output((node.output(0) + "/" + name).str());
  }
  if (options.batchNorm == "train" && count == 0)
    return emitError(loc) << "expected batch normalizations in inference form for --batch-norm=train, found none; "
                             "those in training form move their statistics anyway";
  if (options.batchNorm == "train")
    separateStatistics(model);
  return options.batchNorm == "train" ? 0 : count;
}
