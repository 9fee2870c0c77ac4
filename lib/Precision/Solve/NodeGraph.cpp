// SPDX-License-Identifier: Apache-2.0
// Rules and labels of ONNX nodes.
#include "NodeGraph.h"

#include "Solver.h"

#include "mpt/Dialect/ONNX/Constants.h"
#include "mpt/Interfaces/MeaningFlow.h"
#include "mpt/Precision/OptimizerRules.h"

#include <cmath>

using namespace mlir;
using namespace mpt;
using onnx::NodeTypes;

namespace {
/// Assumed for an extent that the model does not state.
constexpr int64_t kUnknownExtent = 16;
} // namespace

// ---- rules

/// True for a Transpose which moves the batch, [B, M, K] to [M, B, K], for a MatMul alone: ONNX Runtime joins the two,
/// has no FP16 kernel for that on CPUs, and up to 1.32 ends in a segmentation fault when it loads the model.
static bool isJoinedWithMatMul(onnx::NodeOp node) {
  if (!node.getDomain().empty() || node.getOpType() != "Transpose" || !node->hasOneUse())
    return false;
  auto reader = dyn_cast<onnx::NodeOp>(*node->user_begin());
  if (reader && reader.getOpType() == "Cast" && reader->hasOneUse()) // of an earlier run
    reader = dyn_cast<onnx::NodeOp>(*reader->user_begin());
  auto order = node.getAttrs().getAs<DenseI64ArrayAttr>("perm");
  if (!reader || reader.getOpType() != "MatMul" || !order || order.size() < 3)
    return false;
  // The first axis goes behind the others of the batch, before or behind the last one.
  SmallVector<int64_t> others(order.asArrayRef());
  llvm::erase(others, 0);
  return order[0] == 1 && llvm::is_sorted(others);
}

void NodeGraph::enter(func::FuncOp function) {
  findTail(function.getBody().front());
  pins = optimizerPins(function);
  ConstantReader reader;
  Meanings meanings(
      function, [](Operation *op) { return Meanings::Contents{/*isWeight=*/false, onnx::fixedContentsOf(op)}; }, reader,
      tail);
  function.walk([&](onnx::NodeOp node) {
    if (onnx::isConstantNode(node, policy.storage))
      return;
    NumericClass numericClass = node.getNumericClass();
    Ruling ruling = policy.decide(node, numericClass);
    rules[node] = {text(ruling.rule), numericClass, ruling.decision, ruling.named, node.getDomain().empty()};
    std::string why = meanings.whyWide(node, cast<FloatType>(policy.storage), measured.choose(node).known);
    if (why.empty() && policy.storage.isF16() && isJoinedWithMatMul(node))
      why = "ONNX Runtime cannot join it with the MatMul in f16";
    if (!why.empty() && !ruling.named)
      kept[node] = ruling.rule.empty() ? why : ruling.rule + ": " + why;
  });
}

void NodeGraph::forEachOp(llvm::function_ref<void(Operation *)> visit) const {
  func::FuncOp(main).getBody().walk<WalkOrder::PreOrder>(visit);
}

bool NodeGraph::isTailUser(Operation *user) const {
  Operation *reader = user->hasTrait<OpTrait::IsTerminator>() ? user->getParentOp() : user;
  return isa<func::FuncOp>(reader) || tail.contains(reader);
}

/// Nodes from which only results of the graph are made, without a contraction on the way; in branches too.
void NodeGraph::findTail(Block &block) {
  for (Operation &op : llvm::reverse(block)) {
    auto node = dyn_cast<onnx::NodeOp>(op);
    bool isBranch = node && node.getDomain().empty() && node.getOpType() == "If";
    if (!node || node.use_empty() || (!node.getBodies().empty() && !isBranch) ||
        node.getNumericClass() == NumericClass::Contraction ||
        !llvm::all_of(node->getUsers(), [&](Operation *user) { return isTailUser(user); }))
      continue;
    tail.insert(node);
    for (Region &body : node.getBodies())
      findTail(body.front());
  }
}

// ---- flow

RangeTransfer NodeGraph::transferOf(OpResult result) const {
  auto found = rules.find(result.getOwner());
  if (found == rules.end() || found->second.numericClass == NumericClass::Pinned || pins.contains(result.getOwner()))
    return RangeTransfer::none();
  const NodeRules &node = found->second;
  if (kept.contains(result.getOwner()))
    return node.numericClass == NumericClass::Contraction ? RangeTransfer::none() : RangeTransfer::identity();
  bool expands = node.numericClass == NumericClass::RangeExpanding || node.numericClass == NumericClass::Reduction;
  RangeTransfer transfer;
  if (node.decision == Decision::narrow)
    transfer.makes.narrowed = true;
  else if (node.decision == Decision::wide)
    transfer.makes.ranged = expands;
  else
    transfer = RangeTransfer::identity();
  if (!node.takesNarrow) // wide whatever the rules say
    transfer.makes.narrowed = transfer.passes.narrowed = false;
  return transfer;
}

