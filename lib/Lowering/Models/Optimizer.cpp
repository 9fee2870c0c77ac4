// SPDX-License-Identifier: Apache-2.0
// Optimizers in simpler core ops.
#include "Decompositions.h"
#include "Update.h"
#include "mpt/Lowering/Models/Models.h"

using namespace mlir;
using namespace mpt;

namespace {

/// 1 - beta^step in FP64, where the difference keeps its digits.
Value biasCorrection(GraphBuilder &b, Value step, double beta) {
  Value t = b.cast(step, b.builder.getF64Type());
  return b.add(b.neg(b.make<PowOp>(b.splatLike(t, beta), t)), 1.0);
}

struct SGD : Decomposable::ExternalModel<SGD, SGDOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<SGDOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value p = op.getParam();
    Type type = elementOf(p);
    Value g = b.cast(op.getGrad(), type), lr = everywhere(b, b.cast(op.getLr(), type), p);
    if (double decay = op.getWeightDecay().convertToDouble())
      g = b.add(g, b.mul(p, decay));
    SmallVector<Value> results;
    if (op.getSlot()) {
      double momentum = op.getMomentum().convertToDouble(), dampening = op.getDampening().convertToDouble();
      Value m = b.cast(op.getSlot(), type);
      Value next = b.add(b.mul(m, momentum), b.mul(g, 1 - dampening));
      // Optimizer state starts at zero, so that the first step differs only with dampening.
      if (dampening != 0) {
        Value first = b.compare(Predicate::eq, op.getStep(), 1);
        next = b.select(everywhere(b, first, p), g, next);
      }
      results.push_back(b.cast(next, elementOf(op.getSlot())));
      g = op.getNesterov() ? b.add(g, b.mul(next, momentum)) : next;
    }
    results.insert(results.begin(), b.sub(p, b.mul(lr, g)));
    return results;
  }
};

struct Adam : Decomposable::ExternalModel<Adam, AdamOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<AdamOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value p = op.getParam();
    Type type = elementOf(p), f64 = builder.getF64Type();
    double beta1 = op.getBeta1().convertToDouble(), beta2 = op.getBeta2().convertToDouble();
    double decay = op.getWeightDecay().convertToDouble();
    Value g = b.cast(op.getGrad(), type), m = b.cast(op.getMoment1(), type), v = b.cast(op.getMoment2(), type);
    Value lr = b.cast(op.getLr(), f64);
    Value rate = b.cast(b.div(lr, biasCorrection(b, op.getStep(), beta1)), type);
    Value root = b.cast(b.make<SqrtOp>(biasCorrection(b, op.getStep(), beta2)), type);
    if (decay != 0 && op.getDecoupled())
      p = b.sub(p, b.mul(everywhere(b, b.cast(b.mul(lr, decay), type), p), p));
    else if (decay != 0)
      g = b.add(g, b.mul(p, decay));
    Value m1 = b.add(b.mul(m, beta1), b.mul(g, 1 - beta1));
    Value v1 = b.add(b.mul(v, beta2), b.mul(b.mul(g, g), 1 - beta2));
    Value scale = b.add(b.div(b.make<SqrtOp>(v1), everywhere(b, root, v1)), op.getEpsilon().convertToDouble());
    Value next = b.sub(p, b.mul(everywhere(b, rate, p), b.div(m1, scale)));
    return SmallVector<Value>{next, b.cast(m1, elementOf(op.getMoment1())), b.cast(v1, elementOf(op.getMoment2()))};
  }
};

struct Adagrad : Decomposable::ExternalModel<Adagrad, AdagradOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<AdagradOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value p = op.getParam();
    Type type = elementOf(p), f64 = builder.getF64Type();
    Value g = b.cast(op.getGrad(), type), h = b.cast(op.getAccumulator(), type);
    if (double decay = op.getWeightDecay().convertToDouble())
      g = b.add(g, b.mul(p, decay));
    Value past = b.add(b.cast(op.getStep(), f64), -1.0);
    Value rate = b.div(b.cast(op.getLr(), f64), b.add(b.mul(past, op.getLrDecay().convertToDouble()), 1.0));
    Value next = b.add(h, b.mul(g, g));
    Value scale = b.add(b.make<SqrtOp>(next), op.getEpsilon().convertToDouble());
    Value q = b.mul(everywhere(b, b.cast(rate, type), p), b.div(g, scale));
    return SmallVector<Value>{b.sub(p, q), b.cast(next, elementOf(op.getAccumulator()))};
  }
};

} // namespace

void mpt::attachOptimizerModels(MLIRContext *context) {
  SGDOp::attachInterface<SGD>(*context);
  AdamOp::attachInterface<Adam>(*context);
  AdagradOp::attachInterface<Adagrad>(*context);
  attachUpdateModels(context);
}
