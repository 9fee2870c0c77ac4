// From a fusion to a kernel: which loops, in which order, which of them in vectors.
#include "mpt/Lowering/Kernel.h"

#include "LoweringModels.h"
#include "Scatter.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace mpt;

namespace {

RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// Loops of a kernel over the points of `shape`.
struct Plan {
  SmallVector<int64_t> shape; ///< the iteration space
  SmallVector<int64_t> kept;  ///< axes outside the rows
  SmallVector<int64_t> row;   ///< axes inside the rows: a row's reductions run before its elements
  SmallVector<int64_t> lane;  ///< group of axes walked by vectors, the fastest last; empty for scalar loops
  bool laneInRow = false;
  unsigned width = 1;
  int64_t chunk = 0; ///< elements of the lane group in one unit of work; 0: all
};

class KernelBuilder {
public:
  KernelBuilder(FusionOp fusion, ArrayRef<MemRefType> inputs, ArrayRef<MemRefType> outputs, const KernelTarget &target)
      : fusion(fusion), inputs(inputs), outputs(outputs), target(target) {}

  FailureOr<KernelInfo> build(OpBuilder &builder, StringRef name);

private:
  Block &body() { return fusion.getBody().front(); }
  ValueRange yielded() { return body().getTerminator()->getOperands(); }

  FailureOr<KernelInfo> buildScatter(OpBuilder &builder, StringRef name, const ScatterForm &form);
  void chooseSpace();
  void chooseLane(ArrayRef<ElementEmitter::Access> accesses, ArrayRef<unsigned> variables, const IndexSpace &space);
  SmallVector<int64_t> joined(int64_t lane, ArrayRef<int64_t> pool, ArrayRef<ElementEmitter::Access> accesses,
                              ArrayRef<unsigned> variables, const IndexSpace &space);
  func::FuncOp makeFunction(OpBuilder &builder, StringRef name);
  bool emitBody(func::FuncOp function, bool probe);
  void emitNest(ElementEmitter &e, func::FuncOp function);
  void emitRow(ElementEmitter &e, func::FuncOp function, SmallVector<IndexExpr> at, bool laneGiven);
  /// An element of an output, computed and waiting to be written.
  struct Result {
    Value value;
    SmallVector<IndexExpr> at;
    unsigned output;
  };
  SmallVector<Result> outputsAt(ElementEmitter &e, ArrayRef<IndexExpr> at, bool rowLevel);
  void store(ElementEmitter &e, func::FuncOp function, ArrayRef<Result> results);
  void storeOutputs(ElementEmitter &e, func::FuncOp function, ArrayRef<IndexExpr> at, bool rowLevel) {
    store(e, function, outputsAt(e, at, rowLevel));
  }
  void findInPlace(ArrayRef<ElementEmitter::Access> accesses, ArrayRef<unsigned> variables, const IndexSpace &space);
  bool isRowLevel(Value output) { return typeOf(output).getNumElements() < count(plan.shape); }
  static int64_t count(ArrayRef<int64_t> shape) {
    int64_t n = 1;
    for (int64_t extent : shape)
      n *= extent;
    return n;
  }
  int64_t extentOf(ArrayRef<int64_t> axes) {
    int64_t n = 1;
    for (int64_t axis : axes)
      n *= plan.shape[axis];
    return n;
  }
  /// Kept axes but the lane's.
  SmallVector<int64_t> outerAxes() {
    SmallVector<int64_t> axes;
    for (int64_t axis : plan.kept)
      if (!llvm::is_contained(plan.lane, axis))
        axes.push_back(axis);
    return axes;
  }

  FusionOp fusion;
  ArrayRef<MemRefType> inputs, outputs;
  const KernelTarget &target;
  Plan plan;
  SmallVector<std::pair<unsigned, unsigned>> inPlace;
};

} // namespace

