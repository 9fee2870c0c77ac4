// SPDX-License-Identifier: Apache-2.0
// Interfaces of ops for precision passes: the K of GEMMs, edges of the graph; scale rules lie in Scales/.
#include "mpt/Precision/Models.h"

#include "../Scales/Rules.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Interfaces/GemmLike.h"
#include "mpt/Interfaces/PrecisionBoundary.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

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
template <typename Op> static int64_t backwardDataLength(Op op) {
  ArrayRef<int64_t> w = tensorType(op.getW()).getShape();
  return w[0] / static_cast<int64_t>(op.getGroups()) * count(w.drop_front(2));
}
static int64_t reductionLength(ConvBackwardDataOp op) { return backwardDataLength(op); }
static int64_t reductionLength(ConvBackwardWeightsOp op) {
  ArrayRef<int64_t> dy = tensorType(op.getDy()).getShape();
  return dy[0] * count(dy.drop_front(2));
}

/// Pairs of a result's position and a tap that read no padding, of a convolution of x with w to y.
template <typename Op> static double readPairs(Op op, Value x, Value w, Value y) {
  double pairs = 1.0;
  ArrayRef<int64_t> in = tensorType(x).getShape().drop_front(2), out = tensorType(y).getShape().drop_front(2);
  for (auto [d, taps] : llvm::enumerate(tensorType(w).getShape().drop_front(2))) {
    int64_t found = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      // Positions o with 0 <= o stride + first < in.
      int64_t first = tap * op.getDilations()[d] - op.getPadsLow()[d], stride = op.getStrides()[d];
      int64_t low = first >= 0 ? 0 : llvm::divideCeil(-first, stride);
      int64_t high = in[d] - first <= 0 ? 0 : llvm::divideCeil(in[d] - first, stride);
      found += std::max<int64_t>(0, std::min(high, out[d]) - low);
    }
    pairs *= static_cast<double>(found);
  }
  return pairs;
}

/// Batch x channels of one side x channels a group of the other x pairs of positions, over the result's elements: all
/// three convolutions of a layer multiply the same pairs.
template <typename Op> static double meanTerms(Op op, Value x, Value w, Value y) {
  ArrayRef<int64_t> filter = tensorType(w).getShape();
  double all = static_cast<double>(tensorType(x).getDimSize(0) * filter[0] * filter[1]) * readPairs(op, x, w, y);
  return all / static_cast<double>(tensorType(op->getResult(0)).getNumElements());
}
static double meanTerms(MatMulOp op) { return static_cast<double>(reductionLength(op)); }
static double meanTerms(ConvOp op) { return meanTerms(op, op.getX(), op.getW(), op.getY()); }
static double meanTerms(ConvBackwardDataOp op) { return meanTerms(op, op.getY(), op.getW(), op.getDy()); }
static double meanTerms(ConvBackwardWeightsOp op) { return meanTerms(op, op.getX(), op.getY(), op.getDy()); }

namespace {
template <typename Op> struct GemmModel : GemmLike::ExternalModel<GemmModel<Op>, Op> {
  int64_t getReductionLength(Operation *op) const { return reductionLength(cast<Op>(op)); }
  double getMeanTerms(Operation *op) const { return meanTerms(cast<Op>(op)); }
};
/// Calls that leave sums take the place of convolutions before steps are counted.
struct ConvCallModel : GemmLike::ExternalModel<ConvCallModel, library::ConvOp> {
  int64_t getReductionLength(Operation *op) const {
    auto call = cast<library::ConvOp>(op);
    ArrayRef<int64_t> w = tensorType(call.getW()).getShape(), y = tensorType(call.getY()).getShape();
    switch (call.getKind()) {
    case library::ConvKind::forward:
      return count(w.drop_front());
    case library::ConvKind::backward_data:
      return backwardDataLength(call);
    case library::ConvKind::backward_weights:
      return y[0] * count(y.drop_front(2));
    }
    llvm_unreachable("a kind of convolution");
  }
  double getMeanTerms(Operation *op) const { return static_cast<double>(getReductionLength(op)); }
};

// ---- edges of the graph

struct WriteBoundary : PrecisionBoundary::ExternalModel<WriteBoundary, train::WriteOp> {
  // The optimizer's value is the new master; the narrow copy is made from it.
  StringRef getBoundaryRule(Operation *) const { return "state is updated in f32"; }
  bool readsAnyType(Operation *) const { return false; }
};
struct GradientBoundary : PrecisionBoundary::ExternalModel<GradientBoundary, train::GradientOp> {
  StringRef getBoundaryRule(Operation *) const { return "parameter gradients are f32"; }
  bool readsAnyType(Operation *) const { return false; }
};
template <typename Op> struct ExactReader : PrecisionBoundary::ExternalModel<ExactReader<Op>, Op> {
  StringRef getBoundaryRule(Operation *) const { return "reads any type exactly"; }
  bool readsAnyType(Operation *) const { return true; }
};

template <template <typename> class Model, typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops>>(*context), ...);
}
} // namespace

void mpt::registerPrecisionModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attach<GemmModel, MatMulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(context);
    scales::attachElementwiseScales(context);
    scales::attachTensorScales(context);
    scales::attachCompositeScales(context);
  });
  registry.addExtension(+[](MLIRContext *context, train::TrainDialect *) {
    train::WriteOp::attachInterface<WriteBoundary>(*context);
    train::GradientOp::attachInterface<GradientBoundary>(*context);
    attach<ExactReader, train::GlobalNormOp, train::AllFiniteOp>(context);
    scales::attachTrainScales(context);
  });
  registry.addExtension(+[](MLIRContext *context, library::LibraryDialect *) {
    library::ConvOp::attachInterface<ConvCallModel>(*context);
    scales::attachLibraryScales(context);
  });
  registry.addExtension(+[](MLIRContext *context, func::FuncDialect *) { scales::attachFunctionScales(context); });
}
