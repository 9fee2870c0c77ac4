// SPDX-License-Identifier: Apache-2.0
// Casts, and linear quantization: integers as they stand in the file, decoded where they are used.
#include "Converter.h"

#include "mpt/Evaluation/Tensor.h"

using namespace mlir;
using namespace mpt;

/// 8-bit types saturate unless the node says otherwise.
static LogicalResult castTo(Binder &b, Type element) {
  auto real = dyn_cast<FloatType>(element);
  if (!real || real.getWidth() > 8 || b.element(0) == element || !b.intAttr("saturate", 1))
    return b.done(b.cast(b.in(0), element));
  RankedTensorType type = tensorType(b.in(0)).clone(element);
  return b.done(b.make<CastOp>(type, b.in(0), Value(), Rounding::NearestEven, Overflow::Saturate, int64_t(0)));
}

static LogicalResult importCast(Binder &b) {
  if (failed(b.need(1)))
    return failure();
  FailureOr<Type> element = b.typeAttr("to", {});
  if (failed(element) || !*element)
    return failed(element) ? failure() : LogicalResult(b.fail() << "expected attribute 'to', got none");
  return castTo(b, *element);
}

static LogicalResult importCastLike(Binder &b) {
  if (failed(b.need(2)))
    return failure();
  return castTo(b, b.element(1));
}

/// Scale or zero point in the shape of operand 0: one for all, or one for each position on the axis.
static FailureOr<Value> spread(Binder &b, unsigned i, StringRef what) {
  if (b.intAttr("block_size", 0) != 0)
    return b.fail() << "expected block_size = 0, got " << b.intAttr("block_size", 0) << "; blocks are not supported";
  ArrayRef<int64_t> shape = b.shape(0);
  if (tensorType(b.in(i)).getNumElements() == 1)
    return b.broadcastTo(b.reshape(b.in(i), {}), shape);
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 1), b.rank(0));
  if (failed(axis))
    return failure();
  if (b.shape(i) != ArrayRef<int64_t>{shape[*axis]})
    return b.fail() << "expected a " << what << " of one value, or of " << shape[*axis] << ", got [" << b.shape(i)
                    << "]";
  return b.broadcast(b.in(i), shape, {*axis});
}

/// Operand 0 as floats. Unsigned constants widen here, since kernels have signed integers only.
static Value decoded(Binder &b, Type wide) {
  if (Value whole = b.converter.quantized.lookup(b.node.getInputs()[0]))
    return b.cast(whole, wide);
  if (!b.element(0).isUnsignedInteger() || !b.given(0))
    return b.cast(b.in(0), wide);
  FailureOr<Tensor> values = Tensor::fromAttribute(b.given(0), b.loc);
  if (failed(values))
    return Value();
  unsigned width = 2 * b.element(0).getIntOrFloatBitWidth();
  Tensor widened = values->as(tensorType(b.in(0)).clone(b.builder.getIntegerType(width)));
  return b.cast(b.constant(widened.toAttribute()), wide);
}

static LogicalResult importDequantizeLinear(Binder &b) {
  if (failed(b.need(b.has(2) ? 3 : 2)))
    return failure();
  FailureOr<Value> scale = spread(b, 1, "scale"),
                   zero = b.has(2) ? spread(b, 2, "zero point") : FailureOr<Value>(Value());
  if (failed(scale) || failed(zero))
    return failure();
  Type wide = wideType(b.element(1));
  Value x = decoded(b, wide);
  if (!x)
    return failure();
  if (*zero)
    x = b.sub(x, b.cast(*zero, wide));
  return b.done(b.cast(b.mul(x, b.widen(*scale)), b.element(1)));
}

static LogicalResult importQuantizeLinear(Binder &b) {
  if (failed(b.need(b.has(2) ? 3 : 2)))
    return failure();
  FailureOr<Type> element =
      b.typeAttr("output_dtype", IntegerType::get(b.builder.getContext(), 8, IntegerType::Unsigned));
  FailureOr<Value> scale = spread(b, 1, "scale"),
                   zero = b.has(2) ? spread(b, 2, "zero point") : FailureOr<Value>(Value());
  if (failed(element) || failed(scale) || failed(zero))
    return failure();
  if (b.has(2))
    element = b.element(2);
  auto integer = dyn_cast<IntegerType>(*element);
  if (!b.isFloat(0) || !integer || integer.getWidth() > 16 || integer.getWidth() < 8)
    return b.fail() << "expected a float tensor and a result of 8 or 16 bits, got " << b.in(0).getType() << " and "
                    << *element;
  if (!b.given(0))
    b.warn() << "rounds its input to integers, which passes no gradient: what comes before is not trained through it; "
                "remove the quantization before training, or freeze what comes before";
  double steps = static_cast<double>(int64_t(1) << integer.getWidth());
  double low = integer.isUnsigned() ? 0 : -steps / 2;
  Value y = b.make<RoundOp>(b.div(b.widen(b.in(0)), b.cast(*scale, wideType(b.element(0)))));
  if (*zero)
    y = b.add(y, b.cast(*zero, wideType(b.element(0))));
  Value whole = b.make<ClampOp>(y, b.f64(low), b.f64(low + steps - 1));
  if (!b.given(0)) // else it may be folded
    b.converter.quantized[b.node.getResult(0)] = whole;
  return b.done(b.cast(whole, *element));
}

void mpt::addCastRules(RuleTable &t) {
  t.on("Cast", 6, importCast, NumericClass::Movement);
  t.on("CastLike", 15, importCastLike, NumericClass::Movement);
  t.on("DequantizeLinear", 10, importDequantizeLinear, NumericClass::Pinned);
  t.on("QuantizeLinear", 10, importQuantizeLinear, NumericClass::Pinned);
}
