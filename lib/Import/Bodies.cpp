// SPDX-License-Identifier: Apache-2.0
// Subgraphs of control flow, converted in the place of their node.
#include "Bodies.h"

#include "Untaken.h"

#include "mpt/Evaluation/Constants.h"

using namespace mlir;
using namespace mpt;

Block *Body::block(StringRef name) {
  ArrayAttr names = b.node.getRegionNamesAttr();
  for (auto [i, region] : llvm::enumerate(b.node.getBodies()))
    if (names && i < names.size() && cast<StringAttr>(names[i]).getValue() == name)
      return &region.front();
  return nullptr;
}

Carried Body::operand(unsigned i) {
  Value onnx = b.named(i);
  if (auto found = b.converter.sequences.find(onnx); found != b.converter.sequences.end())
    return {Value(), SmallVector<Value>(found->second)};
  return {b.converter.lookup(onnx), std::nullopt};
}

FailureOr<SmallVector<Carried>> Body::inlined(Block &block, ArrayRef<Carried> arguments, Value taken) {
  // Every copy is compiled, so their number is bounded.
  constexpr int64_t mostNodes = 1 << 18;
  b.converter.unrolledNodes += static_cast<int64_t>(block.getOperations().size());
  if (b.converter.unrolledNodes > mostNodes)
    return b.fail() << "expected at most " << mostNodes << " nodes once loops are unrolled; split the sequence";
  if (block.getNumArguments() != arguments.size())
    return b.fail() << "expected a body with " << arguments.size() << " inputs, got " << block.getNumArguments();
  for (auto [argument, value] : llvm::zip_equal(block.getArguments(), arguments)) {
    if (value.sequence)
      b.converter.sequences[argument] = *value.sequence;
    else
      b.converter.map(argument, value.tensor);
  }
  SmallVector<Carried> results;
  Block *body = b.builder.getInsertionBlock();
  Operation *before = body->empty() ? nullptr : &body->back();
  if (failed(b.converter.inlineBlock(block, {})))
    return failure();
  if (taken && !body->empty() && before != &body->back())
    keepApart(b, before, taken);
  for (Value value : cast<onnx::YieldOp>(block.getTerminator()).getValues()) {
    auto found = b.converter.sequences.find(value);
    bool isSequence = found != b.converter.sequences.end();
    results.push_back({isSequence ? Value() : b.converter.lookup(value),
                       isSequence ? std::optional(SmallVector<Value>(found->second)) : std::nullopt});
  }
  return results;
}

LogicalResult Body::give(unsigned i, const Carried &value) {
  if (i >= b.node.getNumResults())
    return success();
  if (value.sequence)
    b.converter.sequences[b.node.getResult(i)] = *value.sequence;
  else if (value.tensor)
    return b.set(i, value.tensor);
  return success();
}

static std::string describe(const Carried &value) {
  std::string text;
  llvm::raw_string_ostream out(text);
  if (value.tensor)
    out << value.tensor.getType();
  else
    out << "a sequence";
  return text;
}

FailureOr<Carried> Body::chosen(Value condition, const Carried &yes, const Carried &no) {
  if (yes.sequence && no.sequence && yes.sequence->size() == no.sequence->size()) {
    SmallVector<Value> elements;
    for (auto [a, c] : llvm::zip_equal(*yes.sequence, *no.sequence)) {
      FailureOr<Carried> element = chosen(condition, {a, std::nullopt}, {c, std::nullopt});
      if (failed(element))
        return failure();
      elements.push_back(element->tensor);
    }
    return Carried{Value(), elements};
  }
  if (yes.sequence || no.sequence || !yes.tensor || !no.tensor || yes.tensor.getType() != no.tensor.getType())
    return b.fail() << "expected tensors of one type on both sides of a condition that is computed at run time, got "
                    << describe(yes) << " and " << describe(no);
  if (yes.tensor == no.tensor)
    return yes;
  Value mask = b.broadcast(b.reshape(condition, {}), tensorType(yes.tensor).getShape(), {});
  return Carried{b.select(mask, yes.tensor, no.tensor), std::nullopt};
}

std::optional<int64_t> Body::constant(Value value) {
  ElementsAttr known = value ? constantOf(value) : ElementsAttr();
  if (!known || known.getNumElements() != 1)
    return std::nullopt;
  return Binder::intsOf(known).front();
}

/// Parts of one scan output, in the order of the steps, joined along a new dimension `axis`.
FailureOr<Value> mpt::stacked(Binder &b, ArrayRef<Value> parts, int64_t axis, bool reverse) {
  SmallVector<Value> rows;
  SmallVector<int64_t> shape;
  for (Value part : parts) {
    if (part.getType() != parts.front().getType())
      return b.fail() << "expected scan outputs of one shape in all steps, got " << parts.front().getType() << " and "
                      << part.getType();
    shape.assign(tensorType(part).getShape().begin(), tensorType(part).getShape().end());
    FailureOr<int64_t> at = b.axis(axis, static_cast<int64_t>(shape.size()) + 1);
    if (failed(at))
      return failure();
    shape.insert(shape.begin() + *at, 1);
    rows.push_back(b.reshape(part, shape));
    axis = *at;
  }
  if (reverse)
    std::reverse(rows.begin(), rows.end());
  return rows.size() == 1 ? rows.front() : b.concat(rows, axis);
}
