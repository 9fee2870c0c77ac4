// SPDX-License-Identifier: Apache-2.0
// Gradients in the words of exporters: of ReLU, pooling, embeddings and convolution weights.
// Matcher: selections by the sign of a ReLU, scatters at the positions of a max pooling or the rows of an embedding,
// convolutions over the batch or with ones.
#include "mpt/Autodiff/BackwardForms.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/Splats.h"
#include "mpt/Evaluation/Frame.h"
#include "mpt/Interfaces/Interfaces.h"

#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"

#include <random>

using namespace mlir;
using namespace mpt;

namespace {

bool isZero(Value value) { return splatNumber(value) == 0.0; }

/// Elements of the dimensions from `first` on.
int64_t elementsFrom(Value value, int64_t first) {
  return ShapedType::getNumElements(tensorType(value).getShape().drop_front(first));
}

/// Runs pure ops on the values of `frame`, in the order of their block.
bool run(SmallVector<Operation *> ops, InterpreterFrame &frame) {
  llvm::sort(ops, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  return llvm::all_of(ops, [&](Operation *op) { return succeeded(cast<Interpretable>(op).interpret(frame)); });
}

// ---- ReLU

/// The result of the ReLU that is positive where `value` is: it, or its operand. Null where there is none before `op`.
Value positivePart(Value value, Operation *op) {
  if (value.getDefiningOp<ReluOp>())
    return value;
  for (Operation *user : value.getUsers())
    if (auto relu = dyn_cast<ReluOp>(user); relu && relu->getBlock() == op->getBlock() && relu->isBeforeInBlock(op))
      return relu.getY();
  return {};
}

} // namespace

std::optional<Masked> mpt::maskedByRelu(SelectOp select) {
  auto compare = select.getCondition().getDefiningOp<CompareOp>();
  if (!compare)
    return std::nullopt;
  Predicate predicate = compare.getPredicate();
  bool zeroLast = isZero(compare.getRhs());
  if (!zeroLast && !isZero(compare.getLhs()))
    return std::nullopt;
  Predicate positive = zeroLast ? Predicate::gt : Predicate::lt, negative = zeroLast ? Predicate::le : Predicate::ge;
  if (predicate != positive && predicate != negative)
    return std::nullopt;
  bool keeps = predicate == positive;
  Value dy = keeps ? select.getOnTrue() : select.getOnFalse();
  Value y = positivePart(zeroLast ? compare.getLhs() : compare.getRhs(), select);
  if (!y || y.getType() != dy.getType() || !isZero(keeps ? select.getOnFalse() : select.getOnTrue()))
    return std::nullopt;
  return Masked{y, dy};
}

namespace {

// ---- max pooling

/// Whether `positions` are `indices` for whatever indices there are: integer arithmetic of exporters is computed twice.
class SamePositions {
public:
  SamePositions(Value positions, MaxPoolOp pool) : positions(positions), pool(pool) {}

  bool hold() {
    if (!collect(positions))
      return false;
    int64_t plane = elementsFrom(pool.getX(), 2);
    for (unsigned seed : {1U, 2U}) {
      std::mt19937_64 generator(seed);
      EvaluationState state;
      InterpreterFrame frame(EvaluationMode::Exact, state);
      Tensor drawn = InterpreterFrame::zeros(pool.getIndices());
      for (int64_t &index : drawn.writeInts())
        index = static_cast<int64_t>(generator() % static_cast<uint64_t>(plane));
      std::vector<int64_t> expected = drawn.ints().vec();
      frame.set(pool.getIndices(), std::move(drawn));
      for (Value leaf : leaves)
        frame.set(leaf, InterpreterFrame::zeros(leaf));
      if (!run(ops, frame) || frame.get(positions).ints() != ArrayRef(expected))
        return false;
    }
    return true;
  }

private:
  static bool isIdentity(MaxPoolOp op) {
    return llvm::all_of(op.getKernel(), [](int64_t k) { return k == 1; }) && op.getX().getType() == op.getY().getType();
  }

