// SPDX-License-Identifier: Apache-2.0
// Export of gathers.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

void mpt::addGatherRules(ExportRules &rules) {
  addRule<GatherOp>(rules, [](GatherOp op, OnnxWriter &w) {
    bool isNarrow = tensorType(op.getIndices()).getElementTypeBitWidth() < 32;
    OnnxValue indices = isNarrow ? w.indicesOf(op.getIndices()) : w.get(op.getIndices());
    return Values{w.node("Gather", {w.get(op.getX()), indices}, {{"axis", int64_t(op.getAxis())}})};
  });
  addRule<BucketizeOp>(rules, [](BucketizeOp op, OnnxWriter &w) {
    OnnxValue below = w.integer(0), none = below;
    for (int64_t step = (tensorType(op.getBoundaries()).getNumElements() + 1) / 2; step > 0; step /= 2) {
      OnnxValue last = w.node("Add", {below, w.integer(step - 1)});
      OnnxValue boundary = w.node("Gather", {w.get(op.getBoundaries()), last});
      OnnxValue isAbove = w.node("GreaterOrEqual", {w.get(op.getX()), boundary});
      below = w.node("Add", {below, w.node("Where", {isAbove, w.integer(step), none})});
    }
    Type to = tensorType(op.getY()).getElementType();
    return Values{w.cast(below, IntegerType::get(op.getContext(), 64), to)};
  });
  addRule<GatherElementsOp>(rules, [](GatherElementsOp op, OnnxWriter &w) {
    return Values{
        w.node("GatherElements", {w.get(op.getX()), w.get(op.getIndices())}, {{"axis", int64_t(op.getAxis())}})};
  });
  addRule<GatherNDOp>(rules, [](GatherNDOp op, OnnxWriter &w) {
    return Values{w.node("GatherND", {w.get(op.getX()), w.indicesOf(op.getIndices())},
                         {{"batch_dims", int64_t(op.getBatchDims())}})};
  });
}
