// SPDX-License-Identifier: Apache-2.0
// --fusion-widen-operands: 8-bit operands that no library call takes become FP16 where they are made.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Fusion/Backward.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Interfaces/GemmLike.h"
#include "mpt/Support/Refusal.h"
#include "passes/fusion/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {
#define GEN_PASS_DEF_WIDENOPERANDS
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

#define DEBUG_TYPE "fusion-widen-operands"

using namespace mlir;
using namespace mpt;

namespace {

bool isNarrow(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType()) && type.getElementTypeBitWidth() == 8;
}

struct WidenOperands : mpt::impl::WidenOperandsBase<WidenOperands> {
  using WidenOperandsBase::WidenOperandsBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        widen(function);
  }

private:
  /// Operands of one value share its conversion; the backward pass has its own, so that values kept until then stay
  /// narrow.
  using Known = DenseMap<std::pair<Value, unsigned>, Value>;

  static bool takesFloat8(MatMulOp matmul) {
    return library::GemmOp::takesFloat8(tensorType(matmul.getA()), tensorType(matmul.getB()));
  }

  void widen(func::FuncOp function) {
    DenseSet<Operation *> late = backwardOps(function);
    Known known;
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
      if (!isa<GemmLike>(op) || isNative(&op))
        continue;
      for (OpOperand &operand : op.getOpOperands())
        if (isNarrow(operand.get()))
          operand.set(wide(operand.get(), &op, late, known));
    }
    // Views of the narrow values would have them written.
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

  /// Whether the library multiplies the op's 8-bit operands as they are.
  bool isNative(Operation *op) const {
    auto matmul = dyn_cast<MatMulOp>(op);
    if (!nativeFloat8 || !matmul || !takesFloat8(matmul))
      return false;
    (void)(refuse(DEBUG_TYPE, op) << "not widened: expected operands that no library call takes, got 8-bit ones of a "
                                     "GEMM");
    return true;
  }

  Value wide(Value value, Operation *user, const DenseSet<Operation *> &late, Known &known) {
    Operation *source = value.getDefiningOp();
    unsigned again = late.contains(user) && !(source && late.contains(source));
    Value &result = known[{value, again}];
    if (result)
      return result;
    OpBuilder builder(user);
    if (isOperandView(source)) {
      // Conversions lie before views, where the op that makes the value can take them in.
      Value from = wide(source->getOperand(0), user, late, known);
      builder.setInsertionPoint(again ? user : source);
      Operation *view = builder.clone(*source);
      view->setOperand(0, from);
      Value shown = view->getResult(0);
      shown.setType(tensorType(shown).clone(builder.getF16Type()));
      return known[{value, again}] = shown;
    }
    if (!again)
      builder.setInsertionPointAfterValue(value);
    Value cast = GraphBuilder(builder, value.getLoc()).cast(value, builder.getF16Type());
    if (again)
      setAttr<MPTDialect::RecomputedAttrHelper>(cast.getDefiningOp());
    ++numWidened;
    return known[{value, again}] = cast;
  }
};

} // namespace
