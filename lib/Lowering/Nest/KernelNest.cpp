// SPDX-License-Identifier: Apache-2.0
// Iteration spaces of fusions, and the choice of the axis along which memory is contiguous.
#include "mpt/Lowering/Nest/KernelNest.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/Reductions.h"

#include "mlir/IR/BuiltinOps.h"

#include <functional>
#include <set>

using namespace mlir;
using namespace mpt;

KernelNest::KernelNest(FusionOp fusion, ArrayRef<MemRefType> inputs, ArrayRef<MemRefType> outputs)
    : fusion(fusion), inputs(inputs), outputs(outputs) {
  chooseSpace();
}

int64_t KernelNest::extentOf(ArrayRef<int64_t> axes) const { return mpt::extentOf(shape, axes); }

bool KernelNest::isRowLevel(Value output) {
  SmallVector<int64_t> axes(kept);
  llvm::append_range(axes, row);
  return countOf(output) < extentOf(axes);
}

SmallVector<int64_t> KernelNest::outerAxes(ElementEmitter &e) {
  SmallVector<int64_t> axes;
  for (int64_t axis : kept)
    if (!llvm::is_contained(lane, axis))
      axes.push_back(axis);
  SmallVector<int64_t> strides = e.stridesFor(shape);
  llvm::sort(axes, [&](int64_t a, int64_t b) { return std::pair(-strides[a], a) < std::pair(-strides[b], b); });
  return axes;
}

func::FuncOp KernelNest::makeFunction(OpBuilder &builder, StringRef name, ArrayRef<Type> more) {
  SmallVector<Type> types(inputs);
  llvm::append_range(types, outputs);
  llvm::append_range(types, more);
  auto function = func::FuncOp::create(builder, fusion.getLoc(), name, builder.getFunctionType(types, {}));
  function.setPrivate();
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(function.addEntryBlock());
  func::ReturnOp::create(builder, fusion.getLoc());
  return function;
}

void KernelNest::bind(ElementEmitter &e, func::FuncOp function) {
  for (auto [argument, buffer] : llvm::zip(body().getArguments(), function.getArguments()))
    e.bind(argument, buffer);
}

/// The iteration space is the largest output's, or the space of reductions over as many elements, which make up rows.
void KernelNest::chooseSpace() {
  int64_t largest = -1;
  for (Value output : yielded())
    if (countOf(output) > largest) {
      largest = countOf(output);
      shape = SmallVector<int64_t>(shapeOf(output));
    }
  SmallVector<int64_t> axes;
  for (auto reduce : body().getOps<ReduceOp>())
    if (countOf(reduce.getX()) == largest && reduce.getAxes().size() > axes.size()) {
      shape = SmallVector<int64_t>(shapeOf(reduce.getX()));
      axes = SmallVector<int64_t>(reduce.getAxes());
    }
  for (int64_t i = 0, rank = shape.size(); i < rank; ++i)
    (llvm::is_contained(axes, i) ? row : kept).push_back(i);
}

SmallVector<KernelNest::Result> KernelNest::outputsAt(ElementEmitter &e, ArrayRef<IndexExpr> at, bool rowLevel) {
  SmallVector<Result> results;
  for (auto [i, output] : llvm::enumerate(yielded())) {
    if (isRowLevel(output) != rowLevel || (i < written.size() && written[i]))
      continue;
    ArrayRef<int64_t> own = shapeOf(output);
    SmallVector<int64_t> extents(shape);
    SmallVector<IndexExpr> place(at);
    if (rowLevel) {
      extents.clear();
      place.clear();
      for (int64_t axis : kept) {
        extents.push_back(shape[axis]);
        place.push_back(at[axis]);
      }
    }
    // Where the shape is the same the indices stay as they are: values that are known at them are not made again.
    if (own != ArrayRef<int64_t>(extents))
      place = e.space.delinearize(e.space.linearize(place, extents), own);
    Value value = e.element(output, place);
    results.push_back({value, std::move(place), static_cast<unsigned>(i)});
  }
  return results;
}

void KernelNest::store(ElementEmitter &e, ValueRange buffers, ArrayRef<Result> results, Value condition) {
  auto write = [&] {
    for (const Result &result : results)
      e.store(result.value, buffers[result.output], result.at);
  };
  if (results.empty())
    return;
  condition ? e.guarded(condition, write) : write();
}

void KernelNest::emitRow(ElementEmitter &e, ValueRange buffers, SmallVector<IndexExpr> at, bool laneGiven) {
  if (row.empty()) {
    storeOutputs(e, buffers, at, false);
    return;
  }
  // All reads of a row, as of a point, come before its writes: an output may be the buffer of an input (findInPlace).
  SmallVector<Result> ofRow = outputsAt(e, at, true);
  SmallVector<int64_t> axes;
  for (int64_t axis : row)
    if (laneGiven || !llvm::is_contained(lane, axis))
      axes.push_back(axis);
  SmallVector<SmallVector<int64_t>> walk = e.walk(shape, axes);
  std::function<void(size_t)> nest = [&](size_t level) {
    auto point = [&](ArrayRef<int64_t> group, unsigned width, bool last) {
      int64_t extent = extentOf(group);
      e.vectorLoop(e.indexConstant(0), e.indexConstant(extent), extent, width, [&](const IndexExpr &i) {
        e.spread(i, shape, group, at);
        last ? storeOutputs(e, buffers, at, false) : nest(level + 1);
      });
    };
    if (level < walk.size())
      return point(walk[level], 1, level + 1 == walk.size() && (laneGiven || lane.empty()));
    point(lane, width, true);
  };
  // Values of the row as a whole are emitted in front of the loop by the emitter itself.
  nest(0);
  store(e, buffers, ofRow);
}

