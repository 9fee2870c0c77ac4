// SPDX-License-Identifier: Apache-2.0
// SGDOptimizer, AdamOptimizer and LambOptimizer of com.microsoft: one node a tensor or a group of tensors, with the
// loss scale, the norm to clip by, a 16-bit copy of the weights, and a signal to leave everything as it is.
#include "Optimizer.h"

#include "Binder.h"

#include "mpt/Dialect/MPT/UpdateOps.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {

/// Operands and results of one tensor's update: where they are among the node's. A 16-bit copy of the weights is read
/// as a cast of them (proto::takeJoint).
struct Places {
  unsigned weights, gradient, moment1, moment2;             ///< operands
  unsigned newWeights, newGradient, newMoment1, newMoment2; ///< results
};

/// New values of one parameter and its moments.
struct Update {
  Value weights, moment1, moment2;
};

class Optimizer {
public:
  /// `signal`, `scale` and `norm` are the operands of these meanings.
  Optimizer(Binder &b, unsigned signal, unsigned scale, unsigned norm)
      : b(b), signal(signal), scale(scale), norm(norm) {}

  LogicalResult check(const Places &at, bool hasMoments) {
    SmallVector<unsigned, 4> floats{at.weights, at.gradient};
    if (hasMoments)
      floats.append({at.moment1, at.moment2});
    for (unsigned i : floats) {
      if (!b.has(i))
        return b.fail() << "expected operand " << i << " to be given";
      if (!b.isFloat(i) || b.shape(i) != b.shape(at.weights))
        return b.fail() << "expected floats of the weights' shape, " << b.in(at.weights).getType() << ", got "
                        << b.in(i).getType();
    }
    return success();
  }

  /// Operand `i` as a scalar in `type`; fails where it has more elements.
  FailureOr<Value> number(unsigned i, Type type) {
    if (!b.has(i) || tensorType(b.in(i)).getNumElements() != 1)
      return b.fail() << "expected one number as operand " << i;
    return b.cast(b.reshape(b.in(i), {}), type);
  }

  /// The gradient by itself: divided by the loss scale, and clipped to `most` where the norm, which has the scale too,
  /// is larger (orttraining/training_ops/cuda/optimizer/common.cuh).
  FailureOr<Value> gradient(const Places &at, double most) {
    Type type = b.element(at.weights);
    Value g = b.cast(b.in(at.gradient), type), divisor;
    if (b.has(scale)) {
      FailureOr<Value> value = number(scale, type);
      if (failed(value))
        return failure();
      divisor = *value;
    }
    if (b.has(norm)) {
      FailureOr<Value> value = number(norm, type);
      if (failed(value))
        return failure();
      Value least = divisor ? divisor : b.scalar(type, 1);
      Value clips = b.compare(Predicate::gt, *value, b.mul(least, most));
      divisor = b.select(clips, b.mul(*value, 1 / most), least);
    }
    return divisor ? b.div(g, b.broadcastTo(divisor, tensorType(g).getShape())) : g;
  }

  /// The new value, or the old one where the signal says so.
  Value chosen(Value made, Value old) {
    if (!b.has(signal))
      return made;
    return b.select(b.broadcastTo(b.reshape(b.in(signal), {}), tensorType(made).getShape()), made, old);
  }

  /// Sets the results of one tensor in their own types.
  LogicalResult set(const Places &at, const Update &made) {
    Value old = b.in(at.weights), weights = chosen(made.weights, old);
    auto give = [&](unsigned result, Value value) { return b.wants(result) ? b.set(result, value) : success(); };
    auto like = [&](unsigned operand, Value value) { return b.cast(value, b.element(operand)); };
    if (failed(give(at.newWeights, weights)))
      return failure();
    // Readers of the gradient see the difference that was added to the weights.
    if (b.wants(at.newGradient) &&
        failed(b.set(at.newGradient, chosen(like(at.gradient, b.sub(made.weights, old)), b.in(at.gradient)))))
      return failure();
    if (made.moment1 && (failed(give(at.newMoment1, chosen(like(at.moment1, made.moment1), b.in(at.moment1)))) ||
                         failed(give(at.newMoment2, chosen(like(at.moment2, made.moment2), b.in(at.moment2))))))
      return failure();
    return success();
  }

