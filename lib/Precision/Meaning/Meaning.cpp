// SPDX-License-Identifier: Apache-2.0
// The two walks of the analysis, and the ops that they keep wide.
#include "mpt/Precision/Meaning.h"

#include "Rules.h"

#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Interfaces/ArithmeticWalk.h"
#include "mpt/Interfaces/FixedTensors.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Interfaces/MeaningFlow.h"
#include "mpt/Precision/Slots.h"

#include "llvm/ADT/APFloat.h"

using namespace mlir;
using namespace mpt;

namespace {
/// Constant factors that take a value of order one so near the end of FP16's range that an activation leaves it: with
/// 2^10 of the 2^16, values above 64 are beyond, and activations between norms reach some tens.
constexpr double kLargeGain = 1024;
/// Numbers below this that end in a softmax switch its elements off: e to the -104 is zero in FP32, and scores lie
/// within hundreds of each other.
constexpr double kSwitchesOff = -1e3;
/// A sum that is so many times smaller than its terms shows their roundings: three bits of FP16's eleven are lost, so
/// that it is no better than BF16.
constexpr double kCancelled = 8;
/// A parameter none of whose first elements reaches this is small on purpose, as a layer scale of 1e-6 is; others grow
/// to the order of one by training, or have neighbours that are.
constexpr double kOrdinaryWeight = 1e-3;

struct Limits {
  double largest, smallestNormal, exactSteps, ulp;
  bool isShort; ///< its range ends before FP32's

  explicit Limits(FloatType type) {
    const llvm::fltSemantics &semantics = type.getFloatSemantics();
    largest = APFloat::getLargest(semantics).convertToDouble();
    smallestNormal = APFloat::getSmallestNormalized(semantics).convertToDouble();
    int precision = static_cast<int>(APFloat::semanticsPrecision(semantics));
    exactSteps = std::ldexp(1.0, precision);
    ulp = std::ldexp(1.0, -precision);
    isShort = largest < 1e30;
  }
};
} // namespace

static Arithmetic arithmeticOf(Operation *op) {
  auto flow = dyn_cast_or_null<MeaningFlow>(op);
  return flow ? flow.getArithmetic() : Arithmetic::Unknown;
}

static bool isFloat(Value value) { return isa<FloatType>(getElementTypeOrSelf(value.getType())); }

/// True where results of `op` decide by their order alone, as scores before a softmax do: there a number far below all
/// others is a sentinel, whatever its value.
static bool endsInChoice(Operation *op) {
  return endsIn(op, arithmeticOf, [](Arithmetic arithmetic) {
    switch (arithmetic) {
    case Arithmetic::Bounds:
    case Arithmetic::Saturates:
    case Arithmetic::Expands:
    case Arithmetic::Tests:
    case Arithmetic::Finds:
      return End::One;
    case Arithmetic::Clamps:
      return End::Further;
    default:
      return End::Never;
    }
  });
}

// ---- forward

Meanings::Meanings(func::FuncOp function, ContentsOf contentsOf, ConstantReader &reader,
                   const DenseSet<Operation *> &wide) {
  for (BlockArgument argument : function.getArguments()) {
    Meaning meaning = meaningOfType(argument.getType());
    meaning.direct = true;
    meaning.unscaled = isFloat(argument);
    meanings[argument] = meaning;
  }
  TrainingParts parts(function);
  function.walk<WalkOrder::PreOrder>([&](Operation *op) {
    visit(op, contentsOf, reader);
    if (!parts.isForward(op)) // a loss scale brings gradients to the range
      for (Value result : op->getResults())
        meanings[result].size = 1;
  });
  findExactOps(function, wide);
}

/// True where numbers far below all others may flow in: how far says nothing of the result's magnitude.
static bool switchesOff(Arithmetic arithmetic, ArrayRef<const Meaning *> operands) {
  switch (arithmetic) {
  case Arithmetic::Multiplies:
    return llvm::any_of(operands, [](const Meaning *m) { return m->constant && m->high <= kSwitchesOff; });
  case Arithmetic::Adds:
  case Arithmetic::Chooses:
    return llvm::any_of(operands, [](const Meaning *m) {
      return m->bounded && !m->counted() && m->low <= kSwitchesOff && m->high <= 0;
    });
  default:
    return false;
  }
}

