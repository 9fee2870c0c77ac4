// SPDX-License-Identifier: Apache-2.0
// One walk forward for errors, one walk back for their causes.
#include "mpt/Precision/ErrorFlow.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/GemmLike.h"
#include "mpt/Interfaces/Linearity.h"
#include "mpt/Precision/Slots.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

static double square(double x) { return x * x; }

ErrorFlow::ErrorFlow(func::FuncOp function, const MeasuredTypes &values)
    : function(function), values(values), parts(function) {
  for (Operation &op : function.getBody().front()) {
    if (auto gradient = dyn_cast<train::GradientOp>(op))
      ends.push_back({train::TrainDialect::tensorName(gradient.getParameter()).str(), gradient.getGradient()});
    if (op.hasTrait<OpTrait::IsTerminator>()) {
      for (auto [i, value] : llvm::enumerate(op.getOperands()))
        if (auto name = getResultAttr<MPTDialect::NameAttrHelper>(function, i); name && isDecidable(value.getType()))
          ends.push_back({name.str(), value});
      break;
    }
    Node node{&op, {}, SmallVector<double, 2>(op.getNumOperands(), 0.0), {}};
    for (unsigned i = 0; i < op.getNumOperands(); ++i)
      node.gains.push_back(isa<RankedTensorType>(op.getOperand(i).getType()) ? gainOf(&op, i) : 0.0);
    node.makes.assign(op.getNumResults(), 0.0);
    nodes.push_back(std::move(node));
  }
}

/// Root of the number of terms that meet in an element of a reduction's result, over the divisor of the sum.
static double spreadOf(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  if (!reduce || reduce.getKind() == ReduceKind::max || reduce.getKind() == ReduceKind::min)
    return 1.0;
  double terms = double(tensorType(reduce.getX()).getNumElements()) /
                 double(std::max<int64_t>(1, tensorType(reduce.getY()).getNumElements()));
  return reduce.getKind() == ReduceKind::mean ? 1.0 / std::sqrt(terms) : std::sqrt(terms);
}

double ErrorFlow::gainOf(Operation *op, unsigned operand) const {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (!semantics || op->getNumResults() == 0 || semantics.getNumericClass() == NumericClass::Movement ||
      !isDecidable(op->getOperand(operand).getType()) || !isDecidable(op->getResult(0).getType()))
    return 1.0;
  double x = values.magnitudeOf(op->getOperand(operand)), y = values.magnitudeOf(op->getResult(0));
  auto linear = dyn_cast<Linearity>(op);
  OperandScale scale = linear ? linear.getOperandScale(operand) : OperandScale::Fixed;
  if (!(x > 0.0 && y > 0.0))
    return 1.0;
  switch (scale) {
  case OperandScale::Fixed: {
    // A factor of the linear operands, as a derivative of its own: changes as in a product, or more than itself.
    double factors = 1.0;
    for (unsigned i = 0; linear && i < op->getNumOperands(); ++i)
      if (linear.getOperandScale(i) != OperandScale::Fixed && isDecidable(op->getOperand(i).getType()))
        factors *= values.magnitudeOf(op->getOperand(i));
    if (linear && factors > 0.0)
      return std::max(1.0, factors * x / y);
    // The change of an exponent is a relative change of the power.
    return semantics.getNumericClass() == NumericClass::RangeExpanding ? std::max(1.0, x) : 1.0;
  }
  case OperandScale::Shared: {
    // One operand alone: how much the op shrinks values, it shrinks their errors.
    unsigned shared = 0;
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      shared += isDecidable(op->getOperand(i).getType()) && linear.getOperandScale(i) == OperandScale::Shared;
    bool keeps = shared == 1 && semantics.getNumericClass() != NumericClass::Reduction;
    return keeps ? 1.0 : spreadOf(op) * x / y;
  }
  case OperandScale::Factor: {
    auto gemm = dyn_cast<GemmLike>(op);
    double others = std::sqrt(gemm ? gemm.getMeanTerms() : 1.0);
    for (auto [i, other] : llvm::enumerate(op->getOperands()))
      if (i != operand && linear.getOperandScale(i) == OperandScale::Factor)
        others *= values.magnitudeOf(other);
    return others > 0.0 ? others * x / y : 1.0;
  }
  }
  llvm_unreachable("unknown scale");
}

