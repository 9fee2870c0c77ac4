// SPDX-License-Identifier: Apache-2.0
// The rules: bounds by interval arithmetic, the other facts by whether each kind of arithmetic keeps them.
#include "Rules.h"

#include "mpt/Interfaces/MeaningFlow.h"

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace mpt;

Meaning mpt::meaningOfConstant(const ElementRange &range) {
  Meaning result;
  result.bounded = result.positional = result.direct = result.constant = true;
  result.low = range.low;
  result.high = range.high;
  result.smallest = range.smallest;
  result.integer = range.integer;
  result.elements = range.elements;
  result.size = result.magnitude();
  return result;
}

Meaning mpt::meaningOfType(Type type) {
  Meaning result;
  auto integer = dyn_cast<IntegerType>(getElementTypeOrSelf(type));
  if (!integer)
    return result;
  result.bounded = result.integer = result.positional = result.direct = true;
  unsigned bits = integer.getWidth();
  bool isSigned = bits > 1 && !integer.isUnsigned();
  result.high = bits >= 32 ? Meaning::kUnbounded : std::ldexp(1.0, static_cast<int>(bits) - isSigned) - 1;
  result.low = !isSigned ? 0 : bits >= 32 ? -Meaning::kUnbounded : -result.high - 1;
  result.steps = result.magnitude();
  return result;
}

// ---- results

/// 0 times infinity is 0 here: a bound, not a value.
static double times(double a, double b) { return a == 0 || b == 0 ? 0 : a * b; }

static void setProduct(Meaning &result, const Meaning &a, const Meaning &b) {
  double corners[] = {times(a.low, b.low), times(a.low, b.high), times(a.high, b.low), times(a.high, b.high)};
  result.low = *std::min_element(std::begin(corners), std::end(corners));
  result.high = *std::max_element(std::begin(corners), std::end(corners));
}

/// The facts that results of several operands share, whatever is done with them. Bounds and steps are left to the rule.
static Meaning meet(ArrayRef<const Meaning *> operands) {
  Meaning result;
  auto all = [&](bool Meaning::*flag) { return llvm::all_of(operands, [&](const Meaning *m) { return m->*flag; }); };
  auto any = [&](bool Meaning::*flag) { return llvm::any_of(operands, [&](const Meaning *m) { return m->*flag; }); };
  result.bounded = all(&Meaning::bounded);
  result.integer = all(&Meaning::integer);
  result.positional = all(&Meaning::positional);
  result.constant = all(&Meaning::constant);
  // A table that trains is no reason to round the inputs that it meets.
  result.direct = llvm::all_of(operands, [](const Meaning *m) { return m->direct || m->weight; }) &&
                  llvm::any_of(operands, [](const Meaning *m) { return m->direct && !m->constant; });
  result.direct |= all(&Meaning::direct);
  result.weight = all(&Meaning::weight);
  result.unscaled = any(&Meaning::unscaled);
  result.large = any(&Meaning::large);
  result.size = operands.empty() ? 1 : 0;
  for (const Meaning *m : operands) {
    result.gain = std::max(result.gain, m->gain);
    result.size = std::max(result.size, m->size);
    result.elements = std::max(result.elements, m->elements);
  }
  return result;
}

static bool anyCounted(ArrayRef<const Meaning *> operands) {
  return llvm::any_of(operands, [](const Meaning *m) { return m->counted(); });
}

/// Counts and whole constants give counts.
static bool isCount(const Meaning &m) { return m.counted() || (m.constant && m.integer); }
static double stepsOf(const Meaning &m) { return m.counted() ? m.steps : m.magnitude(); }

static Meaning inferChoice(ArrayRef<const Meaning *> operands) {
  Meaning result = meet(operands);
  if (result.bounded) {
    result.low = Meaning::kUnbounded;
    result.high = -Meaning::kUnbounded;
  }
  bool counts = anyCounted(operands) && llvm::all_of(operands, [](const Meaning *m) { return isCount(*m); });
  for (const Meaning *m : operands) {
    if (result.bounded) {
      result.low = std::min(result.low, m->low);
      result.high = std::max(result.high, m->high);
    }
    if (counts)
      result.steps = std::max(result.steps, stepsOf(*m));
    if (m->smallest != 0 && (result.smallest == 0 || m->smallest < result.smallest))
      result.smallest = m->smallest;
  }
  return result;
}

