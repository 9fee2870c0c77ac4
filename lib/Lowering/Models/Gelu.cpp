// SPDX-License-Identifier: Apache-2.0
// GELU in primitives.
// Matcher: the ops of GeluOp::decompose, whose x a fusion may have made twice.
#include "Gelu.h"

#include "mpt/Dialect/MPT/Splats.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

#include "mlir/IR/OperationSupport.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {

/// Whether `a` and `b` are one number: one value, or alike operations of such, in few steps.
bool isSame(Value a, Value b, unsigned steps = 8) {
  if (a == b || steps == 0)
    return a == b;
  constexpr auto flags =
      OperationEquivalence::Flags(OperationEquivalence::IgnoreLocations | OperationEquivalence::IgnoreDiscardableAttrs);
  Operation *p = a.getDefiningOp(), *q = b.getDefiningOp();
  return p && q && p->getNumResults() == 1 && p->getNumRegions() == 0 &&
         OperationEquivalence::isEquivalentTo(
             p, q, [&](Value x, Value y) { return success(isSame(x, y, steps - 1)); }, nullptr, flags);
}

/// The other operand of a sum or product of `value` with `number`; null where it is none.
template <typename Op> Value besideNumber(Value value, double number) {
  auto op = value.getDefiningOp<Op>();
  if (!op)
    return {};
  for (auto [other, given] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())})
    if (std::optional<double> found = splatNumber(given);
        found && static_cast<float>(*found) == static_cast<float>(number))
      return other;
  return {};
}

bool isCubeOf(Value value, Value x) {
  auto cube = value.getDefiningOp<MulOp>();
  auto square = cube ? cube.getLhs().getDefiningOp<MulOp>() : MulOp();
  return square && isSame(cube.getRhs(), x) && isSame(square.getLhs(), x) && isSame(square.getRhs(), x);
}

/// The form whose inner value, to which 1 is added, `inner` is.
std::optional<GeluForm> formOf(Value inner, Value x) {
  if (auto erf = inner.getDefiningOp<ErfOp>()) {
    Value argument = besideNumber<MulOp>(erf.getX(), std::sqrt(0.5));
    return argument && isSame(argument, x) ? std::optional(GeluForm::erf) : std::nullopt;
  }
  auto tanh = inner.getDefiningOp<TanhOp>();
  Value sum = tanh ? besideNumber<MulOp>(tanh.getX(), std::sqrt(2.0 / M_PI)) : Value();
  auto add = sum ? sum.getDefiningOp<AddOp>() : AddOp();
  if (!add || !isSame(add.getLhs(), x))
    return std::nullopt;
  Value cube = besideNumber<MulOp>(add.getRhs(), 0.044715);
  return cube && isCubeOf(cube, x) ? std::optional(GeluForm::tanh) : std::nullopt;
}

/// Whether all that is made of `value` are its 8 bits, scaled or not, and its largest magnitude in 16 bits or fewer.
bool endsInEightBits(Value value, bool isRounded) {
  return !value.use_empty() && llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (auto cast = dyn_cast<CastOp>(user)) {
      unsigned bits = elementOf(cast.getY()).getIntOrFloatBitWidth();
      return isa<FloatType>(elementOf(cast.getY())) &&
             (bits <= 8 || endsInEightBits(cast.getY(), isRounded || bits == 16));
    }
    if (auto reduce = dyn_cast<ReduceOp>(user))
      return isRounded && reduce.getKind() == ReduceKind::max;
    return isa<MulOp, AbsOp, ReshapeOp>(user) && endsInEightBits(user->getResult(0), isRounded);
  });
}

} // namespace

std::optional<GeluMatch> mpt::matchEightBitGelu(MulOp op) {
  if (!elementOf(op.getY()).isF32())
    return std::nullopt;
  for (auto [half, sum] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())}) {
    Value x = besideNumber<MulOp>(half, 0.5), inner = besideNumber<AddOp>(sum, 1.0);
    if (!x || !inner)
      continue;
    if (std::optional<GeluForm> form = formOf(inner, x); form && endsInEightBits(op.getY(), /*isRounded=*/false))
      return GeluMatch{x, *form};
  }
  return std::nullopt;
}