  /// False where something that is not known here has a part in `value`.
  bool collect(Value value) {
    SmallVector<Value> work{value};
    DenseSet<Operation *> seen;
    while (!work.empty()) {
      Value next = work.pop_back_val();
      Operation *op = next.getDefiningOp();
      if (next == pool.getIndices() || (op && !seen.insert(op).second))
        continue;
      if (!op || ops.size() == mostOps || !isa<Interpretable>(op) || op->getNumRegions() || !isMemoryEffectFree(op))
        return false;
      ops.push_back(op);
      // Positions in a window of one element are where it lies, whatever is in it.
      if (auto other = dyn_cast<MaxPoolOp>(op)) {
        if (!isIdentity(other))
          return false;
        leaves.insert(other.getX());
        continue;
      }
      llvm::append_range(work, op->getOperands());
    }
    return true;
  }

  static constexpr size_t mostOps = 64;
  Value positions;
  MaxPoolOp pool;
  SmallVector<Operation *> ops;
  llvm::SetVector<Value> leaves;
};

/// The max poolings whose positions `value` is computed from.
SmallVector<MaxPoolOp> poolsBehind(Value value) {
  SmallVector<MaxPoolOp> pools;
  SmallVector<Value> work{value};
  DenseSet<Operation *> seen;
  constexpr size_t most = 64;
  while (!work.empty() && seen.size() < most) {
    Operation *op = work.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (auto pool = dyn_cast<MaxPoolOp>(op))
      pools.push_back(pool);
    else
      llvm::append_range(work, op->getOperands());
  }
  return pools;
}

} // namespace

MaxPoolOp mpt::scatteredBy(ScatterElementsOp scatter) {
  int64_t last = tensorType(scatter.getData()).getRank() - 1;
  if (scatter.getKind() != ScatterKind::add || static_cast<int64_t>(scatter.getAxis()) != last || last < 1 ||
      !isZero(scatter.getData()))
    return {};
  auto fits = [&](MaxPoolOp pool) {
    // Each row of the scatter is a plane of the pooling.
    return elementsFrom(pool.getX(), 2) == elementsFrom(scatter.getData(), last) &&
           elementsFrom(pool.getX(), 0) == elementsFrom(scatter.getData(), 0) &&
           elementsFrom(pool.getY(), 2) == elementsFrom(scatter.getIndices(), last) &&
           elementsFrom(pool.getY(), 0) == elementsFrom(scatter.getIndices(), 0) &&
           tensorType(pool.getX()).getElementType() == tensorType(scatter.getData()).getElementType() &&
           SamePositions(scatter.getIndices(), pool).hold();
  };
  SmallVector<MaxPoolOp> pools = poolsBehind(scatter.getIndices());
  auto found = llvm::find_if(pools, fits);
  return found == pools.end() ? MaxPoolOp() : *found;
}

// ---- average pooling

Value mpt::spreadEvenly(ConvBackwardDataOp conv) {
  ArrayRef<int64_t> weights = tensorType(conv.getW()).getShape();
  std::optional<double> weight = splatNumber(conv.getW());
  if (conv.getGroups() != 1 || weights[0] != 1 || weights[1] != 1 || !weight)
    return {};
  double count = *weight * static_cast<double>(ShapedType::getNumElements(weights));
  auto isOne = [](double factor) { return std::abs(factor - 1.0) <= 0x1p-23; };
  if (auto div = conv.getDy().getDefiningOp<DivOp>())
    if (std::optional<double> divisor = splatNumber(div.getRhs()); divisor && isOne(count / *divisor))
      return div.getLhs();
  if (auto mul = conv.getDy().getDefiningOp<MulOp>())
    for (auto [factor, other] : {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())})
      if (std::optional<double> share = splatNumber(factor); share && isOne(count * *share))
        return other;
  return {};
}

AvgPoolOp mpt::pooledBy(ConvBackwardDataOp conv, const DenseSet<Operation *> &forwardPass) {
  RankedTensorType dx = tensorType(conv.getY()), dy = tensorType(conv.getDy());
  bool isPadded = llvm::any_of(conv.getPadsLow(), [](int64_t p) { return p != 0; }) ||
                  llvm::any_of(conv.getPadsHigh(), [](int64_t p) { return p != 0; });
  for (auto pool : conv->getBlock()->getOps<AvgPoolOp>()) {
    RankedTensorType x = tensorType(pool.getX()), y = tensorType(pool.getY());
    if (forwardPass.contains(pool) && pool.getKernel() == tensorType(conv.getW()).getShape().drop_front(2) &&
        pool.getStrides() == conv.getStrides() && pool.getDilations() == conv.getDilations() &&
        pool.getPadsLow() == conv.getPadsLow() && pool.getPadsHigh() == conv.getPadsHigh() &&
        (pool.getCountIncludePad() || !isPadded) && x.getElementType() == dx.getElementType() &&
        x.getShape().drop_front(2) == dx.getShape().drop_front(2) &&
        y.getShape().drop_front(2) == dy.getShape().drop_front(2) && x.getNumElements() == dx.getNumElements())
      return pool;
  }
  return {};
}

