// SPDX-License-Identifier: Apache-2.0
// Rules and labels of core and train ops.
#include "CoreGraph.h"

#include "ProductChoice.h"
#include "Solver.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Interfaces/PrecisionBoundary.h"
#include "mpt/Precision/Slots.h"

using namespace mlir;
using namespace mpt;

/// Labels while they are made.
struct CoreGraph::Draft {
  Operation *op;
  SmallVector<Label, 4> operands, results;
  std::string rule;
  Type wideOperands, wideResults;
  bool quantized = false;
};

CoreGraph::CoreGraph(ModuleOp module, const Policy &policy, const CostModel &cost, ConstantReader &reader,
                     const KeptOps *kept)
    : GraphView(policy), module(module), cost(cost), reader(reader), kept(kept),
      beyond(statesBeyond(module, cast<FloatType>(policy.storage), reader)) {
  if (policy.measured())
    measured.emplace(module, policy);
  module.walk([&](train::WriteOp write) { written.insert(write.getStateAttr().getAttr()); });
  findParameters();
}

void CoreGraph::findParameters() {
  for (auto state : module.getOps<train::StateOp>()) {
    StringAttr name = state.getSymNameAttr();
    if (state.getRole() != train::Role::parameter || !isDecidable(state.getType()) || beyond.contains(name))
      continue;
    // A value that nobody updates is narrowed at compile time, unless it is a blob that must not be copied.
    bool isWritten = written.contains(name);
    if (!isWritten && isa_and_nonnull<DenseResourceElementsAttr>(state.getValueAttr()))
      continue;
    parameters[name] = {state, kEither, isWritten};
  }
}

SmallVector<func::FuncOp> CoreGraph::functions() const {
  SmallVector<func::FuncOp> found;
  for (auto function : ModuleOp(module).getOps<func::FuncOp>())
    if (!function.isExternal())
      found.push_back(function);
  return found;
}

bool CoreGraph::isDecidable(Type type) const { return mpt::isDecidable(type); }

void CoreGraph::forEachOp(llvm::function_ref<void(Operation *)> visit) const {
  for (Operation &op : func::FuncOp(at.function).getBody().front())
    visit(&op);
}

CutWeights CoreGraph::weights() const { return {1, cost.launchBytes, /*weighsValues=*/true}; }

// ---- rules

void CoreGraph::enter(func::FuncOp function) {
  at = FunctionFacts();
  at.function = function;
  at.loss = lossIsland(function);
  at.gradientTail = parameterGradientTail(function);
  at.updateTail = parameterUpdateTail(function);
  at.meanings.emplace(function, [&](Operation *op) { return contentsOf(op); }, reader, at.loss);
  at.parts.emplace(function);
  Layers layers(function);
  for (Operation &op : function.getBody().front()) {
    OpRules rules = rulesOf(&op, layers);
    setTransfers(&op, rules);
    at.rules.try_emplace(&op, std::move(rules));
  }
}

CoreGraph::OpRules CoreGraph::withoutPolicy(std::string rule, Label label, Form form) {
  return {form, label, NumericClass::Pinned, {Decision::wide, std::move(rule)}, false};
}

CoreGraph::OpRules CoreGraph::rulesOf(Operation *op, const Layers &layers) {
  if (auto read = dyn_cast<train::ReadOp>(op))
    return rulesOfRead(read);
  if (auto boundary = dyn_cast<PrecisionBoundary>(op))
    return withoutPolicy(boundary.getBoundaryRule().str(), boundary.readsAnyType() ? kEither : kWide);
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (!semantics)
    return withoutPolicy("boundary of the graph");
  if (op->hasTrait<OpTrait::ConstantLike>())
    return hasAttr<MPTDialect::SeedAttrHelper>(op) ? withoutPolicy("gradient seed")
                                                   : withoutPolicy("constant: converted for each user", kEither);
  return rulesOfCore(op, semantics, layers);
}

