// SPDX-License-Identifier: Apache-2.0
// The solver: hard constraints and policy rules first, then a minimum cut over what they leave free.
#include "mpt/Precision/Solve.h"

#include "MeasuredTypes.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/Constants.h"
#include "mpt/Precision/IndexRules.h"
#include "mpt/Precision/Painting.h"
#include "mpt/Support/MinCut.h"

using namespace mlir;
using namespace mpt;

int64_t CostModel::cast(RankedTensorType wide, Type narrow) const {
  return wide.getNumElements() * (wide.getElementTypeBitWidth() + narrow.getIntOrFloatBitWidth()) / 8 + launchBytes;
}
int64_t CostModel::wideValue(RankedTensorType wide, Type narrow) const {
  return wide.getNumElements() * (wide.getElementTypeBitWidth() - narrow.getIntOrFloatBitWidth()) / 8;
}

namespace {
// The cut's terminals are the two decisions; a slot that takes either type without a cast has no node.
constexpr int kNarrow = MinCut::kSource, kWide = MinCut::kSink, kEither = -1;

class Solver {
public:
  Solver(ModuleOp module, const Policy &policy, const DenseMap<StringAttr, float> &beyond, const CostModel &cost,
         bool weighsValues = true)
      : module(module), policy(policy), cost(cost), weighsValues(weighsValues), beyond(beyond) {
    if (policy.measured())
      measuredTypes.emplace(module, policy);
  }

  PrecisionSolution run(Placement placement) {
    addStates();
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal())
        addFunction(function);
    if (placement == Placement::painting) {
      paintOps();
    } else {
      addCasts();
      cut.solve();
    }
    addUpCasts();
    finish(placement == Placement::painting ? "; painted" : "; fewest cast bytes");
    return std::move(solution);
  }

private:
  struct Slots {
    SmallVector<int, 4> operands, results;
    std::string rule;
    Type wideOperands; ///< instead of f32 where they are wide, by measurement
    Type wideResults;
  };
  struct Flow {
    bool ranged = false;   ///< magnitude may exceed a narrow type's range
    bool narrowed = false; ///< computed from values that are narrow anyway
  };

  int freeNode(RankedTensorType type) {
    int node = cut.addNode();
    if (weighsValues)
      cut.addEdge(kNarrow, node, cost.wideValue(type, policy.storage));
    return node;
  }

  void addStates() {
    module.walk([&](train::WriteOp write) { written.insert(write.getStateAttr().getAttr()); });
    for (auto state : module.getOps<train::StateOp>()) {
      if (state.getRole() != train::Role::parameter || !isDecidable(state.getType()))
        continue;
      if (beyond.contains(state.getSymNameAttr()))
        continue;
      // A value that nobody updates is narrowed at compile time, unless it is a blob that must not be copied.
      if (!written.contains(state.getSymNameAttr()) && isa_and_nonnull<DenseResourceElementsAttr>(state.getValueAttr()))
        continue;
      stateNodes[state.getSymNameAttr()] = cut.addNode();
      stateOps.push_back(state);
    }
  }

  void addFunction(func::FuncOp function) {
    island = lossIsland(function);
    layers.emplace(function);
    gradientTail = parameterGradientTail(function);
    indices = indexArithmetic(function);
    if (measuredTypes)
      gradients = gradientValues(function);
    for (BlockArgument argument : function.getArguments())
      if (isDecidable(argument.getType()))
        produced[argument] = kWide;
    bool backward = false;
    if (!function.getOps<train::WriteOp>().empty())
      training.insert(function);
    for (Operation &op : function.getBody().front()) {
      backward |= hasAttr<MPTDialect::SeedAttrHelper>(&op);
      Slots slots = classify(&op);
      for (auto [operand, node] : llvm::zip_equal(op.getOpOperands(), slots.operands))
        if (isDecidable(operand.get().getType()) && node != kEither) {
          uses[operand.get()].push_back(node);
          if (backward)
            lateUses[operand.get()].push_back(node);
        }
      for (auto [result, node] : llvm::zip_equal(op.getResults(), slots.results))
        if (isDecidable(result.getType()))
          produced[result] = node;
      order.emplace_back(&op, std::move(slots));
    }
  }