namespace {

// ---- embeddings

/// Indices that rows of a table are looked up by, and values that exporters make of them before they add to these rows:
/// numbers in range, and masks of updates. Each possible index is computed.
class Lookup {
public:
  Lookup(Value indices, int64_t rows) : indices(indices), rows(rows) {}

  /// `value` is the index itself.
  bool isIndex(Value value) {
    return holds(value, [](ArrayRef<int64_t> found, ArrayRef<int64_t> given) { return found == given; });
  }
  /// `condition` is false for every index; it may repeat one along further dimensions.
  bool isNever(Value condition) {
    return holds(condition, [](ArrayRef<int64_t> found, ArrayRef<int64_t>) {
      return llvm::all_of(found, [](int64_t bit) { return bit == 0; });
    });
  }

private:
  bool holds(Value value, llvm::function_ref<bool(ArrayRef<int64_t>, ArrayRef<int64_t>)> test) {
    SmallVector<Operation *> ops;
    int64_t count = tensorType(indices).getNumElements();
    if (rows > mostRows || count == 0 || !collect(value, ops))
      return false;
    for (int64_t first = 0; first < rows; first += count) {
      EvaluationState state;
      InterpreterFrame frame(EvaluationMode::Exact, state);
      Tensor given = InterpreterFrame::zeros(indices);
      for (auto [i, index] : llvm::enumerate(given.writeInts()))
        index = std::min(first + static_cast<int64_t>(i), rows - 1);
      std::vector<int64_t> expected = given.ints().vec();
      frame.set(indices, std::move(given));
      if (!run(ops, frame) || !test(frame.get(value).ints(), expected))
        return false;
    }
    return true;
  }

  /// The ops between the indices and `value`: pure integer arithmetic, with constants.
  bool collect(Value value, SmallVectorImpl<Operation *> &ops) {
    SmallVector<Value> work{value};
    DenseSet<Operation *> seen;
    while (!work.empty()) {
      Value next = work.pop_back_val();
      Operation *op = next.getDefiningOp();
      if (next == indices || (op && !seen.insert(op).second))
        continue;
      if (!op || ops.size() == mostOps || !isa<Interpretable>(op) || op->getNumRegions() || !isMemoryEffectFree(op) ||
          !tensorType(next).getElementType().isInteger())
        return false;
      ops.push_back(op);
      llvm::append_range(work, op->getOperands());
    }
    return true;
  }

  static constexpr size_t mostOps = 32;
  static constexpr int64_t mostRows = 1 << 20;
  Value indices;
  int64_t rows;
};

/// Constants of the same numbers, in whatever shape.
bool haveSameElements(Value a, Value b) {
  DenseIntElementsAttr left, right;
  return matchPattern(a, m_Constant(&left)) && matchPattern(b, m_Constant(&right)) &&
         left.getNumElements() == right.getNumElements() &&
         llvm::equal(left.getValues<APInt>(), right.getValues<APInt>());
}

} // namespace

std::optional<RowGradient> mpt::rowsOf(ScatterNDOp scatter, const DenseSet<Operation *> &forwardPass) {
  RankedTensorType table = tensorType(scatter.getY()), tuples = tensorType(scatter.getIndices());
  if (scatter.getKind() != ScatterKind::add || scatter.getBatchDims() != 0 || !isZero(scatter.getData()) ||
      tuples.getShape().back() != 1)
    return std::nullopt;
  for (auto gather : scatter->getBlock()->getOps<GatherOp>()) {
    RankedTensorType indices = tensorType(gather.getIndices());
    if (!forwardPass.contains(gather) || gather.getAxis() != 0 || gather.getX().getType() != table ||
        indices.getElementType() != tuples.getElementType() || indices.getNumElements() != tuples.getNumElements() ||
        gather.getY().getType() != scatter.getUpdates().getType())
      continue;
    Lookup lookup(gather.getIndices(), table.getDimSize(0));
    if (!haveSameElements(scatter.getIndices(), gather.getIndices()) && !lookup.isIndex(scatter.getIndices()))
      continue;
    Value updates = scatter.getUpdates();
    // Updates at indices beyond the table, which there are none of.
    if (auto select = updates.getDefiningOp<SelectOp>();
        select && isZero(select.getOnTrue()) && lookup.isNever(select.getCondition()))
      updates = select.getOnFalse();
    return RowGradient{gather.getIndices(), updates, gather.getLoc()};
  }
  return std::nullopt;
}

