// SPDX-License-Identifier: Apache-2.0
// How a family file states the gradient rules of its ops.
#ifndef MPT_LIB_AUTODIFF_RULES_H
#define MPT_LIB_AUTODIFF_RULES_H

#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

namespace mpt {

/// The context of a rule: the gradients of the op's results to read, and of its operands to give.
class Backward : public GraphBuilder {
public:
  Backward(mlir::Operation *op, mlir::OpBuilder &builder, GradientMap &grads)
      : GraphBuilder(builder, op->getLoc()), op(op), grads(grads) {}

  /// Gradient of result `index`; null where none arrives.
  mlir::Value dy(unsigned index = 0) const { return grads.get(op->getResult(index)); }
  /// Adds the result of `gradient` to the gradient of `operand`, cast to its type; builds nothing where none is wanted.
  void give(mlir::Value operand, llvm::function_ref<mlir::Value()> gradient);
  void give(mlir::Value operand, mlir::Value gradient) {
    give(operand, [&] { return gradient; });
  }
  bool wants(mlir::Value operand) const { return grads.wants(operand); }
  /// Zeros where `condition` does not hold.
  mlir::Value where(mlir::Value condition, mlir::Value value) {
    return select(condition, value, splatLike(value, 0.0));
  }
  /// Reports that this instance of the op has no gradient, and why.
  void unsupported(const llvm::Twine &why);
  /// Differentiates through the op's decomposition instead.
  void decompose() { status = differentiateDecomposition(op, builder, grads); }

  mlir::LogicalResult status = mlir::success();

private:
  mlir::Operation *op;
  GradientMap &grads;
};

template <typename Op> struct GradientRule : Differentiable::ExternalModel<GradientRule<Op>, Op> {
  static void apply(Op op, Backward &b);

  mlir::LogicalResult backward(mlir::Operation *op, mlir::OpBuilder &builder, GradientMap &grads) const {
    Backward b(op, builder, grads);
    apply(llvm::cast<Op>(op), b);
    return b.status;
  }
};

/// Head of a rule; the body gives gradients to `op`'s operands.
#define MPT_GRADIENT(OP) template <> void GradientRule<OP>::apply(OP op, Backward &b)

template <typename... Ops> void attachGradients(mlir::MLIRContext *context) {
  (Ops::template attachInterface<GradientRule<Ops>>(*context), ...);
}

// One function a family file.
void attachCastGradients(mlir::MLIRContext *context);
void attachConvGradients(mlir::MLIRContext *context);
void attachElementwiseGradients(mlir::MLIRContext *context);
void attachGatherGradients(mlir::MLIRContext *context);
void attachLossGradients(mlir::MLIRContext *context);
void attachMatMulGradients(mlir::MLIRContext *context);
void attachNormGradients(mlir::MLIRContext *context);
void attachPoolGradients(mlir::MLIRContext *context);
void attachRandomGradients(mlir::MLIRContext *context);
void attachRecurrentGradients(mlir::MLIRContext *context);
void attachReduceGradients(mlir::MLIRContext *context);
void attachResizeGradients(mlir::MLIRContext *context);
void attachScatterGradients(mlir::MLIRContext *context);
void attachShapeGradients(mlir::MLIRContext *context);
void attachTrainingGradients(mlir::MLIRContext *context);
void attachEvaluationForms(mlir::MLIRContext *context);
void attachNotDifferentiable(mlir::MLIRContext *context);
void attachLinearity(mlir::MLIRContext *context);

} // namespace mpt

#endif // MPT_LIB_AUTODIFF_RULES_H
