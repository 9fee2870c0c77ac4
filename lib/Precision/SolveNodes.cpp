// SPDX-License-Identifier: Apache-2.0
// The solver over ONNX nodes: schemas and policy first, then a minimum cut over the type groups they leave free.
#include "mpt/Precision/SolveNodes.h"

#include "MeasuredTypes.h"
#include "mpt/Dialect/ONNX/NodeTypes.h"
#include "mpt/Precision/Constants.h"
#include "mpt/Precision/IndexRules.h"
#include "mpt/Precision/NodeLabels.h"
#include "mpt/Precision/OptimizerRules.h"
#include "mpt/Precision/Painting.h"
#include "mpt/Support/MappedFiles.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mpt;
using onnx::NodeTypes;

namespace {
/// Constants up to this many elements are read to see whether the narrow type holds them.
constexpr int64_t kReadElements = 1024;
/// Assumed for an extent that the model does not state.
constexpr int64_t kUnknownExtent = 16;

struct Flow {
  bool ranged = false;   ///< magnitude may exceed a narrow type's range
  bool narrowed = false; ///< computed from values that are narrow anyway
};

struct NodeSlots {
  Operation *op;
  StringAttr rule;
  SmallVector<int, 4> operands, results;
};

class NodeSolver {
public:
  NodeSolver(func::FuncOp main, const Policy &policy, const CostModel &cost)
      : main(main), policy(policy), cost(cost), measured(policy), wide(Float32Type::get(main.getContext())) {}

  int64_t run(Placement placement, NodeDecision decided) {
    findTail(main.getBody().front());
    pins = optimizerPins(main);
    indices = indexArithmetic(main);
    for (BlockArgument argument : main.getArguments())
      produce(argument, kWide);
    main.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) { classify(op); });
    for (auto &[value, users] : uses)
      labels.addValue(producerOf(value), users, bytesOf(value.getType()));
    narrow = paintNodes();
    int64_t painted = labels.castBytes(narrow);
    if (placement == Placement::painting)
      return report(decided), painted;
    narrow = labels.cheapest(cost.launchBytes);
    if (labels.castBytes(narrow) > painted) // fewer casts of more bytes
      narrow = labels.fewestBytes();
    report(decided);
    return labels.castBytes(narrow);
  }

