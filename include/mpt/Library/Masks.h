// SPDX-License-Identifier: Apache-2.0
// Masks of attention's scores: the bias that they add, and whether they are causal.
#ifndef MPT_LIBRARY_MASKS_H
#define MPT_LIBRARY_MASKS_H

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/Splats.h"
#include "mpt/Evaluation/Tensor.h"

#include <optional>

namespace mpt {

/// The mask of scores [.., queries, keys] before softmax.
struct Mask {
  mlir::Value bias;    ///< of the scores' rank, extents of 1 where it repeats; null where there is none
  bool causal = false; ///< keys behind the query are excluded as well
};

/// Elements of values that follow from constants alone, nothing for others.
using KnownMasks = llvm::DenseMap<mlir::Value, std::optional<Tensor>>;

/// Collects the ops that mask scores of one shape. `known` serves all scores of a function.
class MaskBuilder {
public:
  MaskBuilder(GraphBuilder &b, mlir::RankedTensorType scores, KnownMasks &known) : b(b), scores(scores), known(known) {}

  /// `factor` times `value` is added. False where that is more than a mask.
  bool add(mlir::Value value, double factor);
  /// Scores where `condition` is not `excluded`, else `sentinel`, which has to exclude a key.
  bool select(mlir::Value condition, bool excluded, double sentinel);
  Mask take() const { return mask; }

private:
  /// `value` before it was repeated; extents of 1 in the scores' rank.
  mlir::Value compact(mlir::Value value);
  bool addBias(mlir::Value value);
  /// Elements of `small`, which `value` repeats.
  const std::optional<Tensor> &elementsOf(mlir::Value value, mlir::Value small);

  GraphBuilder &b;
  mlir::RankedTensorType scores;
  KnownMasks &known;
  Mask mask;
};

} // namespace mpt

#endif // MPT_LIBRARY_MASKS_H
