// SPDX-License-Identifier: Apache-2.0
// --import-recognize-gradients: in a joint graph, arithmetic that computes the gradient of a composite becomes the op
// that differentiation makes here.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/JointGraph.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Evaluation/SameFunction.h"
#include "mpt/Import/TrainingForm.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Support/Refusal.h"
#include "passes/import/Passes.h"

#include <deque>

namespace mpt {
#define GEN_PASS_DEF_RECOGNIZEGRADIENTS
#include "passes/import/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

#define DEBUG_TYPE "import-recognize-gradients"

namespace {

/// The gradients of one forward op, as our rule builds them of one gradient of its result.
struct Built {
  Operation *op = nullptr;
  SmallVector<Value> gradients; ///< one an operand; null where none is wanted
};

/// Finds the gradients of one forward op in the rest of a joint graph.
class GradientSearch {
public:
  /// `result` is the op's, or a value that the file's formula has in its place: a softmax whose masked rows are zeros.
  GradientSearch(Operation *forward, Value result, const DenseSet<Operation *> &forwardPass, RandomPoints &points)
      : forward(forward), result(result), forwardPass(forwardPass), points(points) {
    if (replacesResult()) {
      arguments.insert(result);
    } else {
      for (Value operand : forward->getOperands()) {
        given.insert(operand);
        Operation *source = operand.getDefiningOp();
        bool isConstant = source && source->hasTrait<OpTrait::ConstantLike>();
        bool isView = source && isComparable(source) && source->getNumOperands() == 1 && moves(source);
        if (isConstant || isView)
          prepared.push_back(source);
        if (isView) // files read either
          arguments.insert(source->getOperand(0));
        else if (!isConstant)
          arguments.insert(operand);
      }
      prepared.push_back(forward);
      given.insert(forward->result_begin(), forward->result_end());
    }
    given.insert(arguments.begin(), arguments.end());
  }

  /// Replaces the gradient of the first operand.
  bool findFirst() {
    SmallVector<Value> candidates = reachable(given.getArrayRef());
    // A gradient alone goes before sums and reshapes of it, which come behind.
    for (bool exact : {true, false})
      for (bool isSum : {false, true}) {
        isExact = exact;
        for (Value candidate : candidates)
          if (isAlike(candidate, forward->getOperand(0)) && !candidate.use_empty() && isGradient(candidate, isSum))
            return true;
      }
    return false;
  }

  /// Replaces scale's and bias's gradients, once findFirst() has found one. Apart, since two norms of one sum share
  /// them.
  void findOthers() {
    if (replacesResult() || forward->getNumOperands() == 1 || !draw())
      return;
    SmallVector<Value> sources(given.begin(), given.end());
    sources.push_back(dy);
    for (Value candidate : reachable(sources))
      for (Value ours : ArrayRef(built.gradients).drop_front())
        if (ours && candidate.getType() == ours.getType() && !forwardPass.contains(candidate.getDefiningOp()) &&
            ours.getDefiningOp()->isBeforeInBlock(candidate.getDefiningOp()) && agrees(candidate, ours)) {
          candidate.replaceAllUsesWith(ours);
          break;
        }
  }

  /// Whether our gradient op was compared with something, and the file does not have that op already.
  bool misses() const {
    return name && !declined && llvm::none_of(given, [&](Value value) {
             return llvm::any_of(value.getUsers(), [&](Operation *user) { return user->getName() == name; });
           });
  }

private:
  static bool moves(Operation *op) {
    auto semantics = dyn_cast<PrecisionSemantics>(op);
    return semantics && semantics.getNumericClass() == NumericClass::Movement;
  }
  /// Of one type, or at least as many elements: files reshape values that we do not.
  bool isAlike(Value a, Value b) const {
    return isExact ? a.getType() == b.getType()
                   : tensorType(a).getElementType() == tensorType(b).getElementType() &&
                         tensorType(a).getNumElements() == tensorType(b).getNumElements();
  }
  bool replacesResult() const { return result != forward->getResult(0); }

  DenseSet<Value> knownValues() const {
    DenseSet<Value> known(given.begin(), given.end());
    if (dy)
      known.insert(dy);
    if (rest)
      known.insert(rest);
    return known;
  }

  /// Values of the backward pass that arithmetic makes of `sources` and others, in order.
  SmallVector<Value> reachable(ArrayRef<Value> sources) const {
    constexpr size_t most = 256;
    DenseSet<Operation *> seen;
    DenseSet<Value> derived(sources.begin(), sources.end());
    std::deque<Value> work(sources.begin(), sources.end());
    SmallVector<Value> found;
    while (!work.empty() && found.size() < most) {
      Value value = work.front();
      work.pop_front();
      for (Operation *user : value.getUsers()) {
        // Ops of the forward pass on other values too belong to other layers.
        bool derives = llvm::all_of(user->getOperands(), [&](Value operand) {
          return derived.contains(operand) || operand.getDefiningOp<ConstantOp>();
        });
        if ((forwardPass.contains(user) && !derives) || !isComparable(user) || !seen.insert(user).second)
          continue;
        for (Value made : user->getResults()) {
          work.push_back(made);
          if (derives)
            derived.insert(made);
          found.push_back(made);
        }
      }
    }
    llvm::sort(found, [](Value a, Value b) { return a.getDefiningOp()->isBeforeInBlock(b.getDefiningOp()); });
    return found;
  }

