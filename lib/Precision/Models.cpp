// SPDX-License-Identifier: Apache-2.0
// The K of matrix multiplications and convolutions as GEMMs.
#include "mpt/Precision/Models.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Interfaces/GemmLike.h"

using namespace mlir;
using namespace mpt;

static int64_t count(ArrayRef<int64_t> extents) {
  int64_t product = 1;
  for (int64_t extent : extents)
    product *= extent;
  return product;
}

static int64_t reductionLength(MatMulOp op) {
  RankedTensorType a = tensorType(op.getA());
  return a.getDimSize(a.getRank() - (op.getTransposeA() ? 2 : 1));
}
static int64_t reductionLength(ConvOp op) { return count(tensorType(op.getW()).getShape().drop_front()); }
static int64_t reductionLength(ConvBackwardDataOp op) {
  ArrayRef<int64_t> w = tensorType(op.getW()).getShape();
  return w[0] / static_cast<int64_t>(op.getGroups()) * count(w.drop_front(2));
}
static int64_t reductionLength(ConvBackwardWeightsOp op) {
  ArrayRef<int64_t> dy = tensorType(op.getDy()).getShape();
  return dy[0] * count(dy.drop_front(2));
}

namespace {
template <typename Op> struct Model : GemmLike::ExternalModel<Model<Op>, Op> {
  int64_t getReductionLength(Operation *op) const { return reductionLength(cast<Op>(op)); }
};
template <typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops>>(*context), ...);
}
} // namespace

void mpt::registerPrecisionModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attach<MatMulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(context);
  });
}