void Meanings::visit(Operation *op, ContentsOf contentsOf, ConstantReader &reader) {
  if (op->getNumResults() == 0)
    return;
  if (Contents contents = contentsOf(op); contents.isWeight || contents.attribute) {
    std::optional<ElementRange> range = reader.read(contents.attribute);
    Meaning meaning = range && !contents.isWeight ? meaningOfConstant(*range) : Meaning();
    meaning.weight = contents.isWeight;
    meaning.rootMeanSquare = range ? range->rootMeanSquare : 0;
    if (contents.isWeight && range && range->magnitude() > 0 && range->magnitude() < kOrdinaryWeight)
      meaning.size = range->magnitude();
    meaning.filter = !contents.isWeight && !fixedMeaning(dyn_cast<ElementsAttr>(contents.attribute), true).empty();
    meanings[op->getResult(0)] = meaning;
    return;
  }
  Arithmetic arithmetic = arithmeticOf(op);
  SmallVector<const Meaning *> operands;
  for (Value operand : op->getOperands())
    operands.push_back(&of(operand));
  SmallVector<Meaning> results;
  bool masks = switchesOff(arithmetic, operands) && endsInChoice(op);
  for (Value result : op->getResults())
    results.push_back(masks ? Meaning() : infer(arithmetic, op, operands, result.getType()));
  for (auto [result, meaning] : llvm::zip_equal(op->getResults(), results))
    meanings[result] = meaning;
}

const Meaning &Meanings::of(Value value) const {
  static const Meaning nothing;
  auto found = meanings.find(value);
  return found == meanings.end() ? nothing : found->second;
}

// ---- values that must be exact

static bool isFlag(Value value) { return getElementTypeOrSelf(value.getType()).isInteger(1); }

/// Keeps wide the ops that make an index, up to the nearest GEMM, and behind one the ops on positions. Flags that an
/// index is made of, as where an element equals the largest one, follow from the floats that are compared.
void Meanings::keepIndex(Value start, StringRef why) {
  SmallVector<Value> work{start};
  while (!work.empty()) {
    Value value = work.pop_back_val();
    Operation *op = value.getDefiningOp();
    auto semantics = dyn_cast_or_null<PrecisionSemantics>(op);
    if (!semantics || (!isFloat(value) && !isFlag(value)) || op->hasTrait<OpTrait::ConstantLike>() ||
        op->getNumOperands() == 0)
      continue;
    NumericClass numericClass = semantics.getNumericClass();
    if (numericClass == NumericClass::Pinned ||
        hasFlexibleTypes(op) != (numericClass == NumericClass::Contraction || numericClass == NumericClass::Reduction))
      continue;
    if (!exactOps.try_emplace(op, why).second)
      continue;
    for (Value operand : op->getOperands())
      if (numericClass != NumericClass::Contraction || (of(operand).positional && !of(operand).constant))
        work.push_back(operand);
  }
}

/// Keeps wide the ops that make an angle or a limit, where it comes from positions or inputs with at most a table's
/// GEMM between: behind layers it is an activation as any other. True where it does.
bool Meanings::keepPosition(Value value, StringRef why, llvm::DenseMap<Operation *, bool> &seen) {
  const Meaning &meaning = of(value);
  Operation *op = value.getDefiningOp();
  bool isSource = (meaning.positional || meaning.direct) && !meaning.constant && !meaning.weight;
  auto semantics = dyn_cast_or_null<PrecisionSemantics>(op);
  if (!semantics || !isFloat(value) || op->hasTrait<OpTrait::ConstantLike>() || op->getNumOperands() == 0)
    return isSource;
  if (auto known = seen.find(op); known != seen.end())
    return known->second;
  seen[op] = false;
  bool found = isSource;
  switch (semantics.getNumericClass()) {
  case NumericClass::Contraction:
    found = llvm::all_of(op->getOperands(), [&](Value operand) {
      const Meaning &m = of(operand);
      return m.positional || m.direct || m.weight || m.constant;
    });
    break;
  case NumericClass::Neutral:
  case NumericClass::Movement:
    for (Value operand : op->getOperands())
      found |= keepPosition(operand, why, seen);
    break;
  default:
    break;
  }
  seen[op] = found;
  if (found)
    exactOps.try_emplace(op, why);
  return found;
}

