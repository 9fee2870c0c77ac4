// SPDX-License-Identifier: Apache-2.0
// Export of norms that ONNX has as one op; the others go through their decomposition.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Softmax and LogSoftmax: FP32 inside and rounded once, whatever the executor's kernel does with narrow types.
template <typename Op> void softmax(ExportRules &rules, StringRef type) {
  addRule<Op>(rules, [type](Op op, OnnxWriter &w) {
    Type wide = wideType(elementOf(op.getX()));
    OnnxValue y =
        w.node(type, {w.cast(w.get(op.getX()), elementOf(op.getX()), wide)}, {{"axis", int64_t(op.getAxis())}});
    return Values{w.cast(y, wide, elementOf(op.getY()))};
  });
}

/// LayerNormalization keeps the normalized axes of its statistics as extents of 1.
Values exportLayerNorm(LayerNormOp op, OnnxWriter &w) {
  Type wide = wideType(elementOf(op.getX()));
  OnnxValue x = w.cast(w.get(op.getX()), elementOf(op.getX()), wide);
  OnnxValue scale = w.cast(w.get(op.getScale()), elementOf(op.getScale()), wide);
  OnnxValue bias = w.cast(w.get(op.getBias()), elementOf(op.getBias()), wide);
  Values y = w.nodeWith("LayerNormalization", {x, scale, bias}, 3,
                        {{"axis", int64_t(op.getAxis())}, {"epsilon", op.getEpsilon().convertToDouble()}});
  ArrayRef<int64_t> statistics = tensorType(op.getMean()).getShape();
  return {w.cast(y[0], wide, elementOf(op.getY())), w.reshape(y[1], statistics), w.reshape(y[2], statistics)};
}

} // namespace

void mpt::addNormRules(ExportRules &rules) {
  softmax<SoftmaxOp>(rules, "Softmax");
  softmax<LogSoftmaxOp>(rules, "LogSoftmax");
  addRule<LayerNormOp>(rules, [](LayerNormOp op, OnnxWriter &w) {
    return elementOf(op.getMean()).isF32() ? exportLayerNorm(op, w) : Values{};
  });
}
