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
    pb::NodeProto &node = *function.add_node();
    node.set_op_type(type.str());
    for (const OnnxValue &input : inputs)
      node.add_input(input);
    for (const OnnxAttribute &attribute : attributes)
      *node.add_attribute() = attribute.proto;
    node.add_output("v" + std::to_string(function.node_size()));
    return node.output(0);
  }
  OnnxValue number(int64_t value) {
    OnnxValue &known = numbers[value];
    if (known.empty())
      known = node("Constant", {}, {{"value_int", value}});
    return known;
  }
  OnnxValue indices(ArrayRef<int64_t> values) { return node("Constant", {}, {{"value_ints", values}}); }
  OnnxValue low(OnnxValue x, int64_t mask) { return node("BitwiseAnd", {x, number(mask)}); }
  OnnxValue exclusiveOr(OnnxValue x, OnnxValue y) { return node("BitwiseXor", {x, y}); }

  /// The upper and lower 32 bits of factor x, x below 2^32; in halves of the factor, so that no product leaves i64.
  std::pair<OnnxValue, OnnxValue> product(uint32_t factor, OnnxValue x) {
    OnnxValue half = number(65536);
    OnnxValue first = node("Mul", {x, number(factor & 0xffff)}), second = node("Mul", {x, number(factor >> 16)});
    OnnxValue upper = node("Add", {second, node("Div", {first, half})});
    OnnxValue lower = node("Add", {node("Mul", {low(upper, 0xffff), half}), low(first, 0xffff)});
    return {node("Div", {upper, half}), lower};
  }

private:
  pb::FunctionProto &function;
  std::map<int64_t, OnnxValue> numbers;
};

/// words [count, 4] of `stream` for `key` (seed, step).
void definePhilox(pb::FunctionProto &function) {
  function.set_doc_string(
      "Philox 4x32-10 with counter (block, stream + upper half of step, lower half) and key seed: words 0 to 4 count");
  for (const char *input : {"key", "count", "stream"})
    function.add_input(input);
  pb::OperatorSetIdProto &opset = *function.add_opset_import();
  opset.set_version(exportOpset);
  constexpr int64_t word = 0xffffffff;
  Body b(function);
  OnnxValue seed = b.node("Gather", {"key", b.number(0)}), step = b.node("Gather", {"key", b.number(1)});
  auto halves = [&](OnnxValue x) -> std::pair<OnnxValue, OnnxValue> {
    OnnxValue lower = b.low(x, word);
    return {lower, b.low(b.node("Div", {b.node("Sub", {x, lower}), b.number(word + 1)}), word)};
  };
  auto [seedLow, seedHigh] = halves(seed);
  auto [stepLow, stepHigh] = halves(step);
  OnnxValue keys[2] = {seedLow, seedHigh};
  OnnxValue counter[4] = {b.node("Range", {b.number(0), "count", b.number(1)}), b.number(0),
                          b.low(b.node("Add", {"stream", stepHigh}), word), stepLow};
  for (int round = 0; round < 10; ++round) {
    auto [aHigh, aLow] = b.product(0xD2511F53, counter[0]);
    auto [bHigh, bLow] = b.product(0xCD9E8D57, counter[2]);
    OnnxValue next[4] = {b.exclusiveOr(b.exclusiveOr(bHigh, counter[1]), keys[0]), bLow,
                         b.exclusiveOr(b.exclusiveOr(aHigh, counter[3]), keys[1]), aLow};
    std::copy(next, next + 4, counter);
    keys[0] = b.low(b.node("Add", {keys[0], b.number(0x9E3779B9)}), word);
    keys[1] = b.low(b.node("Add", {keys[1], b.number(0xBB67AE85)}), word);
  }
  OnnxValue columns = b.indices({1});
  SmallVector<OnnxValue> words;
  for (const OnnxValue &value : counter)
    words.push_back(b.node("Unsqueeze", {value, columns}));
  function.add_output(b.node("Concat", words, {{"axis", int64_t(1)}}));
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
