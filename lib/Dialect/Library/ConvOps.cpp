// SPDX-License-Identifier: Apache-2.0
// Constraints of convolutions: as for the core ops, and sums and parts of a norm by channel.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::library;

namespace {

/// C1: `y` has the shape of mpt.conv of `x` and `w`.
template <typename Op> LogicalResult checkShapes(Op op, Value x, Value w, Value y) {
  mpt::ConvOp::Properties window;
  window.setStrides(op.getStridesAttr());
  window.setDilations(op.getDilationsAttr());
  window.setPadsLow(op.getPadsLowAttr());
  window.setPadsHigh(op.getPadsHighAttr());
  window.setGroups(op.getGroupsAttr());
  Value operands[] = {x, w};
  SmallVector<Type> types;
  mpt::ConvOp::Adaptor adaptor(operands, DictionaryAttr(), window);
  if (failed(mpt::ConvOp::inferReturnTypes(op.getContext(), op.getLoc(), adaptor, types)))
    return op.emitOpError() << "C1: expected operands and attributes that mpt.conv takes";
  auto shape = cast<RankedTensorType>(types.front()).getShape();
  if (shape != tensorType(y).getShape())
    return op.emitOpError() << "C1: expected " << tensorType(x) << " and " << tensorType(w) << " to give shape ["
                            << shape << "], got " << tensorType(y);
  return success();
}

/// FP32, one element a channel of `data`.
RankedTensorType vectorOf(Value data) {
  return RankedTensorType::get({tensorType(data).getDimSize(1)}, Float32Type::get(data.getContext()));
}

/// C2.
template <typename Op> LogicalResult checkSums(Op op, Value summed) {
  size_t count = op.getSums().size();
  if (count != 0 && count != 2)
    return op.emitOpError() << "C2: expected no sums or two, got " << count;
  for (Value sum : op.getSums())
    if (sum.getType() != vectorOf(summed))
      return op.emitOpError() << "C2: expected sums of type " << vectorOf(summed) << ", got " << sum.getType();
  return success();
}

} // namespace

LogicalResult library::ConvOp::verify() {
  if (failed(checkShapes(*this, getX(), getW(), getY())))
    return failure();
  return checkSums(*this, getY());
}

LogicalResult library::ConvBackwardDataOp::verify() {
  if (failed(checkShapes(*this, getDx(), getW(), getDy())) || failed(checkSums(*this, getDx())))
    return failure();
  size_t wanted = getSums().empty() ? 0 : 5, given = getNorm().size();
  if (given != wanted)
    return emitOpError() << "C3: expected " << wanted << " parts of a norm beside " << getSums().size() << " sums, got "
                         << given;
  if (given == 0)
    return success();
  if (getNorm().front().getType() != getDx().getType())
    return emitOpError() << "C4: expected a norm's input of type " << getDx().getType() << ", got "
                         << getNorm().front().getType();
  for (Value part : getNorm().drop_front())
    if (part.getType() != vectorOf(getDx()))
      return emitOpError() << "C4: expected parts of type " << vectorOf(getDx()) << ", got " << part.getType();
  return success();
}