/// The iteration space is that of the largest output, or of the reductions whose rows make it up.
void KernelBuilder::chooseSpace() {
  int64_t largest = -1;
  for (Value output : yielded())
    if (typeOf(output).getNumElements() > largest) {
      largest = typeOf(output).getNumElements();
      plan.shape = SmallVector<int64_t>(typeOf(output).getShape());
    }
  SmallVector<int64_t> axes;
  for (auto reduce : body().getOps<ReduceOp>())
    if (typeOf(reduce.getX()).getNumElements() == largest && reduce.getAxes().size() > axes.size()) {
      plan.shape = SmallVector<int64_t>(typeOf(reduce.getX()).getShape());
      axes = SmallVector<int64_t>(reduce.getAxes());
    }
  for (int64_t i = 0, rank = plan.shape.size(); i < rank; ++i)
    (llvm::is_contained(axes, i) ? plan.row : plan.kept).push_back(i);
}

func::FuncOp KernelBuilder::makeFunction(OpBuilder &builder, StringRef name) {
  SmallVector<Type> types(inputs);
  llvm::append_range(types, outputs);
  types.append(2, builder.getIndexType());
  auto function = func::FuncOp::create(builder, fusion.getLoc(), name, builder.getFunctionType(types, {}));
  function.setPrivate();
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(function.addEntryBlock());
  func::ReturnOp::create(builder, fusion.getLoc());
  return function;
}

/// The outputs' elements at a point, or of a row when only `kept` indices are known.
SmallVector<KernelBuilder::Result> KernelBuilder::outputsAt(ElementEmitter &e, ArrayRef<IndexExpr> at, bool rowLevel) {
  SmallVector<Result> results;
  for (auto [i, output] : llvm::enumerate(yielded())) {
    if (isRowLevel(output) != rowLevel)
      continue;
    ArrayRef<int64_t> shape = typeOf(output).getShape();
    IndexExpr linear(0);
    if (rowLevel) {
      SmallVector<int64_t> extents;
      SmallVector<IndexExpr> indices;
      for (int64_t axis : plan.kept) {
        extents.push_back(plan.shape[axis]);
        indices.push_back(at[axis]);
      }
      linear = e.space.linearize(indices, extents);
    } else {
      linear = e.space.linearize(at, plan.shape);
    }
    bool same = !rowLevel && shape == ArrayRef<int64_t>(plan.shape);
    SmallVector<IndexExpr> place = same ? SmallVector<IndexExpr>(at) : e.space.delinearize(linear, shape);
    Value value = e.element(output, place);
    results.push_back({value, std::move(place), static_cast<unsigned>(i)});
  }
  return results;
}

void KernelBuilder::store(ElementEmitter &e, func::FuncOp function, ArrayRef<Result> results) {
  for (const Result &result : results)
    e.store(result.value, function.getArgument(inputs.size() + result.output), result.at);
}

void KernelBuilder::emitRow(ElementEmitter &e, func::FuncOp function, SmallVector<IndexExpr> at, bool laneGiven) {
  if (plan.row.empty()) {
    storeOutputs(e, function, at, false);
    return;
  }
  // All reads of a row, as of a point, come before its writes: an output may be the buffer of an input (findInPlace).
  SmallVector<Result> ofRow = outputsAt(e, at, true);
  SmallVector<int64_t> axes;
  for (int64_t axis : plan.row)
    if (laneGiven || !llvm::is_contained(plan.lane, axis))
      axes.push_back(axis);
  SmallVector<SmallVector<int64_t>> walk = e.walk(plan.shape, axes);
  std::function<void(size_t)> nest = [&](size_t level) {
    auto point = [&](ArrayRef<int64_t> group, unsigned width, bool last) {
      int64_t extent = extentOf(group);
      e.vectorLoop(e.indexConstant(0), e.indexConstant(extent), extent, width, [&](IndexExpr i) {
        e.spread(i, plan.shape, group, at);
        last ? storeOutputs(e, function, at, false) : nest(level + 1);
      });
    };
    if (level < walk.size())
      return point(walk[level], 1, level + 1 == walk.size() && (laneGiven || plan.lane.empty()));
    point(plan.lane, plan.width, true);
  };
  // What is needed of the row as a whole is emitted in front of the loop by the emitter itself.
  nest(0);
  store(e, function, ofRow);
}

