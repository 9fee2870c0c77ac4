// SPDX-License-Identifier: Apache-2.0
// Casts, and linear quantization: integers as they stand in the file, decoded where they are used.
#include "Constants.h"
#include "Converter.h"
#include "StorageTypes.h"

using namespace mlir;
using namespace mpt;

/// 8-bit types saturate unless the node says otherwise.
static LogicalResult castTo(Binder &b, Value x, Type element) {
  b.ignore({"saturate", "round_mode"}); // of narrow floats alone
  auto real = dyn_cast<FloatType>(element);
  if (!real || real.getWidth() > 8 || tensorType(x).getElementType() == element || !b.intAttr("saturate", 1))
    return b.done(b.cast(x, element));
  RankedTensorType type = tensorType(x).clone(element);
  return b.done(b.make<CastOp>(type, x, Value(), Rounding::NearestEven, Overflow::Saturate, int64_t(0)));
}

static LogicalResult importCast(Binder &b) {
  FailureOr<Type> element = b.typeAttr("to", {});
  if (failed(element) || !*element)
    return failed(element) ? failure() : LogicalResult(b.fail() << "expected attribute 'to', got none");
  return castTo(b, b.in(0), *element);
}

static LogicalResult importCastLike(Binder &b) { return castTo(b, b.in(0), b.element(1)); }

/// Bits read as another type of that width: integers keep their value modulo 2^width, and constants are rewritten.
static LogicalResult importBitCast(Binder &b) {
  FailureOr<Type> element = b.typeAttr("to", {});
  if (failed(element) || !*element)
    return failed(element) ? failure() : LogicalResult(b.fail() << "expected attribute 'to', got none");
  RankedTensorType from = tensorType(b.in(0)), to = from.clone(*element);
  if (Tensor::byteSize(from) != Tensor::byteSize(to))
    return b.fail() << "expected a type of the operand's width, got " << *element << " for " << from;
  if (isa<IntegerType>(b.element(0)) && isa<IntegerType>(*element))
    return b.done(b.cast(b.in(0), *element));
  ElementsAttr known = b.given(0);
  if (!known)
    return b.fail() << "expected integers, or constant values, got " << from
                    << " that is computed at run time; the bits of floats are not supported there";
  FailureOr<Value> bits = rewritten(b, known, to, [](const Tensor &values, RankedTensorType type) {
    return Tensor::fromBytes(type, values.toBytes());
  });
  return failed(bits) ? failure() : b.done(*bits);
}

/// Each of x's slices along `axis` `block` times in a row, `extent` in all.
static Value repeatBlocks(Binder &b, Value x, int64_t axis, int64_t block, int64_t extent) {
  SmallVector<int64_t> shape(tensorType(x).getShape()), starts(shape.size(), 0), repeated(shape), dims;
  repeated.insert(repeated.begin() + axis + 1, block);
  for (int64_t i = 0; i < static_cast<int64_t>(shape.size()); ++i)
    dims.push_back(i <= axis ? i : i + 1);
  Value spread = b.broadcast(x, repeated, dims);
  shape[axis] *= block;
  spread = b.reshape(spread, shape);
  shape[axis] = extent;
  return tensorType(spread).getShape() == ArrayRef<int64_t>(shape) ? spread : b.slice(spread, starts, shape);
}

/// Scale or zero point in the shape of operand 0: one for all, one for each position on the axis, or one for each block
/// of positions there.
static FailureOr<Value> spread(Binder &b, unsigned i, StringRef what) {
  ArrayRef<int64_t> shape = b.shape(0);
  b.ignore({"axis"}); // of scales by position
  int64_t block = b.intAttr("block_size", 0);
  if (block == 0 && tensorType(b.in(i)).getNumElements() == 1)
    return b.broadcastTo(b.reshape(b.in(i), {}), shape);
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 1), b.rank(0));
  if (failed(axis))
    return failure();
  if (block == 0) {
    if (b.shape(i) != ArrayRef<int64_t>{shape[*axis]})
      return b.fail() << "expected a " << what << " of one value, or of " << shape[*axis] << ", got [" << b.shape(i)
                      << "]";
    return b.broadcast(b.in(i), shape, {*axis});
  }
  SmallVector<int64_t> want(shape);
  if (block > 0)
    want[*axis] = (shape[*axis] + block - 1) / block;
  if (block < 0 || block > std::max<int64_t>(shape[*axis], 1) || b.shape(i) != ArrayRef<int64_t>(want))
    return b.fail() << "expected a " << what << " of shape [" << want << "] for blocks of " << block << ", got ["
                    << b.shape(i) << "]";
  return repeatBlocks(b, b.in(i), *axis, block, shape[*axis]);
}

/// Operand 0 as floats. Unsigned constants widen here, since kernels have signed integers only.
static Value decoded(Binder &b, Type wide) {
  if (Value whole = b.converter.quantized.lookup(b.named(0)))
    return b.cast(whole, wide);
  if (!b.element(0).isUnsignedInteger() || !b.given(0))
    return b.cast(b.in(0), wide);
  Type signedType = b.builder.getIntegerType(2 * b.element(0).getIntOrFloatBitWidth());
  FailureOr<Value> widened = rewritten(b, b.given(0), tensorType(b.in(0)).clone(signedType),
                                       [](const Tensor &values, RankedTensorType type) { return values.as(type); });
  return failed(widened) ? Value() : b.cast(*widened, wide);
}