  Slots all(Operation *op, int node, std::string rule) {
    return {SmallVector<int, 4>(op->getNumOperands(), node), SmallVector<int, 4>(op->getNumResults(), node),
            std::move(rule)};
  }

  Slots classify(Operation *op) {
    if (auto read = dyn_cast<train::ReadOp>(op)) {
      StringAttr name = read.getStateAttr().getAttr();
      if (auto found = beyond.find(name); found != beyond.end()) {
        std::string rule;
        llvm::raw_string_ostream(rule) << "'" << name.getValue() << "' reaches " << llvm::format("%.3g", found->second)
                                       << ", beyond " << policy.storage;
        readsBeyond[read.getValue()] = rule;
        return all(op, kWide, rule);
      }
      auto node = stateNodes.find(name);
      if (node == stateNodes.end())
        return all(op, kWide, "state stays as it is stored");
      flow[read.getValue()].narrowed = true;
      if (written.contains(read.getStateAttr().getAttr()))
        mastered.insert(read.getValue());
      return all(op, node->second, "stored type of the parameter");
    }
    if (auto write = dyn_cast<train::WriteOp>(op)) {
      // The optimizer's value is the new master; the narrow copy is made from it.
      return all(op, kWide, "state is updated in f32");
    }
    if (isa<train::GlobalNormOp, train::AllFiniteOp>(op))
      return all(op, kEither, "reads any type exactly");
    if (isa<train::GradientOp>(op))
      return all(op, kWide, "parameter gradients are f32");
    auto semantics = dyn_cast<PrecisionSemantics>(op);
    if (!semantics)
      return all(op, kWide, "boundary of the graph");
    if (op->hasTrait<OpTrait::ConstantLike>())
      return hasAttr<MPTDialect::SeedAttrHelper>(op) ? all(op, kWide, "gradient seed")
                                                     : all(op, kEither, "constant: converted for each user");
    return classifyCore(op, semantics);
  }

