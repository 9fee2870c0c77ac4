// SPDX-License-Identifier: Apache-2.0
// Formulas of activations that operators name by a string.
#include "Activations.h"

#include "llvm/ADT/StringSwitch.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

Value Activation::apply(Binder &b, Value x) const {
  switch (kind) {
  case relu:
    return b.make<ReluOp>(x);
  case tanh:
    return b.make<TanhOp>(x);
  case sigmoid:
    return b.make<SigmoidOp>(x);
  case affine:
    return b.add(b.mul(x, alpha), beta);
  case leakyRelu:
    return b.make<LeakyReluOp>(x.getType(), x, b.f64(alpha));
  case thresholdedRelu:
    return b.select(b.compare(Predicate::ge, x, alpha), x, b.splatLike(x, 0));
  case scaledTanh:
    return b.mul(b.make<TanhOp>(b.mul(x, beta)), alpha);
  case hardSigmoid:
    return b.make<HardSigmoidOp>(x.getType(), x, b.f64(alpha), b.f64(beta));
  case elu:
    return b.make<EluOp>(x.getType(), x, b.f64(alpha));
  case selu:
    return b.mul(b.make<EluOp>(x.getType(), x, b.f64(alpha)), beta);
  case softsign:
    return b.div(x, b.add(b.make<AbsOp>(x), 1.0));
  case softplus:
    return b.make<SoftplusOp>(x);
  case clip:
    return b.make<ClampOp>(x, b.f64(alpha), b.f64(beta));
  }
  llvm_unreachable("an activation without a formula");
}

std::optional<ActivationText> mpt::gateActivation(StringRef name) {
  using A = Activation;
  return llvm::StringSwitch<std::optional<ActivationText>>(name)
      .CaseLower("Relu", ActivationText{A::relu, {}, {}})
      .CaseLower("Tanh", ActivationText{A::tanh, {}, {}})
      .CaseLower("Sigmoid", ActivationText{A::sigmoid, {}, {}})
      .CaseLower("Affine", ActivationText{A::affine, 1.0, 0.0})
      .CaseLower("LeakyRelu", ActivationText{A::leakyRelu, 0.01f, {}})
      .CaseLower("ThresholdedRelu", ActivationText{A::thresholdedRelu, 1.0, {}})
      .CaseLower("ScaledTanh", ActivationText{A::scaledTanh, 1.0, 1.0})
      .CaseLower("HardSigmoid", ActivationText{A::hardSigmoid, 0.2f, 0.5})
      .CaseLower("Elu", ActivationText{A::elu, 1.0, {}})
      .CaseLower("Softsign", ActivationText{A::softsign, {}, {}})
      .CaseLower("Softplus", ActivationText{A::softplus, {}, {}})
      .Default(std::nullopt);
}

FailureOr<Value> mpt::fusedActivation(Binder &b, Value x, ArrayRef<std::optional<double>> parameters) {
  StringRef name = b.stringAttr("activation", "");
  if (name.empty())
    return x;
  std::optional<ActivationText> text = llvm::StringSwitch<std::optional<ActivationText>>(name)
                                           .Case("Clip", ActivationText{Activation::clip, -INFINITY, INFINITY})
                                           .Case("Selu", ActivationText{Activation::selu, 1.67326324f, 1.05070102f})
                                           .Default(gateActivation(name));
  if (!text)
    return b.fail() << "expected an activation that ONNX Runtime fuses (Relu, Tanh, Sigmoid, LeakyRelu, Clip, "
                       "HardSigmoid, Elu, Selu, Softplus, Softsign, ThresholdedRelu), got '"
                    << name << "'";
  auto number = [&](size_t i, std::optional<double> otherwise) {
    return i < parameters.size() && parameters[i] ? *parameters[i] : otherwise.value_or(0);
  };
  return Activation{text->kind, number(0, text->alpha), number(1, text->beta)}.apply(b, x);
}
