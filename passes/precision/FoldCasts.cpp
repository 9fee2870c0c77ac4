// SPDX-License-Identifier: Apache-2.0
// precision-fold-casts: joins casts where that changes no value.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/Decisions.h"
#include "mpt/Precision/LossyCasts.h"
#include "mpt/Support/Refusal.h"

namespace mpt {
#define GEN_PASS_DEF_FOLDCASTS
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

#define DEBUG_TYPE "precision-fold-casts"

namespace {
class FoldCasts : public mpt::impl::FoldCastsBase<FoldCasts> {
public:
  void runOnOperation() override {
    // Producers come first, so that chains shrink in one walk.
    getOperation().walk([&](CastOp cast) { join(cast); });
    SmallVector<CastOp> dead;
    getOperation().walk([&](CastOp cast) {
      if (cast->use_empty() && !isLossyCast(cast))
        dead.push_back(cast);
    });
    for (CastOp cast : llvm::reverse(dead))
      if (cast->use_empty())
        cast.erase();
  }

private:
  static bool areFloats(CastOp cast) {
    return isa<FloatType>(tensorType(cast.getX()).getElementType()) &&
           isa<FloatType>(tensorType(cast.getY()).getElementType());
  }

  static LogicalResult canJoin(CastOp inner, CastOp outer) {
    if (!areFloats(inner) || !areFloats(outer))
      return refuse(DEBUG_TYPE, outer) << "not foldable: expected casts between float types, got "
                                       << inner.getX().getType() << " to " << inner.getY().getType() << " to "
                                       << outer.getY().getType();
    if (isLossyCast(inner))
      return refuse(DEBUG_TYPE, outer) << "not foldable: expected an exact cast before it, got one that rounds "
                                       << inner.getX().getType() << " to " << inner.getY().getType();
    return success();
  }

  void join(CastOp outer) {
    auto inner = outer.getX().getDefiningOp<CastOp>();
    if (!inner || failed(canJoin(inner, outer)))
      return;
    bool wasLossy = isLossyCast(outer);
    ++numFolded;
    outer.getXMutable().assign(inner.getX());
    if (inner.getX().getType() == outer.getY().getType()) {
      outer.getY().replaceAllUsesWith(inner.getX());
      addLossyCasts(outer, wasLossy ? -1 : 0);
      outer.erase();
      return;
    }
    addLossyCasts(outer, int64_t(isLossyCast(outer)) - int64_t(wasLossy));
    restate(outer);
  }

  /// A cast of the file has a decision, which states its operand's type.
  static void restate(CastOp cast) {
    OpTypes types = decisionOf(cast);
    if (types.operands.empty())
      return;
    Builder builder(cast.getContext());
    DecisionCounts counts;
    types.operands = {tensorType(cast.getX()).getElementType()};
    setAttr<MPTDialect::PrecisionAttrHelper>(cast, decisionAttr(builder, types, counts));
  }
};
} // namespace
