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

/// A value that arithmetic may normalize.
struct Subject {
  Value x;
  SmallVector<int64_t> axes; ///< of the reduction
  int64_t groups = 0;        ///< of channels, where the reduction is within these: of x as [N, groups, ...]
  GroupNormOp bare = {};     ///< of x in that shape, where it is there without scale and bias
};

/// A possible norm: its parameters in the order of the op, and the epsilons to try.
struct Guess : Subject {
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
    if (!guess.groups && guess.parameters.empty() && guess.axes.size() == 1) {
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

  SmallVector<std::pair<Value, Value>> affines() {
    ArrayRef<Value> p = guess.parameters;
    if (p.size() == 2)
      return {{p[0], p[1]}, {p[1], p[0]}};
    if (guess.groups) {
      Value zeros = b.splat(channels(), 0.0), ones = b.splat(channels(), 1.0);
      if (p.empty())
        return {{ones, zeros}};
      return {{p[0], zeros}, {ones, p[0]}};
    }
    if (p.empty())
      return {};
    return {{p[0], Value()}};
  }
  RankedTensorType channels() const { return RankedTensorType::get({type.getDimSize(1)}, type.getElementType()); }

  /// Over groups of channels, over all axes but the channels, or over the last ones. A norm without bias is one by the
  /// root mean square.
  Operation *build(Value scale, Value bias, double epsilon) {
    FloatAttr e = b.builder.getF64FloatAttr(epsilon);
    if (guess.groups) {
      bool fits = scale.getType() == channels() && bias.getType() == channels();
      return fits ? GroupNormOp::create(b.builder, b.loc, guess.x, scale, bias,
                                        b.builder.getI64IntegerAttr(guess.groups), e)
                        .getOperation()
                  : nullptr;
    }
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
  NormSearch(Subject subject, RandomPoints &points) : subject(std::move(subject)), points(points) {}

  bool run() {
    SmallVector<Value> found = follow();
    for (Value y : llvm::reverse(found))
      if (y.getType() == subject.x.getType() && !y.use_empty() && replace(y, found))
        return true;
    return false;
  }

private:
  DenseSet<Value> given() const {
    DenseSet<Value> values{subject.x};
    if (subject.bare)
      values.insert(subject.bare->getResult(0));
    return values;
  }

  /// Values that arithmetic makes of the subject and others, in order.
  SmallVector<Value> follow() const {
    constexpr size_t most = 64;
    DenseSet<Operation *> seen;
    std::deque<Value> work{subject.x};
    if (subject.bare)
      work.push_front(subject.bare->getResult(0));
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
    Guess guess{subject, {}, {}};
    bool sums = false;
    if (auto bare = subject.bare) {
      guess.epsilons.push_back(bare.getEpsilon().convertToDouble());
      sums = llvm::any_of(cone.ops,
                          [&](Operation *op) { return llvm::is_contained(op->getOperands(), bare->getResult(0)); });
    }
    for (Operation *op : cone.ops) {
      auto reduce = dyn_cast<ReduceOp>(op);
      sums |= reduce && reduce.getAxes() == ArrayRef<int64_t>(subject.axes);
      if (std::optional<double> number =
              op->hasTrait<OpTrait::ConstantLike>() ? splatNumber(op->getResult(0)) : std::nullopt;
          number && *number > 0.0 && *number < 0.1)
        guess.epsilons.push_back(*number);
    }
    for (Value leaf : cone.leaves) {
      if (!leaf.getDefiningOp<train::ReadOp>() || tensorType(leaf).getRank() >= tensorType(subject.x).getRank())
        return std::nullopt;
      guess.parameters.push_back(leaf);
    }
    bool unchanged = subject.bare && guess.parameters.empty();
    if (!sums || guess.parameters.size() > 2 || unchanged || (subject.groups && guess.epsilons.empty()))
      return std::nullopt;
    return guess;
  }

  bool replace(Value y, ArrayRef<Value> others) {
    Cone cone(y, given());
    std::optional<Guess> guess = guessOf(y, cone);
    if (!guess)
      return false;
    Value x = subject.x;
    OpBuilder builder(y.getContext());
    builder.setInsertionPointAfterValue(x);
    Operation *behind = &*builder.getInsertionPoint();
    while (behind->getNumResults() == 1 && llvm::is_contained(guess->parameters, behind->getResult(0)))
      behind = behind->getNextNode();
    SmallVector<Value> arguments{x};
    llvm::append_range(arguments, guess->parameters);
    points.draw(arguments);
    if (!computeBare() || !points.compute(cone.ops))
      return false;
    for (Value parameter : guess->parameters)
      if (Operation *read = parameter.getDefiningOp(); !read->isBeforeInBlock(behind))
        read->moveBefore(behind);
    builder.setInsertionPoint(behind);
    Operation *norm = NormBuilder(*guess, builder, y.getLoc()).firstThat([&](Operation *op) {
      bool agrees = computeOperands(op) && points.compute({op}) && points.agree(y, op->getResult(0));
      if (!agrees)
        points.forget(op);
      return agrees;
    });
    if (!norm)
      return false;
    builder.setInsertionPointAfter(norm);
    y.replaceAllUsesWith(GraphBuilder(builder, y.getLoc()).reshape(norm->getResult(0), tensorType(y).getShape()));
    replaceOthers(norm, guess->parameters, others);
    return true;
  }

  bool computeOperands(Operation *op) {
    return llvm::all_of(op->getOperands(),
                        [&](Value operand) { return points.compute(Cone(operand, {subject.x}).ops); });
  }

  bool computeBare() {
    return !subject.bare || (computeOperands(subject.bare) && points.compute({subject.bare.getOperation()}));
  }

  /// Means and variances that the file has computed besides, and the norm itself where a factor of one is behind it.
  void replaceOthers(Operation *norm, ArrayRef<Value> parameters, ArrayRef<Value> others) {
    DenseSet<Value> known = given();
    known.insert(norm->result_begin(), norm->result_end());
    known.insert(parameters.begin(), parameters.end());
    for (Value other : others) {
      if (other.use_empty() || !norm->isBeforeInBlock(other.getDefiningOp()))
        continue;
      Cone cone(other, known);
      if (!cone.leaves.empty() || !points.compute(cone.ops))
        continue;
      for (Value result : norm->getResults())
        if (other.getType() == result.getType() && points.agree(other, result)) {
          other.replaceAllUsesWith(result);
          break;
        }
    }
  }

  Subject subject;
  RandomPoints &points;
};

struct RecognizeNorms : mpt::impl::RecognizeNormsBase<RecognizeNorms> {
  void runOnOperation() override {
    func::FuncOp function = jointGraph(getOperation());
    if (!function)
      return;
    DenseSet<Operation *> forwardPass = forwardOps(function);
    RandomPoints points(getOperation());
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
    SmallVector<GroupNormOp> bare(function.getOps<GroupNormOp>());
    for (GroupNormOp norm : bare)
      if (forwardPass.contains(norm) && splatNumber(norm.getScale()) == 1.0 && splatNumber(norm.getBias()) == 0.0)
        numRecognized += NormSearch(groupsOf(norm), points).run();
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

  /// Running statistics are the states whose new value is made of their old one and of a statistic alone: evaluation
  /// normalizes with them.
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

  /// Of the value that is reduced, and of the values that it is made of: a root mean square reduces squares, a softmax
  /// exponentials.
  static bool search(Value value, ArrayRef<int64_t> axes, RandomPoints &points) {
    if (NormSearch({value, SmallVector<int64_t>(axes)}, points).run())
      return true;
    int64_t rank = tensorType(value).getRank();
    if (rank > 2 && axes == ArrayRef<int64_t>(axisRange(2, rank)) && NormSearch(groupsOf(value), points).run())
      return true;
    Operation *op = value.getDefiningOp();
    if (!op || !isComparable(op))
      return false;
    for (Value operand : op->getOperands())
      if (operand.getType() == value.getType() && NormSearch({operand, SmallVector<int64_t>(axes)}, points).run())
        return true;
    return false;
  }

  /// Groups of channels lie in axis 1 of `value`, which mostly is another tensor in that shape.
  static Subject groupsOf(Value value) {
    RankedTensorType type = tensorType(value);
    Subject subject{value, axisRange(2, type.getRank()), type.getDimSize(1)};
    if (auto reshape = value.getDefiningOp<ReshapeOp>()) {
      RankedTensorType whole = tensorType(reshape.getX());
      if (whole.getRank() >= 2 && whole.getDimSize(0) == type.getDimSize(0) &&
          whole.getDimSize(1) % subject.groups == 0)
        subject.x = reshape.getX();
    }
    return subject;
  }

  /// Exporters whose operator has a scale a group normalize groups alone, and scale channels behind it.
  static Subject groupsOf(GroupNormOp norm) {
    Subject subject = groupsOf(norm.getX());
    if (static_cast<int64_t>(norm.getGroups()) != subject.groups)
      subject.x = norm.getX();
    subject.groups = norm.getGroups();
    subject.bare = norm;
    return subject;
  }
};
} // namespace
