// SPDX-License-Identifier: Apache-2.0
// Gradients of matrix multiplications.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

MPT_GRADIENT(MatMulOp) {
  Value x = op.getA(), w = op.getB();
  bool tx = op.getTransposeA(), tw = op.getTransposeB();
  auto matmul = [&](Value like, Value p, Value q, bool tp, bool tq) -> Value {
    return b.make<MatMulOp>(like.getType(), p, q, tp, tq, NumericsAttr());
  };
  // A transposed operand takes the transposed result.
  b.give(x, [&] { return tx ? matmul(x, w, b.dy(), tw, true) : matmul(x, b.dy(), w, false, !tw); });
  b.give(w, [&] { return tw ? matmul(w, b.dy(), x, true, tx) : matmul(w, x, b.dy(), !tx, false); });
}

void attachMatMulGradients(MLIRContext *context) { attachGradients<MatMulOp>(context); }

} // namespace mpt
