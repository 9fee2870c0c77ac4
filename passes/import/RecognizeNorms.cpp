// SPDX-License-Identifier: Apache-2.0
// --import-recognize-norms: in a joint graph, arithmetic that means a normalization or a softmax becomes that op.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/JointGraph.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/Splats.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Evaluation/SameFunction.h"
#include "mpt/Support/Refusal.h"
#include "passes/import/Passes.h"

#include <deque>

namespace mpt {
#define GEN_PASS_DEF_RECOGNIZENORMS
#include "passes/import/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

#define DEBUG_TYPE "import-recognize-norms"

namespace {

/// Elements that one module's comparisons may compute, which takes seconds, and hold at a time.
constexpr int64_t mostElements = int64_t(1) << 28, mostHeld = int64_t(1) << 21;

/// What a norm of `x` could be: its parameters in the order of the op, and the epsilons to try.
struct Guess {
  Value x;
  SmallVector<int64_t> axes;
  SmallVector<Value> parameters;
  SmallVector<double> epsilons;
};

/// The norms that a guess allows, one at a time.
class NormBuilder {
public:
  NormBuilder(const Guess &guess, OpBuilder &builder, Location loc)
      : guess(guess), b(builder, loc), type(tensorType(guess.x)) {}

  /// Calls `fits` with each; the first that it takes stays.
  Operation *firstThat(function_ref<bool(Operation *)> fits) {
    if (guess.parameters.empty() && guess.axes.size() == 1) {
      for (bool logarithm : {false, true}) {
        Operation *op = logarithm ? make<LogSoftmaxOp>(guess.axes[0]) : make<SoftmaxOp>(guess.axes[0]);
        if (keep(op, fits))
          return op;
      }
      return nullptr;
    }
    for (double epsilon : guess.epsilons)
      for (auto [scale, bias] : affines())
        if (Operation *op = build(scale, bias, epsilon); op && keep(op, fits))
          return op;
    return nullptr;
  }

private:
  template <typename Op> Operation *make(int64_t axis) {
    return Op::create(b.builder, b.loc, guess.x, b.builder.getI64IntegerAttr(axis));
  }

  bool keep(Operation *op, function_ref<bool(Operation *)> fits) {
    if (fits(op))
      return true;
    op->erase();
    return false;
  }

  SmallVector<std::pair<Value, Value>> affines() const {
    ArrayRef<Value> p = guess.parameters;
    if (p.size() == 2)
      return {{p[0], p[1]}, {p[1], p[0]}};
    if (p.empty())
      return {};
    return {{p[0], Value()}};
  }

  /// Over all axes but the channels, or over the last ones. A norm without bias is one by the root mean square.
  Operation *build(Value scale, Value bias, double epsilon) {
    FloatAttr e = b.builder.getF64FloatAttr(epsilon);
    int64_t rank = type.getRank(), axis = guess.axes.front();
    ArrayRef<int64_t> extents = tensorType(scale).getShape();
    if (bias && rank > 1 && guess.axes == otherAxes(rank, {1}) && extents == type.getShape().slice(1, 1)) {
      // Core takes channels on axis 1 of rank 3 and more.
      SmallVector<int64_t> shape(type.getShape());
      if (rank == 2)
        shape.push_back(1);
      return BatchNormOp::create(b.builder, b.loc, b.reshape(guess.x, shape), scale, bias, e);
    }
    if (guess.axes != axisRange(axis, rank) || extents != type.getShape().drop_front(axis))
      return nullptr;
    IntegerAttr from = b.builder.getI64IntegerAttr(axis);
    if (bias)
      return LayerNormOp::create(b.builder, b.loc, guess.x, scale, bias, from, e);
    return RMSNormOp::create(b.builder, b.loc, guess.x, scale, from, e);
  }

  const Guess &guess;
  GraphBuilder b;
  RankedTensorType type;
};

/// Looks for a norm of one value.
class NormSearch {
public:
  NormSearch(Value x, ArrayRef<int64_t> axes, RandomPoints &points) : x(x), axes(axes), points(points) {}

  bool run() {
    SmallVector<Value> found = follow();
    for (Value y : llvm::reverse(found))
      if (y.getType() == x.getType() && !y.use_empty() && replace(y, found))
        return true;
    return false;
  }

private:
  /// Values that arithmetic makes of x and others, in order.
  SmallVector<Value> follow() const {
    constexpr size_t most = 64;
    DenseSet<Operation *> seen;
    std::deque<Value> work{x};
    SmallVector<Value> found;
    while (!work.empty() && found.size() < most) {
      Value value = work.front();
      work.pop_front();
      for (Operation *user : value.getUsers())
        if (isComparable(user) && seen.insert(user).second) {
          work.push_back(user->getResult(0));
          found.push_back(user->getResult(0));
        }
    }
    llvm::sort(found, [](Value a, Value b) { return a.getDefiningOp()->isBeforeInBlock(b.getDefiningOp()); });
    return found;
  }

  /// The norm is built right behind x; parameters that come later must be reads, which are moved.
  std::optional<Guess> guessOf(Value y, const Cone &cone) const {
    Guess guess{x, SmallVector<int64_t>(axes), {}, {}};
    bool sums = false;
    for (Operation *op : cone.ops) {
      auto reduce = dyn_cast<ReduceOp>(op);
      sums |= reduce && reduce.getAxes() == ArrayRef<int64_t>(axes);
      if (std::optional<double> number =
              op->hasTrait<OpTrait::ConstantLike>() ? splatNumber(op->getResult(0)) : std::nullopt;
          number && *number > 0.0 && *number < 0.1)
        guess.epsilons.push_back(*number);
    }
    for (Value leaf : cone.leaves) {
      if (!leaf.getDefiningOp<train::ReadOp>() || tensorType(leaf).getRank() >= tensorType(x).getRank())
        return std::nullopt;
      guess.parameters.push_back(leaf);
    }
    if (!sums || guess.parameters.size() > 2)
      return std::nullopt;
    return guess;
  }

