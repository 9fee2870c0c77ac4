// SPDX-License-Identifier: Apache-2.0
// Sequences of known length, which disappear.
#include "Converter.h"

using namespace mlir;
using namespace mpt;

static LogicalResult importSplitToSequence(Binder &b) {
  b.ignore({"keepdims"}); // where the parts have sizes, they keep the axis
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), b.rank(0));
  if (failed(axis))
    return failure();
  int64_t extent = b.shape(0)[*axis];
  SmallVector<int64_t> sizes;
  bool single = !b.has(1);
  // Each part becomes an op.
  constexpr int64_t mostParts = 1 << 20;
  if (single && extent > mostParts)
    return b.fail() << "expected at most " << mostParts << " parts, got " << extent;
  if (single) {
    sizes.assign(extent, 1);
  } else {
    FailureOr<SmallVector<int64_t>> given = b.ints(1, "split");
    if (failed(given))
      return failure();
    sizes = *given;
    if (b.rank(1) == 0) {
      int64_t chunk = sizes.front();
      if (chunk < 1 || extent / chunk > mostParts)
        return b.fail() << "expected a positive chunk and at most " << mostParts << " parts, got chunk " << chunk;
      sizes.clear();
      for (int64_t left = extent; left > 0; left -= chunk)
        sizes.push_back(std::min(chunk, left));
    }
  }
  int64_t total = 0;
  for (int64_t size : sizes)
    total = size < 0 || size > extent ? extent + 1 : std::min(total + size, extent + 1);
  if (total != extent)
    return b.fail() << "expected sizes that add up to " << extent << ", got [" << sizes << "]";
  SmallVector<Value> &elements = b.converter.sequences[b.node.getResult(0)];
  SmallVector<int64_t> starts(b.rank(0), 0), shape(b.shape(0));
  for (int64_t size : sizes) {
    shape[*axis] = size;
    Value part = size == extent ? b.in(0) : b.slice(b.in(0), starts, shape);
    if (single && !b.intAttr("keepdims", 1)) {
      SmallVector<int64_t> squeezed(shape);
      squeezed.erase(squeezed.begin() + *axis);
      part = b.reshape(part, squeezed);
    }
    elements.push_back(part);
    starts[*axis] += size;
  }
  return success();
}

/// The elements of the sequence operand 0.
static FailureOr<ArrayRef<Value>> elementsOf(Binder &b) {
  if (b.has(0))
    if (auto found = b.converter.sequences.find(b.named(0)); found != b.converter.sequences.end())
      return ArrayRef<Value>(found->second);
  return b.fail() << "expected a sequence of known length as operand 0, got one that is built at run time";
}

/// A position among `count` elements that is computed at run time, [], counted from the front; null where operand `i`
/// is constant or absent. The `elements` must be of one type, as any of them may be meant.
static FailureOr<Value> positionAtRuntime(Binder &b, unsigned i, ArrayRef<Value> elements, int64_t count) {
  if (!b.has(i) || b.given(i) || !b.in(i))
    return Value();
  if (tensorType(b.in(i)).getNumElements() != 1 || b.isFloat(i))
    return b.fail() << "expected one position, got " << b.in(i).getType();
  for (Value element : elements)
    if (element.getType() != elements.front().getType())
      return b.fail() << "expected tensors of one type in a sequence with a position that is computed at run time, got "
                      << elements.front().getType() << " and " << element.getType();
  Value at = b.cast(b.reshape(b.in(i), {}), b.builder.getI64Type());
  return b.select(b.compare(Predicate::lt, at, 0.0), b.add(at, static_cast<double>(count)), at);
}

/// `yes` where `at` compares with `number` so, else `no`.
static Value choose(Binder &b, Predicate predicate, Value at, int64_t number, Value yes, Value no) {
  Value mask = b.compare(predicate, at, static_cast<double>(number));
  return b.select(b.broadcast(mask, tensorType(yes).getShape(), {}), yes, no);
}

