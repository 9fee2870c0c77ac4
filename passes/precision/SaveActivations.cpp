// SPDX-License-Identifier: Apache-2.0
// precision-save-activations: the type in which the forward pass leaves values to the backward pass.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Precision/LossyCasts.h"
#include "mpt/Precision/RoundingCasts.h"
#include "mpt/Precision/Settings.h"

#include "llvm/ADT/MapVector.h"

namespace mpt {
#define GEN_PASS_DEF_SAVEACTIVATIONS
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

class SaveActivations : public mpt::impl::SaveActivationsBase<SaveActivations> {
public:
  void runOnOperation() override {
    settings = PrecisionSettings::of(getOperation());
    if (settings.saved.getIntOrFloatBitWidth() >= settings.storage.getIntOrFloatBitWidth())
      return;
    RoundingCasts casts(getOperation());
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        save(function, casts);
  }

private:
  void save(func::FuncOp function, RoundingCasts &casts) {
    TrainingParts parts(function);
    DenseSet<Value> activations = activationsOf(function);
    auto isBackward = [&](OpOperand &use) {
      return mayReadRounded(use.getOwner()) &&
             llvm::any_of(use.getOwner()->getResults(), [&](Value result) { return parts.isGradient(result); });
    };
    // By the value in the storage type: its forms that the backward pass reads, it itself or widened.
    llvm::MapVector<Value, SmallVector<Value>> saved;
    for (Operation &op : function.getBody().front())
      for (Value value : op.getResults())
        if (Value stored = storedFormOf(value); stored && activations.contains(stored) && !parts.isGradient(value) &&
                                                llvm::any_of(value.getUses(), isBackward))
          saved[stored].push_back(value);
    for (auto &[stored, reads] : saved) {
      OpBuilder builder(stored.getContext());
      builder.setInsertionPointAfterValue(stored);
      GraphBuilder b(builder, stored.getLoc());
      Value rounded = casts.cast(builder, stored.getLoc(), sourceOf(stored), settings.saved, settings.operands);
      for (Value value : reads)
        value.replaceUsesWithIf(b.cast(rounded, tensorType(value).getElementType()), isBackward);
      ++numSaved;
    }
  }

  /// GEMMs' operands were decided before: 8 bits, or more in the layers that compute in the storage type. The gradient
  /// of a loss takes exponentials of logits less a sum of ones that were not rounded, which would leave [0, 1].
  static bool mayReadRounded(Operation *op) {
    auto semantics = dyn_cast<PrecisionSemantics>(op);
    return !semantics || (semantics.getNumericClass() != NumericClass::Contraction &&
                          semantics.getNumericClass() != NumericClass::Pinned);
  }

  /// `value`, or the value that it widens, where that is in the storage type.
  Value storedFormOf(Value value) {
    if (isStored(value))
      return value;
    auto cast = value.getDefiningOp<CastOp>();
    return cast && !isLossyCast(cast) && isStored(cast.getX()) ? cast.getX() : Value();
  }

  /// In the storage type, of more than one element.
  bool isStored(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && type.getElementType() == settings.storage && type.getNumElements() > 1;
  }

  /// Before its rounding to the storage type: one rounding, not two, as operands of GEMMs have it.
  static Value sourceOf(Value value) {
    auto cast = value.getDefiningOp<CastOp>();
    return cast && isLossyCast(cast) && !cast.getKey() ? cast.getX() : value;
  }

  PrecisionSettings settings;
};

} // namespace