static Meaning inferSum(ArrayRef<const Meaning *> operands, bool subtracts) {
  Meaning result = meet(operands);
  if (result.bounded)
    result.low = result.high = 0;
  bool counts = anyCounted(operands) && llvm::all_of(operands, [](const Meaning *m) { return isCount(*m); });
  for (auto [i, m] : llvm::enumerate(operands)) {
    bool minus = subtracts && i > 0;
    if (result.bounded) {
      result.low += minus ? -m->high : m->low;
      result.high += minus ? -m->low : m->high;
    }
    if (counts)
      result.steps += stepsOf(*m);
    if (m->constant && m->elements == 1) // an epsilon
      result.smallest = m->smallest;
  }
  return result;
}

/// A constant's factor on a value of unknown magnitude.
static double gainOf(double product) { return product == 0 || !std::isfinite(product) ? 1 : product; }

static Meaning inferProduct(const Meaning &a, const Meaning &b) {
  Meaning result = meet({&a, &b});
  if (result.bounded)
    setProduct(result, a, b);
  if (a.counted() && b.counted())
    result.steps = a.steps * b.steps;
  else if (a.counted() && b.constant)
    result.steps = a.steps; // of another unit
  else if (b.counted() && a.constant)
    result.steps = b.steps;
  if (a.constant != b.constant) {
    const Meaning &constant = a.constant ? a : b, &other = a.constant ? b : a;
    result.gain = gainOf(other.gain * constant.magnitude());
    result.size = times(other.largest(), constant.magnitude());
    // A flag times a number is that number or nothing, as in masks: no count, and of no magnitude to speak of.
    if (other.counted() && other.steps <= 1)
      result = Meaning();
  } else if (!a.constant) {
    if (!a.bounded && !b.bounded)
      result.gain = gainOf(a.gain * b.gain);
    result.size = times(a.largest(), b.largest());
  }
  return result;
}

/// The least magnitude of a number of `magnitude` over a count, which is a 64-bit integer's at most; 0 where nothing
/// was counted.
static double leastOver(double magnitude, const Meaning &count) {
  constexpr double kLargestCount = 0x1p63;
  return count.counted() && count.integer && !count.constant ? magnitude / std::min(count.magnitude(), kLargestCount)
                                                             : 0;
}

static Meaning inferQuotient(const Meaning &a, const Meaning &b) {
  Meaning result = meet({&a, &b});
  bool apart = b.bounded && (b.low > 0 || b.high < 0);
  result.bounded &= apart;
  if (result.bounded) {
    Meaning inverse;
    inverse.low = std::min(1 / b.low, 1 / b.high);
    inverse.high = std::max(1 / b.low, 1 / b.high);
    setProduct(result, a, inverse);
  }
  result.integer = false;
  result.least = a.constant ? leastOver(a.smallest, b) : 0;
  result.size = 1;
  if (b.constant) {
    double inverse = 1 / std::max(b.smallest, std::numeric_limits<double>::min());
    result.gain = gainOf(a.gain * inverse);
    result.size = times(a.largest(), inverse);
  }
  // Divided by a value as large, it is of order one.
  bool normalizes = !b.constant && (b.unscaled || b.large || !b.bounded);
  if (normalizes) {
    result.large = result.unscaled = result.direct = false;
    result.gain = 1;
  }
  return result;
}

/// The number of operand elements for each element of the result.
static double termsOf(Operation *op, Type to) {
  auto from = dyn_cast<RankedTensorType>(op->getOperand(0).getType());
  auto result = dyn_cast<RankedTensorType>(to);
  if (!from || !result || !from.hasStaticShape() || !result.hasStaticShape() || result.getNumElements() == 0)
    return Meaning::kUnbounded;
  return static_cast<double>(from.getNumElements()) / static_cast<double>(result.getNumElements());
}

static double longestExtent(Type type) {
  auto ranked = dyn_cast<RankedTensorType>(type);
  if (!ranked || !ranked.hasStaticShape())
    return Meaning::kUnbounded;
  double longest = 1;
  for (int64_t extent : ranked.getShape())
    longest = std::max(longest, static_cast<double>(extent));
  return longest;
}

static Meaning inferLongSum(const Meaning &x, double terms) {
  Meaning result = x;
  result.constant = false;
  result.rootMeanSquare = 0;
  result.size = times(x.size, terms);
  if (x.bounded) {
    result.low = std::min(times(x.low, terms), x.low);
    result.high = std::max(times(x.high, terms), x.high);
  }
  result.steps = x.counted() ? x.steps * terms : 0;
  return result;
}