namespace {

// ---- weights of convolutions

/// The tensor [n, groups * inner, d...] that `value` [inner, groups * n, d...] is with the two exchanged in each group,
/// through reshapes and transposes. Null where it is no such view.
Value exchanged(Value value, int64_t groups) {
  ArrayRef<int64_t> shape = tensorType(value).getShape();
  int64_t inner = shape[0], n = shape[1] / groups, plane = elementsFrom(value, 2);
  SmallVector<int64_t> wanted{n, groups * inner};
  llvm::append_range(wanted, shape.drop_front(2));
  SmallVector<Operation *> views;
  for (Value base = value;;) {
    Operation *op = base.getDefiningOp();
    if (!op || !isa<ReshapeOp, TransposeOp>(op))
      return {};
    views.push_back(op);
    base = op->getOperand(0);
    if (tensorType(base).getShape() != ArrayRef(wanted))
      continue;
    EvaluationState state;
    InterpreterFrame frame(EvaluationMode::Oracle, state);
    Tensor numbered = InterpreterFrame::zeros(base);
    for (auto [i, element] : llvm::enumerate(numbered.writeReals()))
      element = static_cast<double>(i);
    frame.set(base, std::move(numbered));
    if (!run(views, frame))
      return {};
    ArrayRef<double> found = frame.get(value).reals();
    bool same = true;
    for (int64_t i = 0, at = 0; i < inner && same; ++i)
      for (int64_t g = 0; g < groups; ++g)
        for (int64_t k = 0; k < n; ++k)
          for (int64_t p = 0; p < plane; ++p, ++at)
            same &= found[at] == static_cast<double>(((k * groups + g) * inner + i) * plane + p);
    if (same)
      return base;
  }
}

} // namespace

Value mpt::cutOf(ConvOp conv) {
  Value part = conv.getY();
  while (part.hasOneUse()) {
    auto slice = dyn_cast<SliceOp>(*part.user_begin());
    if (!slice || llvm::any_of(slice.getStarts(), [](int64_t s) { return s != 0; }) ||
        llvm::any_of(slice.getStrides(), [](int64_t s) { return s != 1; }) ||
        slice.getSizes().take_front(2) != tensorType(part).getShape().take_front(2))
      break;
    part = slice.getY();
  }
  return part;
}

std::optional<WeightGradient> mpt::overBatch(ConvOp conv, ArrayRef<int64_t> kernel) {
  Value x = exchanged(conv.getX(), conv.getGroups()), dy = exchanged(conv.getW(), 1);
  // Where its transposition was joined with another one, there is no tensor to find.
  if (!x || (!dy && !conv.getW().getDefiningOp<TransposeOp>()))
    return std::nullopt;
  ArrayRef<int64_t> in = tensorType(x).getShape();
  SmallVector<int64_t> out = llvm::to_vector(tensorType(conv.getW()).getShape());
  std::swap(out[0], out[1]);
  if (in.front() != out.front())
    return std::nullopt;
  // The convolution that `kernel` are weights of has strides where this one has dilations.
  for (auto [i, extent] : llvm::enumerate(kernel)) {
    int64_t room = in[i + 2] + conv.getPadsLow()[i] + conv.getPadsHigh()[i] - conv.getStrides()[i] * (extent - 1) - 1;
    if (room < 0 || room / conv.getDilations()[i] + 1 != out[i + 2])
      return std::nullopt;
  }
  SmallVector<int64_t> shape{out[1], in[1] / static_cast<int64_t>(conv.getGroups())};
  llvm::append_range(shape, kernel);
  return WeightGradient{x, dy, tensorType(conv.getY()).clone(shape)};
}
