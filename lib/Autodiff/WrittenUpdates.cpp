// SPDX-License-Identifier: Apache-2.0
// The gradient of a parameter as the value through which all comes that its update knows of the batch.
// Matcher: numbers that a tensor is multiplied with or divided by, and the sum or difference that takes it up.
#include "mpt/Autodiff/WrittenUpdates.h"

#include "Factors.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Interfaces/Linearity.h"

#include <limits>

using namespace mlir;
using namespace mpt;

namespace {

using Ops = DenseSet<Operation *>;

/// The known values of a graph while gradients are found.
struct Known {
  /// Operands on the way from the batch to `op`. A number beside a tensor is a rate or a factor of all gradients, and
  /// so is an operand that hangs on other gradients beside one that does not.
  SmallVector<Value> ways(Operation *op) const {
    SmallVector<Value> found;
    for (Value operand : op->getOperands())
      if (fed.contains(operand) && (op->getNumOperands() == 1 || !isNumber(operand) || isOne(op->getResult(0))))
        found.push_back(operand);
    auto isFree = [&](Value value) { return !behind.contains(value); };
    if (llvm::any_of(found, isFree))
      llvm::erase_if(found, [&](Value value) { return !isFree(value); });
    return found;
  }

  DenseSet<Value> batch;  ///< the inputs, and the forward values computed from them
  DenseSet<Value> fed;    ///< all that hangs on it
  DenseSet<Value> ends;   ///< gradients
  DenseSet<Value> behind; ///< all that hangs on them
};

/// The ops that compute one parameter's new values, behind the batch.
class Update {
public:
  Update(train::StateOp parameter, ArrayRef<Value> targets, const Known &known)
      : known(known), parameter(parameter.getSymNameAttr()), newValue(targets.front()) {
    collect(targets);
    findCuts(targets);
  }

