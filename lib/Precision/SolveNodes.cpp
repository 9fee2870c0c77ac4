// The solver over ONNX nodes: schemas and policy first, then a minimum cut over the type groups they leave free.
#include "mpt/Precision/SolveNodes.h"

#include "mpt/Dialect/ONNX/NodeTypes.h"
#include "mpt/Precision/MinCut.h"

#include <optional>

using namespace mlir;
using namespace mpt;
using onnx::NodeTypes;

namespace {
// The cut's terminals are the two decisions; a slot that takes either type without a cast has no node.
constexpr int kNarrow = MinCut::kSource, kWide = MinCut::kSink, kEither = -1;
/// Cost units of one byte; a single unit breaks ties between cuts of equal bytes.
constexpr int64_t kByte = 1024;
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
      : main(main), policy(policy), cost(cost), wide(Float32Type::get(main.getContext())) {}

  int64_t run(Placement placement, NodeDecision decided) {
    findTail();
    for (BlockArgument argument : main.getArguments())
      produce(argument, kWide);
    main.getBody().walk<WalkOrder::PreOrder>([&](Operation *op) { classify(op); });
    if (placement == Placement::cut) {
      addCasts();
      cut.solve();
    } else {
      paint();
    }
    report(decided);
    return castBytes();
  }

private:
  StringAttr text(const Twine &rule) { return StringAttr::get(main.getContext(), rule); }

  bool isTailUser(Operation *user) { return isa<func::ReturnOp>(user) || tail.contains(user); }

  /// Nodes from which only results of the graph are made, without a contraction on the way.
  void findTail() {
    for (Operation &op : llvm::reverse(main.getBody().front())) {
      auto node = dyn_cast<onnx::NodeOp>(op);
      if (node && !node.use_empty() && node.getBodies().empty() &&
          node.getNumericClass() != NumericClass::Contraction &&
          llvm::all_of(node->getUsers(), [&](Operation *user) { return isTailUser(user); }))
        tail.insert(node);
    }
  }

  void produce(Value value, int node) {
    if (onnx::isFloat32Tensor(value.getType()))
      produced[value] = node;
  }

  /// The constant that `value` is, or null.
  static Operation *constantOf(Value value) {
    Operation *op = value.getDefiningOp();
    if (auto node = dyn_cast_or_null<onnx::NodeOp>(op))
      return onnx::isConstantNode(node) ? op : nullptr;
    return isa_and_nonnull<onnx::InitializerOp>(op) ? op : nullptr;
  }