/// The L2 norm of the weights, operand `index` of a GEMM or convolution, that make one result; 0 where it is not known.
static double normOfWeights(Operation *op, unsigned index, const Meaning &weights) {
  auto type = dyn_cast<RankedTensorType>(op->getOperand(index).getType());
  auto result = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (weights.rootMeanSquare == 0 || !type || !type.hasStaticShape() || !result)
    return 0;
  int64_t features = 1;
  for (int64_t extent : type.getShape())
    if (llvm::is_contained(result.getShape(), extent))
      features = std::max(features, extent);
  int64_t terms = type.getNumElements() / features;
  return weights.rootMeanSquare * std::sqrt(static_cast<double>(terms));
}

/// How much larger than `x` the results are of a GEMM with weights of this norm. Norms that initializations and
/// training give change nothing, as ops between layers (ReLU, norms, residual additions) make up for them.
static double gainOfWeights(const Meaning &x, double norm) {
  constexpr double kOrdinary = 64;
  if (norm > kOrdinary)
    return x.gain * norm;
  return norm != 0 && std::abs(x.gain) > 1 ? x.gain * std::min(norm, 1.0) : 1;
}

/// The magnitude of a bounded value as a factor on order one.
static Meaning scaled(const Meaning &x) {
  Meaning result = x;
  if (x.bounded && std::isfinite(x.magnitude()))
    result.gain = std::max(std::abs(x.gain), x.magnitude());
  return result;
}

/// Sums of products: of two tables of whole numbers they count, of activations nothing is known but the magnitude. The
/// largest sum that bounds allow is none that weights make: behind a few layers it would be beyond any range.
static Meaning inferContraction(Operation *op, ArrayRef<const Meaning *> operands) {
  if (operands.size() < 2)
    return {};
  const Meaning &a = *operands[0], &b = *operands[1];
  Meaning result = meet(operands);
  double terms = longestExtent(op->getOperand(0).getType());
  result.constant = result.weight = false;
  bool counts = operands.size() == 2 && anyCounted(operands) && isCount(a) && isCount(b);
  bool isFinite = std::isfinite(a.magnitude()) && std::isfinite(b.magnitude());
  result.bounded &= operands.size() == 2 && (counts || !isFinite);
  if (result.bounded) {
    setProduct(result, a, b);
    result.low = std::min(0.0, times(result.low, terms));
    result.high = std::max(0.0, times(result.high, terms));
  }
  result.steps = counts ? stepsOf(a) * stepsOf(b) * terms : 0;
  // Behind weights a position is an activation as any other.
  result.positional = llvm::all_of(operands, [](const Meaning *m) { return m->positional && m->integer; });
  // A signal that was filtered, resampled or transformed is still the input's.
  bool isFiltered = (a.isFilter() && b.direct && !b.constant) || (b.isFilter() && a.direct && !a.constant);
  result.direct = isFiltered && llvm::all_of(operands, [](const Meaning *m) { return m->direct || m->weight; });
  double normOfA = normOfWeights(op, 0, a), normOfB = normOfWeights(op, 1, b), norm = std::max(normOfA, normOfB);
  result.gain = gainOfWeights(scaled(a), normOfB) * gainOfWeights(scaled(b), normOfA);
  // The norm of weights counts where all of them are small.
  double sizes = times(normOfA != 0 ? 1 : a.largest(), normOfB != 0 ? 1 : b.largest());
  bool isSmall = norm != 0 && (normOfA != 0 ? a.size : b.size) < 1;
  result.size = std::min(1.0, times(sizes, norm == 0 ? terms : isSmall ? norm : std::max(norm, 1.0)));
  return result;
}

static Meaning inferSteps(ArrayRef<const Meaning *> operands) {
  if (operands.size() < 2)
    return {};
  Meaning result = inferChoice(operands.take_front(2));
  result.constant = false;
  result.positional = result.direct = true;
  result.integer = llvm::all_of(operands, [](const Meaning *m) { return m->integer; });
  result.steps = result.integer ? result.magnitude() : 0;
  return result;
}

static Meaning inferPower(ArrayRef<const Meaning *> operands) {
  const Meaning &x = *operands[0];
  // An exponent below one takes a root or inverts.
  bool shrinks = operands.size() == 2 && operands[1]->constant && operands[1]->high <= 1;
  Meaning result;
  result.positional = llvm::all_of(operands, [](const Meaning *m) { return m->positional; });
  result.direct = llvm::all_of(operands, [](const Meaning *m) { return m->direct; });
  result.unscaled = x.unscaled;
  if (operands.size() == 2 && operands[1]->constant && operands[1]->low >= 1)
    result.size = std::pow(x.size, operands[1]->low);
  result.large = !shrinks && (x.unscaled || x.large || (x.bounded && x.magnitude() == Meaning::kUnbounded));
  return result;
}