private:
  StringAttr text(const Twine &rule) { return StringAttr::get(main.getContext(), rule); }

  bool isTailUser(Operation *user) {
    return isa<func::ReturnOp>(user) || tail.contains(isa<onnx::YieldOp>(user) ? user->getParentOp() : user);
  }

  /// Nodes from which only results of the graph are made, without a contraction on the way; in branches too.
  void findTail(Block &block) {
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

  void produce(Value value, int node) {
    if (onnx::isFloat32Tensor(value.getType()))
      produced[value] = node;
  }

  /// The constant that `value` is, or null.
  Operation *constantOf(Value value) {
    Operation *op = value.getDefiningOp();
    if (auto node = dyn_cast_or_null<onnx::NodeOp>(op))
      return onnx::isConstantNode(node, policy.storage) ? op : nullptr;
    return isa_and_nonnull<onnx::InitializerOp>(op) ? op : nullptr;
  }

  /// Magnitudes of the constant that `value` is, if it has up to `limit` elements.
  std::optional<Magnitudes> magnitudesOf(Value value, int64_t limit) {
    Operation *op = constantOf(value);
    auto type = dyn_cast<RankedTensorType>(value.getType());
    if (!op || (type && type.hasStaticShape() && type.getNumElements() > limit))
      return std::nullopt;
    auto [known, isNew] = constants.try_emplace(op);
    if (!isNew)
      return known->second;
    Attribute contents;
    if (auto initializer = dyn_cast<onnx::InitializerOp>(op)) {
      contents = initializer.getValue();
      if (initializer.getExternal() && !files)
        files.emplace();
    } else if (auto node = cast<onnx::NodeOp>(op); !(contents = node.getAttrs().get("value"))) {
      contents = node.getAttrs().get("value_float");
    }
    return known->second = mpt::magnitudesOf(contents, files ? &*files : nullptr);
  }

  APFloat rounded(float value) {
    bool loses;
    APFloat number(value);
    number.convert(cast<FloatType>(policy.storage).getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
    return number;
  }
  bool overflows(const Magnitudes &constant) { return !rounded(constant.largest).isFinite(); }
  bool vanishes(float value) { return value != 0 && rounded(value).isZero(); }

  /// True when rounding `value`, if it is a small constant, would push an element over or under the narrow range.
  bool leavesRange(Value value) {
    std::optional<Magnitudes> found = magnitudesOf(value, kReadElements);
    return found && (overflows(*found) || vanishes(found->smallest));
  }

  /// True where a constant of a product has elements beyond the narrow range, or a matrix none that is normal there.
  bool losesWeight(Value value) {
    std::optional<Magnitudes> found = magnitudesOf(value, std::numeric_limits<int64_t>::max());
    if (!found)
      return false;
    auto type = dyn_cast<RankedTensorType>(value.getType());
    const llvm::fltSemantics &semantics = cast<FloatType>(policy.storage).getFloatSemantics();
    return overflows(*found) || (type && type.getRank() >= 2 && found->largest != 0 &&
                                 found->largest < APFloat::getSmallestNormalized(semantics).convertToDouble());
  }

  void classify(Operation *op) {
    if (auto initializer = dyn_cast<onnx::InitializerOp>(op)) {
      // What a caller may override has the type of the graph's interface.
      produce(initializer.getResult(), initializer.getOverridable() ? kWide : kEither);
      return;
    }
    auto node = dyn_cast<onnx::NodeOp>(op);
    if (!node) {
      use(op->getOperands(), SmallVector<int, 4>(op->getNumOperands(), kWide)); // results of a graph
      if (isa<onnx::YieldOp>(op))
        leaveBody(op);
      return;
    }
    for (Region &body : node.getBodies())
      for (BlockArgument argument : body.getArguments()) {
        produce(argument, kWide);
        flow[argument] = {/*ranged=*/true, false}; // what an iteration before it made
      }
    if (onnx::isConstantNode(node, policy.storage)) {
      produce(node.getResult(0), kEither);
      return;
    }
    if (!llvm::any_of(llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()), onnx::isFloat32Tensor)) {
      passFlow(node, policy.decide(op, node.getNumericClass()), flowInto(op));
      return;
    }
    NodeSlots slots = decide(node);
    use(op->getOperands(), slots.operands);
    for (auto [result, slot] : llvm::zip_equal(op->getResults(), slots.results))
      produce(result, slot);
    // The model's own casts: where the operand is narrow they vanish, and readers of a widened value may read what was
    // widened.
    if (onnx::isCast(node, wide, policy.storage))
      uses[op->getOperand(0)].push_back(kNarrow);
    if (onnx::isCast(node, policy.storage, wide))
      produced[op->getResult(0)] = kEither;
    order.push_back(std::move(slots));
  }

  /// What flows into the end of a body flows out of its node; a loop's body yields its condition first.
  void leaveBody(Operation *yield) {
    Operation *node = yield->getParentOp();
    unsigned results = node->getNumResults(), values = yield->getNumOperands();
    for (unsigned i = 0; i < std::min(results, values); ++i) {
      auto known = flow.find(yield->getOperand(values - std::min(results, values) + i));
      if (known == flow.end())
        continue;
      Flow from = known->second, &to = flow[node->getResult(i)];
      to = {to.ranged || from.ranged, to.narrowed || from.narrowed};
    }
  }

  void use(ValueRange values, ArrayRef<int> slots) {
    for (auto [value, slot] : llvm::zip_equal(values, slots))
      if (slot != kEither && onnx::isFloat32Tensor(value.getType()))
        uses[value].push_back(slot);
  }

  Flow flowInto(Operation *op) {
    Flow result;
    for (Value operand : op->getOperands()) {
      auto known = flow.find(operand);
      if (known != flow.end()) {
        result.ranged |= known->second.ranged;
        result.narrowed |= known->second.narrowed;
      }
    }
    return result;
  }

  void passFlow(onnx::NodeOp node, const Ruling &ruling, Flow incoming) {
    NumericClass numericClass = node.getNumericClass();
    bool expands = numericClass == NumericClass::RangeExpanding || numericClass == NumericClass::Reduction;
    Flow out = incoming;
    if (numericClass == NumericClass::Pinned || pins.contains(node))
      out = {};
    else if (ruling.decision == Decision::narrow)
      out = {false, true};
    else if (ruling.decision == Decision::wide)
      out = {expands, false};
    if (out.ranged || out.narrowed)
      for (Value result : node.getResults())
        flow[result] = out;
  }

  NodeSlots decide(onnx::NodeOp node) {
    NumericClass numericClass = node.getNumericClass();
    Ruling ruling = policy.decide(node, numericClass);
    Flow incoming = flowInto(node);
    passFlow(node, ruling, incoming);
    NodeTypes types = onnx::nodeTypes(node, policy.storage);
    SmallVector<int, 4> nodes(types.groups, kWide);
    StringAttr rule;
    if (types.main == NodeTypes::kFixed)
      rule = text("the operator takes no narrow type here");
    else
      nodes[types.main] = mainNode(node, ruling, numericClass, incoming, rule);
    if (numericClass == NumericClass::Contraction && types.main >= 0)
      llvm::fill(nodes, nodes[types.main]);
    SmallVector<std::pair<unsigned, int>> ownSlots;
    for (unsigned i = 0; i < node->getNumOperands(); ++i)
      if (std::optional<Ruling> own = policy.decideOperand(node, i);
          own && own->decision != Decision::follow && numericClass != NumericClass::Pinned && !pins.contains(node)) {
        int slot = own->decision == Decision::wide ? kWide : kNarrow, group = types.operands[i];
        if (group == NodeTypes::kFixed || !onnx::isFloat32Tensor(node->getOperand(i).getType()))
          continue;
        if (group == NodeTypes::kAny)
          ownSlots.emplace_back(i, slot);
        else
          nodes[group] = slot; // operands of one type obey together
        rule = text(rule.getValue() + "; " + own->rule);
      }
    // Executors of nodes that stay as they are know the types that these had.
    int any = numericClass == NumericClass::Pinned ? kWide : kEither;
    auto slotsOf = [&](ArrayRef<int> groups) {
      SmallVector<int, 4> slots;
      for (int group : groups)
        slots.push_back(group >= 0 ? nodes[group] : group == NodeTypes::kAny ? any : kWide);
      return slots;
    };
    NodeSlots slots{node, rule, slotsOf(types.operands), slotsOf(types.results)};
    for (auto [i, slot] : ownSlots)
      slots.operands[i] = slot;
    return slots;
  }

  /// True where one result is made of more elements than the narrow type tells apart: the file does not say in which
  /// type the operator sums them.
  bool sumsBeyondPrecision(onnx::NodeOp node) {
    if (node.getNumericClass() == NumericClass::Contraction || node.getInputs().empty() || node.getNumResults() == 0)
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
    unsigned precision = APFloat::semanticsPrecision(cast<FloatType>(policy.storage).getFloatSemantics());
    return elements(from) > std::ldexp(elements(to), static_cast<int>(precision));
  }

  int mainNode(onnx::NodeOp node, const Ruling &ruling, NumericClass numericClass, Flow incoming, StringAttr &rule) {
    auto pin = [&](const Twine &why) {
      rule = text(why);
      return kWide;
    };
    bool refuses = ruling.named && ruling.decision == Decision::narrow;
    if (auto rule = pins.find(node); rule != pins.end())
      return pin(rule->second.str() + (refuses ? " (" + ruling.rule + " does not apply)" : ""));
    if (numericClass == NumericClass::Pinned)
      return pin(refuses ? "pinned: computes in f32 (" + ruling.rule + " does not apply)" : ruling.rule);
    if (ruling.decision == Decision::wide)
      return pin(ruling.rule);
    if (indices.contains(node) && !ruling.named)
      return pin("an index is made of it");
    MeasuredNodes::Choice choice = measured.choose(node);
    std::string why = ruling.rule + (choice.text.empty() ? "" : "; " + choice.text);
    if (!choice.fits && !ruling.named)
      return pin(why);
    if (ruling.decision == Decision::narrow) {
      if (!ruling.named && llvm::any_of(node.getInputs(), [&](Value value) { return losesWeight(value); }))
        return pin(ruling.rule + ": a constant is outside the narrow type's range");
      rule = text(why);
      return kNarrow;
    }
    if (tail.contains(node))
      return pin(ruling.rule + ": only results of the graph depend on it");
    if (llvm::any_of(node.getInputs(), [&](Value value) { return leavesRange(value); }))
      return pin(ruling.rule + ": a constant is outside the narrow type's range");
    bool moves = numericClass == NumericClass::Movement;
    if (!moves && sumsBeyondPrecision(node))
      return pin(ruling.rule + ": sums more values than the narrow type counts");
    if (!moves && incoming.ranged && !choice.known)
      return pin(ruling.rule + ": range of a wide op flows in");
    if (!moves && !incoming.narrowed)
      return pin(ruling.rule + ": nothing narrow flows in");
    rule = text(why + "; fewest cast bytes");
    return labels.addFree(/*isExact=*/moves);
  }

  int64_t bytesOf(Type type) const {
    int64_t elements = 1;
    auto ranked = dyn_cast<RankedTensorType>(type);
    for (int64_t extent : ranked ? ranked.getShape() : ArrayRef<int64_t>{})
      if (__builtin_mul_overflow(elements, extent == ShapedType::kDynamic ? kUnknownExtent : extent, &elements))
        return int64_t(1) << 40;
    int64_t each = (32 + policy.storage.getIntOrFloatBitWidth()) / 8;
    return std::min(std::max<int64_t>(elements, 0), (int64_t(1) << 40) / each) * each;
  }
  int producerOf(Value value) const {
    auto known = produced.find(value);
    return known == produced.end() ? kEither : known->second;
  }

  /// Four-colour painting over the nodes; a node that is painted takes its free slots along.
  std::vector<bool> paintNodes() const {
    SmallVector<PaintVertex> vertices(order.size());
    DenseMap<Operation *, unsigned> numbers;
    for (auto [i, slots] : llvm::enumerate(order))
      numbers[slots.op] = i;
    auto isFree = [](int slot) { return slot > kWide; };
    for (auto [vertex, slots] : llvm::zip_equal(vertices, order)) {
      vertex.allow = llvm::is_contained(slots.operands, kNarrow);
      vertex.isFree = !vertex.allow && (llvm::any_of(slots.operands, isFree) || llvm::any_of(slots.results, isFree));
      vertex.clear = cast<onnx::NodeOp>(slots.op).getNumericClass() == NumericClass::Movement;
      for (Operation *user : slots.op->getUsers())
        if (auto number = numbers.find(user); number != numbers.end())
          vertex.users.push_back(number->second);
    }
    std::vector<bool> painted = paint(vertices), result = labels.allWide();
    for (auto [i, slots] : llvm::enumerate(order))
      for (int slot : llvm::concat<const int>(slots.operands, slots.results))
        if (isFree(slot))
          result[slot] = painted[i];
    return result;
  }

  void report(NodeDecision decided) {
    SmallVector<Type> operands, results;
    auto fill = [&](TypeRange types, ArrayRef<int> slots, SmallVector<Type> &out) {
      out.clear();
      for (auto [type, slot] : llvm::zip_equal(types, slots))
        out.push_back(slot == kEither || !onnx::isFloat32Tensor(type) ? Type() : narrow[slot] ? policy.storage : wide);
    };
    for (NodeSlots &slots : order) {
      fill(slots.op->getOperandTypes(), slots.operands, operands);
      fill(slots.op->getResultTypes(), slots.results, results);
      decided(slots.op, operands, results, slots.rule);
    }
  }

  func::FuncOp main;
  const Policy &policy;
  CostModel cost;
  MeasuredNodes measured;
  Type wide;
  NodeLabels labels;
  std::vector<bool> narrow; ///< what was decided
  DenseSet<Operation *> tail, indices;
  DenseMap<Operation *, StringRef> pins;
  DenseMap<Operation *, std::optional<Magnitudes>> constants;
  std::optional<MappedFiles> files; ///< made when weights beside the model are read
  DenseMap<Value, Flow> flow;
  DenseMap<Value, int> produced;
  llvm::MapVector<Value, SmallVector<int, 2>> uses;
  std::vector<NodeSlots> order;
};
} // namespace

int64_t mpt::solveNodes(func::FuncOp main, const Policy &policy, Placement placement, NodeDecision decided,
                        const CostModel &cost) {
  return NodeSolver(main, policy, cost).run(placement, decided);
}
