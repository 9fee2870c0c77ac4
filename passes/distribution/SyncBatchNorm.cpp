// SPDX-License-Identifier: Apache-2.0
// --distribution-sync-batch-norm: batch norms over the rows of all replicas.
// Matcher: batch norms and their gradients.
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Precision/ScaleFlow.h"
#include "passes/distribution/Passes.h"

#include "mlir/Analysis/SliceAnalysis.h"

namespace mpt {
#define GEN_PASS_DEF_SYNCBATCHNORM
#include "passes/distribution/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;
using namespace mpt::dist;
using shard::ReductionKind;

namespace {

/// x of a norm, wide, and the axes of its statistics.
struct Rows {
  Rows(OpBuilder &builder, Location loc, Value x)
      : b(builder, loc), x(b.widen(x)), shape(tensorType(x).getShape()), axes(otherAxes(shape.size(), {1})) {}

  Value along(Value perChannel) { return b.broadcastAlong(perChannel, shape, axes); }
  Value normalized(Value mean, Value variance, const llvm::APFloat &epsilon) {
    Value inverse = b.make<RsqrtOp>(b.add(variance, epsilon.convertToDouble()));
    return b.mul(b.sub(x, along(mean)), along(inverse));
  }

  GraphBuilder b;
  Value x;
  ArrayRef<int64_t> shape;
  SmallVector<int64_t> axes;
};

/// The batch norms of a step.
class Norms {
public:
  Norms(func::FuncOp step, int64_t replicas)
      : step(step), builder(step.getContext()), replicas(replicas), scales(step, states) {
    for (auto state : step->getParentOfType<ModuleOp>().getOps<train::StateOp>())
      states[state.getSymNameAttr()] = state;
    for (BlockArgument argument : step.getArguments())
      if (tensorType(argument).getRank() > 0)
        fromInputs.insert(argument);
    for (Operation &op : step.getBody().front())
      if (llvm::any_of(op.getOperands(), [&](Value operand) { return fromInputs.contains(operand); }))
        fromInputs.insert(op.result_begin(), op.result_end());
  }

  /// Returns how many were synchronised.
  FailureOr<int64_t> run() {
    auto norms = normsOf<BatchNormOp>();
    auto backward = normsOf<BatchNormBackwardOp>();
    if (norms.empty())
      return step.emitError() << "expected a batch normalization of the model's inputs for --sync-batch-norm, found "
                                 "none: leave the option out";
    for (BatchNormOp norm : norms)
      if (failed(verifyStatistics(norm)))
        return failure();
    for (BatchNormBackwardOp gradient : backward)
      if (!gradient.getMean().getDefiningOp<BatchNormOp>() || !gradient.getVariance().getDefiningOp<BatchNormOp>())
        return gradient.emitError() << "expected a gradient of batch norm around the statistics of the forward pass "
                                       "for --sync-batch-norm, got other ones";
    if (failed(scales.infer()))
      return failure();
    for (BatchNormBackwardOp gradient : backward)
      if (!scales.of(gradient.getDy()).isProduct())
        return gradient.emitError() << "expected a gradient under one scale for --sync-batch-norm, got one with "
                                    << scales.of(gradient.getDy()).str();
    for (BatchNormOp norm : norms)
      synchronize(norm);
    for (BatchNormBackwardOp gradient : backward)
      synchronize(gradient);
    return static_cast<int64_t>(norms.size());
  }

private:
  /// Norms of activations: values computed from parameters alone are the same on all replicas.
  template <typename Op> SmallVector<Op> normsOf() {
    return llvm::to_vector(
        llvm::make_filter_range(step.getOps<Op>(), [&](Op norm) { return fromInputs.contains(norm.getX()); }));
  }

  /// Gradients that reach the statistics are no batch_norm_backward, but take statistics of a replica's own.
  static LogicalResult verifyStatistics(BatchNormOp norm) {
    ForwardSliceOptions options;
    options.filter = [](Operation *op) { return !isa<BatchNormBackwardOp>(op); };
    SetVector<Operation *> readers;
    for (Value statistic : {norm.getMean(), norm.getVariance()})
      getForwardSlice(statistic, &readers, options);
    for (Operation *reader : readers)
      if (isa<train::GradientOp>(reader) || reader->hasTrait<OpTrait::IsTerminator>())
        return norm.emitError() << "expected statistics that normalize and that are kept, for --sync-batch-norm, got "
                                   "ones that a result or a gradient is computed from";
    return success();
  }

  /// Replicas have as many rows each, so that the mean of their means is the mean of all rows. Deviations of the means
  /// add to the mean of the variances (Chan et al., "Updating formulae and a pairwise algorithm for computing sample
  /// variances", 1979): no sum of squares of values far from 0, no digits lost.
  void synchronize(BatchNormOp norm) {
    builder.setInsertionPoint(norm);
    Rows rows(builder, norm.getLoc(), norm.getX());
    GraphBuilder &b = rows.b;
    // A norm of its own gives the replica's statistics: a convolution may leave the sums for it.
    auto own = cast<BatchNormOp>(builder.clone(*norm));
    auto [means, variances] = gathered(b, own.getMean(), own.getVariance());
    Value mean = b.mean(means, {0}), apart = b.sub(means, b.broadcastAlong(mean, tensorType(means).getShape(), {0}));
    Value variance = b.mean(b.add(variances, b.mul(apart, apart)), {0});
    Value scaled = b.mul(rows.normalized(mean, variance, norm.getEpsilon()), rows.along(b.widen(norm.getScale())));
    Value y = b.add(scaled, rows.along(b.widen(norm.getBias())));
    replace(norm, {y, mean, variance});
  }

