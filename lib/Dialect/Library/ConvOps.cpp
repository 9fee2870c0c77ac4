// SPDX-License-Identifier: Apache-2.0
// Constraints of convolutions: as for the core ops, and sums and parts of a norm by channel.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::library;

namespace {

/// FP32, one element a channel of `data`.
RankedTensorType vectorOf(Value data) {
  return RankedTensorType::get({tensorType(data).getDimSize(1)}, Float32Type::get(data.getContext()));
}

/// C1: y has the shape of mpt.conv of x and w.
LogicalResult checkShapes(library::ConvOp op) {
  mpt::ConvOp::Properties window;
  window.setStrides(op.getStridesAttr());
  window.setDilations(op.getDilationsAttr());
  window.setPadsLow(op.getPadsLowAttr());
  window.setPadsHigh(op.getPadsHighAttr());
  window.setGroups(op.getGroupsAttr());
  Value operands[] = {op.getX(), op.getW()};
  SmallVector<Type> types;
  mpt::ConvOp::Adaptor adaptor(operands, DictionaryAttr(), window);
  if (failed(mpt::ConvOp::inferReturnTypes(op.getContext(), op.getLoc(), adaptor, types)))
    return op.emitOpError() << "C1: expected operands and attributes that mpt.conv takes";
  auto shape = cast<RankedTensorType>(types.front()).getShape();
  if (shape != tensorType(op.getY()).getShape())
    return op.emitOpError() << "C1: expected " << tensorType(op.getX()) << " and " << tensorType(op.getW())
                            << " to give shape [" << shape << "], got " << tensorType(op.getY());
  return success();
}

/// C2.
LogicalResult checkSums(library::ConvOp op) {
  size_t count = op.getSums().size();
  if (count != 0 && op.getKind() == ConvKind::backward_weights)
    return op.emitOpError() << "C2: expected no sums of backward_weights, got " << count;
  if (count != 0 && count != 2)
    return op.emitOpError() << "C2: expected no sums or two, got " << count;
  for (Value sum : op.getSums())
    if (sum.getType() != vectorOf(op.getD()))
      return op.emitOpError() << "C2: expected sums of type " << vectorOf(op.getD()) << ", got " << sum.getType();
  return success();
}

/// C3 and C4.
LogicalResult checkNorm(library::ConvOp op) {
  size_t given = op.getNorm().size(), wanted = 0;
  if (op.getKind() == ConvKind::backward_data && !op.getSums().empty())
    wanted = 5;
  if (given != wanted)
    return op.emitOpError() << "C3: expected " << wanted << " parts of a norm beside " << op.getSums().size()
                            << " sums, got " << given;
  if (given == 0)
    return success();
  if (op.getNorm().front().getType() != op.getD().getType())
    return op.emitOpError() << "C4: expected a norm's input of type " << op.getD().getType() << ", got "
                            << op.getNorm().front().getType();
  for (Value part : op.getNorm().drop_front())
    if (part.getType() != vectorOf(op.getD()))
      return op.emitOpError() << "C4: expected parts of type " << vectorOf(op.getD()) << ", got " << part.getType();
  return success();
}

template <typename Op>
void buildCall(OpBuilder &builder, OperationState &state, Op conv, ConvKind kind, Value a, Value b) {
  library::ConvOp::build(builder, state, conv.getY().getType(), TypeRange(), kind, a, b, ValueRange(),
                         conv.getStrides(), conv.getDilations(), conv.getPadsLow(), conv.getPadsHigh(),
                         conv.getGroups(), conv.getNumericsAttr());
  state.addAttributes(llvm::to_vector(conv->getDiscardableAttrs()));
}

} // namespace

LogicalResult library::ConvOp::verify() {
  if (failed(checkShapes(*this)) || failed(checkSums(*this)))
    return failure();
  return checkNorm(*this);
}

void library::ConvOp::build(OpBuilder &builder, OperationState &state, mpt::ConvOp conv) {
  buildCall(builder, state, conv, ConvKind::forward, conv.getX(), conv.getW());
}
void library::ConvOp::build(OpBuilder &builder, OperationState &state, ConvBackwardDataOp conv) {
  buildCall(builder, state, conv, ConvKind::backward_data, conv.getDy(), conv.getW());
}
void library::ConvOp::build(OpBuilder &builder, OperationState &state, ConvBackwardWeightsOp conv) {
  buildCall(builder, state, conv, ConvKind::backward_weights, conv.getX(), conv.getDy());
}

library::ConvOp library::ConvOp::replaceByCallWithSums(ValueRange norm) {
  OpBuilder builder(*this);
  RankedTensorType sum = vectorOf(getD());
  auto call = library::ConvOp::create(builder, getLoc(), getD().getType(), TypeRange{sum, sum}, getKind(), getA(),
                                      getB(), norm, getStrides(), getDilations(), getPadsLow(), getPadsHigh(),
                                      getGroups(), getNumericsAttr());
  call->setDiscardableAttrs((*this)->getDiscardableAttrDictionary());
  getD().replaceAllUsesWith(call.getD());
  erase();
  return call;
}
