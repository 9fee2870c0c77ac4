// SPDX-License-Identifier: Apache-2.0
// Export of casts, and of what draws from the counter-based generator (Philox 4x32-10: Salmon et al., SC 2011), whose
// integer arithmetic is a model-local function of standard ops.
#include "Writer.h"
#include "mpt/Export/Export.h"

#include <cmath>

using namespace mlir;
using namespace mpt;
namespace pb = ::ONNX_NAMESPACE;

namespace {

constexpr StringLiteral kPhilox = "Philox4x32";

/// Nodes of a function's body, whose constants are nodes too.
class Body {
public:
  explicit Body(pb::FunctionProto &function) : function(function) {}

  OnnxValue node(StringRef type, ArrayRef<OnnxValue> inputs, ArrayRef<OnnxAttribute> attributes = {}) {
    return add(type, inputs, attributes, 1).front();
  }
  OnnxValue number(int64_t value) {
    OnnxValue &known = numbers[value];
    if (known.empty())
      known = node("Constant", {}, {{"value_int", value}});
    return known;
  }
  OnnxValue numbersOf(ArrayRef<int64_t> values) { return node("Constant", {}, {{"value_ints", values}}); }
  OnnxValue low(OnnxValue x) { return node("BitwiseAnd", {x, number(0xffffffff)}); }
  /// x / 2^32, rounded down; `lower` is low(x).
  OnnxValue high(OnnxValue x, OnnxValue lower) {
    return node("Div", {node("Sub", {x, lower}), number(INT64_C(1) << 32)});
  }
  OnnxValue exclusiveOr(OnnxValue x, OnnxValue y) { return node("BitwiseXor", {x, y}); }
  /// By Reshape, which shape inference does not look through: it takes Unsqueeze for a list of extents.
  OnnxValue column(OnnxValue x) { return node("Reshape", {x, numbersOf({-1, 1})}); }
  std::vector<OnnxValue> rows(OnnxValue x, int64_t count) {
    return add("Split", {x}, {{"axis", int64_t(0)}, {"num_outputs", count}}, count);
  }

private:
  std::vector<OnnxValue> add(StringRef type, ArrayRef<OnnxValue> inputs, ArrayRef<OnnxAttribute> attributes,
                             int64_t results) {
    pb::NodeProto &node = *function.add_node();
    node.set_op_type(type.str());
    for (const OnnxValue &input : inputs)
      node.add_input(input);
    for (const OnnxAttribute &attribute : attributes)
      *node.add_attribute() = attribute.proto;
    for (int64_t i = 0; i < results; ++i)
      node.add_output("v" + std::to_string(++values));
    return {node.output().begin(), node.output().end()};
  }

