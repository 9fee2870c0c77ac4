// SPDX-License-Identifier: Apache-2.0
// What precision passes know of ops: the K of GEMMs, edges of the graph, and what happens to loss scales.
#include "mpt/Precision/Models.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Interfaces/GemmLike.h"
#include "mpt/Interfaces/GradientScale.h"
#include "mpt/Interfaces/PrecisionBoundary.h"

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
template <typename Op> struct GemmModel : GemmLike::ExternalModel<GemmModel<Op>, Op> {
  int64_t getReductionLength(Operation *op) const { return reductionLength(cast<Op>(op)); }
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

// ---- loss scales

size_t scaleCount(Value value, GradientScalesOf of) { return of(value).value_or(GradientScales()).size(); }

/// A gradient that loses `scale` must carry it, and no other.
LogicalResult verifyCarried(Operation *op, std::optional<GradientScales> carried, Value scale) {
  if (!carried)
    return success();
  if (carried->size() != 1)
    return op->emitOpError() << "expected a gradient that carries the loss scale once, got it " << carried->size()
                             << " times";
  if (carried->front() != scale)
    return op->emitOpError() << "expected the scale that the gradient carries, got another one";
  return success();
}

struct AddsScale : GradientScale::ExternalModel<AddsScale, train::ScaleLossOp> {
  std::optional<GradientScales> getResultScales(Operation *op, GradientScalesOf of) const {
    auto scale = cast<train::ScaleLossOp>(op);
    GradientScales carried = of(scale.getSeed()).value_or(GradientScales());
    if (!hasAttr<MPTDialect::SeedAttrHelper>(op)) // until loss scaling the scale is a placeholder
      carried.push_back(scale.getScale());
    return carried;
  }
  LogicalResult verifyOperandScales(Operation *op, GradientScalesOf of) const {
    if (scaleCount(cast<train::ScaleLossOp>(op).getSeed(), of) != 0)
      return op->emitOpError() << "expected a seed without a scale: the loss is scaled twice";
    return success();
  }
};
struct RemovesScale : GradientScale::ExternalModel<RemovesScale, train::UnscaleOp> {
  std::optional<GradientScales> getResultScales(Operation *op, GradientScalesOf of) const {
    std::optional<GradientScales> carried = of(cast<train::UnscaleOp>(op).getGradient());
    if (carried && !carried->empty())
      carried->pop_back();
    return carried;
  }
  LogicalResult verifyOperandScales(Operation *op, GradientScalesOf of) const {
    auto unscale = cast<train::UnscaleOp>(op);
    return verifyCarried(op, of(unscale.getGradient()), unscale.getScale());
  }
};
struct ExchangesScale : GradientScale::ExternalModel<ExchangesScale, train::RescaleOp> {
  std::optional<GradientScales> getResultScales(Operation *op, GradientScalesOf) const {
    return GradientScales{cast<train::RescaleOp>(op).getTo()};
  }
  LogicalResult verifyOperandScales(Operation *op, GradientScalesOf of) const {
    auto rescale = cast<train::RescaleOp>(op);
    return verifyCarried(op, of(rescale.getGradient()), rescale.getFrom());
  }
};
/// What leaves the backward pass is unscaled.
struct UnscaledGradient : GradientScale::ExternalModel<UnscaledGradient, train::GradientOp> {
  std::optional<GradientScales> getResultScales(Operation *op, GradientScalesOf of) const {
    return of(cast<train::GradientOp>(op).getGradient());
  }
  LogicalResult verifyOperandScales(Operation *op, GradientScalesOf of) const {
    auto gradient = cast<train::GradientOp>(op);
    if (scaleCount(gradient.getGradient(), of) != 0)
      return op->emitOpError() << "expected an unscaled gradient of " << gradient.getParameter()
                               << ", got one that carries the loss scale: train.unscale is missing";
    return success();
  }
};
struct UnscaledState : GradientScale::ExternalModel<UnscaledState, train::WriteOp> {
  std::optional<GradientScales> getResultScales(Operation *, GradientScalesOf) const { return std::nullopt; }
  LogicalResult verifyOperandScales(Operation *op, GradientScalesOf of) const {
    auto write = cast<train::WriteOp>(op);
    if (scaleCount(write.getValue(), of) != 0)
      return op->emitOpError() << "expected a value without the loss scale for state " << write.getState();
    return success();
  }
};
/// Statistics of gradients, and scales computed from them.
template <typename Op> struct AboutGradients : GradientScale::ExternalModel<AboutGradients<Op>, Op> {
  std::optional<GradientScales> getResultScales(Operation *, GradientScalesOf) const { return GradientScales(); }
};

template <template <typename> class Model, typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops>>(*context), ...);
}
} // namespace

void mpt::registerPrecisionModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attach<GemmModel, MatMulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(context);
  });
  registry.addExtension(+[](MLIRContext *context, train::TrainDialect *) {
    train::WriteOp::attachInterface<WriteBoundary>(*context);
    train::GradientOp::attachInterface<GradientBoundary>(*context);
    attach<ExactReader, train::GlobalNormOp, train::AllFiniteOp>(context);
    train::ScaleLossOp::attachInterface<AddsScale>(*context);
    train::UnscaleOp::attachInterface<RemovesScale>(*context);
    train::RescaleOp::attachInterface<ExchangesScale>(*context);
    train::GradientOp::attachInterface<UnscaledGradient>(*context);
    train::WriteOp::attachInterface<UnscaledState>(*context);
    attach<AboutGradients, train::MomentsOp, train::LogMomentsOp, train::LayerScaleOp, train::CastScaleOp,
           train::MergeScaleOp, train::TensorScaleOp, train::RollOp, train::AllFiniteOp>(context);
  });
}