/// Of the operand's order of magnitude, by a function that keeps neither units nor whole numbers.
static Meaning inferGrowth(const Meaning &x) {
  Meaning result = x;
  result.constant = result.weight = result.integer = false;
  result.steps = result.rootMeanSquare = 0;
  if (x.bounded)
    result.high = std::max(x.magnitude(), 1.0), result.low = -result.high;
  return result;
}

static Meaning inferBounded(ArrayRef<const Meaning *> operands, bool isWave) {
  Meaning result;
  result.positional = llvm::all_of(operands, [](const Meaning *m) { return m->positional; });
  result.direct = llvm::all_of(operands, [](const Meaning *m) { return m->direct; });
  if (isWave) {
    result.bounded = true;
    result.low = -1;
    result.high = 1;
  }
  return result;
}

static Meaning inferLogarithm(const Meaning &x) {
  Meaning result = inferBounded({&x}, /*isWave=*/false);
  result.direct |= x.large; // of a spectrum: tens that differ by tenths
  return result;
}

static Meaning inferInverse(const Meaning &x) {
  Meaning result = inferBounded({&x}, /*isWave=*/false);
  result.least = leastOver(1, x);
  return result;
}

static Meaning inferCount(Operation *op) {
  Meaning result;
  result.bounded = result.integer = result.positional = result.direct = true;
  double longest = 1;
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    longest = std::max(longest, longestExtent(type));
  result.low = 0;
  result.high = result.steps = longest;
  return result;
}

static Meaning inferConversion(const Meaning &x, Type from, Type to) {
  bool wasFloat = isa<FloatType>(getElementTypeOrSelf(from)), isFloat = isa<FloatType>(getElementTypeOrSelf(to));
  if (!wasFloat && isFloat) {
    Meaning result = x;
    result.bounded = result.integer = true;
    result.steps = x.counted() ? x.steps : x.constant ? 0 : x.magnitude();
    return result;
  }
  if (isFloat)
    return x;
  Meaning result = meaningOfType(to);
  if (x.bounded) {
    result.low = std::max(result.low, x.low - 1);
    result.high = std::min(result.high, x.high + 1);
    result.steps = result.magnitude();
  }
  result.positional = x.positional;
  return result;
}

static Meaning inferClamp(ArrayRef<const Meaning *> operands) {
  Meaning result = *operands[0];
  if (operands.size() < 3) // limits are attributes, or one is absent
    return result;
  const Meaning &low = *operands[1], &high = *operands[2];
  if (low.bounded && high.bounded) {
    result.low = std::max(result.low, low.low);
    result.high = std::min(result.high, high.high);
    result.bounded = true;
    result.large = result.unscaled = false;
  }
  if (result.counted())
    result.steps = std::min(result.steps, result.magnitude());
  return result;
}

static Meaning inferSample(const Meaning &x) {
  Meaning result = x;
  result.integer = result.constant = result.weight = false;
  result.steps = 0;
  return result;
}

/// One of the operands that have the result's kind of type.
static Meaning inferSelection(Operation *op, ArrayRef<const Meaning *> operands, Type type) {
  SmallVector<const Meaning *> same;
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(type)), isFlag = getElementTypeOrSelf(type).isInteger(1);
  for (auto [operand, meaning] : llvm::zip(op->getOperands(), operands))
    if (Type element = getElementTypeOrSelf(operand.getType());
        isa<FloatType>(element) == isFloat && element.isInteger(1) == isFlag)
      same.push_back(meaning);
  return same.empty() ? meaningOfType(type) : inferChoice(same);
}

static Meaning inferDifference(Operation *op, ArrayRef<const Meaning *> operands) {
  Meaning result = inferSum(operands, /*subtracts=*/true);
  // The remainder of a rounding, as of a sample's position.
  auto rounding = op->getOperand(1).getDefiningOp<MeaningFlow>();
  if (rounding && rounding.getArithmetic() == Arithmetic::Rounds && rounding->getOperand(0) == op->getOperand(0)) {
    result = inferBounded(operands, /*isWave=*/true);
    result.direct = result.positional;
  }
  return result;
}