/// The operand of a power has to be in range itself, up to the GEMM that makes it where that has one type for all.
void Meanings::keepExpanded(Operation *op) {
  SmallVector<Value> work(op->getOperands());
  while (!work.empty()) {
    Value value = work.pop_back_val();
    Operation *source = value.getDefiningOp();
    auto semantics = dyn_cast_or_null<PrecisionSemantics>(source);
    bool isFlexible = semantics && !isa<onnx::NodeOp>(source) && hasFlexibleTypes(source);
    if (!semantics || !isFloat(value) || !of(value).unscaled || isFlexible ||
        !expanded.try_emplace(source, "its powers may leave the narrow type's range").second)
      continue;
    if (semantics.getNumericClass() != NumericClass::Contraction)
      llvm::append_range(work, source->getOperands());
  }
}

/// True for an exponential or a power, and for a square that is written as a product.
static bool expands(Operation *op) {
  Arithmetic arithmetic = arithmeticOf(op);
  return arithmetic == Arithmetic::Expands ||
         (arithmetic == Arithmetic::Multiplies && op->getNumOperands() == 2 && op->getOperand(0) == op->getOperand(1));
}

/// True where elements are constants or positions, moved at most.
bool Meanings::isTable(Value value) const {
  Operation *op = value.getDefiningOp();
  while (arithmeticOf(op) == Arithmetic::Moves && op->getNumOperands() > 0)
    op = op->getOperand(0).getDefiningOp();
  return of(value).constant || arithmeticOf(op) == Arithmetic::Counts;
}

/// True for integers that say which elements an op reads, or that are compared with positions as one-hot rows are.
bool Meanings::isLookedUp(Value indices) const {
  SmallPtrSet<Operation *, 16> seen;
  SmallVector<Value> work{indices};
  while (!work.empty())
    for (OpOperand &use : work.pop_back_val().getUses()) {
      Operation *user = use.getOwner();
      Arithmetic arithmetic = arithmeticOf(user);
      bool picks = arithmetic == Arithmetic::Moves || arithmetic == Arithmetic::Chooses;
      for (Value result : user->getResults()) {
        if (picks && isFloat(result))
          return true;
        if (arithmetic == Arithmetic::Tests &&
            llvm::any_of(user->getOperands(), [&](Value other) { return other != use.get() && isTable(other); }))
          return true;
        if (!isFloat(result) && !isFlag(result) && seen.insert(user).second)
          work.push_back(result);
      }
    }
  return false;
}

/// Keeps the products of inputs wide that squares of inputs are added to: of |a|^2 + |b|^2 - 2ab little is left, and
/// the rounding errors of each show. True where `value` has such products.
bool Meanings::keepProducts(Value value, StringRef why, llvm::DenseMap<Operation *, bool> &seen) {
  Operation *op = value.getDefiningOp();
  if (auto known = seen.find(op); known != seen.end())
    return known->second;
  bool found = seen[op] = false;
  switch (arithmeticOf(op)) {
  case Arithmetic::Contracts:
    found = llvm::all_of(op->getOperands(), [&](Value operand) {
      const Meaning &m = of(operand);
      return m.direct && !m.constant && !m.weight;
    });
    break;
  case Arithmetic::Moves:
  case Arithmetic::Negates:
    found = keepProducts(op->getOperand(0), why, seen);
    break;
  case Arithmetic::Adds:
  case Arithmetic::Subtracts:
  case Arithmetic::Multiplies:
  case Arithmetic::Divides:
    for (Value operand : op->getOperands())
      found |= !of(operand).direct && keepProducts(operand, why, seen);
    break;
  default:
    break;
  }
  seen[op] = found;
  if (found)
    exactOps.try_emplace(op, why);
  return found;
}

