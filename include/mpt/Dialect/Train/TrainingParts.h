// SPDX-License-Identifier: Apache-2.0
// Which part of a training step an op belongs to: the one answer to "is this the backward pass?".
#ifndef MPT_DIALECT_TRAIN_TRAININGPARTS_H
#define MPT_DIALECT_TRAIN_TRAININGPARTS_H

#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"

namespace mpt {

/// The parts of one function. The backward pass begins at train.scale_loss and seeds (`mpt.seed`), the update behind
/// train.gradient, and either at ops that state it (`train.part`). An op that reads a value belongs to the value's part
/// or a later one; an op that only later parts read belongs to the earliest of these. So most rewrites carry nothing.
/// Passes that take training ops out have each contraction state its part instead.
class TrainingParts {
public:
  explicit TrainingParts(mlir::func::FuncOp function);

  TrainingPart of(mlir::Operation *op) const { return parts.lookup_or(op, TrainingPart::forward); }
  bool isForward(mlir::Operation *op) const { return of(op) == TrainingPart::forward; }
  /// Whether `value` is computed from the gradient of a loss; false for values that the backward pass computes
  /// from the forward pass alone.
  bool isGradient(mlir::Value value) const { return reached.contains(value); }

private:
  llvm::DenseMap<mlir::Operation *, TrainingPart> parts;
  llvm::DenseMap<mlir::Value, TrainingPart> reached; ///< values computed from a gradient, with their part
};

/// The part that `op` states; none for most ops.
std::optional<TrainingPart> statedPart(mlir::Operation *op);
void statePart(mlir::Operation *op, TrainingPart part);
/// Contractions state their parts, before training ops that tell are taken out. Other ops state none: they may merge
/// with equal ones of another part.
void stateParts(mlir::func::FuncOp function);
bool isContraction(mlir::Operation *op);
/// Values that ops compute from the inputs of a function; not moved or converted inputs, which are there already.
llvm::DenseSet<mlir::Value> activationsOf(mlir::func::FuncOp function);

/// `to` states the part that `from` states.
void carryPart(mlir::Operation *from, mlir::Operation *to);
/// Contractions that a builder makes in place of `from` state its part.
struct PartCarrier : mlir::OpBuilder::Listener {
  explicit PartCarrier(mlir::Operation *from) : from(from) {}
  void notifyOperationInserted(mlir::Operation *op, mlir::OpBuilder::InsertPoint) override {
    if (isContraction(op))
      carryPart(from, op);
  }
  mlir::Operation *from;
};

} // namespace mpt

#endif // MPT_DIALECT_TRAIN_TRAININGPARTS_H