  Slots classifyCore(Operation *op, PrecisionSemantics semantics) {
    bool anyFloat = false;
    for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes())) {
      Type element = getElementTypeOrSelf(type);
      if (isa<FloatType>(element) && !element.isF32())
        return all(op, kWide, "types of the source are kept");
    }
    for (Type type : op->getOperandTypes())
      anyFloat |= isDecidable(type);
    if (!anyFloat)
      return classifySource(op);
    NumericClass numericClass = semantics.getNumericClass();
    Ruling ruling = policy.decide(op, numericClass, &*layers);
    for (Value operand : op->getOperands())
      if (auto found = readsBeyond.find(operand); found != readsBeyond.end() && !ruling.named) {
        std::string rule = found->second;
        if (numericClass == NumericClass::Movement)
          for (Value result : op->getResults())
            readsBeyond[result] = rule;
        return all(op, kWide, rule);
      }
    bool flexible = hasFlexibleTypes(op), isContraction = numericClass == NumericClass::Contraction;
    // Operands that share a type obey a rule on one of them together.
    if (!flexible || isContraction)
      ruling = operandRuling(op).value_or(ruling);
    bool quantizes = isContraction && ruling.decision == Decision::narrow && policy.quantizes();
    if (ruling.decision == Decision::storage)
      ruling.decision = Decision::narrow;
    Slots slots = flexible ? classifyFlexible(op, semantics, ruling) : classifyUniform(op, numericClass, ruling);
    if (measuredTypes && !ruling.named)
      restrict(op, semantics, slots, quantizes);
    if (quantizes)
      quantized.insert(op);
    return slots;
  }

  /// The rule on operands of `op`, if there is one; an include beats an exclude.
  std::optional<Ruling> operandRuling(Operation *op) {
    std::optional<Ruling> result;
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      if (std::optional<Ruling> ruling = policy.decideOperand(op, i);
          ruling && isDecidable(op->getOperand(i).getType()) && (!result || ruling->decision == Decision::narrow))
        result = ruling;
    return result;
  }

  /// Keeps slots wide whose values were measured not to fit the storage type.
  void restrict(Operation *op, PrecisionSemantics semantics, Slots &slots, bool &quantizes) {
    bool uniform = !hasFlexibleTypes(op), isContraction = semantics.getNumericClass() == NumericClass::Contraction;
    auto open = [](int node) { return node != kWide && node != kEither; };
    SmallVector<Value> operands, results;
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      if (open(slots.operands[i]) && isDecidable(op->getOperand(i).getType()) && !semantics.isWideOperand(i))
        operands.push_back(op->getOperand(i));
    for (unsigned i = 0; i < op->getNumResults(); ++i)
      if (open(slots.results[i]) && isDecidable(op->getResult(i).getType()))
        results.push_back(op->getResult(i));
    auto widen = [&](MutableArrayRef<int> nodes) {
      for (int &node : nodes)
        if (open(node))
          node = kWide;
    };
    if (uniform)
      llvm::append_range(operands, results);
    if (MeasuredTypes::Choice choice = measuredTypes->choose(operands); !choice.fits) {
      widen(slots.operands);
      slots.rule = choice.text;
      slots.wideOperands = choice.other;
      quantizes = false;
      if (uniform) {
        widen(slots.results);
        slots.wideResults = choice.other;
        return;
      }
    } else if (uniform) {
      slots.rule += choice.text.empty() ? "" : "; " + choice.text;
      return;
    }
    if (quantizes && isContraction)
      if (std::string why = measuredTypes->refuseQuantizing(op, gradients); !why.empty()) {
        quantizes = false;
        slots.rule += "; " + why;
      }
    MeasuredTypes::Choice choice = measuredTypes->choose(results);
    if (!choice.text.empty())
      slots.rule += "; result " + choice.text;
    if (!choice.fits) {
      widen(slots.results);
      slots.wideResults = choice.other;
    }
  }

  /// Results made of no float value. Flags become 0 and 1, which every type holds; other integers may be too large.
  Slots classifySource(Operation *op) {
    bool isFlag = op->getNumOperands() == 1 && getElementTypeOrSelf(op->getOperand(0).getType()).isInteger(1) &&
                  op->getNumResults() == 1 && isDecidable(op->getResult(0).getType());
    if (!isFlag)
      return all(op, kWide, "range is not known");
    Slots slots = all(op, kWide, "0 and 1 are exact");
    slots.results[0] = freeNode(cast<RankedTensorType>(op->getResult(0).getType()));
    return slots;
  }

  Flow flowInto(Operation *op) {
    Flow result;
    for (Value operand : op->getOperands()) {
      auto known = flow.find(operand);
      if (known == flow.end())
        continue;
      result.ranged |= known->second.ranged;
      result.narrowed |= known->second.narrowed;
    }
    return result;
  }

  Slots classifyFlexible(Operation *op, PrecisionSemantics semantics, const Ruling &ruling) {
    Slots slots = all(op, kEither, ruling.rule);
    NumericClass numericClass = semantics.getNumericClass();
    bool pinned = numericClass == NumericClass::Pinned, inLoss = island.contains(op);
    bool named = ruling.named && !pinned && ruling.decision != Decision::follow;
    int named_node = ruling.decision == Decision::narrow ? kNarrow : kWide;
    if (pinned && ruling.named && ruling.decision == Decision::narrow)
      slots.rule = "pinned: computes in f32 (" + ruling.rule + " does not apply)";
    if (inLoss && !ruling.named)
      slots.rule = "part of the loss";
    int shared = numericClass == NumericClass::Contraction ? contractionNode(op, ruling) : kEither;
    Flow incoming = flowInto(op);
    for (unsigned i = 0; i < op->getNumOperands(); ++i) {
      slots.operands[i] = semantics.isWideOperand(i) ? kWide : named ? named_node : shared;
      std::optional<Ruling> own =
          numericClass == NumericClass::Contraction ? std::nullopt : policy.decideOperand(op, i);
      if (!own || semantics.isWideOperand(i) || own->decision == Decision::follow)
        continue;
      slots.operands[i] = own->decision == Decision::wide ? kWide : kNarrow;
      slots.rule += "; " + own->rule;
    }
    for (unsigned i = 0; i < op->getNumResults(); ++i) {
      auto type = dyn_cast<RankedTensorType>(op->getResult(i).getType());
      if (!type || !isDecidable(type))
        continue;
      if (semantics.isWideResult(i) || inLoss || (named && named_node == kWide)) {
        slots.results[i] = kWide;
        continue;
      }
      // It waits for the check of all gradients: stored narrow, half the bytes wait, and a rounding to a type narrower
      // still reads half.
      bool narrows = policy.parameterGradients.getIntOrFloatBitWidth() < policy.storage.getIntOrFloatBitWidth();
      bool waits = (policy.gradients == policy.storage || narrows) && numericClass == NumericClass::Contraction &&
                   shared == kNarrow && onlyGradient(op->getResult(i));
      if (waits)
        slots.rule += "; the gradient waits for its update in the narrow type";
      slots.results[i] = named || waits ? kNarrow : freeNode(type);
      Flow &out = flow[op->getResult(i)];
      out.narrowed = incoming.narrowed || shared == kNarrow;
      out.ranged = numericClass == NumericClass::Reduction && ruling.decision == Decision::wide;
    }
    return slots;
  }

  /// Only parameters' gradients are made from `value`.
  bool onlyGradient(Value value) {
    return !value.use_empty() && llvm::all_of(value.getUsers(), [&](Operation *user) {
      return isa<train::GradientOp>(user) || gradientTail.contains(user);
    });
  }

  /// The operands of a contraction share one type.
  int contractionNode(Operation *op, const Ruling &ruling) {
    switch (ruling.decision) {
    case Decision::narrow:
    case Decision::storage:
      return kNarrow;
    case Decision::wide:
      return kWide;
    case Decision::follow:
      return cut.addNode();
    }
    llvm_unreachable("unknown decision");
  }

  Slots classifyUniform(Operation *op, NumericClass numericClass, const Ruling &ruling) {
    Flow incoming = flowInto(op);
    bool moves = numericClass == NumericClass::Movement;
    bool expands = numericClass == NumericClass::RangeExpanding || numericClass == NumericClass::Reduction;
    auto pass = [&](bool ranged, bool narrowed) {
      for (Value result : op->getResults())
        flow[result] = {ranged, narrowed};
    };
    if (numericClass == NumericClass::Pinned)
      return all(op, kWide,
                 ruling.named && ruling.decision == Decision::narrow
                     ? "pinned: computes in f32 (" + ruling.rule + " does not apply)"
                     : ruling.rule);
    if (ruling.named && ruling.decision != Decision::follow) {
      pass(false, true);
      return all(op, ruling.decision == Decision::narrow ? kNarrow : kWide, ruling.rule);
    }
    if (island.contains(op))
      return all(op, kWide, "part of the loss");
    if (indices.contains(op) && !ruling.named) {
      pass(incoming.ranged, incoming.narrowed);
      return all(op, kWide, "an index is made of it");
    }
    if (gradientTail.contains(op))
      return all(op, kWide, "sums and moves parameter gradients in f32");
    if (ruling.decision != Decision::follow) {
      bool wide = ruling.decision == Decision::wide;
      pass(wide && expands, !wide);
      return all(op, wide ? kWide : kNarrow, ruling.rule);
    }
    if (!moves && incoming.ranged && !(measuredTypes && measuredTypes->knows(op))) {
      pass(true, incoming.narrowed);
      return all(op, kWide, ruling.rule + ": range of a wide op flows in");
    }
    if (!moves && !incoming.narrowed)
      return all(op, kWide, ruling.rule + ": nothing narrow flows in");
    pass(incoming.ranged, incoming.narrowed);
    int node = cut.addNode();
    for (Value result : op->getResults())
      if (weighsValues && isDecidable(result.getType()))
        cut.addEdge(kNarrow, node, cost.wideValue(cast<RankedTensorType>(result.getType()), policy.storage));
    return all(op, node, ruling.rule);
  }

  /// One cast a value and type, paid when the producer and at least one user differ.
  void addCasts() {
    for (auto &[value, users] : uses) {
      auto known = produced.find(value);
      if (known == produced.end() || known->second == kEither)
        continue;
      int producer = known->second;
      int64_t price = cost.cast(cast<RankedTensorType>(value.getType()), policy.storage);
      int64_t widening = mastered.contains(value) ? 0 : price; // wide users read the master
      cut.addSharedEdge(producer, {users.begin(), users.end()}, widening, price);
    }
  }

  /// Four-colour painting over ops: its vertices are ops, and the nodes of an op get its colour.
  void paintOps() {
    SmallVector<PaintVertex> vertices(order.size());
    DenseMap<Operation *, unsigned> numbers;
    for (auto [i, entry] : llvm::enumerate(order))
      numbers[entry.first] = i;
    auto isFreeNode = [](int node) { return node > kSink(); };
    for (auto [i, entry] : llvm::enumerate(order)) {
      auto &[op, slots] = entry;
      auto semantics = dyn_cast<PrecisionSemantics>(op);
      if (!semantics || op->hasTrait<OpTrait::ConstantLike>())
        continue;
      PaintVertex &vertex = vertices[i];
      vertex.allow = llvm::is_contained(slots.operands, kNarrow);
      vertex.isFree =
          !vertex.allow && (llvm::any_of(slots.operands, isFreeNode) || llvm::any_of(slots.results, isFreeNode));
      vertex.clear = semantics.getNumericClass() == NumericClass::Movement;
      for (Operation *user : op->getUsers())
        if (auto number = numbers.find(user); number != numbers.end())
          vertex.users.push_back(number->second);
    }
    std::vector<bool> narrow = paint(vertices);
    painted.emplace();
    for (auto [i, entry] : llvm::enumerate(order))
      for (int node : llvm::concat<int>(entry.second.operands, entry.second.results))
        if (isFreeNode(node) && narrow[i])
          painted->insert(node);
    // A parameter with a narrow reader is stored narrow: wide readers have its master.
    for (auto &[value, users] : uses)
      if (auto known = produced.find(value);
          known != produced.end() && value.getDefiningOp<train::ReadOp>() && isFreeNode(known->second))
        for (int user : users)
          if (user == kNarrow || painted->contains(user))
            painted->insert(known->second);
  }

  /// What casts cost as decided: once a value and type.
  void addUpCasts() {
    for (auto &[value, users] : uses) {
      auto known = produced.find(value);
      if (known == produced.end() || known->second == kEither)
        continue;
      bool narrow = isNarrow(known->second), free = narrow && mastered.contains(value);
      auto differs = [&](int user) { return isNarrow(user) != narrow; };
      auto all = llvm::count_if(users, differs), late = llvm::count_if(lateUses.lookup(value), differs);
      if (free || all == 0)
        continue;
      auto type = cast<RankedTensorType>(value.getType());
      solution.castBytes += cost.cast(type, policy.storage);
      // A widening cast is made again for the backward pass.
      bool again = narrow && late > 0 && late < all;
      if (counts(value.getParentRegion()->getParentOfType<func::FuncOp>()))
        solution.movedBytes += (again ? 2 : 1) * (cost.cast(type, policy.storage) - cost.launchBytes);
    }
    // A narrow parameter is rounded from its master in every step.
    for (train::StateOp state : stateOps)
      if (written.contains(state.getSymNameAttr()) && isNarrow(stateNodes.lookup(state.getSymNameAttr())))
        solution.movedBytes += cost.cast(cast<RankedTensorType>(state.getType()), policy.storage) - cost.launchBytes;
  }

  /// Training steps count, or all functions where there is none.
  bool counts(func::FuncOp function) const { return training.empty() || training.contains(function); }

  bool isNarrow(int node) const {
    return node == kNarrow || (node > kSink() && (painted ? painted->contains(node) : cut.onSourceSide(node)));
  }
  static constexpr int kSink() { return MinCut::kSink; }

  void finish(StringRef how) {
    Type wide = Float32Type::get(module.getContext());
    for (auto &[op, slots] : order) {
      OpTypes types;
      auto typeOf = [&](Type type, int node, Type other) {
        return !isDecidable(type) || node == kEither ? Type()
               : isNarrow(node)                      ? policy.storage
               : node == kWide && other              ? other
                                                     : wide;
      };
      bool any = false, solved = false;
      for (auto [type, node] : llvm::zip_equal(op->getOperandTypes(), slots.operands)) {
        types.operands.push_back(typeOf(type, node, slots.wideOperands));
        any |= isDecidable(type);
        solved |= node > kSink() && isDecidable(type);
      }
      for (auto [type, node] : llvm::zip_equal(op->getResultTypes(), slots.results)) {
        types.results.push_back(typeOf(type, node, slots.wideResults));
        any |= isDecidable(type);
        solved |= node > kSink() && isDecidable(type);
      }
      types.rule = std::move(slots.rule);
      types.quantized = quantized.contains(op);
      if (solved && isa<PrecisionSemantics>(op))
        types.rule += how;
      if (any)
        solution.ops[op] = std::move(types);
    }
    for (train::StateOp state : stateOps) {
      bool narrow = isNarrow(stateNodes[state.getSymNameAttr()]);
      solution.states[state] = {narrow ? policy.storage : wide,
                                narrow ? "its users are narrow"
                                       : "its users are wide, or casting it moves fewer bytes"};
    }
  }

  ModuleOp module;
  const Policy &policy;
  CostModel cost;
  bool weighsValues;
  MinCut cut;
  std::optional<DenseSet<int>> painted; // narrow nodes, in place of the cut
  PrecisionSolution solution;
  DenseSet<Operation *> island, gradientTail, indices, quantized;
  DenseSet<Value> gradients; // of the function at hand, where ranges were measured
  std::optional<MeasuredTypes> measuredTypes;
  std::optional<Layers> layers;              // of the function at hand
  DenseSet<StringAttr> written;              // states
  DenseSet<Value> mastered;                  // reads of parameters that have a wide master when they are stored narrow
  const DenseMap<StringAttr, float> &beyond; // states that the storage type does not hold
  DenseMap<Value, std::string> readsBeyond;  // what is read of them, moved or not, and why it stays wide
  DenseMap<StringAttr, int> stateNodes;
  SmallVector<train::StateOp> stateOps;
  DenseMap<Value, Flow> flow;
  DenseMap<Value, int> produced;
  llvm::MapVector<Value, SmallVector<int, 2>> uses;
  DenseMap<Value, SmallVector<int, 2>> lateUses; // those of the backward pass
  DenseSet<Operation *> training;                // functions that write state
  std::vector<std::pair<Operation *, Slots>> order;
};
} // namespace

PrecisionSolution mpt::solvePrecision(ModuleOp module, const Policy &policy, Placement placement,
                                      const CostModel &cost) {
  DenseMap<StringAttr, float> beyond = statesBeyond(module, cast<FloatType>(policy.storage));
  PrecisionSolution painted = Solver(module, policy, beyond, cost).run(Placement::painting);
  if (placement == Placement::painting)
    return painted;
  auto isWorse = [&](const PrecisionSolution &ours) {
    return ours.castBytes > painted.castBytes || ours.movedBytes > painted.movedBytes;
  };
  PrecisionSolution best = Solver(module, policy, beyond, cost).run(Placement::cut);
  if (isWorse(best))
    best = Solver(module, policy, beyond, cost, /*weighsValues=*/false).run(Placement::cut);
  if (isWorse(best))
    best = Solver(module, policy, beyond, CostModel{0}, /*weighsValues=*/false).run(Placement::cut);
  // The cut prices a cast once and leaves masters out: where that misleads it, painting is the better answer.
  return best.movedBytes > painted.movedBytes ? painted : best;
}