  /// True when rounding `value`, if it is a small constant, would push an element over or under the narrow range.
  bool leavesRange(Value value) {
    Operation *op = constantOf(value);
    if (!op)
      return false;
    auto [known, isNew] = outOfRange.try_emplace(op, false);
    if (!isNew)
      return known->second;
    Attribute contents;
    if (auto initializer = dyn_cast<onnx::InitializerOp>(op))
      contents = initializer.getValue();
    else if (auto node = cast<onnx::NodeOp>(op); !(contents = node.getAttrs().get("value")))
      contents = node.getAttrs().get("value_float");
    auto leaves = [&](APFloat number) {
      bool wasFinite = number.isFinite(), wasZero = number.isZero(), loses;
      number.convert(cast<FloatType>(policy.storage).getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
      return (wasFinite && !number.isFinite()) || (!wasZero && number.isZero());
    };
    if (auto scalar = dyn_cast_or_null<FloatAttr>(contents))
      known->second = leaves(scalar.getValue());
    else if (auto dense = dyn_cast_or_null<DenseElementsAttr>(contents);
             dense && isa<FloatType>(dense.getElementType()) && dense.getNumElements() <= kReadElements)
      known->second =
          dense.isSplat() ? leaves(dense.getSplatValue<APFloat>()) : llvm::any_of(dense.getValues<APFloat>(), leaves);
    return known->second;
  }

  void classify(Operation *op) {
    if (auto initializer = dyn_cast<onnx::InitializerOp>(op)) {
      // What a caller may override has the type of the graph's interface.
      produce(initializer.getResult(), initializer->hasAttr("mpt.overridable") ? kWide : kEither);
      return;
    }
    auto node = dyn_cast<onnx::NodeOp>(op);
    if (!node) {
      use(op->getOperands(), SmallVector<int, 4>(op->getNumOperands(), kWide)); // results of a graph
      return;
    }
    for (Region &body : node.getBodies())
      for (BlockArgument argument : body.getArguments())
        produce(argument, kWide);
    if (onnx::isConstantNode(node)) {
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
    order.push_back(std::move(slots));
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
    if (numericClass == NumericClass::Pinned)
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
    auto slotsOf = [&](ArrayRef<int> groups) {
      SmallVector<int, 4> slots;
      for (int group : groups)
        slots.push_back(group >= 0 ? nodes[group] : group == NodeTypes::kAny ? kEither : kWide);
      return slots;
    };
    return {node, rule, slotsOf(types.operands), slotsOf(types.results)};
  }

  int mainNode(onnx::NodeOp node, const Ruling &ruling, NumericClass numericClass, Flow incoming, StringAttr &rule) {
    auto pin = [&](const Twine &why) {
      rule = text(why);
      return kWide;
    };
    if (numericClass == NumericClass::Pinned)
      return pin(ruling.named && ruling.decision == Decision::narrow
                     ? "pinned: computes in f32 (" + ruling.rule + " does not apply)"
                     : ruling.rule);
    if (ruling.decision == Decision::wide)
      return pin(ruling.rule);
    if (ruling.decision == Decision::narrow) {
      rule = text(ruling.rule);
      return kNarrow;
    }
    if (tail.contains(node))
      return pin(ruling.rule + ": only results of the graph depend on it");
    if (llvm::any_of(node.getInputs(), [&](Value value) { return leavesRange(value); }))
      return pin(ruling.rule + ": a constant is outside the narrow type's range");
    bool moves = numericClass == NumericClass::Movement;
    if (!moves && incoming.ranged)
      return pin(ruling.rule + ": range of a wide op flows in");
    if (!moves && !incoming.narrowed)
      return pin(ruling.rule + ": nothing narrow flows in");
    rule = text(ruling.rule + "; fewest cast bytes");
    int free = cut.addNode();
    // Of cuts with equal bytes, exact ops go narrow and rounding ops stay wide.
    cut.addEdge(moves ? kNarrow : free, moves ? free : kWide, 1);
    return free;
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
  int64_t priceOf(Value value) const { return bytesOf(value.getType()) + cost.launchBytes; }

  /// One cast a value and type, paid when the producer and at least one user differ.
  void addCasts() {
    for (auto &[value, users] : uses) {
      int producer = producerOf(value);
      if (producer == kEither)
        continue;
      int64_t price = priceOf(value) * kByte;
      cut.addSharedEdge(producer, {users.begin(), users.end()}, price, price);
    }
  }

  int producerOf(Value value) const {
    auto known = produced.find(value);
    return known == produced.end() ? kEither : known->second;
  }

  /// The flood of four-colour painting under the same pins: free nodes that touch narrow ones become narrow.
  void paint() {
    llvm::DenseMap<int, SmallVector<int, 2>> neighbours;
    SmallVector<int> work{kNarrow};
    for (auto &[value, users] : uses) {
      int producer = producerOf(value);
      if (producer == kEither)
        continue;
      for (int user : users) {
        neighbours[producer].push_back(user);
        neighbours[user].push_back(producer);
      }
    }
    painted.emplace();
    while (!work.empty())
      for (int next : neighbours.lookup(work.pop_back_val()))
        if (next != kWide && next != kNarrow && painted->insert(next).second)
          work.push_back(next);
  }

  bool isNarrow(int node) const {
    if (node == kNarrow || node == kWide)
      return node == kNarrow;
    return painted ? painted->contains(node) : cut.onSourceSide(node);
  }

  void report(NodeDecision decided) {
    SmallVector<Type> operands, results;
    auto fill = [&](TypeRange types, ArrayRef<int> slots, SmallVector<Type> &out) {
      out.clear();
      for (auto [type, slot] : llvm::zip_equal(types, slots))
        out.push_back(slot == kEither || !onnx::isFloat32Tensor(type) ? Type()
                      : isNarrow(slot)                                ? policy.storage
                                                                      : wide);
    };
    for (NodeSlots &slots : order) {
      fill(slots.op->getOperandTypes(), slots.operands, operands);
      fill(slots.op->getResultTypes(), slots.results, results);
      decided(slots.op, operands, results, slots.rule);
    }
  }

  int64_t castBytes() const {
    int64_t total = 0;
    for (auto &[value, users] : uses) {
      int producer = producerOf(value);
      if (producer == kEither)
        continue;
      bool narrow = isNarrow(producer);
      if (llvm::any_of(users, [&](int user) { return isNarrow(user) != narrow; }))
        total += bytesOf(value.getType());
    }
    return total;
  }

  func::FuncOp main;
  const Policy &policy;
  CostModel cost;
  Type wide;
  MinCut cut;
  DenseSet<Operation *> tail;
  DenseMap<Operation *, bool> outOfRange;
  DenseMap<Value, Flow> flow;
  DenseMap<Value, int> produced;
  llvm::MapVector<Value, SmallVector<int, 2>> uses;
  std::vector<NodeSlots> order;
  std::optional<DenseSet<int>> painted;
};
} // namespace

int64_t mpt::solveNodes(func::FuncOp main, const Policy &policy, Placement placement, NodeDecision decided,
                        const CostModel &cost) {
  return NodeSolver(main, policy, cost).run(placement, decided);
}