  pb::FunctionProto &function;
  std::map<int64_t, OnnxValue> numbers;
  int64_t values = 0;
};

/// words [count, 4] of `stream` for `key` (seed, step). A step draws many times, and executors inline each: words 0 and
/// 2, and 1 and 3, of a counter are columns of one tensor, which halves the nodes.
void definePhilox(pb::FunctionProto &function) {
  function.set_doc_string(
      "Philox 4x32-10 with counter (block, stream + upper half of step, lower half) and key seed: words 0 to 4 count");
  for (const char *input : {"key", "count", "stream"})
    function.add_input(input);
  pb::OperatorSetIdProto &opset = *function.add_opset_import();
  opset.set_version(exportOpset);
  constexpr int64_t rounds = 10;
  Body b(function);
  // Seed and step, their lower halves and their upper.
  OnnxValue lower = b.low("key"),
            halves = b.node("Concat", {lower, b.low(b.high("key", lower))}, {{"axis", int64_t(0)}});
  OnnxValue seed = b.node("Gather", {halves, b.numbersOf({0, 2})});
  OnnxValue stepLow = b.node("Gather", {halves, b.number(1)}), stepHigh = b.node("Gather", {halves, b.number(3)});
  // The key of round r is the seed + r times two constants.
  OnnxValue round = b.column(b.node("Range", {b.number(0), b.number(rounds), b.number(1)}));
  OnnxValue weyl = b.node("Mul", {round, b.numbersOf({0x9E3779B9, 0xBB67AE85})});
  std::vector<OnnxValue> keys = b.rows(b.low(b.node("Add", {weyl, seed})), rounds);
  // Words 0 and 2 are (block, stream), words 1 and 3 (0, step).
  OnnxValue block = b.column(b.node("Range", {b.number(0), "count", b.number(1)}));
  OnnxValue stream = b.low(b.node("Add", {"stream", stepHigh})), isLast = b.numbersOf({0, 1});
  OnnxValue even = b.node("Add", {b.node("Mul", {block, b.numbersOf({1, 0})}), b.node("Mul", {stream, isLast})});
  OnnxValue odd = b.node("Mul", {stepLow, isLast});
  // The factors less 2^32, so that products stay in i64: their lower halves are the same, the upper ones lack a word.
  constexpr int64_t word = INT64_C(1) << 32;
  OnnxValue factors = b.numbersOf({0xCD9E8D57 - word, 0xD2511F53 - word}), swapped = b.numbersOf({1, 0});
  for (const OnnxValue &key : keys) {
    OnnxValue x = b.node("Gather", {even, swapped}, {{"axis", int64_t(1)}}), product = b.node("Mul", {x, factors});
    OnnxValue productLow = b.low(product), productHigh = b.node("Add", {b.high(product, productLow), x});
    even = b.exclusiveOr(b.exclusiveOr(productHigh, odd), key);
    odd = productLow;
  }
  OnnxValue last = b.numbersOf({2});
  OnnxValue words =
      b.node("Concat", {b.node("Unsqueeze", {even, last}), b.node("Unsqueeze", {odd, last})}, {{"axis", int64_t(2)}});
  function.add_output(b.node("Reshape", {words, b.numbersOf({-1, 4})}));
}

/// One word (i64, below 2^32) for each element of `type`.
OnnxValue randomWords(OnnxWriter &w, Value key, int64_t stream, RankedTensorType type) {
  int64_t count = type.getNumElements(), blocks = llvm::divideCeil(count, 4);
  OnnxValue words =
      w.call(kPhilox, {w.get(key), w.integer(blocks), w.integer(static_cast<uint32_t>(stream))}, definePhilox);
  OnnxValue flat = w.reshape(words, {blocks * 4});
  if (count != blocks * 4)
    flat = w.node("Slice", {flat, w.indices({0}), w.indices({count}), w.indices({0})});
  return w.reshape(flat, type.getShape());
}

double largestOf(FloatType type) {
  APFloat top = APFloat::getLargest(type.getFloatSemantics());
  bool loses;
  top.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
  return top.convertToDouble();
}

/// A rounding that Cast does not have, in FP64, where all of it is exact: the distance of neighbours by the power of
/// two at or below |x| (Rump, Ogita, Oishi, SISC 31(1), 2008, 3.6), the count of such distances, and a carry.
OnnxValue roundAway(OnnxWriter &w, CastOp op, FloatType to) {
  Arithmetic a(w, Float64Type::get(op.getContext()));
  const llvm::fltSemantics &format = to.getFloatSemantics();
  double largest = largestOf(to), infinity = std::numeric_limits<double>::infinity();
  int digits = APFloat::semanticsPrecision(format), least = APFloat::semanticsMinExponent(format);
  bool saturates = op.getOverflow() == Overflow::Saturate, truncates = op.getRounding() == Rounding::TowardZero;
  OnnxValue x = a.in(op.getX()), size = w.node("Abs", {x}), q = a.mul(size, 0x1p52 + 1);
  OnnxValue power = a.sub(q, a.mul(q, 1 - 0x1p-53));
  OnnxValue gap = a.mul(w.node("Max", {power, a.number(std::ldexp(1.0, least))}), std::ldexp(1.0, 1 - digits));
  OnnxValue parts = a.div(size, gap), count = w.node("Floor", {parts});
  if (!truncates) {
    OnnxValue fraction = w.node("Floor", {a.mul(a.sub(parts, count), 0x1p32)});
    Type index = IntegerType::get(op.getContext(), 64), flag = IntegerType::get(op.getContext(), 1);
    OnnxValue words = w.cast(randomWords(w, op.getKey(), op.getStream(), tensorType(op.getY())), index, a.type);
    OnnxValue carry = w.node("GreaterOrEqual", {a.add(fraction, words), a.number(0x1p32)});
    count = a.add(count, w.cast(carry, flag, a.type));
  }
  OnnxValue rounded = a.mul(count, gap), zero = a.number(0);
  OnnxValue fits = w.node("LessOrEqual", {rounded, a.number(largest)});
  rounded = w.node("Where", {fits, rounded, a.number(saturates || truncates ? largest : infinity)});
  rounded = w.node("Where", {w.node("Less", {x, zero}), w.node("Neg", {rounded}), rounded});
  // Zeros keep their sign, NaN stays; infinity is beyond the range.
  OnnxValue special = saturates ? w.node("Clip", {x, a.number(-largest), a.number(largest)}) : x;
  OnnxValue ordinary = w.node("And", {w.node("Greater", {size, zero}), w.node("Less", {size, a.number(infinity)})});
  return w.node("Where", {ordinary, rounded, special});
}

OnnxValue exportCast(CastOp op, OnnxWriter &w) {
  Type from = elementOf(op.getX()), to = elementOf(op.getY());
  auto real = dyn_cast<FloatType>(to);
  bool saturates = op.getOverflow() == Overflow::Saturate;
  OnnxValue x = w.get(op.getX());
  if (real && op.getRounding() != Rounding::NearestEven) {
    x = roundAway(w, op, real);
  } else if (real && saturates && real.getWidth() > 8) { // Cast saturates for 8-bit types alone
    Type wide = isa<FloatType>(from) ? Type(wideType(from)) : Type(Float64Type::get(op.getContext()));
    double largest = largestOf(real);
    x = w.node("Clip", {w.cast(x, from, wide), w.scalar(wide, -largest), w.scalar(wide, largest)});
  }
  SmallVector<OnnxAttribute> attributes{{"to", int64_t(onnxElementType(to))}};
  if (real && real.getWidth() == 8)
    attributes.emplace_back("saturate", int64_t(saturates && op.getRounding() == Rounding::NearestEven));
  return w.node("Cast", {x}, attributes);
}

/// x / (1 - ratio), rounded once, where the generator keeps an element.
OnnxValue exportDropout(DropoutOp op, OnnxWriter &w) {
  Arithmetic a(w, Float64Type::get(op.getContext()));
  double ratio = op.getRatio().convertToDouble();
  OnnxValue words = randomWords(w, op.getKey(), op.getStream(), tensorType(op.getY()));
  OnnxValue least = w.integer(static_cast<int64_t>(std::floor(std::ldexp(ratio, 32))));
  OnnxValue kept = a.out(a.div(a.in(op.getX()), a.number(1 - ratio)), op.getY());
  return w.node("Where", {w.node("GreaterOrEqual", {words, least}), kept, w.scalar(elementOf(op.getY()), 0)});
}

OnnxValue exportRandomUniform(RandomUniformOp op, OnnxWriter &w) {
  Arithmetic a(w, Float64Type::get(op.getContext()));
  double low = op.getLow().convertToDouble(), high = op.getHigh().convertToDouble();
  OnnxValue words = randomWords(w, op.getKey(), op.getStream(), tensorType(op.getY()));
  Type index = IntegerType::get(op.getContext(), 64);
  OnnxValue share = a.mul(w.cast(w.node("Div", {words, w.integer(256)}), index, a.type), 0x1p-24);
  return a.out(a.add(a.number(low), a.mul(share, high - low)), op.getY());
}

} // namespace

void mpt::addRandomRules(ExportRules &rules) {
  addRule<CastOp>(rules, [](CastOp op, OnnxWriter &w) { return Values{exportCast(op, w)}; });
  addRule<DropoutOp>(rules, [](DropoutOp op, OnnxWriter &w) { return Values{exportDropout(op, w)}; });
  addRule<RandomUniformOp>(rules, [](RandomUniformOp op, OnnxWriter &w) { return Values{exportRandomUniform(op, w)}; });
}
