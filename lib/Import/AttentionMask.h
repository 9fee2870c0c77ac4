// SPDX-License-Identifier: Apache-2.0
// The mask of ONNX's attention.
#ifndef MPT_LIB_IMPORT_ATTENTIONMASK_H
#define MPT_LIB_IMPORT_ATTENTIONMASK_H

#include "Binder.h"

namespace mpt {

/// Which keys each query sees, by the mask operand, causality, windows and padding, and the bias that is added to the
/// scores. All are as small as their origin; they broadcast to the scores [B, heads, queries, keys] with trailing
/// dimensions lined up.
class AttentionMask {
public:
  AttentionMask(Binder &b, mlir::RankedTensorType scores, int64_t past) : b(b), scores(scores), past(past) {}

  llvm::LogicalResult read();
  /// The scores, at -inf where they are masked.
  mlir::Value apply(mlir::Value values);
  /// True for queries that see no key, which the plain mask alone cannot rule out; null where every query sees one.
  mlir::Value findEmptyRows();

private:
  llvm::LogicalResult readOperand();
  void readPositions();
  void keep(mlir::Value more) { kept = kept ? b.make<AndOp>(spread(kept, more), spread(more, kept)) : more; }
  mlir::Value spread(mlir::Value x, mlir::Value like);

  Binder &b;
  mlir::RankedTensorType scores;
  int64_t past;
  mlir::Value kept, bias;
  bool mayBeEmpty = false;
};

} // namespace mpt

#endif // MPT_LIB_IMPORT_ATTENTIONMASK_H