  /// Sets result 0: the number of updates, one more where there was one.
  LogicalResult count(unsigned step) {
    Value old = b.in(step), one = b.splatLike(old, 1);
    return b.wants(0) ? b.set(0, chosen(b.add(old, one), old)) : success();
  }

  LogicalResult checkSignal() {
    if (b.has(signal) && (!b.element(signal).isInteger(1) || tensorType(b.in(signal)).getNumElements() != 1))
      return b.fail() << "expected one bool as the signal to update, got " << b.in(signal).getType();
    return success();
  }

private:
  Binder &b;
  unsigned signal, scale, norm;
};

/// No operand: beyond the operands of any node.
constexpr unsigned none = 1 << 20;

/// Step counts are integers in one element.
FailureOr<Value> stepOf(Binder &b, unsigned i) {
  if (!b.has(i) || !b.element(i).isInteger(64) || tensorType(b.in(i)).getNumElements() != 1)
    return b.fail() << "expected the number of updates, one int64, as operand " << i;
  return b.reshape(b.in(i), {});
}

} // namespace

/// W - ETA G.
static LogicalResult importSGD(Binder &b) {
  const Places at{1, 2, none, none, 0, 1, none, none};
  Optimizer optimizer(b, none, none, none);
  if (failed(b.need(3)) || failed(optimizer.check(at, /*hasMoments=*/false)))
    return failure();
  FailureOr<Value> rate = optimizer.number(0, b.element(1)), g = optimizer.gradient(at, 1);
  if (failed(rate) || failed(g))
    return failure();
  Value step = b.mul(b.broadcastTo(*rate, b.shape(1)), *g);
  return optimizer.set(at, {b.sub(b.in(1), step), {}, {}});
}

/// Mode 0 decays beside the update, as torch.optim.AdamW does, mode 1 the new weights, and corrects the rate instead of
/// the moments (orttraining/training_ops/cuda/optimizer/adam.cu).
static LogicalResult importAdam(Binder &b) {
  const Places at{2, 3, 4, 5, 3, 4, 1, 2};
  Optimizer optimizer(b, 9, 7, 8);
  if (failed(b.need(6)) || failed(optimizer.checkSignal()) || failed(optimizer.check(at, /*hasMoments=*/true)))
    return failure();
  double decay = b.floatAttr("lambda", 0), most = b.floatAttr("max_norm_clip", 1);
  int64_t mode = b.intAttr("weight_decay_mode", 0);
  bool corrects = b.intAttr("do_bias_correction", 1) != 0;
  if (mode != 0 && mode != 1)
    return b.fail() << "expected weight_decay_mode 0 or 1, got " << mode;
  if (mode == 0 && !corrects && decay != 0)
    return b.fail() << "expected do_bias_correction with weight_decay_mode 0 and a lambda, got 0";
  FailureOr<Value> step = stepOf(b, 1);
  Type type = b.element(at.weights);
  FailureOr<Value> rate = optimizer.number(0, type), g = optimizer.gradient(at, most);
  if (failed(step) || failed(rate) || failed(g))
    return failure();
  Value moment1 = b.cast(b.in(at.moment1), type), moment2 = b.cast(b.in(at.moment2), type);
  FloatAttr beta1 = b.f64(b.floatAttr("alpha", 0.9)), beta2 = b.f64(b.floatAttr("beta", 0.999)),
            epsilon = b.f64(b.floatAttr("epsilon", 1e-8));
  Operation *made;
  if (mode == 0 && corrects)
    made = AdamOp::create(b.builder, b.loc, b.in(at.weights), *g, *rate, *step, moment1, moment2, beta1, beta2, epsilon,
                          b.f64(decay), b.builder.getBoolAttr(true));
  else // a step of 0 corrects nothing
    made = AdamHatOp::create(b.builder, b.loc, b.in(at.weights), *g, *rate,
                             corrects ? *step : b.scalar(b.builder.getI64Type(), 0), moment1, moment2, beta1, beta2,
                             epsilon, b.f64(0), b.f64(0), b.f64(decay));
  if (failed(optimizer.set(at, {made->getResult(0), made->getResult(1), made->getResult(2)})))
    return failure();
  return optimizer.count(1);
}

