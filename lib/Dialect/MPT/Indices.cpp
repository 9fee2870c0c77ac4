// SPDX-License-Identifier: Apache-2.0
// Follows operands of indices back to the function's arguments.
#include "mpt/Dialect/MPT/Indices.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/MPT/ValueKeys.h"

#include "llvm/ADT/TypeSwitch.h"
#include <map>

using namespace mlir;
using namespace mpt;

namespace {

// ---- constants

/// The integers of a constant, also behind broadcasts, reshapes and casts; nothing for large or other values.
std::optional<SmallVector<int64_t>> integersOf(Value value);

/// The operand's element that each element of the result shows.
SmallVector<int64_t> sourcesOf(Operation *op) {
  ArrayRef<int64_t> shape = tensorType(op->getResult(0)).getShape(), from = tensorType(op->getOperand(0)).getShape();
  SmallVector<int64_t> strides(from.size(), 1), steps(shape.size(), 0), at(shape.size(), 0);
  for (int64_t d = int64_t(from.size()) - 2; d >= 0; --d)
    strides[d] = strides[d + 1] * from[d + 1];
  int64_t position = 0;
  if (auto transpose = dyn_cast<TransposeOp>(op))
    for (auto [d, source] : llvm::enumerate(transpose.getPermutation()))
      steps[d] = strides[source];
  else if (auto broadcast = dyn_cast<BroadcastOp>(op))
    for (auto [source, d] : llvm::enumerate(broadcast.getDims()))
      steps[d] = from[source] == 1 ? 0 : strides[source];
  else if (auto slice = dyn_cast<SliceOp>(op))
    for (size_t d = 0; d < shape.size(); ++d) {
      steps[d] = strides[d] * slice.getStrides()[d];
      position += strides[d] * slice.getStarts()[d];
    }
  SmallVector<int64_t> sources;
  for (int64_t count = tensorType(op->getResult(0)).getNumElements(); count > 0; --count) {
    sources.push_back(position);
    for (int64_t d = int64_t(shape.size()) - 1; d >= 0; --d) {
      position += steps[d];
      if (++at[d] < shape[d])
        break;
      position -= steps[d] * shape[d];
      at[d] = 0;
    }
  }
  return sources;
}

std::optional<SmallVector<int64_t>> integersOf(Value value) {
  constexpr int64_t most = 1 << 22;
  Operation *op = value.getDefiningOp();
  if (!op || tensorType(value).getNumElements() > most)
    return std::nullopt;
  if (isa<ReshapeOp, CastOp>(op))
    return tensorType(value).getElementType().isInteger() ? integersOf(op->getOperand(0)) : std::nullopt;
  if (isa<BroadcastOp>(op)) {
    std::optional<SmallVector<int64_t>> source = integersOf(op->getOperand(0));
    if (!source)
      return source;
    SmallVector<int64_t> values;
    for (int64_t i : sourcesOf(op))
      values.push_back((*source)[i]);
    return values;
  }
  auto constant = dyn_cast<ConstantOp>(op);
  auto elements = constant ? dyn_cast<DenseIntElementsAttr>(constant.getValue()) : DenseIntElementsAttr();
  if (!elements || elements.getElementType().getIntOrFloatBitWidth() > 64)
    return std::nullopt;
  SmallVector<int64_t> values;
  for (const APInt &element : elements.getValues<APInt>())
    values.push_back(element.getBitWidth() == 1 ? element.getZExtValue() : element.getSExtValue());
  return values;
}

// ---- demands on values

/// The legal elements of a value: `kinds` names a set an element; 0 demands nothing.
struct Demand {
  Value value;
  std::vector<uint32_t> kinds;
  std::vector<IndexSet> sets; ///< of kind 1 and on
};

/// A demand on another value whose sets follow from the sets of `given`, element by element.
template <typename Make> Demand transformed(const Demand &given, Value value, ArrayRef<int64_t> numbers, Make make) {
  Demand next{value, {}, {}};
  std::map<std::pair<uint32_t, int64_t>, uint32_t> known;
  for (auto [i, kind] : llvm::enumerate(given.kinds)) {
    uint32_t &made = known.try_emplace({kind, numbers[i]}, 0).first->second;
    if (kind && !made) {
      next.sets.push_back(make(given.sets[kind - 1], numbers[i]));
      made = next.sets.size();
    }
    next.kinds.push_back(made);
  }
  return next;
}

/// A demand on the operand whose elements a view shows. An element that is shown more than once has to meet all.
Demand behindView(const Demand &given, Value operand, ArrayRef<int64_t> sources) {
  Demand next{operand, std::vector<uint32_t>(tensorType(operand).getNumElements(), 0), given.sets};
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> met;
  for (auto [kind, source] : llvm::zip_equal(given.kinds, sources)) {
    uint32_t &old = next.kinds[source];
    if (!old || old == kind || !kind) {
      old = std::max(old, kind);
      continue;
    }
    uint32_t &both = met.try_emplace({old, kind}, 0).first->second;
    if (!both) {
      next.sets.push_back(next.sets[old - 1].intersect(next.sets[kind - 1]));
      both = next.sets.size();
    }
    old = both;
  }
  return next;
}

/// Every x for which the comparison with `number` holds.
IndexSet where(Predicate predicate, int64_t number) {
  IndexSet equal = IndexSet::of(number);
  IndexSet below = number == INT64_MIN ? IndexSet() : IndexSet::range(INT64_MIN, number - 1);
  switch (predicate) {
  case Predicate::eq:
    return equal;
  case Predicate::ne:
    return equal.complement();
  case Predicate::lt:
    return below;
  case Predicate::le:
    return below.unite(equal);
  case Predicate::gt:
    return below.unite(equal).complement();
  case Predicate::ge:
    return below.complement();
  }
  llvm_unreachable("unknown predicate");
}

/// A branch of a selection: x plus a constant, or a constant.
struct Branch {
  bool readsX;
  SmallVector<int64_t> numbers;
};

std::optional<Branch> branchOf(Value value, Value x) {
  if (value == x)
    return Branch{true, SmallVector<int64_t>(tensorType(x).getNumElements(), 0)};
  if (std::optional<SmallVector<int64_t>> numbers = integersOf(value))
    return Branch{false, std::move(*numbers)};
  auto add = value.getDefiningOp<AddOp>();
  if (add && add.getLhs() == x)
    if (std::optional<SmallVector<int64_t>> numbers = integersOf(add.getRhs()))
      return Branch{true, std::move(*numbers)};
  return std::nullopt;
}

IndexSet before(const Branch &branch, int64_t i, const IndexSet &legal) {
  if (branch.readsX)
    return legal.beforeAdding(branch.numbers[i]);
  return legal.contains(branch.numbers[i]) ? IndexSet::all() : IndexSet();
}

/// From a selection by a comparison with constants to the operand that it compares.
std::optional<Demand> behindSelect(const Demand &given, SelectOp op) {
  auto compare = op.getCondition().getDefiningOp<CompareOp>();
  if (!compare || !tensorType(compare.getLhs()).getElementType().isInteger())
    return std::nullopt;
  Value x = compare.getLhs();
  std::optional<SmallVector<int64_t>> bounds = integersOf(compare.getRhs());
  std::optional<Branch> onTrue = branchOf(op.getOnTrue(), x), onFalse = branchOf(op.getOnFalse(), x);
  if (!bounds || !onTrue || !onFalse)
    return std::nullopt;
  SmallVector<int64_t> position(given.kinds.size(), 0);
  auto isUniform = [](ArrayRef<int64_t> numbers) { return llvm::all_equal(numbers); };
  if (!isUniform(*bounds) || !isUniform(onTrue->numbers) || !isUniform(onFalse->numbers))
    for (auto [i, number] : llvm::enumerate(position))
      number = static_cast<int64_t>(i);
  return transformed(given, x, position, [&](const IndexSet &legal, int64_t i) {
    IndexSet holds = where(compare.getPredicate(), (*bounds)[i]);
    return before(*onTrue, i, legal).intersect(holds).unite(before(*onFalse, i, legal).intersect(holds.complement()));
  });
}

class Tracer {
public:
  explicit Tracer(func::FuncOp function) : function(function) {}
  void trace(IndexOperands op);
  std::vector<IndexDemand> found;

private:
  void follow(Demand demand);
  void followConcat(const Demand &given, ConcatOp op);
  std::optional<Demand> behindArithmetic(const Demand &given, Operation *op);
  void note(const Demand &demand, BlockArgument argument);