static LogicalResult importSequenceAt(Binder &b) {
  FailureOr<ArrayRef<Value>> elements = elementsOf(b);
  if (failed(elements))
    return failure();
  FailureOr<Value> atRuntime = positionAtRuntime(b, 1, *elements, elements->size());
  if (failed(atRuntime))
    return failure();
  if (*atRuntime && !elements->empty()) {
    Value result = elements->front();
    for (auto [i, element] : llvm::enumerate(*elements))
      if (i)
        result = choose(b, Predicate::eq, *atRuntime, i, element, result);
    return b.done(result);
  }
  FailureOr<SmallVector<int64_t>> position = b.ints(1, "position");
  if (failed(position) || position->size() != 1)
    return failed(position) ? failure() : LogicalResult(b.fail() << "expected one position, got " << position->size());
  int64_t count = elements->size(), at = position->front() < 0 ? position->front() + count : position->front();
  if (at < 0 || at >= count)
    return b.fail() << "expected a position below " << count << ", got " << position->front();
  return b.done((*elements)[at]);
}

static LogicalResult importSequenceConstruct(Binder &b) {
  if (failed(b.need(b.operandCount())))
    return failure();
  SmallVector<Value> elements;
  for (unsigned i = 0; i < b.operandCount(); ++i)
    elements.push_back(b.in(i));
  b.converter.sequences[b.node.getResult(0)] = elements;
  return success();
}

static LogicalResult importSequenceEmpty(Binder &b) {
  b.ignore({"dtype"}); // inserted tensors have it
  b.converter.sequences[b.node.getResult(0)] = {};
  return success();
}

/// The place in a sequence that operand `i` names, or `otherwise`; up to `last`.
static FailureOr<int64_t> positionOf(Binder &b, unsigned i, int64_t count, int64_t last, int64_t otherwise) {
  if (!b.has(i))
    return otherwise;
  FailureOr<SmallVector<int64_t>> given = b.ints(i, "position");
  if (failed(given) || given->size() != 1)
    return failed(given) ? failure() : LogicalResult(b.fail() << "expected one position, got " << given->size());
  int64_t at = given->front() < 0 ? given->front() + count : given->front();
  if (at < 0 || at > last)
    return b.fail() << "expected a position up to " << last << ", got " << given->front();
  return at;
}

static LogicalResult importSequenceInsert(Binder &b) {
  FailureOr<ArrayRef<Value>> elements = elementsOf(b);
  if (failed(elements))
    return failure();
  if (!b.has(1) || !b.in(1))
    return b.fail() << "expected a tensor as operand 1";
  SmallVector<Value> result(*elements);
  int64_t count = result.size();
  SmallVector<Value> all(*elements);
  all.push_back(b.in(1));
  FailureOr<Value> atRuntime = positionAtRuntime(b, 2, all, count);
  if (failed(atRuntime))
    return failure();
  if (*atRuntime) {
    result.clear();
    for (int64_t i = 0; i <= count; ++i) {
      Value value = i < count ? choose(b, Predicate::gt, *atRuntime, i, all[i], b.in(1)) : b.in(1);
      result.push_back(i ? choose(b, Predicate::lt, *atRuntime, i, all[i - 1], value) : value);
    }
    b.converter.sequences[b.node.getResult(0)] = result;
    return success();
  }
  FailureOr<int64_t> at = positionOf(b, 2, count, count, count);
  if (failed(at))
    return failure();
  result.insert(result.begin() + *at, b.in(1));
  b.converter.sequences[b.node.getResult(0)] = result;
  return success();
}

static LogicalResult importSequenceErase(Binder &b) {
  FailureOr<ArrayRef<Value>> elements = elementsOf(b);
  if (failed(elements))
    return failure();
  SmallVector<Value> result(*elements);
  int64_t count = result.size();
  FailureOr<Value> atRuntime = positionAtRuntime(b, 1, *elements, count);
  if (failed(atRuntime))
    return failure();
  if (*atRuntime && count > 0) {
    for (int64_t i = 0; i + 1 < count; ++i)
      result[i] = choose(b, Predicate::gt, *atRuntime, i, (*elements)[i], (*elements)[i + 1]);
    result.pop_back();
    b.converter.sequences[b.node.getResult(0)] = result;
    return success();
  }
  FailureOr<int64_t> at = positionOf(b, 1, count, count - 1, count - 1);
  if (failed(at) || result.empty())
    return failed(at) ? failure() : LogicalResult(b.fail() << "expected a sequence of at least one tensor");
  result.erase(result.begin() + *at);
  b.converter.sequences[b.node.getResult(0)] = result;
  return success();
}