RangeFact NodeGraph::entryOf(BlockArgument argument) const {
  return {/*ranged=*/!isa<func::FuncOp>(argument.getOwner()->getParentOp()), false};
}

/// A body yields as many values as its node has results, after the condition of a loop.
Value NodeGraph::resultOfEnd(OpOperand &end) const {
  Operation *yield = end.getOwner();
  if (!isa<onnx::YieldOp>(yield))
    return {};
  Operation *node = yield->getParentOp();
  unsigned count = std::min(node->getNumResults(), yield->getNumOperands());
  unsigned before = yield->getNumOperands() - count;
  return end.getOperandNumber() >= before ? Value(node->getResult(end.getOperandNumber() - before)) : Value();
}

// ---- long sums

/// True where one result is made of more elements than the narrow type tells apart: the file does not say in which type
/// the operator sums them.
bool NodeGraph::sumsBeyondPrecision(onnx::NodeOp node, NumericClass numericClass) const {
  if (numericClass == NumericClass::Contraction || node.getInputs().empty() || node.getNumResults() == 0)
    return false;
  auto from = dyn_cast<RankedTensorType>(node.getInputs()[0].getType());
  auto to = dyn_cast<RankedTensorType>(node.getResult(0).getType());
  if (!from || !to)
    return false;
  auto elements = [](RankedTensorType type) {
    double product = 1;
    for (int64_t extent : type.getShape())
      product *= static_cast<double>(extent == ShapedType::kDynamic ? kUnknownExtent : extent);
    return product;
  };
  auto flow = dyn_cast<MeaningFlow>(node.getOperation());
  bool accumulates = flow && flow.getArithmetic() == Arithmetic::Accumulates;
  unsigned precision = APFloat::semanticsPrecision(cast<FloatType>(policy.storage).getFloatSemantics());
  double terms = elements(from) / std::max(elements(to), 1.0);
  if (accumulates) // along one axis, perhaps the longest
    for (int64_t extent : from.getShape())
      terms = std::max(terms, static_cast<double>(extent == ShapedType::kDynamic ? kUnknownExtent : extent));
  return terms > std::ldexp(1.0, static_cast<int>(precision));
}

// ---- labels

std::optional<OpLabels> NodeGraph::label(Operation *op, RangeFact in, CastPlacement &placement) {
  if (op->hasTrait<OpTrait::IsTerminator>()) {
    use(op, SmallVector<Label, 4>(op->getNumOperands(), kWide), placement);
    return std::nullopt;
  }
  auto found = rules.find(op);
  if (found == rules.end()) { // a constant
    // A constant that a caller may override has the type of the graph's interface.
    produce(op->getResult(0), onnx::isOverridable(op) ? kWide : kEither, placement);
    return std::nullopt;
  }
  auto node = cast<onnx::NodeOp>(op);
  for (Region &body : node.getBodies())
    for (BlockArgument argument : body.getArguments())
      produce(argument, kWide, placement);
  if (llvm::none_of(llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()), onnx::isFloat32Tensor))
    return std::nullopt;
  OpLabels labels = labelNode(node, found->second, in, placement);
  use(op, labels.operands, placement);
  for (auto [result, label] : llvm::zip_equal(op->getResults(), labels.results))
    produce(result, label, placement);
  // The model's own casts: where the operand is narrow they vanish, and readers of a widened value may read the narrow
  // one.
  Type wide = Float32Type::get(op->getContext());
  if (onnx::isCast(node, wide, policy.storage))
    placement.use(op->getOperand(0), kNarrow);
  if (onnx::isCast(node, policy.storage, wide))
    produce(op->getResult(0), kEither, placement);
  return labels;
}

void NodeGraph::produce(Value value, Label label, CastPlacement &placement) const {
  if (isDecidable(value.getType()))
    placement.produce(value, label, costOf(value));
}

void NodeGraph::use(Operation *op, ArrayRef<Label> labels, CastPlacement &placement) const {
  for (auto [value, label] : llvm::zip_equal(op->getOperands(), labels))
    if (label != kEither && isDecidable(value.getType()))
      placement.use(value, label);
}