  func::FuncOp function;
  std::string node;
};

} // namespace

void Tracer::trace(IndexOperands op) {
  node = nodeName(op.getLoc()).str();
  Value operand = op.getIndexOperand();
  SmallVector<IndexSet> legal = op.getLegalIndices();
  Demand demand{operand, {}, {legal.begin(), legal.end()}};
  for (int64_t i = 0, e = tensorType(operand).getNumElements(); i < e; ++i)
    demand.kinds.push_back(i % legal.size() + 1);
  follow(std::move(demand));
}

/// From a sum or extremum with constants to its other operand.
std::optional<Demand> Tracer::behindArithmetic(const Demand &given, Operation *op) {
  if (op->getNumOperands() != 2 || !tensorType(given.value).getElementType().isInteger())
    return std::nullopt;
  std::optional<SmallVector<int64_t>> numbers = integersOf(op->getOperand(1));
  Value x = op->getOperand(0);
  if (!numbers && op->hasTrait<OpTrait::IsCommutative>()) {
    numbers = integersOf(op->getOperand(0));
    x = op->getOperand(1);
  }
  if (!numbers)
    return std::nullopt;
  using Rule = IndexSet (*)(const IndexSet &, int64_t);
  Rule rule =
      llvm::TypeSwitch<Operation *, Rule>(op)
          .Case<AddOp>([](AddOp) -> Rule { return [](const IndexSet &s, int64_t n) { return s.beforeAdding(n); }; })
          .Case<SubOp>([](SubOp) -> Rule { return [](const IndexSet &s, int64_t n) { return s.beforeAdding(-n); }; })
          .Case<MulOp>(
              [](MulOp) -> Rule { return [](const IndexSet &s, int64_t n) { return s.beforeMultiplying(n); }; })
          .Case<MaxOp>([](MaxOp) -> Rule {
            return [](const IndexSet &s, int64_t n) {
              IndexSet low = s.contains(n) ? where(Predicate::le, n) : IndexSet();
              return s.intersect(where(Predicate::gt, n)).unite(low);
            };
          })
          .Case<MinOp>([](MinOp) -> Rule {
            return [](const IndexSet &s, int64_t n) {
              IndexSet high = s.contains(n) ? where(Predicate::ge, n) : IndexSet();
              return s.intersect(where(Predicate::lt, n)).unite(high);
            };
          })
          .Default([](Operation *) -> Rule { return nullptr; });
  if (!rule || (isa<MulOp>(op) && llvm::any_of(*numbers, [](int64_t n) { return n <= 0; })))
    return std::nullopt;
  return transformed(given, x, *numbers, rule);
}

