// SPDX-License-Identifier: Apache-2.0
// Casts in a policy's rounding mode, and the key of stochastic ones.
#include "mpt/Precision/RoundingCasts.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/Sizes.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Precision/LossyCasts.h"

using namespace mlir;
using namespace mpt;

static constexpr llvm::StringLiteral kKey = train::TrainDialect::kRounding;
/// Streams below are the model's own (dropout), so that one seed serves both.
static constexpr int64_t kFirstStream = 1 << 20;

Value RoundingCasts::keyIn(func::FuncOp function) {
  Value &key = keys[function];
  if (key)
    return key;
  auto builder = OpBuilder::atBlockBegin(&function.getBody().front());
  Location loc = NameLoc::get(builder.getStringAttr(kKey));
  auto type = RankedTensorType::get({2}, builder.getI64Type());
  if (!SymbolTable::lookupSymbolIn(module, kKey)) {
    auto top = OpBuilder::atBlockBegin(module.getBody());
    for (auto state : module.getOps<train::StateOp>())
      top.setInsertionPointAfter(state);
    train::StateOp::create(top, loc, kKey, type, train::Role::rng, StringAttr(),
                           DenseElementsAttr::get(type, ArrayRef<int64_t>{0, 0}), /*frozen=*/false, StringAttr());
  }
  for (auto read : function.getOps<train::ReadOp>()) // of an earlier pass
    if (read.getState() == kKey)
      return key = read.getValue();
  key = train::ReadOp::create(builder, loc, type, kKey);
  if (!function.getOps<train::WriteOp>().empty()) {
    GraphBuilder b(builder, loc);
    train::WriteOp::create(builder, loc, kKey, b.add(key, b.indices({0, 1})), Value());
  }
  return key;
}

/// Each size counts for itself, and so draws the same numbers as a module of that size alone.
Operation *RoundingCasts::counterOf(func::FuncOp function) {
  StringRef size = sizeOf(function, module);
  if (size.empty())
    return module;
  return *llvm::find_if(module.getOps<func::FuncOp>(),
                        [&](func::FuncOp other) { return sizeOf(other, module) == size; });
}

int64_t RoundingCasts::nextStream(func::FuncOp function) {
  Operation *&counter = counters[function];
  if (!counter)
    counter = counterOf(function);
  auto known = getAttr<MPTDialect::RoundingStreamsAttrHelper>(counter);
  int64_t stream = known ? known.getInt() : kFirstStream;
  setAttr<MPTDialect::RoundingStreamsAttrHelper>(counter, Builder(module.getContext()).getI64IntegerAttr(stream + 1));
  return stream;
}

Value RoundingCasts::cast(OpBuilder &builder, Location loc, Value x, Type element, RoundingMode mode) {
  RankedTensorType from = tensorType(x);
  if (from.getElementType() == element)
    return x;
  auto overflow = mode.saturates ? Overflow::Saturate : Overflow::Infinity;
  auto create = [&](Value value, Value key, Rounding rounding, int64_t stream) -> Value {
    auto cast = CastOp::create(builder, loc, from.clone(element), value, key, rounding, overflow, stream);
    if (isLossyCast(cast))
      addLossyCasts(cast, 1);
    return cast;
  };
  if (!mode.stochastic)
    return create(x, Value(), Rounding::NearestEven, 0);
  auto function = ::cast<func::FuncOp>(builder.getInsertionBlock()->getParentOp());
  Value wide = GraphBuilder(builder, loc).widen(x), key = keyIn(function);
  return create(wide, key, Rounding::Stochastic, nextStream(function));
}
