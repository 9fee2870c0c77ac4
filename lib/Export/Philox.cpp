// SPDX-License-Identifier: Apache-2.0
// Philox in integer arithmetic that ONNX has: products of 32-bit words in i64.
#include "Philox.h"
#include "mpt/Export/Export.h"

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

} // namespace

OnnxValue mpt::randomWords(OnnxWriter &w, Value key, int64_t stream, RankedTensorType type) {
  int64_t count = type.getNumElements(), blocks = llvm::divideCeil(count, 4);
  OnnxValue words =
      w.call(kPhilox, {w.get(key), w.integer(blocks), w.integer(static_cast<uint32_t>(stream))}, definePhilox);
  OnnxValue flat = w.reshape(words, {blocks * 4});
  if (count != blocks * 4)
    flat = w.node("Slice", {flat, w.indices({0}), w.indices({count}), w.indices({0})});
  return w.reshape(flat, type.getShape());
}