CoreGraph::OpRules CoreGraph::rulesOfRead(train::ReadOp read) {
  StringAttr name = read.getStateAttr().getAttr();
  if (auto found = beyond.find(name); found != beyond.end()) {
    std::string rule;
    llvm::raw_string_ostream(rule) << "'" << name.getValue() << "' reaches " << llvm::format("%.3g", found->second)
                                   << ", beyond " << policy.storage;
    at.outOfRange[read.getValue()] = rule;
    return withoutPolicy(rule);
  }
  auto parameter = parameters.find(name);
  if (parameter == parameters.end())
    return withoutPolicy("state stays as it is stored");
  // A table that no step changes is rounded for good where it is stored narrow.
  if (!parameter->second.isWritten && parameter->second.label == kEither)
    if (std::string why = at.meanings->whyRead(read.getValue(), cast<FloatType>(policy.storage)); !why.empty()) {
      parameter->second.label = kWide;
      return withoutPolicy(why);
    }
  return withoutPolicy("stored type of the parameter", kWide, Form::stored);
}

CoreGraph::OpRules CoreGraph::rulesOfCore(Operation *op, PrecisionSemantics semantics, const Layers &layers) {
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    if (Type element = getElementTypeOrSelf(type); isa<FloatType>(element) && !element.isF32())
      return withoutPolicy("types of the source are kept");
  if (llvm::none_of(op->getOperandTypes(), [&](Type type) { return isDecidable(type); })) {
    // Flags become 0 and 1, which every type holds; other integers may be too large.
    bool isFlag = op->getNumOperands() == 1 && getElementTypeOrSelf(op->getOperand(0).getType()).isInteger(1) &&
                  op->getNumResults() == 1 && isDecidable(op->getResult(0).getType());
    return isFlag ? withoutPolicy("0 and 1 are exact", kWide, Form::source) : withoutPolicy("range is not known");
  }
  NumericClass numericClass = semantics.getNumericClass();
  Ruling ruling = policy.decide(op, numericClass, &layers);
  if (std::optional<std::string> why = whyOutOfRange(op, numericClass, ruling))
    return withoutPolicy(*why);
  if (at.updateTail.contains(op) && !ruling.named && numericClass != NumericClass::Pinned)
    return withoutPolicy("updates start from f32 parameters");
  if (std::string why = whyMeaningKeepsWide(op, ruling); !why.empty()) {
    OpRules kept = withoutPolicy(why);
    kept.isKept = true;
    return kept;
  }
  bool flexible = hasFlexibleTypes(op), isContraction = numericClass == NumericClass::Contraction;
  // Operands that share a type obey a rule on one of them together.
  if (!flexible || isContraction)
    ruling = operandRuling(op).value_or(ruling);
  // A composite makes the operands of its products itself: the scales of its operands do not come out of its results.
  bool quantizes = isContraction && !isa<Decomposable>(op) && ruling.decision == Decision::narrow && policy.quantizes();
  quantizes = quantizes && !at.meanings->countsBeyond(op, cast<FloatType>(policy.compute));
  if (ruling.decision == Decision::storage)
    ruling.decision = Decision::narrow;
  return {flexible ? Form::flexible : Form::uniform, kWide, numericClass, std::move(ruling), quantizes};
}

/// The contents of a constant, or of a read of a state that no step changes; whether a parameter is read.
Meanings::Contents CoreGraph::contentsOf(Operation *op) const {
  if (op->hasTrait<OpTrait::ConstantLike>())
    return {/*isWeight=*/false, op->getAttr("value")};
  auto read = dyn_cast<train::ReadOp>(op);
  auto state = read ? ModuleOp(module).lookupSymbol<train::StateOp>(read.getStateAttr().getAttr()) : train::StateOp();
  if (!state || written.contains(read.getStateAttr().getAttr()))
    return {/*isWeight=*/bool(state), state ? state.getValueAttr() : Attribute()};
  return {/*isWeight=*/false, state.getValueAttr()};
}