static Meaning inferRemainder(ArrayRef<const Meaning *> operands) {
  Meaning result = *operands[0];
  if (operands.size() != 2 || !operands[1]->bounded)
    return result;
  result.bounded = true;
  result.high = operands[1]->magnitude();
  result.low = -result.high;
  result.large = result.unscaled = false;
  if (result.counted())
    result.steps = std::min(result.steps, result.high);
  return result;
}

static Meaning inferRounding(const Meaning &x) {
  Meaning result = x;
  result.integer = true;
  result.constant = false;
  if (x.bounded)
    result.low -= 1, result.high += 1;
  if (x.bounded && x.positional)
    result.steps = result.magnitude();
  return result;
}

static Meaning inferAverage(const Meaning &x) {
  Meaning result = x;
  result.constant = result.integer = false;
  result.steps = 0;
  return result;
}

static Meaning inferNegation(const Meaning &x) {
  Meaning result = x;
  if (x.bounded)
    result.high = x.magnitude(), result.low = -result.high;
  return result;
}

static Meaning inferRoot(ArrayRef<const Meaning *> operands) {
  Meaning result = inferBounded(operands, /*isWave=*/false);
  result.unscaled = operands[0]->unscaled || operands[0]->large;
  return result;
}

static Meaning inferFlags(Type type) {
  Meaning result = meaningOfType(type);
  result.low = 0;
  result.high = result.steps = 1;
  result.bounded = true;
  return result;
}

Meaning mpt::infer(Arithmetic arithmetic, Operation *op, ArrayRef<const Meaning *> operands, Type type) {
  if (operands.empty() && arithmetic != Arithmetic::Counts)
    return meaningOfType(type);
  const Meaning &x = operands.empty() ? Meaning() : *operands[0];
  auto isFloat = [](Type any) { return isa<FloatType>(getElementTypeOrSelf(any)); };
  switch (arithmetic) {
  case Arithmetic::Unknown:
    return meaningOfType(type);
  case Arithmetic::Moves: // or says where elements were found
  case Arithmetic::Finds:
    return isFloat(type) == isFloat(op->getOperand(0).getType()) ? x : inferCount(op);
  case Arithmetic::Samples:
    return inferSample(x);
  case Arithmetic::Chooses:
    return inferSelection(op, operands, type);
  case Arithmetic::Converts:
    return inferConversion(x, op->getOperand(0).getType(), type);
  case Arithmetic::Adds:
    return inferSum(operands, /*subtracts=*/false);
  case Arithmetic::Subtracts:
    return inferDifference(op, operands);
  case Arithmetic::Multiplies:
    if (operands.size() == 2 && op->getOperand(0) == op->getOperand(1) && !x.bounded) {
      Meaning square = inferPower({&x});
      square.size = x.size * x.size;
      return square;
    }
    return operands.size() == 2 ? inferProduct(x, *operands[1]) : meet(operands);
  case Arithmetic::Divides:
    return operands.size() == 2 ? inferQuotient(x, *operands[1]) : Meaning();
  case Arithmetic::Remains:
    return inferRemainder(operands);
  case Arithmetic::Negates:
    return inferNegation(x);
  case Arithmetic::Rounds:
    return inferRounding(x);
  case Arithmetic::Clamps:
    return inferClamp(operands);
  case Arithmetic::Grows:
    return inferGrowth(x);
  case Arithmetic::Sums:
    return inferLongSum(x, termsOf(op, type));
  case Arithmetic::Averages:
    return inferAverage(x);
  case Arithmetic::Accumulates:
    return inferLongSum(x, longestExtent(op->getOperand(0).getType()));
  case Arithmetic::Contracts:
    return inferContraction(op, operands);
  case Arithmetic::Expands:
    return inferPower(operands);
  case Arithmetic::Roots:
    return inferRoot(operands);
  case Arithmetic::Bounds:
  case Arithmetic::Saturates:
    return inferBounded(operands, /*isWave=*/false);
  case Arithmetic::Diverges:
    return inferLogarithm(x);
  case Arithmetic::Inverts:
    return inferInverse(x);
  case Arithmetic::Waves:
    return inferBounded(operands, /*isWave=*/true);
  case Arithmetic::Tests:
    return inferFlags(type);
  case Arithmetic::Counts:
    return inferCount(op);
  case Arithmetic::Steps:
    return inferSteps(operands);
  }
  llvm_unreachable("unknown arithmetic");
}