  /// Two statistics by channel as rows of all replicas, [V, C] each.
  std::pair<Value, Value> gathered(GraphBuilder &b, Value first, Value second) {
    const int64_t channels = tensorType(first).getNumElements();
    Value row = b.reshape(b.concat({first, second}, 0), {1, 2 * channels});
    Value all = shard::AllGatherOp::create(builder, b.loc, tensorType(row).clone({replicas, 2 * channels}),
                                           FlatSymbolRefAttr::get(builder.getContext(), kReplicas),
                                           builder.getDenseI16ArrayAttr({0}), row, builder.getIndexAttr(0));
    return {b.slice(all, {0, 0}, {replicas, channels}), b.slice(all, {0, channels}, {replicas, channels})};
  }

  /// A replica's gradient is of its own loss. The loss of the step is the mean over the replicas, so that sums over all
  /// rows are means over the replicas here. Scale and bias get the replica's own sums: their gradients are averaged as
  /// all parameters' are.
  void synchronize(BatchNormBackwardOp gradient) {
    builder.setInsertionPoint(gradient);
    Rows rows(builder, gradient.getLoc(), gradient.getX());
    GraphBuilder &b = rows.b;
    Value mean = b.widen(gradient.getMean()), variance = b.widen(gradient.getVariance());
    Value xhat = rows.normalized(mean, variance, gradient.getEpsilon());
    // Replicas add values without the scales that each has of its own.
    const SmallVector<ScaleType::Power> own = ownScales(gradient.getDy());
    Value dy = scaled(b, b.widen(gradient.getDy()), own, -1);
    Value dbias = b.sum(dy, rows.axes), dscale = b.sum(b.mul(dy, xhat), rows.axes);
    const int64_t ofReplica = tensorType(xhat).getNumElements() / rows.shape[1];
    const auto count = static_cast<double>(replicas * ofReplica);
    auto meanOfAll = [&](Value sum) {
      Value total = allReduce(builder, sum, ReductionKind::Sum);
      return rows.along(b.div(total, b.splatLike(total, count)));
    };
    Value rest = b.sub(dy, b.mul(xhat, meanOfAll(dscale)));
    rest = b.sub(rest, meanOfAll(dbias));
    Value inverse = b.make<RsqrtOp>(b.add(variance, gradient.getEpsilon().convertToDouble()));
    Value dx = b.mul(rest, rows.along(b.mul(inverse, b.widen(gradient.getScale()))));
    replace(gradient, {scaled(b, dx, own, 1), scaled(b, dscale, own, 1), scaled(b, dbias, own, 1)});
  }

  /// The scales of `value` that differ among replicas: layer-wise ones follow from a replica's own gradients.
  SmallVector<ScaleType::Power> ownScales(Value value) const {
    SmallVector<ScaleType::Power> own(scales.of(value).getPowers());
    llvm::erase_if(own, [&](const ScaleType::Power &power) { return !fromInputs.contains(power.first); });
    return own;
  }

  /// `value`, wide, times these scales, or divided by them where `sign` is -1.
  static Value scaled(GraphBuilder &b, Value value, ArrayRef<ScaleType::Power> scales, int64_t sign) {
    RankedTensorType type = tensorType(value);
    for (auto [scale, exponent] : scales) {
      Value factor = b.broadcast(b.cast(b.reshape(scale, {}), type.getElementType()), type.getShape(), {});
      for (int64_t i = 0; i < std::abs(exponent); ++i)
        value = exponent * sign > 0 ? b.mul(value, factor) : b.div(value, factor);
    }
    return value;
  }

  void replace(Operation *op, ArrayRef<Value> values) {
    GraphBuilder b(builder, op->getLoc());
    for (auto [result, value] : llvm::zip_equal(op->getResults(), values))
      result.replaceAllUsesWith(b.cast(value, tensorType(result).getElementType()));
    op->erase();
  }

  func::FuncOp step;
  OpBuilder builder;
  const int64_t replicas;
  llvm::DenseSet<Value> fromInputs;
  States states;
  ScaleFlow scales;
};

struct SyncBatchNorm : mpt::impl::SyncBatchNormBase<SyncBatchNorm> {
  using SyncBatchNormBase::SyncBatchNormBase;

  void runOnOperation() override {
    if (replicas == "1")
      return;
    ModuleOp module = getOperation();
    std::optional<int64_t> count = parseReplicas(replicas);
    if (!count || *count == kOneAProcess) {
      module.emitError() << "expected a number of replicas for --sync-batch-norm, got '" << replicas
                         << "': statistics are gathered from so many";
      return signalPassFailure();
    }
    func::FuncOp step = findFunction(module, "step");
    if (!step)
      return signalPassFailure();
    makeGrid(module, *count);
    FailureOr<int64_t> norms = Norms(step, *count).run();
    if (failed(norms))
      return signalPassFailure();
    numNorms += *norms;
  }
};

} // namespace