/// Why operands or results of `op` must stay exact, or in range; empty where a rule names the op.
std::string CoreGraph::whyMeaningKeepsWide(Operation *op, const Ruling &ruling) const {
  bool isWide = (ruling.decision == Decision::wide && !hasFlexibleTypes(op)) || at.loss.contains(op);
  if (isWide || (ruling.named && ruling.decision != Decision::follow))
    return "";
  if (std::string why = at.meanings->whyWide(op, cast<FloatType>(policy.storage), measured && measured->knows(op));
      !why.empty())
    return why;
  bool isArithmetic = op->hasTrait<OpTrait::Elementwise>() && !hasFlexibleTypes(op);
  return isArithmetic && op->getNumOperands() > 1 && at.meanings->isDirect(op) ? "arithmetic on raw inputs" : "";
}

/// Why `op` stays wide because it reads a state that the storage type cannot hold; values that it moves are marked.
std::optional<std::string> CoreGraph::whyOutOfRange(Operation *op, NumericClass numericClass, const Ruling &ruling) {
  if (ruling.named)
    return std::nullopt;
  for (Value operand : op->getOperands())
    if (auto found = at.outOfRange.find(operand); found != at.outOfRange.end()) {
      std::string rule = found->second;
      if (numericClass == NumericClass::Movement)
        for (Value result : op->getResults())
          at.outOfRange[result] = rule;
      return rule;
    }
  return std::nullopt;
}

/// The rule on operands of `op`, if there is one; an include beats an exclude.
std::optional<Ruling> CoreGraph::operandRuling(Operation *op) const {
  std::optional<Ruling> result;
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    if (std::optional<Ruling> ruling = policy.decideOperand(op, i);
        ruling && isDecidable(op->getOperand(i).getType()) && (!result || ruling->decision == Decision::narrow))
      result = ruling;
  return result;
}

// ---- flow

void CoreGraph::setTransfers(Operation *op, const OpRules &rules) {
  for (OpResult result : op->getResults()) {
    RangeTransfer transfer;
    if (rules.form == Form::stored) {
      transfer.makes.narrowed = true;
    } else if (rules.form == Form::uniform) {
      transfer = uniformTransfer(op, rules);
    } else if (rules.isKept && !hasFlexibleTypes(op)) {
      transfer.passes.ranged = true;
      transfer.passes.narrowed = !at.meanings->isDirect(op); // ops behind it may be narrow all the same
    } else if (rules.form == Form::flexible && isOpenResult(result, rules)) {
      bool narrows = rules.numericClass == NumericClass::Contraction && rules.ruling.decision == Decision::narrow;
      bool ranges = rules.numericClass == NumericClass::Reduction && rules.ruling.decision == Decision::wide;
      transfer.makes = {ranges, narrows};
      transfer.passes.narrowed = true;
    }
    at.transfers[result] = transfer;
  }
}

RangeTransfer CoreGraph::uniformTransfer(Operation *op, const OpRules &rules) const {
  const Ruling &ruling = rules.ruling;
  bool moves = rules.numericClass == NumericClass::Movement;
  bool expands = rules.numericClass == NumericClass::RangeExpanding || rules.numericClass == NumericClass::Reduction;
  if (rules.numericClass == NumericClass::Pinned)
    return RangeTransfer::none();
  if (ruling.named && ruling.decision != Decision::follow)
    return {{false, true}, {}};
  if (at.loss.contains(op))
    return RangeTransfer::none();
  if (at.gradientTail.contains(op))
    return RangeTransfer::none();
  if (ruling.decision != Decision::follow) {
    bool wide = ruling.decision == Decision::wide;
    return {{wide && expands, !wide}, {}};
  }
  return RangeTransfer::identity(/*measured=*/!moves && measured && measured->knows(op));
}

/// True where neither the op nor a rule keeps a result wide.
bool CoreGraph::isOpenResult(OpResult result, const OpRules &rules) const {
  Operation *op = result.getOwner();
  bool namedWide =
      rules.ruling.named && rules.numericClass != NumericClass::Pinned && rules.ruling.decision == Decision::wide;
  return isDecidable(result.getType()) && !cast<PrecisionSemantics>(op).isWideResult(result.getResultNumber()) &&
         !at.loss.contains(op) && !namedWide;
}

// ---- labels