  bool replace(Value y, ArrayRef<Value> others) {
    Cone cone(y, {x});
    std::optional<Guess> guess = guessOf(y, cone);
    if (!guess)
      return false;
    OpBuilder builder(y.getContext());
    builder.setInsertionPointAfterValue(x);
    Operation *behind = &*builder.getInsertionPoint();
    while (behind->getNumResults() == 1 && llvm::is_contained(guess->parameters, behind->getResult(0)))
      behind = behind->getNextNode();
    SmallVector<Value> arguments{x};
    llvm::append_range(arguments, guess->parameters);
    points.draw(arguments);
    if (!points.compute(cone.ops))
      return false;
    for (Value parameter : guess->parameters)
      if (Operation *read = parameter.getDefiningOp(); !read->isBeforeInBlock(behind))
        read->moveBefore(behind);
    builder.setInsertionPoint(behind);
    Operation *norm = NormBuilder(*guess, builder, y.getLoc()).firstThat([&](Operation *op) {
      Cone shaped(op->getOperand(0), {x});
      bool agrees = points.compute(shaped.ops) && points.compute({op}) && points.agree(y, op->getResult(0));
      if (!agrees)
        points.forget(op);
      return agrees;
    });
    if (!norm)
      return false;
    builder.setInsertionPointAfter(norm);
    y.replaceAllUsesWith(GraphBuilder(builder, y.getLoc()).reshape(norm->getResult(0), tensorType(y).getShape()));
    replaceStatistics(norm, others);
    return true;
  }

  /// Means and variances that the file has computed besides.
  void replaceStatistics(Operation *norm, ArrayRef<Value> others) {
    DenseSet<Value> known(norm->result_begin(), norm->result_end());
    known.insert(x);
    for (Value other : others) {
      if (other.use_empty() || !norm->isBeforeInBlock(other.getDefiningOp()))
        continue;
      Cone cone(other, known);
      if (!cone.leaves.empty() || !points.compute(cone.ops))
        continue;
      for (Value statistic : norm->getResults().drop_front())
        if (other.getType() == statistic.getType() && points.agree(other, statistic)) {
          other.replaceAllUsesWith(statistic);
          break;
        }
    }
  }

  Value x;
  SmallVector<int64_t> axes;
  RandomPoints &points;
};

struct RecognizeNorms : mpt::impl::RecognizeNormsBase<RecognizeNorms> {
  void runOnOperation() override {
    func::FuncOp function = jointGraph(getOperation());
    if (!function)
      return;
    DenseSet<Operation *> forwardPass = forwardOps(function);
    RandomPoints points(mostElements, mostHeld);
    llvm::SetVector<std::pair<Value, ArrayRef<int64_t>>> reductions;
    for (auto reduce : function.getOps<ReduceOp>())
      if (forwardPass.contains(reduce))
        reductions.insert({reduce.getX(), reduce.getAxes()});
    llvm::SetVector<Operation *> before = batchNorms(function);
    for (auto [value, axes] : reductions) {
      bool found = search(value, axes, points);
      numRecognized += found;
      if (!found)
        refuse(DEBUG_TYPE, value.getLoc()) << "no norm of this value: expected one over the axes of its reduction";
    }
    for (Operation *norm : batchNorms(function))
      if (!before.contains(norm))
        nameStatistics(function, norm);
    eraseDeadOps(function);
  }

private:
  static llvm::SetVector<Operation *> batchNorms(func::FuncOp function) {
    llvm::SetVector<Operation *> norms;
    for (auto norm : function.getOps<BatchNormOp>())
      norms.insert(norm);
    return norms;
  }

  /// Running statistics are the states whose new value is made of their old one and of a statistic alone: what
  /// evaluation normalizes with.
  static void nameStatistics(func::FuncOp function, Operation *norm) {
    Attribute states[2];
    for (auto &[result, state] : newValues(function))
      for (unsigned i : {0u, 1u}) {
        Value statistic = norm->getResult(1 + i);
        Cone cone(result, {statistic});
        auto read = cone.leaves.size() == 1 ? cone.leaves.front().getDefiningOp<train::ReadOp>() : train::ReadOp();
        bool uses =
            llvm::any_of(cone.ops, [&](Operation *op) { return llvm::is_contained(op->getOperands(), statistic); });
        if (uses && read && read.getStateAttr() == state)
          states[i] = state;
      }
    if (states[0] && states[1])
      setAttr<MPTDialect::StatisticsAttrHelper>(norm, ArrayAttr::get(norm->getContext(), states));
  }

  /// Of the value that is reduced, and of what it is made of: a root mean square reduces squares, a softmax
  /// exponentials.
  static bool search(Value value, ArrayRef<int64_t> axes, RandomPoints &points) {
    if (NormSearch(value, axes, points).run())
      return true;
    Operation *op = value.getDefiningOp();
    if (!op || !isComparable(op))
      return false;
    for (Value operand : op->getOperands())
      if (operand.getType() == value.getType() && NormSearch(operand, axes, points).run())
        return true;
    return false;
  }
};
} // namespace