  /// Whether all ways from `value` to the leaves of `cone` pass one of `cut`.
  bool cuts(ArrayRef<Value> cut, Value value, const Cone &cone) const {
    DenseSet<Value> seen;
    SmallVector<Value> work{value};
    while (!work.empty()) {
      Value next = work.pop_back_val();
      if (llvm::is_contained(cut, next) || given.contains(next) || !seen.insert(next).second)
        continue;
      if (cone.leaves.contains(next))
        return false;
      if (Operation *op = next.getDefiningOp())
        llvm::append_range(work, op->getOperands());
    }
    return true;
  }

  /// Replaces `candidate` where it is the gradient of the first operand for some gradient of the result, or, with
  /// `isSum`, the sum of that and of the other gradients of the operand.
  bool isGradient(Value candidate, bool isSum) {
    dy = rest = {};
    Cone cone(candidate, knownValues());
    if (cone.leaves.empty())
      return false;
    SmallVector<Value> gradients, rests;
    auto sort = [&](Value value) {
      if (value == candidate || value.getDefiningOp<ConstantOp>())
        return;
      if (isAlike(value, result))
        gradients.push_back(value);
      if (value.getType() == candidate.getType())
        rests.push_back(value);
    };
    llvm::for_each(cone.leaves, sort);
    for (Operation *op : cone.ops)
      llvm::for_each(op->getResults(), sort);
    if (!isSum)
      return llvm::any_of(gradients, [&](Value gradient) {
        return cuts(gradient, candidate, cone) && isGradientOf(candidate, gradient, {});
      });
    int64_t trials = 16;
    for (Value gradient : gradients)
      for (Value other : rests)
        if (gradient != other && trials > 0 && !cuts(other, candidate, cone) &&
            cuts({gradient, other}, candidate, cone)) {
          --trials;
          if (isGradientOf(candidate, gradient, other))
            return true;
        }
    return false;
  }

  bool isGradientOf(Value candidate, Value gradient, Value other) {
    dy = gradient, rest = other;
    Operation *after = forward;
    reshape = nullptr;
    for (Value source : {dy, result})
      if (Operation *op = source.getDefiningOp(); op && after->isBeforeInBlock(op))
        after = op;
    if (!after->isBeforeInBlock(candidate.getDefiningOp()) || !build(after))
      return false;
    OpBuilder builder(candidate.getDefiningOp());
    GraphBuilder b(builder, candidate.getLoc());
    SmallVector<Operation *> behind;
    Value whole = built.gradients.front();
    auto append = [&](Value value) {
      if (value != whole)
        behind.push_back(value.getDefiningOp());
      whole = value;
    };
    append(b.reshape(whole, tensorType(candidate).getShape()));
    if (rest)
      append(b.add(rest, whole));
    bool found = built.op->getName() != candidate.getDefiningOp()->getName() && draw() && points.compute(behind) &&
                 agrees(candidate, whole);
    if (found) {
      candidate.replaceAllUsesWith(whole);
      return true;
    }
    behind.insert(behind.begin(), built.op);
    if (reshape)
      behind.insert(behind.begin(), reshape);
    for (Operation *op : llvm::reverse(behind))
      op->erase();
    return false;
  }

  /// Our gradient op of `dy`, right behind `after`. False where the rule makes several, no better than the file's.
  bool build(Operation *after) {
    OpBuilder builder(after->getContext());
    builder.setInsertionPointAfter(after);
    Operation *end = &*builder.getInsertionPoint();
    Value shaped = GraphBuilder(builder, forward->getLoc()).reshape(dy, tensorType(result).getShape());
    if (shaped != dy)
      after = reshape = shaped.getDefiningOp();
    GradientMap gradients(
        [](OpBuilder &b, Location loc, Value x, Value y) -> Value { return AddOp::create(b, loc, x, y); });
    for (Value operand : forward->getOperands())
      if (!operand.getDefiningOp<ConstantOp>())
        gradients.want(operand);
    gradients.want(forward->getResult(0));
    gradients.add(builder, forward->getResult(0), shaped);
    bool right = succeeded(differentiateOp(forward, builder, gradients));
    SmallVector<Operation *> ops;
    for (Operation *op = after->getNextNode(); op != end; op = op->getNextNode())
      ops.push_back(op);
    built = {ops.empty() ? nullptr : ops.front(), {}};
    for (Value operand : forward->getOperands())
      built.gradients.push_back(gradients.get(operand));
    right &= ops.size() == 1 && built.gradients.front();
    if (right && replacesResult()) {
      built.op->replaceUsesOfWith(forward->getResult(0), result);
      right =
          llvm::all_of(built.op->getOperands(), [&](Value operand) { return operand == shaped || operand == result; });
    }
    declined = !right;
    if (right)
      name = built.op->getName();
    if (!right && reshape)
      ops.insert(ops.begin(), reshape);
    if (!right)
      for (Operation *op : llvm::reverse(ops))
        op->erase();
    return right;
  }