/// The roundings of one op under `decisions`: where it makes a narrower value than FP32, and where it reads one that
/// was made wider.
void ErrorFlow::round(Node &node, const Decisions &decisions) const {
  auto found = decisions.find(node.op);
  if (found == decisions.end())
    return;
  const OpTypes &types = found->second;
  // A parameter's narrow copy is rounded by who reads it, as any value of wide memory.
  bool isRead = isa<train::ReadOp>(node.op);
  for (auto [i, result] : llvm::enumerate(node.op->getResults()))
    if (i < types.results.size() && types.results[i] && !isRead)
      node.makes[i] = values.roundingOf(result, types.results[i]);
  for (auto [i, operand] : llvm::enumerate(node.op->getOperands())) {
    if (i >= types.operands.size() || !isDecidable(operand.getType()))
      continue;
    if (types.quantized) {
      node.reads[i] = values.roundingOfQuantized(operand, parts.isGradient(operand));
      continue;
    }
    Operation *maker = operand.getDefiningOp();
    auto made = maker && !isa<train::ReadOp>(maker) ? decisions.find(maker) : decisions.end();
    Type from = made == decisions.end() ? Type() : made->second.results[cast<OpResult>(operand).getResultNumber()];
    if (types.operands[i] && types.operands[i] != from)
      node.reads[i] = values.roundingOf(operand, types.operands[i]);
  }
}

double ErrorFlow::squareOf(Value value) const { return squares.lookup(value); }

double ErrorFlow::weightOf(const Node &node, unsigned i, Value result) const {
  Value operand = node.op->getOperand(i);
  // ReLU's gradient keeps its mask as the operand that it was made of.
  bool isMask = isa<ReluBackwardOp>(node.op) && i == 1;
  bool chooses = isDecidable(operand.getType()) && (isMask || !isDecidable(result.getType()));
  if (!chooses)
    return square(node.gains[i]);
  if (!countsChoices)
    return 0.0;
  // Of normally distributed values, E|error| times their density at zero change sign; half of them are there at all.
  constexpr double changed = 0.64;
  double error = std::sqrt(squareOf(operand) + square(node.reads[i]));
  return error > 0.0 ? std::min(changed * error, 1.0) / square(error) : 0.0;
}

void ErrorFlow::run(const Decisions *decisions) {
  squares.clear();
  countsChoices = decisions != nullptr;
  Type f32 = Float32Type::get(function.getContext());
  for (Node &node : nodes) {
    llvm::fill(node.reads, 0.0);
    llvm::fill(node.makes, 0.0);
    if (decisions)
      round(node, *decisions);
    for (auto [i, result] : llvm::enumerate(node.op->getResults())) {
      double read = 0.0;
      for (auto [j, operand] : llvm::enumerate(node.op->getOperands()))
        if (node.gains[j] != 0.0)
          read += weightOf(node, j, result) * (squareOf(operand) + square(node.reads[j]));
      if (!isDecidable(result.getType())) {
        squares[result] = std::min(read, 1.0);
        continue;
      }
      bool computes = isa<PrecisionSemantics>(node.op) && !node.op->hasTrait<OpTrait::ConstantLike>();
      double own = decisions ? node.makes[i] : computes ? values.roundingOf(result, f32) : 0.0;
      squares[result] = read + square(own);
    }
  }
}

double ErrorFlow::errorOf(const Output &output) const { return std::sqrt(squareOf(output.value)); }

DenseMap<Operation *, double> ErrorFlow::sharesOf(const Output &output) const {
  // The factor of a value's square in the output's.
  DenseMap<Value, double> weights{{output.value, 1.0}};
  DenseMap<Operation *, double> shares;
  for (const Node &node : llvm::reverse(nodes)) {
    double own = 0.0;
    for (auto [i, result] : llvm::enumerate(node.op->getResults())) {
      double weight = weights.lookup(result);
      if (weight == 0.0)
        continue;
      own += weight * square(node.makes[i]);
      for (auto [j, operand] : llvm::enumerate(node.op->getOperands())) {
        if (node.gains[j] == 0.0)
          continue;
        double more = weight * weightOf(node, j, result);
        own += more * square(node.reads[j]);
        weights[operand] += more;
      }
    }
    if (own > 0.0)
      shares[node.op] = own;
  }
  return shares;
}
