// SPDX-License-Identifier: Apache-2.0
// Export of gathers.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

void mpt::addGatherRules(ExportRules &rules) {
  addRule<GatherOp>(rules, [](GatherOp op, OnnxWriter &w) {
    return Values{w.node("Gather", {w.get(op.getX()), w.get(op.getIndices())}, {{"axis", int64_t(op.getAxis())}})};
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
