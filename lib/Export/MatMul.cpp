// SPDX-License-Identifier: Apache-2.0
// Export of matrix multiplications, in the wider of their operand and result types: exact.
#include "Writer.h"

using namespace mlir;
using namespace mpt;

namespace {

OnnxValue exportMatMul(MatMulOp op, OnnxWriter &w) {
  Type type = widerType(op.getA(), op.getY());
  int64_t rank = tensorType(op.getA()).getRank();
  SmallVector<int64_t> swap = axisRange(0, rank);
  std::swap(swap[rank - 2], swap[rank - 1]);
  OnnxValue a = w.getAs(op.getA(), type), b = w.getAs(op.getB(), type);
  if (rank == 2 && (op.getTransposeA() || op.getTransposeB())) {
    OnnxValue y =
        w.node("Gemm", {a, b}, {{"transA", int64_t(op.getTransposeA())}, {"transB", int64_t(op.getTransposeB())}});
    return w.cast(y, type, elementOf(op.getY()));
  }
  if (op.getTransposeA())
    a = w.transpose(a, swap);
  if (op.getTransposeB())
    b = w.transpose(b, swap);
  return w.cast(w.node("MatMul", {a, b}), type, elementOf(op.getY()));
}

} // namespace

void mpt::addMatMulRules(ExportRules &rules) {
  addRule<MatMulOp>(rules, [](MatMulOp op, OnnxWriter &w) { return Values{exportMatMul(op, w)}; });
}