void Tracer::followConcat(const Demand &given, ConcatOp op) {
  ArrayRef<int64_t> shape = tensorType(op.getResult()).getShape();
  int64_t inner = 1, begin = 0;
  for (int64_t extent : shape.drop_front(op.getAxis() + 1))
    inner *= extent;
  int64_t row = shape[op.getAxis()] * inner;
  for (Value operand : op->getOperands()) {
    Demand part{operand, {}, given.sets};
    int64_t width = tensorType(operand).getDimSize(op.getAxis()) * inner;
    for (int64_t i = 0, e = tensorType(operand).getNumElements(); i < e; ++i)
      part.kinds.push_back(given.kinds[i / width * row + begin + i % width]);
    begin += width;
    follow(std::move(part));
  }
}

void Tracer::follow(Demand demand) {
  while (Operation *op = demand.value.getDefiningOp()) {
    std::optional<Demand> next;
    if (isa<ReshapeOp, CastOp>(op))
      next = Demand{op->getOperand(0), std::move(demand.kinds), std::move(demand.sets)};
    else if (isa<TransposeOp, SliceOp, BroadcastOp>(op))
      next = behindView(demand, op->getOperand(0), sourcesOf(op));
    else if (auto select = dyn_cast<SelectOp>(op))
      next = behindSelect(demand, select);
    else if (auto concat = dyn_cast<ConcatOp>(op))
      return followConcat(demand, concat);
    else
      next = behindArithmetic(demand, op);
    if (!next)
      return;
    demand = std::move(*next);
  }
  auto argument = dyn_cast<BlockArgument>(demand.value);
  if (argument && argument.getOwner() == &function.getBody().front())
    note(demand, argument);
}

