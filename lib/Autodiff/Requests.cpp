// SPDX-License-Identifier: Apache-2.0
// Requests for gradients: which become part of a training step, and where derivatives stop.
#include "mpt/Autodiff/Requests.h"

#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/RequestOps.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mpt;

namespace {

/// The ops before `end` that `value` needs, in order.
SmallVector<Operation *> backwardSlice(Value value) {
  SetVector<Operation *> slice;
  SmallVector<Value> work{value};
  while (!work.empty())
    if (Operation *op = work.pop_back_val().getDefiningOp(); op && slice.insert(op))
      llvm::append_range(work, op->getOperands());
  SmallVector<Operation *> order(slice.begin(), slice.end());
  llvm::sort(order, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return order;
}

/// Tensors with respect to which is derived, and that are computed in the function: for a while, arguments stand for
/// them, and y is computed anew of these.
class Cut {
public:
  Cut(func::FuncOp function, train::DeriveOp request) : function(function) {
    for (Value variable : llvm::concat<Value>(llvm::to_vector(request.getXs()), llvm::to_vector(request.getHeld())))
      if (Operation *op = variable.getDefiningOp(); op && op->getNumOperands() > 0 && !mapping.contains(variable)) {
        Block &block = function.getBody().front();
        Value stand = block.addArgument(variable.getType(), variable.getLoc());
        mapping.map(variable, stand);
        cuts.emplace_back(stand, variable);
      }
    if (cuts.empty())
      return;
    OpBuilder builder(request);
    for (Operation *op : backwardSlice(request.getY()))
      if (llvm::any_of(op->getOperands(), [&](Value operand) { return mapping.contains(operand); }) &&
          !llvm::all_of(op->getResults(), [&](Value result) { return mapping.contains(result); }))
        clone(builder, op);
  }

  Value of(Value value) const { return mapping.lookupOrDefault(value); }

  /// The tensors themselves again.
  void restore() {
    Block &block = function.getBody().front();
    for (auto [stand, variable] : llvm::reverse(cuts)) {
      stand.replaceAllUsesWith(variable);
      block.eraseArgument(cast<BlockArgument>(stand).getArgNumber());
    }
  }

private:
  /// A result that is cut keeps the argument in its place.
  void clone(OpBuilder &builder, Operation *op) {
    SmallVector<std::pair<Value, Value>> kept;
    for (Value result : op->getResults())
      if (mapping.contains(result))
        kept.emplace_back(result, mapping.lookup(result));
    builder.clone(*op, mapping);
    for (auto [result, stand] : kept)
      mapping.map(result, stand);
  }

  func::FuncOp function;
  IRMapping mapping;
  SmallVector<std::pair<Value, Value>> cuts; ///< argument and tensor
};

class Requests {
public:
  Requests(func::FuncOp function, std::optional<StringRef> training) : function(function), training(training) {}

  FailureOr<SmallVector<Value>> answer() {
    SmallVector<Value> derived;
    SmallVector<train::DeriveOp> requests = llvm::to_vector(function.getOps<train::DeriveOp>());
    several = requests.size() > 1;
    for (train::DeriveOp request : requests) {
      derived.push_back(request.getY());
      if (failed(answer(request)))
        return failure();
    }
    return derived;
  }

private:
  /// True where another request derives a value computed from `value`.
  static bool isDerivedAgain(Value value) {
    DenseSet<Operation *> seen;
    SmallVector<Value> work{value};
    while (!work.empty())
      for (Operation *user : work.pop_back_val().getUsers()) {
        if (isa<train::DeriveOp>(user))
          return true;
        if (seen.insert(user).second)
          llvm::append_range(work, user->getResults());
      }
    return false;
  }

  bool isTrained(Value x) const {
    auto read = x.getDefiningOp<train::ReadOp>();
    if (!read || !training)
      return false;
    auto state = SymbolTable::lookupNearestSymbolFrom<train::StateOp>(read, read.getStateAttr());
    return state && state.getRole() == train::Role::parameter && !state.getFrozen();
  }

  LogicalResult answer(train::DeriveOp request) {
    llvm::MapVector<Value, SmallVector<Value>> trained, plain; // results by tensor
    for (auto [x, result] : llvm::zip_equal(request.getXs(), request.getGradients()))
      if (!result.use_empty())
        (isTrained(x) && !isDerivedAgain(result) ? trained : plain)[x].push_back(result);
    Cut cut(function, request);
    LogicalResult status = success();
    for (bool marks : {true, false}) {
      auto &wanted = marks ? trained : plain;
      if (!wanted.empty() && succeeded(status))
        status = derive(request, cut, wanted, marks);
    }
    cut.restore();
    if (succeeded(status))
      request.erase();
    return status;
  }

  LogicalResult derive(train::DeriveOp request, const Cut &cut, llvm::MapVector<Value, SmallVector<Value>> &wanted,
                       bool marks) {
    OpBuilder builder(request);
    std::string name = marks ? training->str() : "";
    if (marks && several)
      name += (name.empty() ? "" : ".") + std::to_string(number);
    number += marks;
    SmallVector<Value> xs = llvm::map_to_vector(wanted, [&](auto &entry) { return cut.of(entry.first); });
    DenseMap<Value, Value> marked;
    auto mark = [&](OpBuilder &at, Value x, Value gradient) {
      marked[x] = train::GradientOp::create(at, x.getLoc(), x.getDefiningOp<train::ReadOp>().getState(), gradient);
    };
    LossTerm loss{name, cut.of(request.getY()), 1.0};
    auto gradients =
        marks ? differentiate(function, loss, xs, builder, mark) : differentiate(function, loss, xs, builder);
    if (failed(gradients))
      return failure();
    if (!marks)
      dropSeeds(*gradients);
    for (auto [entry, x, gradient] : llvm::zip_equal(wanted, xs, *gradients)) {
      Value value = marked.lookup(x);
      if (!value && gradient && marks) {
        mark(builder, x, gradient);
        value = marked.lookup(x);
      }
      if (!value && !gradient)
        mlir::emitWarning(request.getLoc()) << "y does not depend on a tensor in xs: its gradient is zero";
      if (!value)
        value = gradient ? gradient : GraphBuilder(builder, request.getLoc()).splatLike(x, 0.0);
      for (Value result : entry.second)
        result.replaceAllUsesWith(value);
    }
    seeds.insert(function.getOps<train::ScaleLossOp>().begin(), function.getOps<train::ScaleLossOp>().end());
    return success();
  }

  /// The backward pass derived last starts at its seeds, without a scale; a gradient may be a seed itself.
  void dropSeeds(MutableArrayRef<Value> gradients) {
    for (auto seed : llvm::make_early_inc_range(function.getOps<train::ScaleLossOp>()))
      if (!seeds.contains(seed)) {
        std::replace(gradients.begin(), gradients.end(), Value(seed.getResult()), Value(seed.getSeed()));
        seed.getResult().replaceAllUsesWith(seed.getSeed());
        seed.erase();
      }
  }

  func::FuncOp function;
  std::optional<StringRef> training;
  DenseSet<Operation *> seeds; ///< of gradients that are part of the step
  int number = 0;
  bool several = false;
};

} // namespace

FailureOr<SmallVector<Value>> mpt::answerRequests(func::FuncOp function, std::optional<StringRef> training) {
  return Requests(function, training).answer();
}