static LogicalResult importDequantizeLinear(Binder &b) {
  if (failed(b.need(b.has(2) ? 3 : 2)))
    return failure();
  FailureOr<Value> scale = spread(b, 1, "scale"),
                   zero = b.has(2) ? spread(b, 2, "zero point") : FailureOr<Value>(Value());
  FailureOr<Type> element = b.intAttr("output_dtype", 0) == 0 ? b.element(1) : b.typeAttr("output_dtype", b.element(1));
  if (failed(scale) || failed(zero) || failed(element))
    return failure();
  Type wide = wideType(b.element(1));
  Value x = decoded(b, wide);
  if (!x)
    return failure();
  if (*zero)
    x = b.sub(x, b.cast(*zero, wide));
  return b.done(b.cast(b.mul(x, b.widen(*scale)), *element));
}

/// Operand 0 in steps of the scale: whole numbers behind the zero point in [low, high], or, without bounds, as it is.
static FailureOr<Value> inSteps(Binder &b, std::optional<std::pair<double, double>> bounds) {
  FailureOr<Value> scale = spread(b, 1, "scale"),
                   zero = b.has(2) ? spread(b, 2, "zero point") : FailureOr<Value>(Value());
  if (failed(scale) || failed(zero))
    return failure();
  Type wide = wideType(b.element(0));
  Value y = b.div(b.cast(b.in(0), wide), b.cast(*scale, wide));
  if (!bounds)
    return y;
  y = b.make<RoundOp>(y);
  if (*zero)
    y = b.add(y, b.cast(*zero, wide));
  return b.make<ClampOp>(y, b.f64(bounds->first), b.f64(bounds->second));
}

static void warnOfGradient(Binder &b) {
  if (!b.given(0))
    b.warn() << "rounds its input to integers, which passes no gradient: what comes before is not trained through it; "
                "remove the quantization before training, or freeze what comes before";
}

static LogicalResult importQuantizeLinear(Binder &b) {
  if (failed(b.need(b.has(2) ? 3 : 2)))
    return failure();
  b.ignore({"saturate", "precision"}); // of narrow floats; division is never narrower than FP32
  Type byte = IntegerType::get(b.builder.getContext(), 8, IntegerType::Unsigned);
  FailureOr<Type> element = b.intAttr("output_dtype", 0) == 0 ? byte : b.typeAttr("output_dtype", byte);
  if (failed(element))
    return failure();
  if (b.has(2))
    element = b.element(2);
  auto integer = dyn_cast<IntegerType>(*element);
  auto real = dyn_cast<FloatType>(*element);
  bool fits = integer ? integer.getWidth() <= 16 && integer.getWidth() >= 8 : real && real.getWidth() == 8;
  if ((!b.isFloat(0) && b.element(0) != b.builder.getI32Type()) || !fits)
    return b.fail() << "expected a float tensor and a result of 8 or 16 bits, got " << b.in(0).getType() << " and "
                    << *element;
  if (real) {
    FailureOr<Value> y = inSteps(b, std::nullopt);
    return failed(y) ? failure() : castTo(b, *y, *element);
  }
  warnOfGradient(b);
  double steps = static_cast<double>(int64_t(1) << integer.getWidth());
  double low = integer.isUnsigned() ? 0 : -steps / 2;
  FailureOr<Value> whole = inSteps(b, std::make_pair(low, low + steps - 1));
  if (failed(whole))
    return failure();
  if (!b.given(0)) // else it may be folded
    b.converter.quantized[b.node.getResult(0)] = *whole;
  return b.done(b.cast(*whole, *element));
}

/// A cast from or to a type that is stored in bytes; `from` and `to` are numbers of TensorProto.DataType.
static LogicalResult importCastStorage(Binder &b) {
  int64_t to = b.intAttr("to", 0);
  bool saturate = b.intAttr("saturate", 1) != 0;
  StringRef roundMode = b.stringAttr("round_mode", "up");
  Value x = decodeStorage(b, b.in(0), b.intAttr("from", 0));
  if (isStorageType(to))
    return b.done(encodeStorage(b, x, to, saturate, roundMode));
  FailureOr<Type> element = b.typeAttr("to", {});
  return failed(element) ? failure() : castTo(b, x, *element);
}

/// QuantizeLinear to a type that is stored in bytes: operands x, scale, and the zero point as floats.
static LogicalResult importQuantizeStorage(Binder &b) {
  if (failed(b.need(b.has(2) ? 3 : 2)))
    return failure();
  b.ignore({"precision", "output_dtype"}); // `to` is the same type
  int64_t to = b.intAttr("to", 0);
  bool saturate = b.intAttr("saturate", 1) != 0;
  std::optional<std::pair<int64_t, int64_t>> range = storageRange(to);
  std::optional<std::pair<double, double>> bounds;
  if (range)
    bounds = std::make_pair(static_cast<double>(range->first), static_cast<double>(range->second));
  warnOfGradient(b);
  FailureOr<Value> y = inSteps(b, bounds);
  return failed(y) ? failure() : b.done(encodeStorage(b, *y, to, saturate, "nearest"));
}

void mpt::addCastRules(RuleTable &t) {
  t.on("Cast", 6, takes(1, importCast), {NumericClass::Movement, Arithmetic::Converts});
  t.on("BitCast", 26, takes(1, importBitCast), NumericClass::Pinned);
  t.on("CastLike", 15, takes(2, importCastLike), {NumericClass::Movement, Arithmetic::Converts});
  t.on("DequantizeLinear", 10, importDequantizeLinear, NumericClass::Pinned);
  t.on("QuantizeLinear", 10, importQuantizeLinear, NumericClass::Pinned);
  // Forms of the operators above where a type is stored in bytes; see lib/Import/Proto/StorageTypes.cpp.
  t.onDomain(storageDomain, "Cast", takes(1, importCastStorage), NumericClass::Movement);
  t.onDomain(storageDomain, "QuantizeLinear", importQuantizeStorage, NumericClass::Pinned);
}
