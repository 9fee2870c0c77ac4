// SPDX-License-Identifier: Apache-2.0
// --import-recognize-backward: in a joint graph, gradients of ReLU, pooling, embeddings and convolution weights in the
// words of exporters become the ops that differentiation makes here.
// Matcher: the ops that mpt/Autodiff/BackwardForms.h has a form of.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/BackwardForms.h"
#include "mpt/Autodiff/JointGraph.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Support/Refusal.h"
#include "passes/import/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_RECOGNIZEBACKWARD
#include "passes/import/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

#define DEBUG_TYPE "import-recognize-backward"

namespace {

struct RecognizeBackward : mpt::impl::RecognizeBackwardBase<RecognizeBackward> {
  void runOnOperation() override {
    func::FuncOp function = jointGraph(getOperation());
    if (!function || !usesBackwardOfFile(getOperation()))
      return;
    DenseSet<Operation *> forwardPass = forwardOps(function);
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
      if (forwardPass.contains(&op))
        continue;
      if (auto select = dyn_cast<SelectOp>(op))
        replace(select);
      else if (auto scatter = dyn_cast<ScatterElementsOp>(op))
        replace(scatter);
      else if (auto scatter = dyn_cast<ScatterNDOp>(op))
        replace(scatter, forwardPass);
      else if (auto conv = dyn_cast<ConvOp>(op))
        replace(conv);
      else if (auto conv = dyn_cast<ConvBackwardDataOp>(op))
        replace(conv, forwardPass);
    }
    eraseDeadOps(function);
  }

private:
  void replace(SelectOp select) {
    std::optional<Masked> masked = maskedByRelu(select);
    if (!masked)
      return;
    OpBuilder builder(select);
    Value dx = ReluBackwardOp::create(builder, masked->y.getLoc(), masked->dy, masked->y);
    select.getY().replaceAllUsesWith(dx);
    ++numRecognized;
  }

  void replace(ScatterElementsOp scatter) {
    MaxPoolOp pool = scatteredBy(scatter);
    if (!pool) {
      if (scatter.getKind() == ScatterKind::add)
        (void)(refuse(DEBUG_TYPE, scatter) << "not the gradient of a max pooling: other positions or planes");
      return;
    }
    OpBuilder builder(scatter);
    GraphBuilder b(builder, pool.getLoc());
    Value dy = b.reshape(scatter.getUpdates(), tensorType(pool.getY()).getShape());
    Value dx = MaxPoolBackwardOp::create(builder, pool.getLoc(), pool.getX().getType(), dy, pool.getIndices(),
                                         pool.getKernel(), pool.getStrides(), pool.getDilations(), pool.getPadsLow(),
                                         pool.getPadsHigh());
    scatter.getY().replaceAllUsesWith(b.reshape(dx, tensorType(scatter.getY()).getShape()));
    ++numRecognized;
  }

  void replace(ScatterNDOp scatter, const DenseSet<Operation *> &forwardPass) {
    std::optional<RowGradient> rows = rowsOf(scatter, forwardPass);
    if (!rows) {
      if (scatter.getKind() == ScatterKind::add)
        (void)(refuse(DEBUG_TYPE, scatter) << "not the gradient of an embedding: no lookup has its indices");
      return;
    }
    OpBuilder builder(scatter);
    Value dx = ScatterAddOp::create(builder, rows->loc, scatter.getY().getType(), rows->indices, rows->updates, 0);
    scatter.getY().replaceAllUsesWith(dx);
    ++numRecognized;
  }

  void replace(ConvBackwardDataOp conv, const DenseSet<Operation *> &forwardPass) {
    Value dy = spreadEvenly(conv);
    AvgPoolOp pool = dy ? pooledBy(conv, forwardPass) : AvgPoolOp();
    if (!pool) {
      if (dy)
        (void)(refuse(DEBUG_TYPE, conv) << "not the gradient of an average pooling: none has these windows");
      return;
    }
    OpBuilder builder(conv);
    GraphBuilder b(builder, pool.getLoc());
    Value dx = AvgPoolBackwardOp::create(builder, pool.getLoc(), pool.getX().getType(),
                                         b.reshape(dy, tensorType(pool.getY()).getShape()), pool.getKernel(),
                                         pool.getStrides(), pool.getDilations(), pool.getPadsLow(), pool.getPadsHigh(),
                                         pool.getCountIncludePad());
    conv.getY().replaceAllUsesWith(b.reshape(dx, tensorType(conv.getY()).getShape()));
    ++numRecognized;
  }

  void replace(ConvOp conv) {
    Value part = cutOf(conv);
    std::optional<WeightGradient> found = overBatch(conv, tensorType(part).getShape().drop_front(2));
    if (!found) {
      (void)(refuse(DEBUG_TYPE, conv)
             << "not the gradient of weights: its operands are no tensors with the batch and the "
                "channels exchanged");
      return;
    }
    OpBuilder builder(conv);
    GraphBuilder b(builder, locationOf(*found, conv));
    SmallVector<int64_t> order = llvm::to_vector(llvm::seq<int64_t>(0, found->type.getRank()));
    std::swap(order[0], order[1]);
    Value dy = found->dy ? found->dy : b.transpose(conv.getW(), order);
    Value dw =
        ConvBackwardWeightsOp::create(builder, b.loc, found->type, found->x, dy, conv.getDilations(), conv.getStrides(),
                                      conv.getPadsLow(), conv.getPadsHigh(), conv.getGroups(), conv.getNumericsAttr());
    part.replaceAllUsesWith(b.transpose(dw, order));
    ++numRecognized;
  }

  /// Of the forward convolution, whose rules the gradient follows.
  static Location locationOf(const WeightGradient &gradient, ConvOp conv) {
    for (Operation *user : gradient.x.getUsers())
      if (auto forward = dyn_cast<ConvOp>(user);
          forward && forward != conv && forward.getW().getType() == gradient.type)
        return forward.getLoc();
    return conv.getLoc();
  }
};

} // namespace