/// Positions that are compared, and inputs, which may hold some, are as exact as indices.
void Meanings::keepTest(Operation *op, llvm::DenseMap<Operation *, bool> &positions) {
  for (Value operand : op->getOperands())
    if (isFloat(operand) && (of(operand).positional || of(operand).direct) &&
        keepPosition(operand, "a limit is compared with it", positions))
      exactOps.try_emplace(op, "positions or inputs are compared");
}

/// Indices and chosen rows, which are exact or wrong.
void Meanings::keepIndices(Operation *op) {
  Arithmetic arithmetic = arithmeticOf(op);
  if (arithmetic == Arithmetic::Samples && op->getNumOperands() > 1)
    keepIndex(op->getOperand(1), "positions to sample at are made of it");
  if (arithmetic == Arithmetic::Converts) {
    Value given = op->getOperand(0), result = op->getResult(0);
    bool isIndex = getElementTypeOrSelf(result.getType()).isInteger() && !isFlag(result);
    if (isIndex && (isFloat(given) || (isFlag(given) && isLookedUp(result))))
      keepIndex(given, "an index is made of it");
  }
  if (arithmetic == Arithmetic::Finds && isFloat(op->getOperand(0)) &&
      llvm::any_of(op->getResults(), [&](Value result) { return !isFloat(result) && isLookedUp(result); }))
    keepIndex(op->getOperand(0), "what is looked up is chosen by it");
}

/// Operands and results that are far from 1: powers of inputs, and sums with them.
void Meanings::keepPowers(Operation *op) {
  if (expands(op) && op->getNumResults() == 1 && of(op->getResult(0)).large) {
    expanded.try_emplace(op, "its powers may leave the narrow type's range");
    keepExpanded(op);
  }
  if (arithmeticOf(op) == Arithmetic::Diverges && op->getNumOperands() > 0 && of(op->getOperand(0)).large)
    exactOps.try_emplace(op, "a logarithm of an input's powers");
}

void Meanings::findExactOps(func::FuncOp function, const DenseSet<Operation *> &wide) {
  llvm::DenseMap<Operation *, bool> positions, products;
  function.walk([&](Operation *op) {
    keepIndices(op);
    if (!wide.contains(op))
      keepPowers(op);
    switch (arithmeticOf(op)) {
    case Arithmetic::Adds:
    case Arithmetic::Subtracts:
      if (llvm::any_of(op->getOperands(), [&](Value operand) { return of(operand).direct && of(operand).large; }))
        keepProducts(op->getResult(0), "squares of inputs are added to it", products);
      break;
    case Arithmetic::Contracts:
      if (of(op->getResult(0)).direct && llvm::any_of(op->getOperands(), [&](Value v) { return of(v).isFilter(); }))
        exactOps.try_emplace(op, "a fixed filter reads an input");
      break;
    case Arithmetic::Waves:
      keepPosition(op->getOperand(0), "an angle is made of it", positions);
      break;
    case Arithmetic::Tests:
      keepTest(op, positions);
      break;
    default:
      break;
    }
  });
}

// ---- decisions

static bool isLarge(const Meaning &m, const Limits &limits) {
  if (!limits.isShort || m.constant)
    return false;
  if (m.bounded && std::isfinite(m.magnitude()))
    return m.magnitude() > limits.largest;
  return m.bounded || m.large || std::abs(m.gain) >= kLargeGain;
}

/// True where factors in the file leave values of order one below the type's normal numbers.
static bool isSmall(const Meaning &m, const Limits &limits) {
  return !m.constant && !m.bounded && m.size > 0 && m.size < limits.smallestNormal;
}

