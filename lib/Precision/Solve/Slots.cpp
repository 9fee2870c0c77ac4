// SPDX-License-Identifier: Apache-2.0
// Types that an op's operands and results may have, and ops that belong to the loss, gradients or updates alone.
#include "mpt/Precision/Slots.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/Interfaces.h"

#include "mlir/Interfaces/InferTypeOpInterface.h"

using namespace mlir;
using namespace mpt;

bool mpt::isDecidable(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getElementType().isF32();
}

bool mpt::hasFlexibleTypes(Operation *op) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (!semantics || semantics.needsUniformType())
    return false;
  auto inferred = dyn_cast<InferTypeOpInterface>(op);
  if (!inferred) // types are free for accumulating ops that state their result type, and tied for all others
    return semantics.getNumericClass() == NumericClass::Contraction ||
           semantics.getNumericClass() == NumericClass::Reduction;
  SmallVector<Type> other;
  for (Type type : op->getResultTypes()) {
    auto tensor = cast<RankedTensorType>(type);
    bool isFloat = isa<FloatType>(tensor.getElementType());
    other.push_back(!isFloat
                        ? type
                        : tensor.clone(tensor.getElementType().isF16() ? Type(Float32Type::get(op->getContext()))
                                                                       : Type(Float16Type::get(op->getContext()))));
  }
  return TypeRange(other) != op->getResultTypes() && inferred.isCompatibleReturnTypes(op->getResultTypes(), other);
}

namespace {
/// An untagged loss is followed at most this many ops into the model, so that a residual stream is not taken for one.
constexpr unsigned kLossDepth = 12;

/// Elementwise work, movement and reductions belong to a loss; contractions and composites end it.
bool continuesLoss(Operation *op) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (!semantics || semantics.getNumericClass() == NumericClass::Contraction ||
      semantics.getNumericClass() == NumericClass::Pinned)
    return false;
  return semantics.getNumericClass() == NumericClass::Reduction || !hasFlexibleTypes(op);
}
} // namespace

Value mpt::lossValue(func::FuncOp function) {
  Operation *end = function.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(end->getOperands()))
    if (train::resultIs(function, i, train::Role::loss))
      return value;
  return {};
}

DenseSet<Operation *> mpt::lossIsland(func::FuncOp function) {
  DenseSet<Operation *> island;
  DenseSet<Location> places;
  SmallVector<std::pair<Operation *, unsigned>> work;
  for (Operation &op : function.getBody().front())
    if (hasAttr<MPTDialect::LossAttrHelper>(&op)) {
      island.insert(&op);
      places.insert(op.getLoc());
    }
  bool tagged = !island.empty();
  auto enter = [&](Operation *op, unsigned depth) {
    if (op && depth < kLossDepth && continuesLoss(op) && island.insert(op).second)
      work.emplace_back(op, depth);
  };
  if (Value loss = lossValue(function); loss && !tagged) {
    enter(loss.getDefiningOp(), 0);
    while (!work.empty()) {
      auto [op, depth] = work.pop_back_val();
      for (Value operand : op->getOperands())
        if (isDecidable(operand.getType()))
          enter(operand.getDefiningOp(), depth + 1);
    }
  }
  // The backward pass of the loss: forward from the seed; of a tagged loss, where its ops stand.
  for (Operation &op : function.getBody().front())
    if (hasAttr<MPTDialect::SeedAttrHelper>(&op))
      work.emplace_back(&op, 0);
  while (!work.empty()) {
    auto [op, depth] = work.pop_back_val();
    for (Operation *user : op->getUsers())
      if (!tagged || places.contains(user->getLoc()))
        enter(user, depth + 1);
  }
  return island;
}

DenseSet<Operation *> mpt::parameterGradientTail(func::FuncOp function) {
  DenseSet<Operation *> tail;
  for (Operation &op : llvm::reverse(function.getBody().front())) {
    if (!isa<PrecisionSemantics>(op) || op.use_empty() || hasFlexibleTypes(&op) || op.hasTrait<OpTrait::ConstantLike>())
      continue;
    if (llvm::all_of(op.getUsers(),
                     [&](Operation *user) { return isa<train::GradientOp>(user) || tail.contains(user); }))
      tail.insert(&op);
  }
  return tail;
}

/// The ops that lead to nothing but new values that hang on a gradient.
static DenseSet<Operation *> updateTail(Block &block) {
  DenseSet<Value> behind; // gradients
  for (Operation &op : block)
    if (isa<train::GradientOp>(op) ||
        llvm::any_of(op.getOperands(), [&](Value value) { return behind.contains(value); }))
      behind.insert(op.result_begin(), op.result_end());
  DenseSet<Operation *> tail;
  for (Operation &op : llvm::reverse(block)) {
    if (!isa<PrecisionSemantics>(op) || op.use_empty() || op.hasTrait<OpTrait::ConstantLike>())
      continue;
    if (llvm::all_of(op.getUsers(), [&](Operation *user) {
          auto write = dyn_cast<train::WriteOp>(user);
          return write ? behind.contains(write.getValue()) : tail.contains(user);
        }))
      tail.insert(&op);
  }
  return tail;
}

static bool isParameter(train::ReadOp read) {
  auto state = SymbolTable::lookupNearestSymbolFrom<train::StateOp>(read, read.getStateAttr());
  return state && state.getRole() == train::Role::parameter;
}

DenseSet<Operation *> mpt::parameterUpdateTail(func::FuncOp function) {
  Block &block = function.getBody().front();
  DenseSet<Operation *> tail = updateTail(block), found;
  DenseSet<StringAttr> written;
  for (auto write : block.getOps<train::WriteOp>())
    written.insert(write.getStateAttr().getAttr());
  auto isParameters = [&](Value value) {
    Operation *op = value.getDefiningOp();
    auto read = dyn_cast_or_null<train::ReadOp>(op);
    return read ? isParameter(read) && written.contains(read.getStateAttr().getAttr()) : found.contains(op);
  };
  for (Operation &op : block)
    if (tail.contains(&op) && llvm::any_of(op.getOperands(), isParameters))
      found.insert(&op);
  return found;
}