OpLabels NodeGraph::labelNode(onnx::NodeOp node, const NodeRules &rules, RangeFact in, CastPlacement &placement) {
  NodeTypes types = onnx::nodeTypes(node, policy.storage);
  bool isPinned = rules.numericClass == NumericClass::Pinned;
  SmallVector<Label, 4> groups(types.groups, kWide);
  std::string rule = "the operator takes no narrow type here";
  if (types.main != NodeTypes::kFixed)
    groups[types.main] = mainLabel(node, rules, in, rule, placement);
  if (rules.numericClass == NumericClass::Contraction && types.main >= 0)
    llvm::fill(groups, groups[types.main]);
  SmallVector<std::pair<unsigned, Label>> ownLabels;
  for (unsigned i = 0; i < node->getNumOperands(); ++i) {
    std::optional<Ruling> own = policy.decideOperand(node, i);
    int group = types.operands[i];
    if (!own || own->decision == Decision::follow || isPinned || pins.contains(node) || group == NodeTypes::kFixed ||
        !isDecidable(node->getOperand(i).getType()))
      continue;
    Label label = own->decision == Decision::wide ? kWide : kNarrow;
    if (group == NodeTypes::kAny)
      ownLabels.emplace_back(i, label);
    else
      groups[group] = label; // operands of one type obey together
    rule += "; " + own->rule;
  }
  // Executors of nodes that stay as they are know the types that these had.
  Label any = isPinned ? kWide : kEither;
  auto labelsOf = [&](ArrayRef<int> slots) {
    SmallVector<Label, 4> labels;
    for (int group : slots)
      labels.push_back(group >= 0 ? groups[group] : group == NodeTypes::kAny ? any : kWide);
    return labels;
  };
  OpLabels labels{node, labelsOf(types.operands), labelsOf(types.results), text(rule), Type(), Type(), false};
  for (auto [i, label] : ownLabels)
    labels.operands[i] = label;
  return labels;
}

/// The label of the type that a node's data have. The first ground that applies decides.
Label NodeGraph::mainLabel(onnx::NodeOp node, const NodeRules &rules, RangeFact in, std::string &rule,
                           CastPlacement &placement) {
  if (rule = whyWideByRule(node, rules); !rule.empty())
    return kWide;
  MeasuredNodes::Choice choice = measured.choose(node);
  std::string given = rules.rule.str();
  std::string withMeasurement = given + (choice.text.empty() ? "" : "; " + choice.text);
  rule = withMeasurement;
  if (!choice.fits && !rules.named)
    return kWide;
  if (rules.decision == Decision::narrow)
    return kNarrow;
  if (std::string why = whyFollowerIsWide(node, rules, in, choice.known); !why.empty()) {
    rule = given + why;
    return kWide;
  }
  rule += "; fewest cast bytes";
  FreeLabel properties;
  properties.exact = rules.numericClass == NumericClass::Movement;
  return placement.addFree(properties);
}

std::string NodeGraph::whyWideByRule(onnx::NodeOp node, const NodeRules &rules) {
  Ruling ruling = rules.ruling();
  if (auto pin = pins.find(node); pin != pins.end())
    return pinnedRule(pin->second, ruling);
  if (rules.numericClass == NumericClass::Pinned)
    return asksForNarrow(ruling) ? pinnedRule("pinned: computes in f32", ruling) : ruling.rule;
  if (ruling.decision == Decision::wide)
    return ruling.rule;
  return kept.lookup(node);
}

std::string NodeGraph::whyFollowerIsWide(onnx::NodeOp node, const NodeRules &rules, RangeFact in, bool knowsRange) {
  if (tail.contains(node))
    return ": only results of the graph depend on it";
  if (rules.numericClass != NumericClass::Movement && sumsBeyondPrecision(node, rules.numericClass))
    return ": sums more values than the narrow type counts";
  return whyFlowKeepsWide(rules.numericClass, in, knowsRange).str();
}

// ---- cost

ValueCost NodeGraph::costOf(Value value) const {
  constexpr int64_t kMost = int64_t(1) << 40;
  int64_t elements = 1;
  auto ranked = dyn_cast<RankedTensorType>(value.getType());
  for (int64_t extent : ranked ? ranked.getShape() : ArrayRef<int64_t>{})
    if (__builtin_mul_overflow(elements, extent == ShapedType::kDynamic ? kUnknownExtent : extent, &elements))
      return {kMost};
  int64_t each = (32 + policy.storage.getIntOrFloatBitWidth()) / 8;
  return {std::min(std::max<int64_t>(elements, 0), kMost / each) * each};
}

// One unit breaks ties: of cuts that cost the same, exact ops go narrow and rounding ops stay wide. A byte outweighs
// the ties of a thousand nodes.
CutWeights NodeGraph::weights() const {
  return {1 << 10, cost.launchBytes << 10, /*weighsValues=*/false, /*breaksTies=*/true};
}

int64_t mpt::solveNodes(func::FuncOp main, const Policy &policy, OpDecided decided, const CostModel &cost) {
  NodeGraph view(main, policy, cost);
  return solve(view, policy, decided).castBytes;
}