/// True for arithmetic whose result a small operand's digits show in, whatever the other operands are.
static bool showsSmall(Arithmetic arithmetic) {
  switch (arithmetic) {
  case Arithmetic::Adds:
  case Arithmetic::Subtracts:
  case Arithmetic::Chooses:
  case Arithmetic::Saturates:
  case Arithmetic::Expands:
  case Arithmetic::Unknown:
    return false;
  default:
    return true;
  }
}

/// True where a magnitude is lost among the type's subnormal numbers, by more than half a unit of its own last place.
static bool sinks(double magnitude, FloatType type, const Limits &limits) {
  if (magnitude == 0 || magnitude >= limits.smallestNormal)
    return false;
  APFloat rounded(magnitude);
  bool loses;
  rounded.convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
  rounded.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
  return std::abs(rounded.convertToDouble() - magnitude) > magnitude * limits.ulp;
}

/// True where rounding to the type changes an element by more than half a unit of its last place.
bool Meanings::isUnfit(Operation *op, const Meaning &constant, bool isMatrix, FloatType type) const {
  Limits limits(type);
  double largest = constant.magnitude();
  bool overflows = largest >= limits.largest * (1 + limits.ulp / 2);
  bool vanishes = largest != 0 && largest < limits.smallestNormal; // all of it
  switch (arithmeticOf(op)) {
  case Arithmetic::Contracts: // weights have elements near zero, and a bias may be as small as it likes
    return overflows || (vanishes && constant.elements > 1 && isMatrix);
  case Arithmetic::Adds:
  case Arithmetic::Subtracts:
    if (constant.elements > 1)
      return overflows || vanishes;
    break;
  default:
    break;
  }
  if (overflows)
    return true;
  return sinks(constant.smallest, type, limits);
}

/// True where a result grows without bound while operand `index` goes to zero: quotients, logarithms, roots inverted.
static bool dividesBy(Operation *op, unsigned index) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (!semantics || semantics.getNumericClass() == NumericClass::Reduction || hasFlexibleTypes(op))
    return false;
  switch (arithmeticOf(op)) {
  case Arithmetic::Divides:
    return index == 1;
  case Arithmetic::Diverges:
  case Arithmetic::Inverts:
  case Arithmetic::Roots:
  case Arithmetic::Expands:
    return true;
  default:
    return false;
  }
}

/// True for a sum of known numbers most of which goes away: tables around a large mean, minus that mean.
bool Meanings::cancels(Operation *op) const {
  Arithmetic arithmetic = arithmeticOf(op);
  if ((arithmetic != Arithmetic::Adds && arithmetic != Arithmetic::Subtracts) || !of(op->getResult(0)).bounded)
    return false;
  double largest = 0;
  for (Value operand : op->getOperands())
    largest = std::max(largest, of(operand).magnitude());
  return std::isfinite(largest) && of(op->getResult(0)).magnitude() * kCancelled < largest;
}