/// The `i`-th of a list of floats, one a tensor.
static FailureOr<double> listed(Binder &b, StringRef name, unsigned i, double otherwise) {
  Attribute attribute = b.attr(name);
  if (!attribute)
    return b.floatAttr(name, otherwise);
  auto list = dyn_cast<DenseF32ArrayAttr>(attribute);
  if (!list || i >= static_cast<unsigned>(list.size()))
    return b.fail() << "expected a float for each tensor in '" << name << "', got " << (list ? list.size() : 0)
                    << " of them";
  return static_cast<double>(list[i]);
}

/// One group of tensors after signal, scale, norm, rate and step (orttraining/training_ops/cuda/optimizer/lamb.cu).
static LogicalResult importLambTensor(Binder &b, Optimizer &optimizer, unsigned i, Value step) {
  const unsigned in = 5 + 5 * i, out = 1 + 5 * i;
  const Places at{in, in + 1, in + 2, in + 3, out, out + 1, out + 2, out + 3};
  if (failed(optimizer.check(at, /*hasMoments=*/true)))
    return failure();
  Type type = b.element(at.weights);
  FailureOr<double> most = listed(b, "max_norm_clip", i, 1), beta1 = listed(b, "alpha", i, 0.9),
                    beta2 = listed(b, "beta", i, 0.999), decay = listed(b, "lambda", i, 0),
                    epsilon = listed(b, "epsilon", i, 1e-6);
  if (failed(most) || failed(beta1) || failed(beta2) || failed(decay) || failed(epsilon))
    return failure();
  FailureOr<Value> rate = optimizer.number(3, type), g = optimizer.gradient(at, *most);
  if (failed(rate) || failed(g))
    return failure();
  auto made =
      LAMBOp::create(b.builder, b.loc, b.in(at.weights), *g, *rate, step, b.cast(b.in(at.moment1), type),
                     b.cast(b.in(at.moment2), type), b.f64(*beta1), b.f64(*beta2), b.f64(*epsilon), b.f64(*decay));
  return optimizer.set(at, {made->getResult(0), made->getResult(1), made->getResult(2)});
}

static LogicalResult importLamb(Binder &b) {
  unsigned operands = b.operandCount();
  if (operands < 9)
    return b.fail() << "expected a signal, scale, norm, rate, step and tensors, got " << operands << " operands";
  if (b.intAttr("do_bias_correction", 1) == 0)
    return b.fail() << "expected do_bias_correction, got 0: moments of LAMB are corrected";
  double least = b.floatAttr("ratio_min", -INFINITY), largest = b.floatAttr("ratio_max", INFINITY);
  if (least > 0 || !std::isinf(largest))
    return b.fail() << "expected ratio_min and ratio_max that bound nothing, got " << least << " and " << largest;
  Optimizer optimizer(b, 0, 1, 2);
  FailureOr<Value> step = stepOf(b, 4);
  if (failed(step) || failed(optimizer.checkSignal()))
    return failure();
  for (unsigned i = 0; 5 + 5 * i + 3 < operands; ++i)
    if (failed(importLambTensor(b, optimizer, i, *step)))
      return failure();
  return optimizer.count(4);
}

void mpt::addOptimizerRules(RuleTable &t) {
  constexpr StringLiteral ms = "com.microsoft";
  t.onDomain(ms, "SGDOptimizer", importSGD, NumericClass::Pinned);
  t.onDomain(ms, "AdamOptimizer", importAdam, NumericClass::Pinned);
  t.onDomain(ms, "LambOptimizer", importLamb, NumericClass::Pinned);
}
