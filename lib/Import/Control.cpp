// SPDX-License-Identifier: Apache-2.0
// Control flow: If, Loop and Scan disappear. Loops are unrolled; a decision at run time becomes a choice of values.
#include "Bodies.h"
#include "Loops.h"
#include "Scan.h"
#include "Untaken.h"

#include <limits>

using namespace mlir;
using namespace mpt;

namespace {

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

} // namespace

void mpt::addControlRules(RuleTable &t) {
  t.on("If", 1, importIf, NumericClass::Pinned);
  t.on("Loop", 1, importLoop, NumericClass::Pinned);
  t.on("Scan", 8, importScan, NumericClass::Pinned);
}
