// SPDX-License-Identifier: Apache-2.0
// GELU in its forms, and the ones that ONNX Runtime has fused with a bias.
#include "Gelu.h"

using namespace mlir;
using namespace mpt;

LogicalResult mpt::importGelu(Binder &b) {
  StringRef form = b.stringAttr("approximate", "none");
  if (form != "none" && form != "tanh")
    return b.fail() << "expected approximate = none or tanh, got '" << form << "'";
  return b.done(b.make<GeluOp>(b.in(0), form == "tanh" ? GeluForm::tanh : GeluForm::erf));
}

LogicalResult mpt::importQuickGelu(Binder &b) {
  double alpha = b.floatAttr("alpha", 1.702);
  return b.done(b.make<SwishOp>(b.in(0).getType(), b.in(0), b.f64(alpha)));
}

template <GeluForm form> LogicalResult mpt::importBiasGelu(Binder &b) {
  FailureOr<Value> x = b.plusOptional(b.in(0), 1);
  return failed(x) ? failure() : b.done(b.make<GeluOp>(*x, form));
}

template LogicalResult mpt::importBiasGelu<GeluForm::erf>(Binder &b);
template LogicalResult mpt::importBiasGelu<GeluForm::tanh>(Binder &b);

LogicalResult mpt::importBiasSplitGelu(Binder &b) {
  FailureOr<Value> x = b.plusOptional(b.in(0), 1);
  if (failed(x))
    return failure();
  SmallVector<int64_t> starts(b.rank(0), 0), sizes(b.shape(0));
  if (sizes.empty() || sizes.back() % 2)
    return b.fail() << "expected an even last extent, got " << b.in(0).getType();
  sizes.back() /= 2;
  Value value = b.slice(*x, starts, sizes);
  starts.back() = sizes.back();
  return b.done(b.mul(value, b.make<GeluOp>(b.slice(*x, starts, sizes), GeluForm::erf)));
}
