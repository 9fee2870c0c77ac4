// SPDX-License-Identifier: Apache-2.0
// The accumulator that an op states, and how composites hand it on.
#include "mpt/Dialect/MPT/Accumulators.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

NumericsAttr mpt::numericsOf(Operation *op) { return op->getAttrOfType<NumericsAttr>(kNumericsAttr); }

namespace {
/// States the accumulator of a composite at the reductions that it is made of.
class AccumulatorListener : public OpBuilder::Listener {
public:
  explicit AccumulatorListener(Type accumulator) : accumulator(accumulator) {}
  void notifyOperationInserted(Operation *op, OpBuilder::InsertPoint) override {
    auto reduce = dyn_cast<ReduceOp>(op);
    Type in = reduce ? tensorType(reduce.getX()).getElementType() : Type();
    if (in && isa<FloatType>(in) && in.getIntOrFloatBitWidth() < accumulator.getIntOrFloatBitWidth())
      reduce.setNumericsAttr(
          NumericsAttr::get(op->getContext(), in, accumulator, tensorType(reduce.getY()).getElementType()));
  }

private:
  Type accumulator;
};
} // namespace

FailureOr<SmallVector<Value>> mpt::decomposeAccumulating(Decomposable composite, OpBuilder &builder) {
  NumericsAttr numerics = numericsOf(composite);
  if (!numerics || numerics.getAcc().getIntOrFloatBitWidth() <= 32)
    return composite.decompose(builder);
  AccumulatorListener listener(numerics.getAcc());
  OpBuilder listened(builder.getContext(), &listener);
  listened.restoreInsertionPoint(builder.saveInsertionPoint());
  FailureOr<SmallVector<Value>> values = composite.decompose(listened);
  builder.restoreInsertionPoint(listened.saveInsertionPoint());
  return values;
}