static LogicalResult importSequenceLength(Binder &b) {
  FailureOr<ArrayRef<Value>> elements = elementsOf(b);
  if (failed(elements))
    return failure();
  auto type = RankedTensorType::get({}, b.builder.getI64Type());
  return b.done(b.constant(DenseElementsAttr::get(type, static_cast<int64_t>(elements->size()))));
}

static LogicalResult importConcatFromSequence(Binder &b) {
  FailureOr<ArrayRef<Value>> elements = elementsOf(b);
  if (failed(elements))
    return failure();
  if (elements->empty())
    return b.fail() << "expected a sequence of at least one tensor";
  bool fresh = b.intAttr("new_axis", 0);
  int64_t rank = tensorType(elements->front()).getRank() + fresh;
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), rank);
  if (failed(axis))
    return failure();
  SmallVector<Value> parts;
  for (Value element : *elements) {
    SmallVector<int64_t> shape(tensorType(element).getShape());
    if (fresh)
      shape.insert(shape.begin() + std::min<int64_t>(*axis, shape.size()), 1);
    parts.push_back(b.reshape(element, shape));
    SmallVector<int64_t> other(tensorType(parts.front()).getShape());
    if (other.size() != shape.size())
      return b.fail() << "expected tensors of one rank in the sequence, got [" << shape << "] after [" << other << "]";
    other[*axis] = shape[*axis];
    if (other != shape)
      return b.fail() << "expected tensors that differ on axis " << *axis << " alone, got [" << shape << "] after ["
                      << tensorType(parts.front()).getShape() << "]";
  }
  return b.done(parts.size() == 1 ? parts.front() : b.concat(parts, *axis));
}

/// Whether operand 0 has an element: a tensor or a sequence does, an Optional without one does not. Graphs have no
/// optional inputs.
static bool hasElement(Binder &b) {
  if (!b.has(0))
    return false;
  auto made = b.named(0).getDefiningOp<mpt::onnx::NodeOp>();
  return !made || made.getOpType() != "Optional" || !made.getInputs().empty();
}

static LogicalResult importOptionalHasElement(Binder &b) {
  auto type = RankedTensorType::get({}, b.builder.getI1Type());
  return b.done(b.constant(DenseElementsAttr::get(type, hasElement(b))));
}

static LogicalResult importOptionalGetElement(Binder &b) {
  if (!hasElement(b))
    return b.fail() << "expected an operand with an element, got none";
  if (auto found = b.converter.sequences.find(b.named(0)); found != b.converter.sequences.end()) {
    SmallVector<Value> elements(found->second);
    b.converter.sequences[b.node.getResult(0)] = elements;
    return success();
  }
  return failed(b.need(1)) ? failure() : b.done(b.in(0));
}

/// An optional value is its element; an empty one is known by the node that made it.
static LogicalResult importOptional(Binder &b) {
  if (b.has(0))
    return importOptionalGetElement(b);
  b.converter.sequences[b.node.getResult(0)] = {};
  return success();
}

void mpt::addSequenceRules(RuleTable &t) {
  t.on("SplitToSequence", 11, takes(1, importSplitToSequence), NumericClass::Movement);
  t.on("SequenceAt", 11, importSequenceAt, NumericClass::Movement);
  t.on("SequenceConstruct", 11, importSequenceConstruct, {NumericClass::Movement, Arithmetic::Chooses});
  t.on("SequenceEmpty", 11, importSequenceEmpty, NumericClass::Movement);
  t.on("SequenceInsert", 11, importSequenceInsert, {NumericClass::Movement, Arithmetic::Chooses});
  t.on("SequenceErase", 11, importSequenceErase, NumericClass::Movement);
  t.on("SequenceLength", 11, importSequenceLength, NumericClass::Movement);
  t.on("Optional", 15, importOptional, NumericClass::Movement);
  t.on("OptionalHasElement", 15, importOptionalHasElement, NumericClass::Movement);
  t.on("OptionalGetElement", 15, importOptionalGetElement, NumericClass::Movement);
  t.on("ConcatFromSequence", 11, importConcatFromSequence, {NumericClass::Movement, Arithmetic::Chooses});
}
