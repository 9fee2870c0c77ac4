// SPDX-License-Identifier: Apache-2.0
// Control flow: If, Loop and Scan disappear. Loops are unrolled; a decision at run time becomes a choice of values.
#include "Converter.h"
#include "Loops.h"
#include "Untaken.h"

#include "mpt/Evaluation/Constants.h"

#include <limits>

using namespace mlir;
using namespace mpt;

namespace {

/// A value of a subgraph: a tensor, or a sequence of known length.
struct Carried {
  Value tensor;
  std::optional<SmallVector<Value>> sequence;
};

/// A node with subgraphs, while its bodies are converted in its place.
class Body {
public:
  explicit Body(Binder &b) : b(b) {}

  /// The subgraph `name`, or the first one; null when there is none.
  Block *block(StringRef name) {
    ArrayAttr names = b.node.getRegionNamesAttr();
    for (auto [i, region] : llvm::enumerate(b.node.getBodies()))
      if (names && i < names.size() && cast<StringAttr>(names[i]).getValue() == name)
        return &region.front();
    return nullptr;
  }

  /// Operand `i` of the node.
  Carried operand(unsigned i) {
    Value onnx = b.named(i);
    if (auto found = b.converter.sequences.find(onnx); found != b.converter.sequences.end())
      return {Value(), SmallVector<Value>(found->second)};
    return {b.converter.lookup(onnx), std::nullopt};
  }