void KernelBuilder::emitNest(ElementEmitter &e, func::FuncOp function) {
  Value begin = function.getArguments().drop_back().back(), end = function.getArguments().back();
  bool laneKept = !plan.lane.empty() && !plan.laneInRow;
  SmallVector<int64_t> outer = outerAxes();
  llvm::SmallVector<int64_t> strides = e.stridesFor(plan.shape);
  llvm::sort(outer, [&](int64_t a, int64_t b) { return std::pair(-strides[a], a) < std::pair(-strides[b], b); });
  int64_t rows = extentOf(outer), lanes = laneKept ? extentOf(plan.lane) : 1;
  int64_t chunks = plan.chunk ? llvm::divideCeil(lanes, plan.chunk) : 1;
  SmallVector<IndexExpr> at(plan.shape.size());
  e.loop(begin, end, rows * chunks, 1, {}, [&](IndexExpr unit, ValueRange) {
    auto [rowIndex, chunk] = e.space.divide(unit, chunks);
    e.spread(rowIndex, plan.shape, outer, at);
    if (!laneKept) {
      emitRow(e, function, at, false);
      return SmallVector<Value>();
    }
    Value low = e.indexConstant(0), high = e.indexConstant(lanes);
    if (chunks > 1) {
      low = e.index(e.space.scale(chunk, plan.chunk));
      high = arith::MinUIOp::create(e.b, high, arith::AddIOp::create(e.b, low, e.indexConstant(plan.chunk)));
    }
    e.vectorLoop(low, high, lanes, plan.width, [&](IndexExpr lane) {
      e.spread(lane, plan.shape, plan.lane, at);
      emitRow(e, function, at, true);
    });
    return SmallVector<Value>();
  });
}

bool KernelBuilder::emitBody(func::FuncOp function, bool probe) {
  ImplicitLocOpBuilder b(fusion.getLoc(), fusion.getContext());
  b.setInsertionPointToStart(&function.getBody().front());
  ElementEmitter e(b, target, probe);
  for (auto [argument, buffer] : llvm::zip(body().getArguments(), function.getArguments()))
    e.bind(argument, buffer);
  if (!probe) {
    e.laneInReductions = plan.lane.empty() || plan.laneInRow;
    for (auto [output, buffer] : llvm::zip(yielded(), function.getArguments().drop_front(inputs.size())))
      e.hint(buffer);
    emitNest(e, function);
    return !e.failed();
  }
  // A loop for every axis, without vectors: shows how each access moves with each axis.
  SmallVector<IndexExpr> at(plan.shape.size());
  SmallVector<unsigned> variables(plan.shape.size());
  Value zero = e.indexConstant(0);
  std::function<void(size_t)> nest = [&](size_t i) {
    SmallVector<int64_t> order(plan.kept);
    llvm::append_range(order, plan.row);
    if (i == order.size()) {
      storeOutputs(e, function, at, false);
      storeOutputs(e, function, at, true);
      return;
    }
    int64_t extent = plan.shape[order[i]];
    e.loop(zero, e.indexConstant(extent), extent, 1, {}, [&](IndexExpr index, ValueRange) {
      at[order[i]] = index;
      variables[order[i]] = index.terms.front().variable;
      nest(i + 1);
      return SmallVector<Value>();
    });
  };
  nest(0);
  if (!e.failed()) {
    chooseLane(e.accesses, variables, e.space);
    findInPlace(e.accesses, variables, e.space);
  }
  return !e.failed();
}