  /// Computes the forward op and its gradients at random points.
  bool draw() {
    SmallVector<Value> drawn(arguments.begin(), arguments.end());
    drawn.push_back(dy);
    if (rest)
      drawn.push_back(rest);
    points.draw(drawn);
    if (!points.compute(prepared))
      return false;
    return (!reshape || points.compute({reshape})) && points.compute({built.op});
  }

  bool agrees(Value candidate, Value ours) {
    Cone cone(candidate, knownValues());
    return cone.leaves.empty() && points.compute(cone.ops) && points.agree(candidate, ours);
  }

  Operation *forward;
  Value result;
  const DenseSet<Operation *> &forwardPass;
  RandomPoints &points;
  SmallVector<Operation *> prepared; ///< the forward op, behind constants and views that it reads
  llvm::SetVector<Value> arguments;  ///< values that the gradients depend on, but for dy
  llvm::SetVector<Value> given;      ///< and the forward op's results
  Value dy, rest;                    ///< gradient of the result; other gradients that are added to the operand's
  Operation *reshape = nullptr;      ///< of dy, where the file's has another shape
  Built built;
  std::optional<OperationName> name; ///< of our gradient op
  bool isExact = true;
  bool declined = false;
};

struct RecognizeGradients : mpt::impl::RecognizeGradientsBase<RecognizeGradients> {
  void runOnOperation() override {
    func::FuncOp function = jointGraph(getOperation());
    if (!function || !usesBackwardOfFile(getOperation()))
      return;
    DenseSet<Operation *> forwardPass = forwardOps(function);
    SmallVector<Operation *> candidates;
    for (Operation &op : function.getBody().front())
      if (forwardPass.contains(&op) && isCandidate(&op))
        candidates.push_back(&op);
    RandomPoints points(getOperation());
    std::vector<GradientSearch> found;
    missed = 0;
    // Last to first, as the backward pass goes: a gradient that is found ends the arithmetic of the next one.
    for (Operation *op : llvm::reverse(candidates))
      if (std::optional<GradientSearch> search = find(op, forwardPass, points))
        found.push_back(std::move(*search));
    for (GradientSearch &search : found)
      search.findOthers();
    eraseDeadOps(function);
    if (std::optional<TrainingForm> form = notedForm(getOperation()); form && found.size() + missed > 0) {
      form->recognized = std::to_string(found.size()) + " of " + std::to_string(found.size() + missed);
      note(getOperation(), *form);
    }
  }

private:
  std::optional<GradientSearch> find(Operation *op, const DenseSet<Operation *> &forwardPass, RandomPoints &points) {
    bool isMissed = true;
    for (Value result : resultsOf(op)) {
      GradientSearch search(op, result, forwardPass, points);
      if (search.findFirst()) {
        ++numRecognized;
        return search;
      }
      isMissed &= search.misses();
    }
    if (!isMissed || !isa<Decomposable>(op))
      return std::nullopt;
    ++numOthers;
    ++missed;
    return refuse(DEBUG_TYPE, op) << "no gradient of " << op->getName().getStringRef()
                                  << " among the file's arithmetic";
  }

  size_t missed = 0;

  /// The result, and values of its type that are selected among it and others.
  static SmallVector<Value> resultsOf(Operation *op) {
    SmallVector<Value> results{op->getResult(0)};
    for (Operation *user : op->getResult(0).getUsers()) {
      auto semantics = dyn_cast<PrecisionSemantics>(user);
      if (semantics && semantics.getNumericClass() == NumericClass::Movement && user->getNumResults() == 1 &&
          user->getResult(0).getType() == results.front().getType())
        results.push_back(user->getResult(0));
    }
    return results;
  }

  /// Composites and functions of one value that have a gradient op of their own.
  static bool isCandidate(Operation *op) {
    auto isFloat = [](Value value) {
      auto type = dyn_cast<RankedTensorType>(value.getType());
      return type && isa<FloatType>(type.getElementType());
    };
    return isa<Differentiable>(op) && op->getNumOperands() != 0 && llvm::all_of(op->getOperands(), isFloat) &&
           isFloat(op->getResult(0)) && !op->getOperand(0).getDefiningOp<ConstantOp>() &&
           (isa<Decomposable>(op) || (op->getNumOperands() == 1 && isComparable(op) && isArithmetic(op)));
  }
  static bool isArithmetic(Operation *op) {
    auto semantics = dyn_cast<PrecisionSemantics>(op);
    return semantics && semantics.getNumericClass() == NumericClass::Neutral;
  }
};
} // namespace