/// A loop for every axis, without vectors: shows how each access moves with each axis.
bool KernelNest::chooseLane(const KernelTarget &target) {
  OwningOpRef<ModuleOp> scratch = ModuleOp::create(fusion.getLoc());
  OpBuilder builder = OpBuilder::atBlockEnd(scratch->getBody());
  func::FuncOp function = makeFunction(builder, "probe", {});
  ImplicitLocOpBuilder b(fusion.getLoc(), fusion.getContext());
  b.setInsertionPointToStart(&function.getBody().front());
  ElementEmitter e(b, target, /*probe=*/true);
  bind(e, function);
  SmallVector<IndexExpr> at(shape.size());
  variables.assign(shape.size(), 0);
  Value zero = e.indexConstant(0);
  SmallVector<int64_t> order(kept);
  llvm::append_range(order, row);
  std::function<void(size_t)> nest = [&](size_t i) {
    if (i == order.size()) {
      storeOutputs(e, outputBuffers(function), at, false);
      storeOutputs(e, outputBuffers(function), at, true);
      return;
    }
    int64_t extent = shape[order[i]];
    e.loop(zero, e.indexConstant(extent), extent, 1, {}, [&](const IndexExpr &index, ValueRange) {
      at[order[i]] = index;
      variables[order[i]] = index.terms.front().variable;
      nest(i + 1);
      return SmallVector<Value>();
    });
  };
  nest(0);
  if (e.failed())
    return false;
  accesses = e.accesses;
  chooseLane(e.space);
  findInPlace(e.space);
  return true;
}

/// Inputs whose every read, for the elements of a row, lies where the row's elements of an output are written.
void KernelNest::findInPlace(const IndexSpace &space) {
  struct Places {
    std::vector<IndexExpr::Term> rows; ///< terms that tell rows apart
    /// Steps within a row, as (coefficient, extent) pairs, ascending, steps that continue each other as one.
    SmallVector<std::pair<int64_t, int64_t>> steps;
    bool operator==(const Places &other) const { return rows == other.rows && steps == other.steps; }
  };
  auto placesOf = [&](const IndexExpr &address) -> std::optional<Places> {
    Places places;
    SmallVector<std::pair<int64_t, int64_t>> steps;
    for (const IndexExpr::Term &term : address.terms) {
      if (space[term.variable].kind != IndexSpace::Kind::Loop)
        return std::nullopt;
      if (llvm::any_of(kept, [&](int64_t axis) { return variables[axis] == term.variable; }))
        places.rows.push_back(term);
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
    return llvm::all_of(accesses,
                        [&](const MemoryAccess &access) { return access.buffer != buffer || test(access.address); });
  };
  for (unsigned o = 0; o < outputs.size(); ++o) {
    unsigned written = inputs.size() + o;
    auto first = llvm::find_if(accesses, [&](const MemoryAccess &a) { return a.buffer == written; });
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
SmallVector<int64_t> KernelNest::joined(int64_t lane, ArrayRef<int64_t> pool, const IndexSpace &space) {
  SmallVector<int64_t> group{lane};
  for (bool grown = true; grown;) {
    grown = false;
    for (int64_t axis : pool) {
      if (llvm::is_contained(group, axis))
        continue;
      int64_t inner = group.front();
      auto continues = [&](const MemoryAccess &access) {
        // Derived indices hide how an access moves; the axes they come from stay apart.
        for (const IndexExpr::Term &term : access.address.terms)
          if (space[term.variable].kind != IndexSpace::Kind::Loop)
            return false;
        return access.address.coefficient(variables[axis]) ==
               access.address.coefficient(variables[inner]) * shape[inner];
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
void KernelNest::chooseLane(const IndexSpace &space) {
  auto traffic = [&](const MemoryAccess &access) {
    double n = static_cast<double>(access.bytes) * (access.store ? 2 : 1);
    for (const IndexExpr::Term &term : access.address.terms)
      n *= static_cast<double>(space[term.variable].extent);
    return n;
  };
  auto score = [&](unsigned variable) {
    double total = 0;
    for (const MemoryAccess &access : accesses) {
      int64_t c = access.address.coefficient(variable);
      if (c == 1)
        total += traffic(access);
      else if (c != 0)
        total -= traffic(access);
    }
    return total;
  };
  SmallVector<std::pair<double, int64_t>> candidates;
  for (int64_t axis = 0, rank = shape.size(); axis < rank; ++axis)
    if (double s = score(variables[axis]); shape[axis] > 1 && s > 0)
      candidates.push_back({-s, axis});
  llvm::sort(candidates);
  // Loops of reductions that are not axes of the space.
  double inReductions = 0;
  std::set<unsigned> others;
  for (const MemoryAccess &access : accesses)
    for (const IndexExpr::Term &term : access.address.terms)
      if (space[term.variable].kind == IndexSpace::Kind::Loop && !llvm::is_contained(variables, term.variable))
        others.insert(term.variable);
  for (unsigned variable : others)
    if (space[variable].extent >= 4)
      inReductions = std::max(inReductions, score(variable));
  innerLoops = !others.empty();
  readsWindows = llvm::any_of(accesses, [&](const MemoryAccess &access) {
    return llvm::any_of(access.address.terms, [&](const IndexExpr::Term &term) {
      return space[term.variable].kind == IndexSpace::Kind::Opaque;
    });
  });
  // Short axes count once joined with axes that continue them: 3 x 3 filters are walked as one row.
  for (auto [negative, axis] : candidates) {
    if (inReductions > -negative)
      break;
    laneInRow = llvm::is_contained(row, axis);
    lane = joined(axis, laneInRow ? row : kept, space);
    if (extentOf(lane) >= 4)
      break;
    lane.clear();
  }
  if (lane.empty())
    laneInRow = false;
}