/// Inputs whose every read, for the elements of a row, lies where the row's elements of an output are written.
void KernelBuilder::findInPlace(ArrayRef<ElementEmitter::Access> accesses, ArrayRef<unsigned> variables,
                                const IndexSpace &space) {
  struct Places {
    std::vector<IndexExpr::Term> kept; ///< what tells rows apart
    /// Steps within a row, as (coefficient, extent) pairs, ascending, those that continue each other as one.
    SmallVector<std::pair<int64_t, int64_t>> steps;
    bool operator==(const Places &other) const { return kept == other.kept && steps == other.steps; }
  };
  auto placesOf = [&](const IndexExpr &address) -> std::optional<Places> {
    Places places;
    SmallVector<std::pair<int64_t, int64_t>> steps;
    for (const IndexExpr::Term &term : address.terms) {
      if (space[term.variable].kind != IndexSpace::Kind::Loop)
        return std::nullopt;
      if (llvm::any_of(plan.kept, [&](int64_t axis) { return variables[axis] == term.variable; }))
        places.kept.push_back(term);
      else
        steps.push_back({term.coefficient, space[term.variable].extent});
    }
    llvm::sort(steps);
    for (auto [coefficient, extent] : steps)
      if (!places.steps.empty() && places.steps.back().first * places.steps.back().second == coefficient)
        places.steps.back().second *= extent;
      else
        places.steps.push_back({coefficient, extent});
    return places;
  };
  auto all = [&](unsigned buffer, auto test) {
    return llvm::all_of(accesses, [&](const ElementEmitter::Access &access) {
      return access.buffer != buffer || test(access.address);
    });
  };
  for (unsigned o = 0; o < outputs.size(); ++o) {
    unsigned written = inputs.size() + o;
    auto first = llvm::find_if(accesses, [&](const ElementEmitter::Access &a) { return a.buffer == written; });
    if (first == accesses.end())
      continue;
    if (!all(written, [&](const IndexExpr &address) { return address == first->address; }))
      continue;
    std::optional<Places> target = placesOf(first->address);
    auto isOfRow = [&](const IndexExpr &address) {
      return address == first->address || (target && address.constant == 0 && placesOf(address) == target);
    };
    for (unsigned i = 0; i < inputs.size(); ++i)
      if (inputs[i] == outputs[o] && all(i, isOfRow))
        inPlace.push_back({i, written});
  }
}

/// `lane` and the axes of `pool` that continue it in every access, the fastest last.
SmallVector<int64_t> KernelBuilder::joined(int64_t lane, ArrayRef<int64_t> pool,
                                           ArrayRef<ElementEmitter::Access> accesses, ArrayRef<unsigned> variables,
                                           const IndexSpace &space) {
  SmallVector<int64_t> group{lane};
  for (bool grown = true; grown;) {
    grown = false;
    for (int64_t axis : pool) {
      if (llvm::is_contained(group, axis))
        continue;
      int64_t inner = group.front();
      auto continues = [&](const ElementEmitter::Access &access) {
        // Derived indices hide how an access moves; the axes they come from stay apart.
        for (const IndexExpr::Term &term : access.address.terms)
          if (space[term.variable].kind != IndexSpace::Kind::Loop)
            return false;
        return access.address.coefficient(variables[axis]) ==
               access.address.coefficient(variables[inner]) * plan.shape[inner];
      };
      if (llvm::all_of(accesses, continues)) {
        group.insert(group.begin(), axis);
        grown = true;
        break;
      }
    }
  }
  return group;
}

/// The axis along which most of the memory traffic is contiguous, joined with the axes that continue it in every
/// access.
void KernelBuilder::chooseLane(ArrayRef<ElementEmitter::Access> accesses, ArrayRef<unsigned> variables,
                               const IndexSpace &space) {
  auto traffic = [&](const ElementEmitter::Access &access) {
    double n = static_cast<double>(access.bytes) * (access.store ? 2 : 1);
    for (const IndexExpr::Term &term : access.address.terms)
      n *= static_cast<double>(space[term.variable].extent);
    return n;
  };
  auto score = [&](unsigned variable) {
    double total = 0;
    for (const ElementEmitter::Access &access : accesses) {
      int64_t c = access.address.coefficient(variable);
      if (c == 1)
        total += traffic(access);
      else if (c != 0)
        total -= traffic(access);
    }
    return total;
  };
  SmallVector<std::pair<double, int64_t>> candidates;
  for (int64_t axis = 0, rank = plan.shape.size(); axis < rank; ++axis)
    if (double s = score(variables[axis]); plan.shape[axis] > 1 && s > 0)
      candidates.push_back({-s, axis});
  llvm::sort(candidates);
  // Loops of reductions that are not axes of the space.
  double inReductions = 0;
  std::set<unsigned> others;
  for (const ElementEmitter::Access &access : accesses)
    for (const IndexExpr::Term &term : access.address.terms)
      if (space[term.variable].kind == IndexSpace::Kind::Loop && !llvm::is_contained(variables, term.variable))
        others.insert(term.variable);
  for (unsigned variable : others)
    if (space[variable].extent >= 4)
      inReductions = std::max(inReductions, score(variable));
  // Short axes count once joined with what continues them: 3 x 3 filters are walked as one row.
  for (auto [negative, lane] : candidates) {
    if (inReductions > -negative)
      break;
    plan.laneInRow = llvm::is_contained(plan.row, lane);
    plan.lane = joined(lane, plan.laneInRow ? plan.row : plan.kept, accesses, variables, space);
    if (extentOf(plan.lane) >= 4)
      break;
    plan.lane.clear();
  }
  if (plan.lane.empty()) {
    plan.laneInRow = false;
    return;
  }
  int64_t extent = extentOf(plan.lane);
  plan.width = target.lanes();
  while (static_cast<int64_t>(plan.width) > extent)
    plan.width /= 2;
  if (plan.laneInRow)
    return;
  // Enough units to share among threads, each long enough to be worth its start.
  int64_t outer = extentOf(outerAxes());
  int64_t chunk = others.empty() ? 4096 : std::max<int64_t>(plan.width, 64);
  if (outer < 64 && extent > chunk)
    plan.chunk = chunk;
}

