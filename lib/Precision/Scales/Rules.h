// SPDX-License-Identifier: Apache-2.0
// The classes of scale rules (docs/scale-types.md), as models that a family's file attaches to its ops.
#ifndef MPT_PRECISION_SCALES_RULES_H
#define MPT_PRECISION_SCALES_RULES_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Interfaces/GradientScale.h"

namespace mpt::scales {

/// Only floats carry scales; counts, indices and flags never do.
bool carriesScales(mlir::Value value);
void setResults(mlir::Operation *op, ScaleInference &inference, const ScaleType &type);
/// The scale that all of `values` carry; refuses different ones. Zeros fit any.
ScaleType meet(ScaleInference &inference, mlir::ValueRange values);
/// Refuses an operand with a scale, but for operand `but`.
void needUnscaled(mlir::Operation *op, ScaleInference &inference, std::optional<unsigned> but = std::nullopt);
/// One of `values`: of scales, and of numbers that bound them, one is a scale again, though another one.
void inferChoice(mlir::Operation *op, ScaleInference &inference, mlir::ValueRange values);
void inferPower(mlir::Operation *op, ScaleInference &inference, int64_t n, int64_t root);
void inferMovement(mlir::Operation *op, ScaleInference &inference);
void inferMultilinear(mlir::Operation *op, ScaleInference &inference);
void inferInvariant(mlir::Operation *op, ScaleInference &inference);

/// f(s x, s y, ...) = s f(x, y, ...) for s > 0: operands carry one scale, and results the same.
template <typename Op, bool spreads = false>
struct Homogeneous : GradientScale::ExternalModel<Homogeneous<Op, spreads>, Op> {
  void inferScales(mlir::Operation *op, ScaleInference &inference) const {
    setResults(op, inference, meet(inference, op->getOperands()).withoutPurity());
  }
  bool spreadsNonFinite(mlir::Operation *) const { return spreads; }
};
/// Moves or repeats the elements of one operand: a scale stays one.
template <typename Op, bool spreads = false> struct Movement : GradientScale::ExternalModel<Movement<Op, spreads>, Op> {
  void inferScales(mlir::Operation *op, ScaleInference &inference) const { inferMovement(op, inference); }
  bool spreadsNonFinite(mlir::Operation *) const { return spreads; }
};
/// Linear in operand k, with the others unscaled: results carry the scale of operand k.
template <unsigned k> struct LinearIn {
  template <typename Op> struct Model : GradientScale::ExternalModel<Model<Op>, Op> {
    void inferScales(mlir::Operation *op, ScaleInference &inference) const {
      needUnscaled(op, inference, k);
      setResults(op, inference, inference.of(op->getOperand(k)).withoutPurity());
    }
  };
};
/// Linear in each operand by itself: exponents add.
template <typename Op, bool spreads = false>
struct Multilinear : GradientScale::ExternalModel<Multilinear<Op, spreads>, Op> {
  void inferScales(mlir::Operation *op, ScaleInference &inference) const { inferMultilinear(op, inference); }
  bool spreadsNonFinite(mlir::Operation *) const { return spreads; }
};
/// Of degree n / root in its only operand.
template <int64_t n, int64_t root = 1> struct Power {
  template <typename Op> struct Model : GradientScale::ExternalModel<Model<Op>, Op> {
    void inferScales(mlir::Operation *op, ScaleInference &inference) const { inferPower(op, inference, n, root); }
  };
};
/// The same for x and s x, s > 0, where operands carry one scale: results are unscaled.
template <typename Op> struct Invariant : GradientScale::ExternalModel<Invariant<Op>, Op> {
  void inferScales(mlir::Operation *op, ScaleInference &inference) const { inferInvariant(op, inference); }
};
/// Nothing is known of f(s x): operands are unscaled.
template <typename Op> struct NotHomogeneous : GradientScale::ExternalModel<NotHomogeneous<Op>, Op> {
  void inferScales(mlir::Operation *op, ScaleInference &inference) const { needUnscaled(op, inference); }
};

template <template <typename...> class Model, typename... Ops> void attach(mlir::MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops>>(*context), ...);
}
/// For finite results that prove finite operands.
template <template <typename, bool> class Model, typename... Ops> void attachSpreading(mlir::MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops, true>>(*context), ...);
}
template <template <typename, bool> class Model, typename... Ops> void attachPlain(mlir::MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops, false>>(*context), ...);
}

void attachElementwiseScales(mlir::MLIRContext *context);
void attachTensorScales(mlir::MLIRContext *context);
void attachCompositeScales(mlir::MLIRContext *context);
void attachTrainScales(mlir::MLIRContext *context);
void attachLibraryScales(mlir::MLIRContext *context);
void attachFunctionScales(mlir::MLIRContext *context);

} // namespace mpt::scales

#endif // MPT_PRECISION_SCALES_RULES_H