  /// One copy of the subgraph with these arguments; its results. They count where the boolean scalar `taken` holds, or
  /// everywhere without one.
  FailureOr<SmallVector<Carried>> inlined(Block &block, ArrayRef<Carried> arguments, Value taken = {}) {
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

  /// `value` becomes result `i` of the node.
  LogicalResult give(unsigned i, const Carried &value) {
    if (i >= b.node.getNumResults())
      return success();
    if (value.sequence)
      b.converter.sequences[b.node.getResult(i)] = *value.sequence;
    else if (value.tensor)
      return b.set(i, value.tensor);
    return success();
  }

  /// `yes` where the boolean scalar `condition` holds, else `no`. Both have been computed.
  FailureOr<Carried> chosen(Value condition, const Carried &yes, const Carried &no) {
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

  /// The value of a constant boolean or integer; nothing for others.
  static std::optional<int64_t> constant(Value value) {
    ElementsAttr known = value ? constantOf(value) : ElementsAttr();
    if (!known || known.getNumElements() != 1)
      return std::nullopt;
    return Binder::intsOf(known).front();
  }

private:
  static std::string describe(const Carried &value) {
    std::string text;
    llvm::raw_string_ostream out(text);
    if (value.tensor)
      out << value.tensor.getType();
    else
      out << "a sequence";
    return text;
  }

  Binder &b;
};

/// Parts of one scan output, in the order of the steps, joined along a new dimension `axis`.
FailureOr<Value> stacked(Binder &b, ArrayRef<Value> parts, int64_t axis, bool reverse) {
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

LogicalResult importIf(Binder &b) {
  if (failed(b.need(1)))
    return failure();
  if (tensorType(b.in(0)).getNumElements() != 1)
    return b.fail() << "expected a condition of one element, got " << b.in(0).getType();
  Body body(b);
  Block *branches[2] = {body.block("else_branch"), body.block("then_branch")};
  if (!branches[0] || !branches[1])
    return b.fail() << "expected then_branch and else_branch";
  if (std::optional<int64_t> known = Body::constant(b.in(0)))
    return b.converter.inlineBlock(*branches[*known != 0], b.node.getResults());
  Value condition = b.reshape(b.in(0), {}), opposite = b.make<NotOp>(condition);
  FailureOr<SmallVector<Carried>> no = body.inlined(*branches[0], {}, opposite),
                                  yes = body.inlined(*branches[1], {}, condition);
  if (failed(no) || failed(yes))
    return failure();
  joinWrites(*opposite.getParentBlock(), opposite.getDefiningOp());
  for (auto [i, sides] : llvm::enumerate(llvm::zip(*yes, *no))) {
    FailureOr<Carried> value = body.chosen(b.in(0), std::get<0>(sides), std::get<1>(sides));
    if (failed(value) || failed(body.give(i, *value)))
      return failure();
  }
  return success();
}

/// Loop, unrolled. Steps that are taken or not as is known at run time alone are computed, and their results chosen;
/// their number has a bound: a constant trip count, or --max-steps.
class Loop {
public:
  explicit Loop(Binder &b) : b(b), body(b) {}

  LogicalResult run() {
    Block *block = body.block("body");
    if (!block || b.operandCount() < 2)
      return b.fail() << "expected a body, a trip count and a condition";
    unsigned numCarried = b.operandCount() - 2;
    if (block->getNumArguments() != numCarried + 2 || results(*block) < numCarried + 1)
      return b.fail() << "expected a body of " << numCarried << " carried values, got " << block->getNumArguments()
                      << " inputs and " << results(*block) << " results";
    scans.resize(results(*block) - 1 - numCarried);
    for (unsigned i = 0; i < numCarried; ++i)
      carried.push_back(body.operand(i + 2));
    if (failed(readBounds()) || failed(unroll(*block)))
      return failure();
    return give();
  }

private:
  Binder &b;
  Body body;
  SmallVector<Carried> carried;
  SmallVector<SmallVector<Value>> scans;
  int64_t most = 0, stated = 0; ///< steps: that are unrolled, that --max-steps allows (0: it says nothing)
  bool bounded = false;         ///< the loop takes no more than `most`
  Value condition;              ///< before the next step; null where it always holds
  Value trips;                  ///< the trip count, [] of i64, where it is computed at run time

  static unsigned results(Block &block) { return block.getTerminator()->getNumOperands(); }

  InFlightDiagnostic needBound(StringRef what, StringRef help) {
    return b.fail() << "expected " << what << " that is constant once shapes are known, got one that is computed at "
                    << "run time; " << help << "say how many steps there are at most: --max-steps '" << nameOf()
                    << "'=<steps> [mpt-unbounded-loop]";
  }

  StringRef nameOf() {
    auto name = dyn_cast<NameLoc>(b.loc);
    return name ? name.getName().getValue() : StringRef("NODE");
  }

  static bool isFlag(Value value) {
    return value && tensorType(value).getNumElements() == 1 && tensorType(value).getElementType().isInteger(1);
  }

  LogicalResult readBounds() {
    most = mostSteps;
    stated = b.intAttr(maxStepsAttr, 0);
    condition = b.has(1) ? b.in(1) : Value();
    if (b.has(1) && !isFlag(condition))
      return b.fail() << "expected one boolean as the loop's condition";
    if (!b.has(0))
      return success();
    if (std::optional<int64_t> count = Body::constant(b.in(0))) {
      bounded = *count <= mostSteps;
      most = std::min(std::max<int64_t>(*count, 0), mostSteps);
      return success();
    }
    if (!b.in(0) || b.isFloat(0) || tensorType(b.in(0)).getNumElements() != 1)
      return b.fail() << "expected one number as trip count, got " << b.in(0).getType();
    if (!stated)
      return needBound("a trip count", "");
    trips = b.cast(b.reshape(b.in(0), {}), b.builder.getI64Type());
    return success();
  }

  /// Whether step number `step` is taken; null where it is for sure.
  Value isTaken(int64_t step, bool holds) {
    Value taken = holds ? Value() : b.reshape(condition, {});
    if (!trips)
      return taken;
    Value more = b.compare(Predicate::gt, trips, static_cast<double>(step));
    return taken ? Value(b.make<AndOp>(taken, more)) : more;
  }

  LogicalResult unroll(Block &block) {
    auto counter = RankedTensorType::get({}, b.builder.getI64Type());
    auto flag = RankedTensorType::get({}, b.builder.getI1Type());
    for (int64_t step = 0; step < most; ++step) {
      std::optional<int64_t> holds = condition ? Body::constant(condition) : 1;
      if (holds && *holds == 0)
        return success();
      Value taken = isTaken(step, holds.has_value());
      if (taken && !bounded && !stated)
        return needBound("a condition", "give a trip count, or ");
      if (taken && stated && step >= stated)
        return poison(taken);
      for (unsigned i = 0; taken && i < scans.size(); ++i)
        if (b.wants(carried.size() + i))
          return b.fail() << "expected no scan outputs in use of a loop whose number of steps is computed at run time, "
                             "as their shape depends on it, got result "
                          << carried.size() + i << " [mpt-shape-from-values]";
      // A step that is taken sees a condition that holds; the condition of others does not matter.
      SmallVector<Carried> arguments = {{b.constant(DenseElementsAttr::get(counter, step)), std::nullopt},
                                        {b.constant(DenseElementsAttr::get(flag, true)), std::nullopt}};
      arguments.append(carried);
      FailureOr<SmallVector<Carried>> results = body.inlined(block, arguments, taken);
      if (failed(results) || failed(advance(*results, taken)))
        return failure();
    }
    if (!bounded)
      return b.fail() << "expected a loop that ends after at most " << most << " steps";
    return success();
  }

  /// Takes the results of a step, one that runs only if it is `taken`.
  LogicalResult advance(ArrayRef<Carried> results, Value taken) {
    for (auto [i, value] : llvm::enumerate(carried)) {
      FailureOr<Carried> next = taken ? body.chosen(taken, results[i + 1], value) : FailureOr<Carried>(results[i + 1]);
      if (failed(next))
        return failure();
      value = *next;
    }
    for (auto [i, parts] : llvm::enumerate(scans)) {
      if (!results[carried.size() + 1 + i].tensor)
        return b.fail() << "expected tensors as scan outputs, got a sequence";
      parts.push_back(results[carried.size() + 1 + i].tensor);
    }
    Value next = results.front().tensor;
    if (!isFlag(next))
      return b.fail() << "expected one boolean as the body's condition";
    std::optional<int64_t> known = Body::constant(next);
    condition = !taken || (known && *known == 0) ? next
                : known                          ? taken
                                                 : Value(b.make<AndOp>(taken, b.reshape(next, {})));
    return success();
  }

  /// A loop that goes on beyond --max-steps has no result: numbers become NaN, which no one takes for one.
  LogicalResult poison(Value goesOn) {
    auto spoil = [&](Value value) {
      if (!value || !isa<FloatType>(tensorType(value).getElementType()))
        return value;
      Value mask = b.broadcast(goesOn, tensorType(value).getShape(), {});
      return b.select(mask, b.splatLike(value, std::numeric_limits<double>::quiet_NaN()), value);
    };
    for (Carried &value : carried) {
      value.tensor = spoil(value.tensor);
      if (value.sequence)
        for (Value &element : *value.sequence)
          element = spoil(element);
    }
    return success();
  }

  LogicalResult give() {
    for (auto [i, value] : llvm::enumerate(carried))
      if (failed(body.give(i, value)))
        return failure();
    for (auto [i, parts] : llvm::enumerate(scans)) {
      if (!b.wants(carried.size() + i))
        continue;
      if (parts.empty())
        return b.fail() << "expected at least one step where there are scan outputs";
      FailureOr<Value> joined = stacked(b, parts, 0, false);
      if (failed(joined) || failed(b.set(carried.size() + i, *joined)))
        return failure();
    }
    return success();
  }
};

LogicalResult importLoop(Binder &b) { return Loop(b).run(); }

/// Scan, unrolled over the extent of its scan inputs. Version 8 has a batch in front, whose elements scan by
/// themselves.
class Scan {
public:
  explicit Scan(Binder &b) : b(b), body(b), isBatched(b.version() < 9), first(isBatched ? 1 : 0) {}

  LogicalResult run() {
    Block *block = body.block("body");
    numInputs = b.intAttr("num_scan_inputs", 0);
    if (isBatched && b.has(0))
      return b.fail() << "expected no sequence_lens, got some; convert the model to opset 9, where there are none";
    if (!block || numInputs < 1 || numInputs > b.operandCount() - first || failed(needOperands()))
      return b.fail() << "expected a body and at least one scan input, got " << numInputs;
    numStates = b.operandCount() - first - numInputs;
    numOutputs = static_cast<int64_t>(block->getTerminator()->getNumOperands()) - numStates;
    if (numOutputs < 0)
      return b.fail() << "expected a body with " << numStates << " states, got fewer results";
    if (failed(read("scan_input_axes", numInputs, inputAxes)) ||
        failed(read(isBatched ? "directions" : "scan_input_directions", numInputs, inputReversed)) ||
        failed(read("scan_output_axes", numOutputs, outputAxes)) ||
        failed(read("scan_output_directions", numOutputs, outputReversed)))
      return failure();
    return isBatched ? scanBatch(*block) : scanOnce(*block);
  }

private:
  Binder &b;
  Body body;
  bool isBatched;
  unsigned first; ///< operand that is a state
  int64_t numInputs = 0, numStates = 0, numOutputs = 0, steps = 0;
  SmallVector<int64_t> inputAxes, inputReversed, outputAxes, outputReversed;
  SmallVector<Value> inputs;

  LogicalResult needOperands() {
    for (unsigned i = first; i < b.operandCount(); ++i)
      if (!b.has(i) || !b.in(i) || (isBatched && b.rank(i) < 1))
        return failure();
    return success();
  }

  LogicalResult read(StringRef name, int64_t count, SmallVector<int64_t> &values) {
    values = b.intsAttr(name, SmallVector<int64_t>(count, 0));
    if (static_cast<int64_t>(values.size()) != count)
      return b.fail() << "expected " << count << " numbers as " << name << ", got " << values.size();
    return success();
  }

  LogicalResult readSteps() {
    for (auto [i, input] : llvm::enumerate(inputs)) {
      FailureOr<int64_t> axis = b.axis(inputAxes[i], tensorType(input).getRank());
      if (failed(axis))
        return failure();
      inputAxes[i] = *axis;
      int64_t extent = tensorType(input).getDimSize(*axis);
      if (i == 0)
        steps = extent;
      if (extent != steps || steps < 1)
        return b.fail() << "expected scan inputs of one number of steps, at least 1, got " << steps << " and "
                        << extent;
    }
    return success();
  }

  /// `x` at a place of an axis, without that axis.
  Value sliced(Value x, int64_t axis, int64_t at) {
    SmallVector<int64_t> shape(tensorType(x).getShape()), starts(shape.size(), 0);
    starts[axis] = at;
    shape[axis] = 1;
    Value part = b.slice(x, starts, shape);
    shape.erase(shape.begin() + axis);
    return b.reshape(part, shape);
  }

  /// The last states, then the scan outputs, null where nothing uses them.
  FailureOr<SmallVector<Carried>> unroll(Block &block, SmallVector<Carried> states) {
    SmallVector<SmallVector<Value>> outputs(numOutputs);
    if (failed(readSteps()))
      return failure();
    for (int64_t step = 0; step < steps; ++step) {
      SmallVector<Carried> arguments(states);
      for (auto [i, input] : llvm::enumerate(inputs))
        arguments.push_back({sliced(input, inputAxes[i], inputReversed[i] ? steps - 1 - step : step), std::nullopt});
      FailureOr<SmallVector<Carried>> results = body.inlined(block, arguments);
      if (failed(results))
        return failure();
      states.assign(results->begin(), results->begin() + numStates);
      for (int64_t i = 0; i < numOutputs; ++i) {
        if (!(*results)[numStates + i].tensor)
          return b.fail() << "expected tensors as scan outputs, got a sequence";
        outputs[i].push_back((*results)[numStates + i].tensor);
      }
    }
    for (int64_t i = 0; i < numOutputs; ++i) {
      FailureOr<Value> joined = Value();
      if (b.wants(numStates + i))
        joined = stacked(b, outputs[i], outputAxes[i], outputReversed[i]);
      if (failed(joined))
        return failure();
      states.push_back({*joined, std::nullopt});
    }
    return states;
  }

  LogicalResult scanOnce(Block &block) {
    SmallVector<Carried> states;
    for (int64_t i = 0; i < numStates; ++i)
      states.push_back(body.operand(i));
    for (int64_t i = 0; i < numInputs; ++i)
      inputs.push_back(b.in(numStates + i));
    FailureOr<SmallVector<Carried>> results = unroll(block, states);
    if (failed(results))
      return failure();
    for (auto [i, result] : llvm::enumerate(*results))
      if (failed(body.give(i, result)))
        return failure();
    return success();
  }

  LogicalResult scanBatch(Block &block) {
    int64_t batch = b.shape(first)[0];
    SmallVector<SmallVector<Value>> parts(numStates + numOutputs);
    for (unsigned i = first; i < b.operandCount(); ++i)
      if (b.shape(i)[0] != batch || batch < 1)
        return b.fail() << "expected a batch of one extent, at least 1, got " << batch << " and " << b.shape(i)[0];
    for (int64_t at = 0; at < batch; ++at) {
      SmallVector<Carried> states;
      inputs.clear();
      for (int64_t i = 0; i < numStates; ++i)
        states.push_back({sliced(b.in(first + i), 0, at), std::nullopt});
      for (int64_t i = 0; i < numInputs; ++i)
        inputs.push_back(sliced(b.in(first + numStates + i), 0, at));
      FailureOr<SmallVector<Carried>> results = unroll(block, states);
      if (failed(results))
        return failure();
      for (auto [i, result] : llvm::enumerate(*results)) {
        if (b.wants(i) && !result.tensor)
          return b.fail() << "expected tensors as results, got a sequence";
        parts[i].push_back(result.tensor);
      }
    }
    for (auto [i, list] : llvm::enumerate(parts)) {
      if (!b.wants(i))
        continue;
      FailureOr<Value> joined = stacked(b, list, 0, false);
      if (failed(joined) || failed(b.set(i, *joined)))
        return failure();
    }
    return success();
  }
};

LogicalResult importScan(Binder &b) { return Scan(b).run(); }

} // namespace

void mpt::addControlRules(RuleTable &t) {
  t.on("If", 1, importIf, NumericClass::Pinned);
  t.on("Loop", 1, importLoop, NumericClass::Pinned);
  t.on("Scan", 8, importScan, NumericClass::Pinned);
}