/// A scatter is a kernel of its own.
FailureOr<KernelInfo> KernelBuilder::buildScatter(OpBuilder &builder, StringRef name, const ScatterForm &form) {
  func::FuncOp function = makeFunction(builder, name);
  ImplicitLocOpBuilder b(fusion.getLoc(), fusion.getContext());
  b.setInsertionPointToStart(&function.getBody().front());
  ElementEmitter e(b, target, /*probe=*/false);
  for (auto [argument, buffer] : llvm::zip(body().getArguments(), function.getArguments()))
    e.bind(argument, buffer);
  ArrayRef<BlockArgument> arguments = function.getArguments();
  Value result = yielded().front();
  emitScatter(e, form, result, arguments[inputs.size()], arguments.drop_back().back(), arguments.back());
  if (e.failed()) {
    function->erase();
    return failure();
  }
  return KernelInfo{function, scatterUnits(form, result, target).extent(), 1, {}};
}

FailureOr<KernelInfo> KernelBuilder::build(OpBuilder &builder, StringRef name) {
  if (Operation *op = yielded().empty() ? nullptr : yielded().front().getDefiningOp())
    if (auto form = scatterForm(op); form && outputs.size() == 1)
      return buildScatter(builder, name, *form);
  chooseSpace();
  {
    ModuleOp scratch = ModuleOp::create(fusion.getLoc());
    OpBuilder inner = OpBuilder::atBlockEnd(scratch.getBody());
    bool ok = emitBody(makeFunction(inner, "probe"), /*probe=*/true);
    scratch->erase();
    if (!ok)
      return failure();
  }
  func::FuncOp function = makeFunction(builder, name);
  if (!emitBody(function, /*probe=*/false)) {
    function->erase();
    return failure();
  }
  bool laneKept = !plan.lane.empty() && !plan.laneInRow;
  int64_t lanes = laneKept ? extentOf(plan.lane) : 1;
  int64_t chunks = plan.chunk ? llvm::divideCeil(lanes, plan.chunk) : 1;
  int64_t extent = extentOf(outerAxes()) * chunks;
  // About 64 Ki elements of traffic a task.
  int64_t work = 0;
  for (ArrayRef<MemRefType> types : {inputs, outputs})
    for (MemRefType type : types)
      work += type.getNumElements();
  int64_t grain = std::max<int64_t>(1, extent * 65536 / std::max<int64_t>(1, work));
  return KernelInfo{function, extent, std::min(grain, std::max<int64_t>(1, extent)), inPlace};
}

FailureOr<KernelInfo> mpt::emitKernel(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                      ArrayRef<MemRefType> outputs, StringRef name, const KernelTarget &target) {
  return KernelBuilder(fusion, inputs, outputs, target).build(builder, name);
}

void mpt::registerLoopLoweringModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attachElementwiseModels(context);
    attachCastModels(context);
    attachShapeModels(context);
    attachReduceModels(context);
    attachPoolModels(context);
    attachScatterModels(context);
    attachDecompositions(context);
  });
  registry.addExtension(+[](MLIRContext *context, train::TrainDialect *) { attachTrainDecompositions(context); });
}
