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

namespace {
/// Dropout. A ratio and a mode that are computed at run time choose among values.
class Dropout {
public:
  explicit Dropout(Binder &b) : b(b) {}
  LogicalResult run();

private:
  LogicalResult readRatio();
  LogicalResult readMode();
  LogicalResult readScalar(unsigned i, StringRef what, Value &atRuntime, double &known);
  Value drop(Value x);
  Value inTraining();

  Binder &b;
  double ratio = 0.5;
  bool training = false;
  Value ratioAtRuntime, modeAtRuntime; ///< [], null where they are known
  std::pair<Value, int64_t> generator;
};
} // namespace

LogicalResult Dropout::readScalar(unsigned i, StringRef what, Value &atRuntime, double &known) {
  if (!b.has(i))
    return success();
  if (!b.given(i) && b.in(i) && tensorType(b.in(i)).getNumElements() == 1) {
    atRuntime = b.reshape(b.in(i), {});
    return success();
  }
  FailureOr<double> number = b.number(i, what);
  if (succeeded(number))
    known = *number;
  return number;
}

LogicalResult Dropout::readRatio() {
  if (b.version() < 12)
    ratio = b.floatAttr("ratio", 0.5);
  else if (failed(readScalar(1, "ratio", ratioAtRuntime, ratio)))
    return failure();
  if (!(ratio >= 0 && ratio < 1))
    return b.fail() << "expected a ratio in [0, 1), got " << ratio;
  return success();
}

LogicalResult Dropout::readMode() {
  // Before opset 12 there is no mode: such a node in a graph that is trained drops.
  double mode = b.version() < 12;
  if (b.version() >= 12 && failed(readScalar(2, "training_mode", modeAtRuntime, mode)))
    return failure();
  training = mode != 0 || modeAtRuntime;
  if (modeAtRuntime && !tensorType(modeAtRuntime).getElementType().isInteger(1))
    return b.fail() << "expected a boolean training_mode, got " << tensorType(modeAtRuntime);
  return success();
}

/// False in the evaluation form alone, where dropout keeps all there is: in training one number becomes 0 or 2.
Value Dropout::inTraining() {
  auto scalar = RankedTensorType::get({}, b.builder.getF32Type());
  Value one = b.make<DropoutOp>(b.splat(scalar, 1), generator.first, b.f64(0.5), b.i64(b.generator().second));
  return b.compare(Predicate::ne, one, 1.0);
}

Value Dropout::drop(Value x) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  Value y;
  Value isOn = modeAtRuntime;
  if (ratioAtRuntime) {
    Value wide = b.widen(ratioAtRuntime);
    Type element = tensorType(wide).getElementType();
    auto type = RankedTensorType::get(shape, element);
    Value uniform = b.make<RandomUniformOp>(type, generator.first, b.f64(0), b.f64(1), b.i64(generator.second));
    Value kept = b.compare(Predicate::ge, uniform, b.broadcast(wide, shape, {}));
    // All is dropped from a ratio of 1 on; the factor stays finite there, as 0 times infinity has no value.
    Value rest = b.make<MaxOp>(b.add(b.neg(wide), 1.0), b.splatLike(wide, 0x1p-24));
    Value scaled = b.mul(x, b.broadcast(b.cast(b.make<ReciprocalOp>(rest), tensorType(x).getElementType()), shape, {}));
    y = b.select(kept, scaled, b.splatLike(x, 0));
    isOn = isOn ? Value(b.make<AndOp>(isOn, inTraining())) : inTraining();
  } else {
    y = b.make<DropoutOp>(x, generator.first, b.f64(ratio), b.i64(generator.second));
  }
  return isOn ? b.select(b.broadcast(isOn, shape, {}), y, x) : y;
}

LogicalResult Dropout::run() {
  if (failed(b.needFloat(1, 0)))
    return failure();
  b.ignore({"seed"}); // the generator of the model has its own
  if (failed(readRatio()) || failed(readMode()))
    return failure();
  Value x = b.in(0);
  if (!training || (ratio == 0 && !ratioAtRuntime)) {
    if (b.wants(1) && failed(b.set(1, b.splat(tensorType(x).clone(b.builder.getI1Type()), 1))))
      return failure();
    return b.done(x);
  }
  generator = b.generator();
  if (b.wants(1) && failed(b.set(1, b.compare(Predicate::ne, drop(b.splatLike(x, 1)), 0.0))))
    return failure();
  return b.done(drop(x));
}

static LogicalResult importDropout(Binder &b) { return Dropout(b).run(); }

void mpt::addRandomRules(RuleTable &t) {
  t.on("RandomUniform", 1, importShaped<randomUniform>, NumericClass::Pinned);
  t.on("RandomUniformLike", 1, takes(1, importLike<randomUniform>), NumericClass::Pinned);
  t.on("RandomNormal", 1, importShaped<randomNormal>, NumericClass::Pinned);
  t.on("RandomNormalLike", 1, takes(1, importLike<randomNormal>), NumericClass::Pinned);
  t.on("Dropout", 7, importDropout, {NumericClass::Neutral, Arithmetic::Moves});
}