std::string Meanings::whyReads(Operation *op, unsigned index, FloatType type, bool isMeasured) const {
  Value operand = op->getOperand(index);
  const Meaning &m = of(operand);
  Limits limits(type);
  Arithmetic arithmetic = arithmeticOf(op);
  if (arithmetic == Arithmetic::Converts && !isFloat(op->getResult(0)))
    return ""; // integers take any value that they can hold
  if (cancels(op))
    return "the difference is far smaller than what it is of";
  if (m.constant) {
    auto shaped = dyn_cast<RankedTensorType>(operand.getType());
    bool isMatrix = shaped && shaped.getRank() >= 2;
    // A moved constant is judged by its readers.
    if (arithmetic == Arithmetic::Moves && isFloat(op->getResult(0)))
      return whyRead(op->getResult(0), type);
    if (arithmetic == Arithmetic::Tests && m.integer && m.elements > 1 && m.magnitude() > limits.exactSteps)
      return "it counts farther than the narrow type holds exactly";
    if (arithmetic == Arithmetic::Unknown || !isUnfit(op, m, isMatrix, type))
      return "";
    // A limit beyond the range is none, and a sentinel stays one.
    bool isBeyond = m.magnitude() > limits.largest && !(m.smallest < limits.smallestNormal && m.smallest != 0);
    bool adds = arithmetic == Arithmetic::Adds || arithmetic == Arithmetic::Subtracts;
    bool limitsOnly = arithmetic == Arithmetic::Clamps && index > 0;
    bool chooses = arithmetic == Arithmetic::Chooses || arithmetic == Arithmetic::Multiplies || adds;
    if ((isBeyond && limitsOnly) || ((isBeyond || adds) && chooses && endsInChoice(op)))
      return "";
    return "a constant is outside the narrow type's range";
  }
  if (m.steps > limits.exactSteps)
    return "it counts farther than the narrow type holds exactly";
  if (sinks(m.least, type, limits))
    return "the inverse of a count may be below the narrow type's normal numbers";
  if (dividesBy(op, index) && sinks(m.smallest, type, limits))
    return "the narrow type takes its floor for zero";
  if (!isMeasured && arithmetic != Arithmetic::Saturates && isLarge(m, limits))
    return m.bounded ? "integers beyond the narrow type's range flow in"
                     : "what flows in may leave the narrow type's range";
  if (!isMeasured && showsSmall(arithmetic) && isSmall(m, limits))
    return "factors may take what flows in below the narrow type's normal numbers";
  return "";
}

std::string Meanings::whyRead(Value value, FloatType type) const {
  for (OpOperand &use : value.getUses())
    if (std::string why = whyReads(use.getOwner(), use.getOperandNumber(), type, /*isMeasured=*/false); !why.empty())
      return why;
  return "";
}

std::string Meanings::whyWide(Operation *op, FloatType type, bool isMeasured) const {
  if (auto end = exactOps.find(op); end != exactOps.end())
    return end->second.str();
  if (auto power = expanded.find(op); power != expanded.end() && !isMeasured && Limits(type).isShort)
    return power->second.str();
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    if (isFloat(op->getOperand(i)))
      if (std::string why = whyReads(op, i, type, isMeasured); !why.empty())
        return why;
  Limits limits(type);
  if (arithmeticOf(op) == Arithmetic::Clamps) // limits that are attributes
    for (NamedAttribute limit : op->getAttrs())
      if (auto number = dyn_cast<FloatAttr>(limit.getValue());
          number && sinks(std::abs(number.getValueAsDouble()), type, limits))
        return "a constant is outside the narrow type's range";
  for (Value result : op->getResults()) {
    const Meaning &m = of(result);
    if (!isFloat(result) || m.constant)
      continue;
    if (m.steps > limits.exactSteps)
      return "it counts farther than the narrow type holds exactly";
    if (!isMeasured && m.bounded && isLarge(m, limits))
      return "its bounds are beyond the narrow type's range";
    if (!isMeasured && arithmeticOf(op) == Arithmetic::Contracts && isLarge(m, limits))
      return "its weights may take it out of the narrow type's range";
    if (!isMeasured && arithmeticOf(op) == Arithmetic::Multiplies && isLarge(m, limits))
      return "constant factors may take it out of the narrow type's range";
    if (!isMeasured && arithmeticOf(op) != Arithmetic::Unknown && isSmall(m, limits))
      return "factors may take it below the narrow type's normal numbers";
  }
  return "";
}

bool Meanings::countsBeyond(Operation *op, FloatType type) const {
  double exact = Limits(type).exactSteps;
  return llvm::any_of(op->getOperands(), [&](Value operand) { return isFloat(operand) && of(operand).steps > exact; });
}

bool Meanings::isDirect(Operation *op) const {
  return op->getNumResults() > 0 && llvm::all_of(op->getResults(), [&](Value result) {
           const Meaning &m = of(result);
           return isFloat(result) && m.direct && !m.constant && !m.weight;
         });
}
