// SPDX-License-Identifier: Apache-2.0
// Scalars of FP64 in FP32, for execution providers that have no other: rates, schedules, corrections of bias.
// Matcher: 1 - beta^t, which would lose its digits in FP32.
#include "Portable.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {

/// The number that a constant scalar holds.
std::optional<double> numberOf(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto elements = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : DenseElementsAttr();
  if (!elements || !elements.isSplat() || !elements.getElementType().isF64())
    return std::nullopt;
  return elements.getSplatValue<APFloat>().convertToDouble();
}

/// 1 - beta^t = 1 - exp(-2 u) with u = -t ln(beta) / 2, which is 2 tanh(u) / (1 + tanh(u)): nothing cancels.
void keepDigits(AddOp add) {
  auto negative = add.getLhs().getDefiningOp<NegOp>();
  auto power = negative ? negative.getX().getDefiningOp<PowOp>() : PowOp();
  std::optional<double> one = numberOf(add.getRhs()), beta = power ? numberOf(power.getLhs()) : std::nullopt;
  if (one != 1.0 || !beta || *beta <= 0 || *beta >= 1)
    return;
  OpBuilder builder(add);
  GraphBuilder b(builder, add.getLoc());
  Value tanh = b.make<TanhOp>(b.mul(power.getRhs(), -0.5 * std::log(*beta)));
  add.replaceAllUsesWith(b.div(b.mul(tanh, 2.0), b.add(tanh, 1.0)));
  add.erase();
}

bool isWideScalar(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getRank() == 0 && tensor.getElementType().isF64();
}

ElementsAttr inFloat32(DenseElementsAttr elements, RankedTensorType type) {
  APFloat value = elements.getSplatValue<APFloat>();
  bool loses;
  value.convert(APFloat::IEEEsingle(), APFloat::rmNearestTiesToEven, &loses);
  return DenseElementsAttr::get(type, value);
}

} // namespace

void mpt::narrowScalars(func::FuncOp function) {
  Block &body = function.getBody().front();
  for (Operation &op : llvm::make_early_inc_range(body))
    if (auto add = dyn_cast<AddOp>(op); add && isWideScalar(add.getType()))
      keepDigits(add);
  for (Operation &op : llvm::make_early_inc_range(body)) {
    for (OpResult result : op.getResults()) {
      if (!isWideScalar(result.getType()))
        continue;
      auto type = RankedTensorType::get({}, Float32Type::get(op.getContext()));
      result.setType(type);
      if (auto constant = dyn_cast<ConstantOp>(op))
        if (auto elements = dyn_cast<DenseElementsAttr>(constant.getValue()))
          constant.setValueAttr(inFloat32(elements, type));
    }
    if (auto cast = dyn_cast<CastOp>(op); cast && cast.getX().getType() == cast.getY().getType()) {
      cast.replaceAllUsesWith(cast.getX());
      cast.erase();
    }
  }
}
