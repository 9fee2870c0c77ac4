// SPDX-License-Identifier: Apache-2.0
// Loop forms of resampling. Gradients gather: each input element asks which outputs used it.
#include "Boxes.h"
#include "mpt/Dialect/MPT/Accumulators.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/Emission/Reductions.h"
#include "mpt/Lowering/Models/Models.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Samples along one axis: for each position of the result, `taps` pairs of a source position and a weight.
struct Samples {
  int64_t axis, taps, sources;
  std::vector<int64_t> positions;
  std::vector<float> weights;
};

Value table(ElementEmitter &e, DenseElementsAttr values, const IndexExpr &at) {
  ImplicitLocOpBuilder &b = e.b;
  auto type = MemRefType::get(values.getType().getShape(), values.getElementType());
  Value buffer = e.at(0, [&]() -> Value {
    auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
    std::string name;
    for (unsigned i = 0; name.empty() || module.lookupSymbol(name); ++i)
      name = "mpt_table_" + std::to_string(i);
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(module.getBody());
      memref::GlobalOp::create(b, name, b.getStringAttr("private"), type, values, /*constant=*/true, IntegerAttr());
    }
    return memref::GetGlobalOp::create(b, type, name);
  });
  return e.load(buffer, at);
}

Value resample(ElementEmitter &e, Value x, Type running, ArrayRef<IndexExpr> at, ArrayRef<Samples> axes) {
  MathBuilder m(e);
  unsigned lanes = e.laneWidth(at);
  Value zero = e.splat(e.constant(running, 0), lanes);
  SmallVector<int64_t> taps;
  for (const Samples &samples : axes)
    taps.push_back(samples.taps);
  MLIRContext *context = e.b.getContext();
  Value sum = overBox(e, taps, {}, zero, [&](ArrayRef<IndexExpr> t, ValueRange carried) {
    SmallVector<IndexExpr> from(at);
    Value weight = e.constant(running, 1);
    for (size_t i = 0; i < axes.size(); ++i) {
      const Samples &samples = axes[i];
      const IndexExpr &tap = t[i];
      IndexExpr entry = e.space.add(e.space.scale(at[samples.axis], samples.taps), tap);
      int64_t count = samples.positions.size();
      auto positions = DenseElementsAttr::get(RankedTensorType::get({count}, IntegerType::get(context, 64)),
                                              ArrayRef<int64_t>(samples.positions));
      auto weights = DenseElementsAttr::get(RankedTensorType::get({count}, Float32Type::get(context)),
                                            ArrayRef<float>(samples.weights));
      unsigned depth = e.space.depth(entry);
      from[samples.axis] = e.at(depth, [&] { return e.opaque(table(e, positions, entry), samples.sources, depth); });
      Value pair[] = {weight, m.toFloat(table(e, weights, entry), running)};
      e.unify(pair);
      weight = m.mul(pair[0], pair[1]);
    }
    Value pair[] = {e.splat(m.toFloat(e.element(x, from), running), lanes), e.splat(weight, lanes)};
    return SmallVector<Value>{m.fma(pair[0], pair[1], carried[0])};
  })[0];
  return finishSum(e, sum, elementOf(x));
}

template <typename Op> SmallVector<Samples> samplesOf(Op op, ArrayRef<int64_t> sources) {
  SmallVector<Samples> result;
  for (auto [i, axis] : llvm::enumerate(op.getAxes())) {
    Samples samples{axis, op.getTaps()[i], sources[axis], {}, {}};
    llvm::append_range(samples.positions, cast<DenseI64ArrayAttr>(op.getPositions()[i]).asArrayRef());
    for (double weight : cast<DenseF64ArrayAttr>(op.getWeights()[i]).asArrayRef())
      samples.weights.push_back(static_cast<float>(weight));
    result.push_back(std::move(samples));
  }
  return result;
}

/// For each source position the results that used it, padded to one count with weights of 0.
Samples transposed(const Samples &forward, int64_t results) {
  std::vector<std::vector<std::pair<int64_t, float>>> users(forward.sources);
  for (size_t i = 0; i < forward.positions.size(); ++i)
    users[forward.positions[i]].push_back({static_cast<int64_t>(i) / forward.taps, forward.weights[i]});
  size_t most = 1;
  for (const auto &list : users)
    most = std::max(most, list.size());
  Samples back{forward.axis, static_cast<int64_t>(most), results, {}, {}};
  for (auto &list : users) {
    list.resize(most, {0, 0.0f});
    for (auto [position, weight] : list) {
      back.positions.push_back(position);
      back.weights.push_back(weight);
    }
  }
  return back;
}

struct ResizeModel : LoopLowering::ExternalModel<ResizeModel, ResizeOp> {
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto op = cast<ResizeOp>(operation);
    RankedTensorType x = tensorType(op.getX());
    Type running = runningType(x.getElementType(), numericsOf(op));
    return resample(e, op.getX(), running, at, samplesOf(op, x.getShape()));
  }
};
struct ResizeBackwardModel : LoopLowering::ExternalModel<ResizeBackwardModel, ResizeBackwardOp> {
  Value emitElement(Operation *operation, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto op = cast<ResizeBackwardOp>(operation);
    RankedTensorType dy = tensorType(op.getDy());
    SmallVector<Samples> axes = samplesOf(op, shapeOf(op.getDx()));
    for (Samples &samples : axes)
      samples = transposed(samples, dy.getDimSize(samples.axis));
    return resample(e, op.getDy(), runningType(dy.getElementType(), numericsOf(op)), at, axes);
  }
};

} // namespace

void mpt::attachResizeModels(MLIRContext *context) {
  ResizeOp::attachInterface<ResizeModel>(*context);
  ResizeBackwardOp::attachInterface<ResizeBackwardModel>(*context);
}
