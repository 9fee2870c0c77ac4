// SPDX-License-Identifier: Apache-2.0
// Comparisons of positions with a number of 64 bits, such as a class label, in the width of indices.
// Matcher: arith.cmpi eq and ne of an index widened to i64 and a number that all lanes share.
#include "ToNvvm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

using namespace mlir;
using namespace mpt;

namespace {

/// The number that all lanes of `value` share; null where they may differ.
Value shared(Value value) {
  if (!isa<VectorType>(value.getType()))
    return value;
  auto broadcast = value.getDefiningOp<vector::BroadcastOp>();
  return broadcast && !isa<VectorType>(broadcast.getSource().getType()) ? broadcast.getSource() : Value();
}

/// `position` == `number` without 64 bits a lane. A number that no index has becomes the least one of 32 bits, which is
/// none either. `byDistance`: the addend that all lanes share is taken off the number instead, modulo 2^32 on both
/// sides, which saves an addition a lane and wants a register a vector.
Value compare(arith::CmpIOp op, Value position, Value number, bool byDistance) {
  ImplicitLocOpBuilder b(op.getLoc(), op);
  Type i32 = b.getI32Type();
  Value low = arith::TruncIOp::create(b, i32, number);
  Value whole = arith::ExtSIOp::create(b, number.getType(), low);
  Value isIndex = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, whole, number);
  Value none = arith::ConstantOp::create(b, b.getI32IntegerAttr(INT32_MIN));
  low = arith::SelectOp::create(b, isIndex, low, none);
  number = arith::IndexCastOp::create(b, b.getIndexType(), low);
  if (auto sum = position.getDefiningOp<arith::AddIOp>(); sum && byDistance)
    if (Value base = shared(sum.getLhs()); base && isa<VectorType>(position.getType())) {
      number = arith::SubIOp::create(b, number, base);
      position = sum.getRhs();
    }
  if (auto type = dyn_cast<VectorType>(position.getType()))
    number = vector::BroadcastOp::create(b, type, number);
  return arith::CmpIOp::create(b, op.getPredicate(), position, number);
}

} // namespace

void cuda::narrowIndexCompares(Operation *kernels) {
  // Rows of more vectors fill the registers of their threads themselves.
  constexpr size_t fewVectors = 20;
  struct Comparison {
    arith::CmpIOp op;
    Value position, number;
  };
  kernels->walk([&](func::FuncOp kernel) {
    SmallVector<Comparison> found;
    kernel.walk([&](arith::CmpIOp op) {
      bool isEquality = op.getPredicate() == arith::CmpIPredicate::eq || op.getPredicate() == arith::CmpIPredicate::ne;
      if (!isEquality || !getElementTypeOrSelf(op.getLhs()).isInteger(64))
        return;
      for (auto [x, y] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())}) {
        auto position = x.getDefiningOp<arith::IndexCastOp>();
        Value number = shared(y);
        if (!position || !number || number.getDefiningOp<arith::IndexCastOp>())
          continue;
        found.push_back({op, position.getIn(), number});
        return;
      }
    });
    for (Comparison &each : found) {
      each.op->replaceAllUsesWith(ValueRange{compare(each.op, each.position, each.number, found.size() <= fewVectors)});
      each.op->erase();
    }
  });
}