  /// The gradient among the values that all goes through; null where there is none of this type.
  Value gradient(RankedTensorType type) const {
    auto fits = [&](Value value) { return tensorType(value).getShape() == type.getShape(); };
    const auto *first = llvm::find_if(cuts, fits);
    if (first == cuts.end())
      return {};
    SmallVector<Value> chain(first, first + 1); // values linear in it, as far as nothing else comes in
    for (const auto *next = first + 1; next != cuts.end() && follows(chain.back(), *next); ++next)
      chain.push_back(*next);
    dropRate(chain);
    while (!fits(chain.back()))
      chain.pop_back();
    return chain.back();
  }

private:
  /// Ops on ways from the batch to `targets`, in order.
  void collect(ArrayRef<Value> targets) {
    Ops seen;
    SmallVector<Operation *> all, work;
    auto take = [&](Value value) {
      Operation *op = value.getDefiningOp();
      if (op && !known.batch.contains(value) && !known.ends.contains(value) && seen.insert(op).second)
        work.push_back(op);
    };
    llvm::for_each(targets, take);
    while (!work.empty()) {
      all.push_back(work.pop_back_val());
      llvm::for_each(known.ways(all.back()), take);
    }
    llvm::sort(all, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
    for (Operation *op : all)
      if (llvm::any_of(known.ways(op), [&](Value way) {
            return known.batch.contains(way) || positions.contains(way.getDefiningOp());
          })) {
        positions[op] = ops.size();
        ops.push_back(op);
      }
  }

  void findCuts(ArrayRef<Value> targets) {
    constexpr int64_t never = std::numeric_limits<int64_t>::max();
    int64_t last = -1; // where a value of the batch is read
    SmallVector<int64_t> lastUses(ops.size(), -1);
    for (auto [i, op] : llvm::enumerate(ops))
      for (Value way : known.ways(op)) {
        if (known.batch.contains(way))
          last = i;
        else if (auto found = positions.find(way.getDefiningOp()); found != positions.end())
          lastUses[found->second] = i;
      }
    for (Value target : targets)
      if (auto found = positions.find(target.getDefiningOp()); found != positions.end())
        lastUses[found->second] = never;
    int64_t pending = -1; // last use of the results of earlier ops
    for (auto [i, op] : llvm::enumerate(ops)) {
      int64_t at = i;
      if (at >= last && pending <= at)
        for (Value result : op->getResults())
          if (isa<FloatType>(tensorType(result).getElementType()) &&
              (op->getNumResults() == 1 ||
               llvm::any_of(result.getUsers(), [&](Operation *user) { return positions.contains(user); })))
            cuts.push_back(result);
      pending = std::max(pending, lastUses[i]);
    }
  }

  /// The op of `next` moves or scales `value` and reads nothing else but a number.
  bool follows(Value value, Value next) const {
    Operation *op = next.getDefiningOp();
    if (Value factor = factorOf(op, value))
      return !known.fed.contains(factor);
    auto rule = dyn_cast<Linearity>(op);
    return op->getNumOperands() == 1 && op->getOperand(0) == value && rule &&
           rule.getOperandScale(0) == OperandScale::Shared && isMovement(op);
  }
  static bool isMovement(Operation *op) {
    auto semantics = dyn_cast<PrecisionSemantics>(op);
    return isa<NegOp, CastOp, ReduceOp>(op) || (semantics && semantics.getNumericClass() == NumericClass::Movement);
  }

  /// The only op of the update that reads `value`; null where several do.
  Operation *onlyReader(Value value) const {
    Operation *reader = nullptr;
    for (Operation *user : value.getUsers())
      if (positions.contains(user)) {
        if (reader && reader != user)
          return nullptr;
        reader = user;
      }
    return reader;
  }

  /// Numbers at the chain's end that are the optimizer's: where its last value is added to the parameter, as it is or
  /// in one of several terms (Nesterov's), or to a decayed average that weighs it by the rest to one.
  void dropRate(SmallVectorImpl<Value> &chain) const {
    bool isStep = isAddedAsItIs(chain.back());
    Operation *reader = onlyReader(chain.back());
    if (!isStep && (!reader || !isa<AddOp, SubOp>(reader)))
      return;
    size_t end = chain.size();
    while (end > 1 && chain[end - 1].getDefiningOp<NegOp>())
      --end;
    Value factor = end > 1 ? factorOf(chain[end - 1].getDefiningOp(), chain[end - 2]) : Value();
    if (!factor || isInGradient(factor, chain.front()) ||
        (!isStep && scalesLater(reader) && !isWeight(chain[end - 1].getDefiningOp(), reader, chain.back())))
      return;
    // A rate that changes may have several factors.
    do
      factor = --end > 1 ? factorOf(chain[end - 1].getDefiningOp(), chain[end - 2]) : Value();
    while (factor && !numberOf(factor) && !isInGradient(factor, chain.front()));
    chain.truncate(end);
  }

  /// True of the file's own loss scale, with which its backward pass begins.
  static bool isInGradient(Value factor, Value gradient) {
    DenseSet<Value> own = numbersBehind(factor), all = own.empty() ? own : numbersBehind(gradient);
    return llvm::any_of(own, [&](Value number) { return all.contains(number); });
  }

  bool isParameter(Value value) const {
    while (auto cast = value.getDefiningOp<CastOp>())
      value = cast->getOperand(0);
    auto read = value.getDefiningOp<train::ReadOp>();
    return read && read.getStateAttr().getAttr() == parameter;
  }

  /// True where sums and differences alone lead from `value` to the parameter's new value, or to one with the parameter
  /// itself. Its decay by a factor does not count: it is added to gradients too, before the rate.
  bool isAddedAsItIs(Value value) const {
    Ops seen;
    SmallVector<Value> work{value};
    while (!work.empty()) {
      Value from = work.pop_back_val();
      for (Operation *user : from.getUsers()) {
        if (isAveraged(user, from))
          return true;
        if (!isa<AddOp, SubOp, NegOp, CastOp>(user) || !seen.insert(user).second)
          continue;
        if (user->getResult(0) == newValue ||
            llvm::any_of(user->getOperands(), [&](Value operand) { return isParameter(operand); }))
          return true;
        work.push_back(user->getResult(0));
      }
    }
    return false;
  }

  /// parameter * (1 - k) + value * k, as with schedule-free optimizers: `value` moves as a parameter does.
  bool isAveraged(Operation *product, Value value) const {
    Value weight = isa<MulOp>(product) ? factorOf(product, value) : Value();
    if (!weight)
      return false;
    for (Operation *sum : product->getUsers())
      for (Value term : sum->getOperands())
        if (Value rest = isa<AddOp>(sum) ? keptShare(term) : Value())
          if (isRestToOne(rest, weight) || isRestToOne(weight, rest))
            return true;
    return false;
  }
  /// The number that `term` multiplies the parameter with; null for other terms.
  Value keptShare(Value term) const {
    if (auto product = term.getDefiningOp<MulOp>())
      for (Value operand : product->getOperands())
        if (isParameter(operand))
          return factorOf(product, operand);
    return {};
  }
  /// `value` is one less `other`.
  static bool isRestToOne(Value value, Value other) {
    std::optional<double> a = numberOf(value), b = numberOf(other);
    if (a && b)
      return std::abs(*a + *b - 1.0) < 1e-6;
    auto difference = withoutShape(value).getDefiningOp<SubOp>();
    return difference && numberOf(difference->getOperand(0)) == 1.0 &&
           withoutShape(difference->getOperand(1)) == withoutShape(other);
  }

  /// Whether behind `reader` a number, which is the rate then, comes in.
  bool scalesLater(Operation *reader) const {
    return llvm::any_of(ArrayRef(ops).drop_front(positions.lookup(reader) + 1), [&](Operation *op) {
      return llvm::any_of(op->getOperands(), [&](Value operand) {
        return positions.contains(operand.getDefiningOp()) && factorOf(op, operand);
      });
    });
  }

  /// average * b + gradient * (1 - b).
  static bool isWeight(Operation *last, Operation *reader, Value value) {
    Operation *decay = reader->getOperand(reader->getOperand(0) == value ? 1 : 0).getDefiningOp();
    std::optional<double> taken = weightOf(last), kept = decay ? weightOf(decay) : std::nullopt;
    return taken && kept && isa<AddOp>(reader) && std::abs(*kept + *taken - 1.0) < 1e-6;
  }
  static std::optional<double> weightOf(Operation *op) {
    for (Value operand : op->getOperands())
      if (Value factor = factorOf(op, operand))
        if (std::optional<double> number = numberOf(factor))
          return isa<DivOp>(op) ? 1.0 / *number : *number;
    return std::nullopt;
  }

  const Known &known;
  StringAttr parameter; ///< the symbol
  Value newValue;       ///< of the parameter
  std::vector<Operation *> ops;
  DenseMap<Operation *, int64_t> positions;
  SmallVector<Value> cuts; ///< the values that all goes through, in order
};

class Search {
public:
  Search(func::FuncOp function, Value loss, ArrayRef<NewValue> parameters, ArrayRef<NewValue> news,
         ArrayRef<Value> given)
      : parameters(parameters), news(news), forward(sliceOf(loss)) {
    findBatch(function.getBody().front());
    for (Value gradient : given)
      follow(gradient);
  }

