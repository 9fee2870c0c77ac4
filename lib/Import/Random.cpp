// SPDX-License-Identifier: Apache-2.0
// Random tensors (uniform bits by counter, normal ones from them) and dropout.
#include "Binder.h"

using namespace mlir;
using namespace mpt;

static Value uniform(Binder &b, ArrayRef<int64_t> shape, Type element, double low, double high) {
  b.ignore({"seed"}); // the generator of the model has its own
  auto [key, stream] = b.generator();
  return b.make<RandomUniformOp>(RankedTensorType::get(shape, element), key, b.f64(low), b.f64(high), b.i64(stream));
}

static LogicalResult randomUniform(Binder &b, ArrayRef<int64_t> shape, Type element) {
  return b.done(uniform(b, shape, element, b.floatAttr("low", 0), b.floatAttr("high", 1)));
}

/// Two uniform tensors make a normal one (Box and Muller, 1958).
static LogicalResult randomNormal(Binder &b, ArrayRef<int64_t> shape, Type element) {
  constexpr double pi = 3.14159265358979323846;
  Type wide = wideType(element);
  // 1 - u lies in (0, 1], so that its logarithm is finite.
  Value u = uniform(b, shape, wide, 0, 1), angle = b.mul(uniform(b, shape, wide, 0, 1), 2 * pi);
  Value radius = b.make<SqrtOp>(b.mul(b.make<LogOp>(b.add(b.neg(u), 1.0)), -2.0));
  Value normal = b.mul(radius, b.make<CosOp>(angle));
  Value y = b.add(b.mul(normal, b.floatAttr("scale", 1)), b.floatAttr("mean", 0));
  return b.done(b.cast(y, element));
}

template <auto make> static LogicalResult importLike(Binder &b) {
  if (failed(b.need(1)))
    return failure();
  FailureOr<Type> element = b.typeAttr("dtype", b.element(0));
  if (failed(element))
    return failure();
  if (!isa<FloatType>(*element))
    return b.fail() << "expected a float type, got " << *element;
  return make(b, b.shape(0), *element);
}

template <auto make> static LogicalResult importShaped(Binder &b) {
  FailureOr<Type> element = b.typeAttr("dtype", b.builder.getF32Type());
  SmallVector<int64_t> shape = b.intsAttr("shape");
  if (failed(element) || failed(b.checkShape(shape)))
    return failure();
  if (!isa<FloatType>(*element))
    return b.fail() << "expected a float type, got " << *element;
  return make(b, shape, *element);
}

static LogicalResult importDropout(Binder &b) {
  if (failed(b.needFloat(1, 0)))
    return failure();
  b.ignore({"seed"}); // the generator of the model has its own
  double ratio = b.version() < 12 ? b.floatAttr("ratio", 0.5) : 0.5;
  // Before opset 12 there is no mode: such a node in a graph that is trained drops.
  bool training = b.version() < 12;
  if (b.version() >= 12 && b.has(1)) {
    FailureOr<double> given = b.number(1, "ratio");
    if (failed(given))
      return failure();
    ratio = *given;
  }
  if (b.version() >= 12 && b.has(2)) {
    FailureOr<double> given = b.number(2, "training_mode");
    if (failed(given))
      return failure();
    training = *given != 0;
  }
  if (!(ratio >= 0 && ratio < 1))
    return b.fail() << "expected a ratio in [0, 1), got " << ratio;
  if (!training || ratio == 0) {
    if (b.wants(1) && failed(b.set(1, b.splat(tensorType(b.in(0)).clone(b.builder.getI1Type()), 1))))
      return failure();
    return b.done(b.in(0));
  }
  auto generator = b.generator();
  auto drop = [&](Value x) -> Value {
    return b.make<DropoutOp>(x, generator.first, b.f64(ratio), b.i64(generator.second));
  };
  if (b.wants(1) && failed(b.set(1, b.compare(Predicate::ne, drop(b.splatLike(b.in(0), 1)), 0.0))))
    return failure();
  return b.done(drop(b.in(0)));
}

void mpt::addRandomRules(RuleTable &t) {
  t.on("RandomUniform", 1, importShaped<randomUniform>, NumericClass::Pinned);
  t.on("RandomUniformLike", 1, importLike<randomUniform>, NumericClass::Pinned);
  t.on("RandomNormal", 1, importShaped<randomNormal>, NumericClass::Pinned);
  t.on("RandomNormalLike", 1, importLike<randomNormal>, NumericClass::Pinned);
  t.on("Dropout", 7, importDropout, NumericClass::Neutral);
}