std::optional<OpLabels> CoreGraph::label(Operation *op, RangeFact in, CastPlacement &placement) {
  const OpRules &rules = at.rules.find(op)->second;
  Draft draft;
  switch (rules.form) {
  case Form::fixed:
    draft = labelAll(op, rules.label, rules.ruling.rule);
    break;
  case Form::stored:
    draft = labelAll(op, parameterLabel(cast<train::ReadOp>(op), placement), rules.ruling.rule);
    break;
  case Form::source:
    draft = labelSource(op, rules, placement);
    break;
  case Form::flexible:
    draft = labelFlexible(op, rules, placement);
    break;
  case Form::uniform:
    draft = labelUniform(op, rules, in, placement);
    break;
  }
  draft.quantized = rules.quantizes;
  bool decidedByRules = rules.form == Form::flexible || rules.form == Form::uniform;
  if (decidedByRules && !rules.ruling.named) {
    if (measured)
      restrictToMeasured(rules, draft);
    restrictToKept(draft);
  }
  OpLabels labels{
      op, draft.operands, draft.results, text(draft.rule), draft.wideOperands, draft.wideResults, draft.quantized};
  enterValues(labels, placement);
  return labels;
}

void CoreGraph::enterValues(const OpLabels &labels, CastPlacement &placement) const {
  for (auto [operand, label] : llvm::zip_equal(labels.op->getOperands(), labels.operands))
    if (isDecidable(operand.getType()) && label != kEither)
      placement.use(operand, label);
  for (auto [result, label] : llvm::zip_equal(labels.op->getResults(), labels.results))
    if (isDecidable(result.getType()))
      placement.produce(result, label, costOf(result));
}

ValueCost CoreGraph::costOf(Value value) const {
  auto read = value.getDefiningOp<train::ReadOp>();
  auto parameter = read ? parameters.find(read.getStateAttr().getAttr()) : parameters.end();
  bool mastered = parameter != parameters.end() && parameter->second.isWritten;
  return {cost.cast(cast<RankedTensorType>(value.getType()), policy.storage), mastered};
}

Label CoreGraph::parameterLabel(train::ReadOp read, CastPlacement &placement) {
  Parameter &parameter = parameters.find(read.getStateAttr().getAttr())->second;
  if (parameter.label == kEither)
    parameter.label = placement.addFree({});
  return parameter.label;
}

CoreGraph::Draft CoreGraph::labelAll(Operation *op, Label label, StringRef rule) {
  return {op, SmallVector<Label, 4>(op->getNumOperands(), label), SmallVector<Label, 4>(op->getNumResults(), label),
          rule.str()};
}

Label CoreGraph::freeLabel(TypeRange results, CastPlacement &placement) const {
  FreeLabel properties;
  for (Type type : results)
    if (isDecidable(type))
      properties.wideBytes += cost.wideValue(cast<RankedTensorType>(type), policy.storage);
  return placement.addFree(properties);
}

CoreGraph::Draft CoreGraph::labelSource(Operation *op, const OpRules &rules, CastPlacement &placement) const {
  Draft draft = labelAll(op, kWide, rules.ruling.rule);
  draft.results[0] = freeLabel(op->getResult(0).getType(), placement);
  return draft;
}

CoreGraph::Draft CoreGraph::labelFlexible(Operation *op, const OpRules &rules, CastPlacement &placement) const {
  const Ruling &ruling = rules.ruling;
  bool pinned = rules.numericClass == NumericClass::Pinned;
  bool named = ruling.named && !pinned && ruling.decision != Decision::follow;
  Draft draft = labelAll(op, kEither, ruling.rule);
  if (pinned && asksForNarrow(ruling))
    draft.rule = pinnedRule("pinned: computes in f32", ruling);
  if (at.loss.contains(op) && !ruling.named)
    draft.rule = "part of the loss";
  Label shared = contractionLabel(rules, placement);
  labelOperands(rules, named ? (ruling.decision == Decision::narrow ? kNarrow : kWide) : shared, draft);
  for (OpResult result : op->getResults()) {
    if (!isDecidable(result.getType()))
      continue;
    Label &label = draft.results[result.getResultNumber()];
    if (!isOpenResult(result, rules)) {
      label = kWide;
      continue;
    }
    bool waits = shared == kNarrow && waitsForUpdate(result, rules);
    if (waits)
      draft.rule += "; the gradient waits for its update in the narrow type";
    label = named || waits ? kNarrow : freeLabel(result.getType(), placement);
  }
  return draft;
}

