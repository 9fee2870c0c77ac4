// SPDX-License-Identifier: Apache-2.0
// How loss scales go through library calls: sums of products, epilogues, sums that a call leaves beside its result.
#include "Rules.h"

#include "mpt/Dialect/Library/LibraryDialect.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::scales;

namespace {

/// The type of a product of all of `values`.
ScaleType productOf(ScaleInference &inference, ValueRange values) {
  ScaleType product = ScaleType::unscaled();
  for (Value value : values)
    product = product.times(inference.of(value));
  return product;
}

/// Refuses `value`, if there is one, with a scale.
void needUnscaled(ScaleInference &inference, Value value, StringRef what) {
  if (!value)
    return;
  if (ScaleType type = inference.of(value); !type.isUnscaled() && !type.isZero())
    inference.refuse() << "expected " << what << " without a scale, got " << type.str();
}

/// The epilogue's rule follows from the sum's type: a bias has the same one, GELU needs none.
struct Gemm : GradientScale::ExternalModel<Gemm, library::GemmOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto gemm = cast<library::GemmOp>(op);
    ScaleType sum = productOf(inference, {gemm.getA(), gemm.getB()});
    sum = sum.times(productOf(inference, gemm.getOperandScales()));
    if (gemm.getScale())
      sum = sum.times(inference.of(gemm.getScale()));
    needUnscaled(inference, gemm.getAux(), "the argument of an activation's gradient");
    if (Value bias = gemm.getBias()) {
      ScaleType type = inference.of(bias);
      if (sum.isZero()) // as of a state that starts at zero: there is the bias alone
        sum = type;
      else if (!type.isZero() && !sum.carriesAs(type))
        inference.refuse() << "expected a bias that carries the sum's scale, got " << type.str() << " beside "
                           << sum.str();
    }
    if (gemm.getForm().getActivation() == library::Activation::gelu_tanh && !sum.isUnscaled())
      inference.refuse() << "expected an argument of GELU without a scale, got " << sum.str();
    inference.set(gemm.getD(), sum.withoutPurity());
    if (gemm.getKept())
      inference.set(gemm.getKept(), sum.withoutPurity());
    if (gemm.getSums())
      inference.set(gemm.getSums(), summed(gemm, inference, sum).withoutPurity());
  }

private:
  static ScaleType summed(library::GemmOp gemm, ScaleInference &inference, const ScaleType &sum) {
    library::GemmSum which = gemm.getForm().getSum();
    return which == library::GemmSum::d ? sum : inference.of(which == library::GemmSum::a ? gemm.getA() : gemm.getB());
  }
};

/// Forward sums are of the result's first and second powers; those of a gradient are linear in it, beside a
/// normalization of the forward pass.
struct Conv : GradientScale::ExternalModel<Conv, library::ConvOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto conv = cast<library::ConvOp>(op);
    ScaleType type = productOf(inference, {conv.getA(), conv.getB()});
    for (Value part : conv.getNorm())
      needUnscaled(inference, part, "a normalization");
    inference.set(conv.getD(), conv.getNorm().empty() ? type : type.withoutPurity());
    for (auto [i, sum] : llvm::enumerate(conv.getSums())) {
      int64_t power = conv.getKind() == library::ConvKind::forward ? static_cast<int64_t>(i) + 1 : 1;
      inference.set(sum, type.power(power)->withoutPurity());
    }
  }
};

struct AttentionGradient : GradientScale::ExternalModel<AttentionGradient, library::AttentionGradientOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto attention = cast<library::AttentionGradientOp>(op);
    for (Value operand : op->getOperands())
      if (operand != attention.getDO())
        needUnscaled(inference, operand, "what attention reads and makes");
    setResults(op, inference, inference.of(attention.getDO()).withoutPurity());
  }
};

} // namespace

void scales::attachLibraryScales(MLIRContext *context) {
  attach<NotHomogeneous, library::AttentionOp>(context);
  library::GemmOp::attachInterface<Gemm>(*context);
  library::ConvOp::attachInterface<Conv>(*context);
  library::AttentionGradientOp::attachInterface<AttentionGradient>(*context);
}
