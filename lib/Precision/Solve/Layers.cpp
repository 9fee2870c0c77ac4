// SPDX-License-Identifier: Apache-2.0
// Walks a function forward and backward for what comes before and after each GEMM.
#include "mpt/Precision/Layers.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/Interfaces.h"

using namespace mlir;
using namespace mpt;

DenseSet<Value> mpt::gradientValues(func::FuncOp function) {
  DenseSet<Value> gradients;
  for (Operation &op : function.getBody().front())
    if (hasAttr<MPTDialect::SeedAttrHelper>(&op) || isa<train::ScaleLossOp>(op) ||
        llvm::any_of(op.getOperands(), [&](Value operand) { return gradients.contains(operand); }))
      gradients.insert(op.getResults().begin(), op.getResults().end());
  return gradients;
}

static bool isContraction(Operation *op) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  return semantics && semantics.getNumericClass() == NumericClass::Contraction;
}

static bool isFloatTensor(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

static unsigned bit(policy::Predicate predicate) { return 1u << static_cast<unsigned>(predicate); }

Layers::Layers(func::FuncOp function) {
  Block &body = function.getBody().front();
  DenseSet<Value> gradients = gradientValues(function), behind, reaching, weights;
  auto module = function->getParentOfType<ModuleOp>();
  DenseSet<StringRef> parameters;
  for (auto state : module.getOps<train::StateOp>())
    if (state.getRole() == train::Role::parameter || state.getRole() == train::Role::master)
      parameters.insert(state.getSymName());
  SmallVector<Operation *> forward, backward;
  for (Operation &op : body) {
    if (auto read = dyn_cast<train::ReadOp>(op); read && parameters.contains(read.getState()))
      weights.insert(read.getValue());
    bool contracts = isContraction(&op), after = false, weighted = false, plain = false, gradient = false;
    for (Value operand : op.getOperands()) {
      after |= behind.contains(operand);
      gradient |= gradients.contains(operand);
      if (!isFloatTensor(operand))
        continue;
      bool isWeight = weights.contains(operand);
      weighted |= isWeight;
      Operation *source = operand.getDefiningOp();
      plain |= !isWeight && !(source && source->hasTrait<OpTrait::ConstantLike>());
    }
    if (gradient) {
      if (contracts)
        backward.push_back(&op);
      continue;
    }
    if (contracts) {
      forward.push_back(&op);
      properties[&op] =
          (after ? 0 : bit(policy::Predicate::first)) | (weighted ? 0 : bit(policy::Predicate::unweighted));
    }
    for (Value result : op.getResults()) {
      if (contracts || after)
        behind.insert(result);
      if (weighted && !plain && !contracts)
        weights.insert(result);
    }
  }
  for (Operation &op : llvm::reverse(body)) {
    auto known = properties.find(&op);
    bool reaches = known != properties.end();
    if (llvm::any_of(op.getResults(), [&](Value result) { return gradients.contains(result); }))
      continue; // the backward pass reads values of the forward pass
    bool before = llvm::any_of(op.getResults(), [&](Value result) { return reaching.contains(result); });
    if (reaches && !before)
      known->second |= bit(policy::Predicate::last);
    if (reaches || before)
      reaching.insert(op.getOperands().begin(), op.getOperands().end());
  }
  // Gradient ops carry the location of their forward op.
  DenseMap<Location, unsigned> places;
  for (Operation *op : forward)
    places[op->getLoc()] |= properties[op];
  for (Operation *op : backward)
    if (auto place = places.find(op->getLoc()); place != places.end())
      properties[op] = place->second;
}

bool Layers::is(policy::Predicate predicate, Operation *op) const {
  auto known = properties.find(op);
  return known != properties.end() && known->second & bit(predicate);
}