/// Whether ascending `positions` are a box: outermost dimension first.
static bool isBox(ArrayRef<int64_t> positions, SmallVectorImpl<int64_t> &shape, SmallVectorImpl<int64_t> &strides) {
  SmallVector<int64_t> starts(positions);
  while (starts.size() > 1) {
    int64_t step = starts[1] - starts[0];
    size_t run = 2;
    while (run < starts.size() && starts[run] - starts[run - 1] == step)
      ++run;
    if (starts.size() % run)
      return false;
    SmallVector<int64_t> outer;
    for (size_t i = 0; i < starts.size(); i += run) {
      outer.push_back(starts[i]);
      for (size_t j = 1; j < run; ++j)
        if (starts[i + j] != starts[i] + static_cast<int64_t>(j) * step)
          return false;
    }
    shape.insert(shape.begin(), static_cast<int64_t>(run));
    strides.insert(strides.begin(), step);
    starts = outer;
  }
  return true;
}

void Tracer::note(const Demand &demand, BlockArgument argument) {
  for (size_t i = 0; i < demand.sets.size(); ++i) {
    const IndexSet &set = demand.sets[i];
    SmallVector<int64_t> positions;
    for (auto [position, kind] : llvm::enumerate(demand.kinds))
      if (kind == i + 1)
        positions.push_back(static_cast<int64_t>(position));
    if (positions.empty() || set == IndexSet::all())
      continue;
    auto add = [&](int64_t offset, ArrayRef<int64_t> shape, ArrayRef<int64_t> strides) {
      IndexDemand made{argument.getArgNumber(),       node, offset, SmallVector<int64_t>(shape),
                       SmallVector<int64_t>(strides), set};
      bool known = llvm::any_of(found, [&](const IndexDemand &other) {
        return other.argument == made.argument && other.offset == offset && other.shape == made.shape &&
               other.strides == made.strides && other.legal == made.legal;
      });
      if (!known)
        found.push_back(std::move(made));
    };
    SmallVector<int64_t> shape, strides;
    if (isBox(positions, shape, strides)) {
      add(positions.front(), shape, strides);
      continue;
    }
    for (size_t begin = 0, end; begin < positions.size(); begin = end) { // runs of neighbours
      for (end = begin + 1; end < positions.size() && positions[end] == positions[end - 1] + 1;)
        ++end;
      add(positions[begin], {static_cast<int64_t>(end - begin)}, {1});
    }
  }
}

std::vector<IndexDemand> mpt::indexDemandsOf(func::FuncOp function) {
  Tracer tracer(function);
  function.walk([&](IndexOperands op) { tracer.trace(op); });
  return std::move(tracer.found);
}