void CoreGraph::labelOperands(const OpRules &rules, Label all, Draft &draft) const {
  auto semantics = cast<PrecisionSemantics>(draft.op);
  for (unsigned i = 0; i < draft.op->getNumOperands(); ++i) {
    draft.operands[i] = semantics.isWideOperand(i) ? kWide : all;
    std::optional<Ruling> own =
        rules.numericClass == NumericClass::Contraction ? std::nullopt : policy.decideOperand(draft.op, i);
    if (!own || semantics.isWideOperand(i) || own->decision == Decision::follow)
      continue;
    draft.operands[i] = own->decision == Decision::wide ? kWide : kNarrow;
    draft.rule += "; " + own->rule;
  }
}

/// The operands of a contraction share one type; other ops read theirs as they come.
Label CoreGraph::contractionLabel(const OpRules &rules, CastPlacement &placement) {
  if (rules.numericClass != NumericClass::Contraction)
    return kEither;
  switch (rules.ruling.decision) {
  case Decision::narrow:
  case Decision::storage:
    return kNarrow;
  case Decision::wide:
    return kWide;
  case Decision::follow:
    return placement.addFree({});
  }
  llvm_unreachable("unknown decision");
}

/// A parameter's gradient of a narrow contraction waits for the check of all gradients: stored narrow, half the bytes
/// wait, and a rounding to a type narrower still reads half.
bool CoreGraph::waitsForUpdate(OpResult result, const OpRules &rules) const {
  bool narrows = policy.parameterGradients.getIntOrFloatBitWidth() < policy.storage.getIntOrFloatBitWidth();
  auto onlyGradient = [&](Operation *user) { return isa<train::GradientOp>(user) || at.gradientTail.contains(user); };
  return (policy.gradients == policy.storage || narrows) && rules.numericClass == NumericClass::Contraction &&
         !result.use_empty() && llvm::all_of(result.getUsers(), onlyGradient);
}

CoreGraph::Draft CoreGraph::labelUniform(Operation *op, const OpRules &rules, RangeFact in,
                                         CastPlacement &placement) const {
  const Ruling &ruling = rules.ruling;
  if (rules.numericClass == NumericClass::Pinned)
    return labelAll(op, kWide, asksForNarrow(ruling) ? pinnedRule("pinned: computes in f32", ruling) : ruling.rule);
  if (ruling.named && ruling.decision != Decision::follow)
    return labelAll(op, ruling.decision == Decision::narrow ? kNarrow : kWide, ruling.rule);
  if (at.loss.contains(op))
    return labelAll(op, kWide, "part of the loss");
  if (at.gradientTail.contains(op))
    return labelAll(op, kWide, "sums and moves parameter gradients in f32");
  if (ruling.decision != Decision::follow)
    return labelAll(op, ruling.decision == Decision::wide ? kWide : kNarrow, ruling.rule);
  if (StringRef why = whyFlowKeepsWide(rules.numericClass, in, measured && measured->knows(op)); !why.empty())
    return labelAll(op, kWide, ruling.rule + why.str());
  return labelAll(op, freeLabel(op->getResultTypes(), placement), ruling.rule);
}

// ---- measured ranges (policy auto)

static bool isOpen(Label label) { return label != kWide && label != kEither; }

static void widen(MutableArrayRef<Label> labels) {
  for (Label &label : labels)
    if (isOpen(label))
      label = kWide;
}

/// Makes an op wide, or takes its 8-bit operands away, where the error budget or measured times say so.
void CoreGraph::restrictToKept(Draft &draft) const {
  auto found = kept ? kept->find(draft.op) : KeptOps::const_iterator();
  if (!kept || found == kept->end())
    return;
  bool changes = llvm::any_of(draft.operands, isOpen) || llvm::any_of(draft.results, isOpen) || draft.wideOperands ||
                 draft.wideResults;
  draft.quantized &= found->second.quantized;
  if (!found->second.wide) {
    draft.rule += "; " + found->second.rule;
    return;
  }
  widen(draft.operands);
  widen(draft.results);
  draft.wideOperands = draft.wideResults = Type();
  if (changes)
    draft.rule = found->second.rule;
}

