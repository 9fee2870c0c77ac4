// SPDX-License-Identifier: Apache-2.0
// Decides dimension orders: consumers' wishes flow backward, then producers choose in program order.
#include "mpt/Memory/Orders.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/RT/RTDialect.h"

#include "mlir/IR/PatternMatch.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }
int64_t rankOf(Value value) { return cast<RankedTensorType>(value.getType()).getRank(); }

/// The order of x that gives y = transpose(x, permutation) the order `order`.
Order throughTranspose(ArrayRef<int64_t> order, ArrayRef<int64_t> permutation) {
  Order result;
  for (int64_t d : order)
    result.push_back(permutation[d]);
  return result;
}

Order afterTranspose(ArrayRef<int64_t> order, ArrayRef<int64_t> permutation) {
  Order inverse(permutation.size());
  for (auto [i, p] : llvm::enumerate(permutation))
    inverse[p] = i;
  return throughTranspose(order, inverse);
}

} // namespace

Orders::Orders(func::FuncOp function) {
  for (Operation &op : llvm::reverse(function.front()))
    collectWishes(&op);
  for (Operation &op : function.front())
    decide(&op);
}

Order Orders::of(Value value) const {
  if (const Order *order = known(value))
    return *order;
  return rowMajor(rankOf(value));
}

const Order *Orders::known(Value value) const {
  auto it = orders.find(value);
  return it == orders.end() ? nullptr : &it->second;
}

void Orders::wish(Value value, Order order, int priority) {
  auto [it, fresh] = wishes.try_emplace(value, Wish{order, priority});
  if (!fresh && it->second.priority < priority)
    it->second = {std::move(order), priority};
}

void Orders::collectWishes(Operation *op) {
  auto channelsLastOf = [&](Value value) { wish(value, channelsLast(rankOf(value)), 2); };
  auto passOn = [&](Value result, Value operand, int least) {
    if (auto it = wishes.find(result); it != wishes.end() && it->second.priority >= least)
      wish(operand, Order(it->second.order), it->second.priority);
  };
  TypeSwitch<Operation *>(op)
      .Case<ConvOp>([&](ConvOp conv) { channelsLastOf(conv.getX()); })
      .Case<ConvBackwardDataOp>([&](ConvBackwardDataOp conv) { channelsLastOf(conv.getDy()); })
      .Case<ConvBackwardWeightsOp>([&](ConvBackwardWeightsOp conv) {
        channelsLastOf(conv.getX());
        channelsLastOf(conv.getDy());
      })
      .Case<ReshapeOp>([&](ReshapeOp reshape) { wish(reshape.getX(), rowMajor(rankOf(reshape.getX())), 1); })
      .Case<TransposeOp>([&](TransposeOp transpose) {
        if (auto it = wishes.find(transpose.getY()); it != wishes.end()) {
          Wish found = it->second;
          wish(transpose.getX(), throughTranspose(found.order, transpose.getPermutation()), found.priority);
        }
      })
      .Case<SliceOp>([&](SliceOp slice) { passOn(slice.getY(), slice.getX(), 1); })
      .Case<ConcatOp>([&](ConcatOp concat) {
        for (Value input : concat.getInputs())
          passOn(concat.getY(), input, 2);
      })
      .Case<FusionOp>([&](FusionOp fusion) {
        for (Value output : fusion.getOutputs())
          for (Value input : fusion.getInputs())
            if (shapeOf(input) == shapeOf(output))
              passOn(output, input, 2);
      });
}

Order Orders::orderOfFusionResult(Operation *fusion, Value result) const {
  auto it = wishes.find(result);
  if (it != wishes.end() && it->second.priority == 2)
    return it->second.order;
  int64_t rank = rankOf(result);
  // The dominant operand: of the result's shape if there is one, else the largest of its rank (pooling windows).
  Value dominant;
  auto weight = [&](Value v) { return std::make_pair(shapeOf(v) == shapeOf(result), elementCount(shapeOf(v))); };
  for (Value input : fusion->getOperands())
    if (rankOf(input) == rank && (!dominant || weight(dominant) < weight(input)))
      dominant = input;
  if (it != wishes.end() && it->second.priority == 1 && rank > 2)
    return it->second.order;
  if (dominant && known(dominant))
    return *known(dominant);
  return rowMajor(rank);
}

void Orders::decide(Operation *op) {
  TypeSwitch<Operation *>(op)
      .Case<ConvOp>([&](ConvOp conv) { orders[conv.getY()] = channelsLast(rankOf(conv.getY())); })
      .Case<ConvBackwardDataOp>(
          [&](ConvBackwardDataOp conv) { orders[conv.getY()] = channelsLast(rankOf(conv.getY())); })
      .Case<TransposeOp>([&](TransposeOp transpose) {
        orders[transpose.getY()] = afterTranspose(of(transpose.getX()), transpose.getPermutation());
      })
      .Case<SliceOp>([&](SliceOp slice) {
        if (const Order *order = known(slice.getX()))
          orders[slice.getY()] = Order(*order);
      })
      .Case<ConcatOp>([&](ConcatOp concat) {
        if (auto it = wishes.find(concat.getY()); it != wishes.end())
          orders[concat.getY()] = it->second.order;
        else if (const Order *order = known(concat.getInputs().front()))
          orders[concat.getY()] = Order(*order);
      })
      .Case<library::GemmOp>([&](library::GemmOp gemm) {
        // A GEMM writes rows of unit stride, in any order of the other dimensions.
        auto it = wishes.find(gemm.getD());
        if (it != wishes.end() && it->second.order.back() == rankOf(gemm.getD()) - 1)
          orders[gemm.getD()] = it->second.order;
      })
      .Case<rt::AttendOp, rt::AttendGradientOp>([&](Operation *attend) {
        for (Value result : attend->getResults())
          if (auto it = wishes.find(result); it != wishes.end() && it->second.order.back() == rankOf(result) - 1)
            orders[result] = it->second.order;
      })
      .Case<FusionOp>([&](FusionOp fusion) {
        for (Value output : fusion.getOutputs())
          orders[output] = orderOfFusionResult(fusion, output);
      });
}
