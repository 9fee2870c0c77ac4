// SPDX-License-Identifier: Apache-2.0
// MatMul family. Running sums go over k in ascending order: sum = round(sum + a b), the product and addition in FP64;
// fused where sums are ordered. On Tensor Cores
// they are as mpt/Support/TensorCores.h says.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

static LogicalResult interpretMatMul(MatMulOp op, InterpreterFrame &frame) {
  NumericsAttr numerics = op.getNumericsAttr();
  Tensor a = frame.readAs(frame.get(op.getA()), numerics), b = frame.readAs(frame.get(op.getB()), numerics);
  Tensor y = frame.zeros(op.getY());
  int64_t rank = y.rank(), m = y.shape()[rank - 2], n = y.shape()[rank - 1];
  int64_t k = a.shape()[rank - (op.getTransposeA() ? 2 : 1)];
  int64_t batch = m * n == 0 ? 0 : y.size() / (m * n);
  int64_t aRow = op.getTransposeA() ? 1 : k, aColumn = op.getTransposeA() ? m : 1;
  ArrayRef<double> as = a.reals(), bs = b.reals();
  // The inner loop runs along rows of b, so a transposed b is turned first.
  std::vector<double> turned;
  if (op.getTransposeB()) {
    turned.resize(bs.size());
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t p = 0; p < k; ++p)
          turned[(s * k + p) * n + j] = bs[(s * n + j) * k + p];
    bs = turned;
  }
  MutableArrayRef<double> ys = y.writeReals();
  withProducts(frame, op, ys, n, [&](auto add) {
    // A row of b serves some rows of y while it is at hand.
    constexpr int64_t together = 8;
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t first = 0; first < m; first += together)
        for (int64_t p = 0; p < k; ++p)
          for (int64_t i = first; i < std::min(first + together, m); ++i)
            add(ys.data() + (s * m + i) * n, as[s * m * k + i * aRow + p * aColumn], bs.data() + (s * k + p) * n, n);
  });
  frame.deliver(op.getY(), std::move(y), numerics);
  return success();
}

void mpt::attachMatMulRules(MLIRContext *context) {
  attachRule<MatMulOp, interpretMatMul, AccessPattern::Windows>(context);
}