/// Makes operands and results wide whose values were measured not to fit the storage type.
void CoreGraph::restrictToMeasured(const OpRules &rules, Draft &draft) const {
  Operation *op = draft.op;
  auto semantics = cast<PrecisionSemantics>(op);
  bool uniform = rules.form == Form::uniform;
  SmallVector<Value> operands, results;
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    if (isOpen(draft.operands[i]) && isDecidable(operand.getType()) && !semantics.isWideOperand(i))
      operands.push_back(operand);
  for (auto [result, label] : llvm::zip_equal(op->getResults(), draft.results))
    if (isOpen(label) && isDecidable(result.getType()))
      results.push_back(result);
  if (uniform)
    llvm::append_range(operands, results);
  MeasuredTypes::Choice read = measured->choose(operands);
  if (!read.fits) {
    widen(draft.operands);
    draft.rule = read.text;
    draft.wideOperands = read.other;
    draft.quantized = false;
  } else if (uniform && !read.text.empty()) {
    draft.rule += "; " + read.text;
  }
  if (uniform) {
    if (!read.fits) {
      widen(draft.results);
      draft.wideResults = read.other;
    }
    return;
  }
  if (draft.quantized)
    if (std::string why = measured->refuseQuantizing(op, *at.parts); !why.empty()) {
      draft.quantized = false;
      draft.rule += "; " + why;
    }
  MeasuredTypes::Choice made = measured->choose(results);
  if (!made.text.empty())
    draft.rule += "; result " + made.text;
  if (!made.fits) {
    widen(draft.results);
    draft.wideResults = made.other;
  }
}

// ---- stored types

void CoreGraph::reportStates(const Labelling &narrow, StateDecided decided) const {
  for (const auto &[name, parameter] : parameters) {
    bool isNarrow = parameter.label != kEither && narrow[parameter.label];
    decided(parameter.state,
            {isNarrow ? policy.storage : Type(Float32Type::get(policy.storage.getContext())),
             isNarrow ? "its users are narrow" : "its users are wide, or casting it moves fewer bytes"});
  }
}

/// Solves until the budget keeps nothing more.
static void solveWithin(ErrorBudget &budget, ModuleOp module, const Policy &policy, const CostModel &cost,
                        ConstantReader &reader) {
  constexpr int mostRounds = 64;
  for (int round = 0; round < mostRounds; ++round) {
    Decisions decisions;
    CoreGraph view(module, policy, cost, reader, &budget.kept());
    solve(view, policy, [&](Operation *op, const OpTypes &types) { decisions[op] = types; });
    if (!budget.restrict(decisions))
      break;
  }
}

FailureOr<ByMeasurement> mpt::solveModule(ModuleOp module, const Policy &policy, OpDecided decided,
                                          StateDecided stateDecided, const CostModel &cost) {
  ByMeasurement found;
  ConstantReader reader; // of states that functions and attempts share
  KeptOps kept;
  if (policy.measured() && policy.measured()->choosesTypes()) {
    ErrorBudget budget(module, policy);
    solveWithin(budget, module, policy, cost, reader);
    kept = budget.kept();
    found.bounds = budget.bounds();
  }
  if (policy.times()) {
    // Among the products that may have 8 bits: where a product keeps 16, no other type changes.
    Decisions decisions;
    CoreGraph view(module, policy, cost, reader, &kept);
    solve(view, policy, [&](Operation *op, const OpTypes &types) { decisions[op] = types; });
    FailureOr<std::vector<MeasuredProduct>> products = chooseProducts(module, policy, decisions, kept);
    if (failed(products))
      return failure();
    found.products = std::move(*products);
  }
  CoreGraph view(module, policy, cost, reader, &kept);
  Solved solved = solve(view, policy, decided);
  view.reportStates(solved.narrow, stateDecided);
  return found;
}