  SmallVector<Value> run() {
    SmallVector<Value> found(parameters.size());
    for (unsigned i : inOrder())
      if (Value gradient =
              Update(parameters[i].state, targetsOf(parameters[i]), known).gradient(typeOf(parameters[i].state))) {
        found[i] = gradient;
        follow(gradient);
      }
    return found;
  }

private:
  /// Where the loss reads nothing that is fed in, all of the forward pass but states and constants is the batch.
  void findBatch(Block &block) {
    for (Operation &op : block)
      if (forward.contains(&op))
        for (Value operand : op.getOperands())
          if (isa<BlockArgument>(operand))
            known.batch.insert(operand);
    bool any = known.batch.empty();
    auto hangs = [](Operation &op, const DenseSet<Value> &on) {
      return llvm::any_of(op.getOperands(), [&](Value operand) { return on.contains(operand); });
    };
    for (Operation &op : block)
      if (forward.contains(&op) && op.getNumOperands() > 0 && (any || hangs(op, known.batch)))
        known.batch.insert(op.result_begin(), op.result_end());
    known.fed = known.batch;
    for (Operation &op : block)
      if (hangs(op, known.fed))
        known.fed.insert(op.result_begin(), op.result_end());
  }

  void follow(Value gradient) {
    known.ends.insert(gradient);
    known.behind.insert(gradient);
    SmallVector<Value> work{gradient};
    while (!work.empty())
      for (Operation *user : work.pop_back_val().getUsers())
        for (Value result : user->getResults())
          if (known.behind.insert(result).second)
            work.push_back(result);
  }

  /// Tensors before numbers, which clipping by a norm looks like; averages of parameters behind these.
  SmallVector<unsigned> inOrder() const {
    SmallVector<std::tuple<bool, unsigned, unsigned>> keys;
    for (unsigned i = 0; i < parameters.size(); ++i) {
      Value own = parameters[i].value;
      Ops slice = sliceOf(own);
      unsigned others = llvm::count_if(parameters, [&](const NewValue &other) {
        return other.value != own && slice.contains(other.value.getDefiningOp());
      });
      keys.emplace_back(typeOf(parameters[i].state).getNumElements() == 1, others, i);
    }
    llvm::sort(keys);
    return llvm::map_to_vector(keys, [](const auto &key) { return std::get<2>(key); });
  }

  /// The parameter's new value, and the new values of its moments: states that it is computed from.
  SmallVector<Value> targetsOf(const NewValue &parameter) {
    SmallVector<Value> targets{parameter.value};
    Ops seen;
    SmallVector<Value> work{parameter.value};
    while (!work.empty()) {
      Operation *op = work.pop_back_val().getDefiningOp();
      if (!op || forward.contains(op) || !seen.insert(op).second)
        continue;
      llvm::append_range(work, op->getOperands());
      if (auto read = dyn_cast<train::ReadOp>(op))
        for (NewValue next : news)
          if (next.state.getSymNameAttr() == read.getStateAttr().getAttr() && isMoment(next, parameter))
            targets.push_back(next.value);
    }
    return targets;
  }
  bool isMoment(const NewValue &state, const NewValue &parameter) const {
    RankedTensorType type = typeOf(state.state), own = typeOf(parameter.state);
    bool trained = llvm::any_of(parameters, [&](const NewValue &other) { return other.state == state.state; });
    return !trained && isa<FloatType>(type.getElementType()) &&
           (type.getNumElements() > 1 || own.getNumElements() == 1);
  }

  static RankedTensorType typeOf(train::StateOp state) { return cast<RankedTensorType>(state.getType()); }

  ArrayRef<NewValue> parameters, news;
  Ops forward; ///< the ops that compute the loss
  Known known;
};

} // namespace

SmallVector<Value> mpt::gradientsOfUpdates(func::FuncOp function, Value loss, ArrayRef<NewValue> parameters,
                                           ArrayRef<NewValue> news, ArrayRef<Value> given) {
  return Search(function, loss, parameters, news, given).run();
}
