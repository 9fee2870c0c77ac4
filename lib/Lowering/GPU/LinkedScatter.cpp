// SPDX-License-Identifier: Apache-2.0
// Schedule: scatters on many threads, without atomic operations. Updates that share a place are linked in their order,
// each chain's first update walks its slice of the updates, and the slices' sums are joined.
#include "Schedules.h"
#include "Team.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Models/Scatter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;
using arith::CmpIPredicate;

namespace {

/// Every thread compares its update's place with all others': beyond this many a walk in order costs less.
constexpr int64_t kMostUpdates = int64_t(1) << 17;
/// Updates of one slice: links within it are walked by its first update of a place, its sums joined by the first of
/// all.
constexpr int64_t kSlice = 256;
constexpr int64_t kUnroll = 4;
constexpr int64_t kTeam = 8;    ///< warps that look for the links of the same updates
constexpr int64_t kNumbers = 5; ///< of scratch an update

/// The layout of the work, and of the scratch memory that the launches share.
struct Links {
  Links(const ScatterForm &form, Value result);
  int64_t padded() const { return slices * kSlice; }
  int64_t sumBytes() const { return slices > 1 ? updates * positions * bytes : 0; }
  int64_t scratchBytes() const { return kNumbers * padded() * 4 + sumBytes(); }

  ArrayRef<int64_t> shape, updateShape;
  SmallVector<std::pair<int64_t, int64_t>> shared; ///< result and update dimensions of a position, in order
  SmallVector<int64_t> places, updateDims;         ///< the others: of the result, and of the updates
  Type element, compute;
  int64_t updates, positions, slices, bytes;
};

Links::Links(const ScatterForm &form, Value result)
    : shape(shapeOf(result)), updateShape(shapeOf(form.updates)), element(elementOf(result)),
      compute(computeType(element)) {
  // Where indices differ between positions, a place is an element.
  if (form.byRows)
    shared = form.shared;
  for (int64_t i = 0, n = shape.size(); i < n; ++i)
    if (llvm::none_of(shared, [&](auto pair) { return pair.first == i; }))
      places.push_back(i);
  for (int64_t i = 0, n = updateShape.size(); i < n; ++i)
    if (llvm::none_of(shared, [&](auto pair) { return pair.second == i; }))
      updateDims.push_back(i);
  positions = 1;
  for (auto [dim, update] : shared)
    positions *= shape[dim];
  updates = extentOf(updateShape, updateDims);
  slices = ceilDiv(updates, kSlice);
  bytes = bytesOf(compute);
}

/// The buffers of scratch in one launch, whose elements are 32-bit numbers, and the sums of slices.
struct Scratch {
  Scratch(ElementEmitter &e, Value memory, const Links &links) : e(e), links(links) {
    auto view = [&](int64_t offset, ArrayRef<int64_t> shape, Type type) -> Value {
      Value result =
          memref::ViewOp::create(e.b, MemRefType::get(shape, type), memory, e.indexConstant(offset), ValueRange());
      e.alignments[result] = 16;
      return result;
    };
    Value *numbers[kNumbers] = {&keys, &next, &count, &nextSlice, &joins};
    for (auto [i, buffer] : llvm::enumerate(numbers))
      *buffer = view(i * links.padded() * 4, {links.padded()}, e.b.getI32Type());
    if (links.slices > 1)
      sums = view(kNumbers * links.padded() * 4, {links.updates, links.positions}, links.compute);
  }
  Value number(int64_t n) { return arith::ConstantOp::create(e.b, e.b.getI32IntegerAttr(n)); }
  Value read(Value buffer, Value at) { return memref::LoadOp::create(e.b, buffer, at); }
  /// A number below `extent` as an index.
  IndexExpr index(Value number, int64_t extent) {
    return e.variable(arith::IndexCastOp::create(e.b, e.b.getIndexType(), number), extent);
  }

  ElementEmitter &e;
  const Links &links;
  Value keys, next, count, nextSlice, joins, sums;
};

Value compared(ElementEmitter &e, CmpIPredicate predicate, Value a, Value b) {
  return arith::CmpIOp::create(e.b, predicate, a, b);
}

/// One kernel: four launches, or five where there is more than one slice.
class LinkedScatterKernel {
public:
  LinkedScatterKernel(GpuKernelBuilder &kernel, const ScatterForm &form)
      : kernel(kernel), form(form), links(form, kernel.yielded().front()) {}
  void emit();

private:
  using Frame = GpuKernelBuilder::Frame;
  using Body = llvm::function_ref<void(Frame &, Value number)>;
  /// An update and a vector of positions.
  struct Spot {
    Value update;
    SmallVector<IndexExpr> at, from; ///< positions are set
    IndexExpr position;
  };
  void threads(StringRef schedule, int64_t count, Body body);
  void noteMoved(int64_t numbers, bool sums);
  Scratch scratchOf(Frame &frame) { return Scratch(frame.e, frame.function.getArguments().back(), links); }
  Value buffer(Frame &frame) { return kernel.outputBuffers(frame.function).front(); }
  Value startAt(ElementEmitter &e, ArrayRef<IndexExpr> at) {
    return form.data ? e.element(form.data, at) : e.constant(links.compute, 0);
  }

  void emitStart();
  void emitPlaces();
  void emitLinks();
  void linkUpdate(Frame &frame, Value number, Value member);
  SmallVector<Value> linkSlices(Scratch &scratch, Value own, Value slice, Value member);
  SmallVector<Value> linkSlice(Scratch &scratch, Value own, Value number, Value slice);
  void storeLinks(Scratch &scratch, Value own, Value number, ArrayRef<Value> slice, ArrayRef<Value> others);
  template <typename Visit>
  SmallVector<Value> scan(Scratch &scratch, Value own, Value base, Value turns, int64_t most, ValueRange carried,
                          Visit visit);
  void choosePositions();
  void emitSums();
  void sumChain(Frame &frame, Value number);
  void emitJoins();
  Spot spotOf(Frame &frame, Value number, Value update);
  Value updateOf(Frame &frame, Spot &spot, const IndexExpr &update);
  template <typename ValueOf>
  Value chain(Frame &frame, Scratch &scratch, Spot &spot, Value count, Value memory, Value first, ValueOf valueOf);
  void finish(Frame &frame, Scratch &scratch, Spot &spot, Value total);

  GpuKernelBuilder &kernel;
  const ScatterForm &form;
  Links links;
  SmallVector<int64_t> sharedDims;
  unsigned side = 1; ///< positions that one thread takes together
  int64_t lanes = 1; ///< extent of the last shared dimension
  int64_t units = 1; ///< vectors of positions
};

class LinkedScatter : public GpuSchedule {
public:
  LinkedScatter() : GpuSchedule("linked-scatter") {}

  LogicalResult match(GpuKernelBuilder &kernel) override {
    form = scatterForm(kernel.fusion);
    if (!form)
      return refuse(kernel, "expected one scattering op");
    Links links(*form, kernel.yielded().front());
    if (links.updates == 0)
      return refuse(kernel, "expected updates");
    int64_t most = form->byRows ? kMostUpdates : kMostUpdates / 4;
    if (links.updates > most)
      return refuse(kernel, "expected at most " + Twine(most) + " updates, got " + Twine(links.updates));
    if (links.element.isInteger(1))
      return refuse(kernel, "expected elements of a byte or more");
    if (extentOf(links.shape, links.places) >= (int64_t(1) << 31))
      return refuse(kernel, "expected places that 32 bits count");
    return success();
  }
  void emit(GpuKernelBuilder &kernel) override { LinkedScatterKernel(kernel, *form).emit(); }

private:
  std::optional<ScatterForm> form;
};

} // namespace

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

/// A launch that runs `body` for the numbers below `count`, each a thread's.
void LinkedScatterKernel::threads(StringRef schedule, int64_t count, Body body) {
  kernel.launch(schedule, {ceilDiv(count, kSlice), 1, 1}, kSlice, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    Value first = arith::MulIOp::create(e.b, frame.block, e.indexConstant(kSlice));
    Value number = arith::AddIOp::create(e.b, first, frame.thread);
    e.guarded(compared(e, CmpIPredicate::ult, number, e.indexConstant(count)), [&] { body(frame, number); });
  });
}

/// Notes the bytes that the last launch moves: of the result the elements of the updates, of scratch `numbers` an
/// update and, with `sums`, the sums of slices.
void LinkedScatterKernel::noteMoved(int64_t numbers, bool sums) {
  size_t numInputs = kernel.inputs.size();
  SmallVector<int64_t> bytes(numInputs + 2, -1);
  bytes[numInputs] = links.updates * links.positions * bytesOf(links.element);
  bytes.back() = numbers * 4 * links.padded() + (sums ? links.sumBytes() : 0);
  setAttr<MPTDialect::MovedAttrHelper>(kernel.info.launches.back().function,
                                       kernel.builder.getDenseI64ArrayAttr(bytes));
}

void LinkedScatterKernel::emit() {
  kernel.info.scratchBytes = links.scratchBytes();
  emitStart();
  emitPlaces();
  noteMoved(/*numbers=*/1, /*sums=*/false);
  emitLinks();
  noteMoved(/*numbers=*/5, /*sums=*/false);
  choosePositions();
  emitSums();
  noteMoved(/*numbers=*/4, /*sums=*/true);
  if (links.slices == 1)
    return;
  emitJoins();
  noteMoved(/*numbers=*/3, /*sums=*/true);
}

//===----------------------------------------------------------------------===//
// Places and links
//===----------------------------------------------------------------------===//

/// Elements that no update reaches keep the start value.
void LinkedScatterKernel::emitStart() {
  SmallVector<int64_t> every;
  for (int64_t i = 0, n = links.shape.size(); i < n; ++i)
    every.push_back(i);
  int64_t elements = extentOf(links.shape, every);
  int64_t inner = every.empty() ? 1 : links.shape.back();
  bool flat = !every.empty() && llvm::all_of(kernel.inputs, [&](MemRefType type) {
    return type.getShape() != links.shape || type.getLayout().isIdentity();
  }) && kernel.outputs.front().getLayout().isIdentity();
  unsigned width = flat ? kernel.vectorWidth(inner, {bytesOf(links.element)}) : 1;
  threads("scatter", elements / width, [&](Frame &frame, Value number) {
    ElementEmitter &e = frame.e;
    SmallVector<IndexExpr> at(links.shape.size());
    Value first = width > 1 ? Value(arith::MulIOp::create(e.b, number, e.indexConstant(width))) : number;
    auto [outer, lane] = e.space.divide(e.variable(first, elements, width), inner);
    if (flat) {
      e.spread(outer, links.shape, ArrayRef(every).drop_back(), at);
      at.back() = lane;
    } else {
      e.spread(e.variable(number, elements), links.shape, walkOrder(e, links.shape, every), at);
    }
    e.store(e.splat(startAt(e, at), width), buffer(frame), at);
  });
}

/// The place of every update; padding that fills up the last slice has none.
void LinkedScatterKernel::emitPlaces() {
  threads("scatter-places", links.padded(), [&](Frame &frame, Value number) {
    ElementEmitter &e = frame.e;
    Scratch scratch = scratchOf(frame);
    Value inside = compared(e, CmpIPredicate::ult, number, e.indexConstant(links.updates));
    Value limited = arith::SelectOp::create(e.b, inside, number, e.indexConstant(0));
    SmallVector<IndexExpr> from(links.updateShape.size()), at(links.shape.size());
    e.spread(e.variable(limited, links.updates), links.updateShape, links.updateDims, from);
    for (auto [dim, update] : form.shared)
      at[dim] = from[update];
    form.target(e, from, at);
    SmallVector<IndexExpr> place;
    SmallVector<int64_t> extents;
    for (int64_t dim : links.places) {
      place.push_back(at[dim]);
      extents.push_back(links.shape[dim]);
    }
    Value key = arith::IndexCastOp::create(e.b, e.b.getI32Type(), e.index(e.space.linearize(place, extents)));
    key = arith::SelectOp::create(e.b, inside, key, scratch.number(-1));
    memref::StoreOp::create(e.b, key, scratch.keys, number);
  });
}

/// Calls `visit` for the updates of `turns` groups of kUnroll from `base` on: their number and whether they are at the
/// same place as `own`.
template <typename Visit>
SmallVector<Value> LinkedScatterKernel::scan(Scratch &scratch, Value own, Value base, Value turns, int64_t most,
                                             ValueRange carried, Visit visit) {
  ElementEmitter &e = scratch.e;
  ImplicitLocOpBuilder &b = e.b;
  Type i32 = b.getI32Type();
  return e.loop(e.indexConstant(0), turns, most, 1, carried, [&](const IndexExpr &turn, ValueRange values) {
    Value start = arith::AddIOp::create(b, base, e.index(e.space.scale(turn, kUnroll)));
    Value four = vector::LoadOp::create(b, VectorType::get(kUnroll, i32), scratch.keys, ValueRange{start}, false,
                                        llvm::MaybeAlign(4 * kUnroll));
    SmallVector<Value> next(values);
    for (int64_t i = 0; i < kUnroll; ++i) {
      Value same = compared(e, CmpIPredicate::eq, vector::ExtractOp::create(b, four, i), own);
      Value at = arith::AddIOp::create(b, start, e.indexConstant(i));
      visit(next, same, arith::IndexCastOp::create(b, i32, at));
    }
    return next;
  });
}

/// Links every update with the updates around it at the same place: 32 updates a block, whose warps share the slices.
/// All threads of a warp read the same keys, and so many warps that none waits for them.
void LinkedScatterKernel::emitLinks() {
  const int64_t warp = kernel.device.warpThreads;
  kernel.launch("scatter-links", {links.padded() / warp, 1, 1}, warp * kTeam, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    ImplicitLocOpBuilder &b = e.b;
    Value lane = arith::RemUIOp::create(b, frame.thread, e.indexConstant(warp));
    Value member = arith::DivUIOp::create(b, frame.thread, e.indexConstant(warp));
    Value number = arith::AddIOp::create(b, arith::MulIOp::create(b, frame.block, e.indexConstant(warp)), lane);
    linkUpdate(frame, number, member);
  });
}

/// Of the other slices that `member` looks through: whether one before has an update at the place `own`, the first
/// update behind, and how many slices behind have any.
SmallVector<Value> LinkedScatterKernel::linkSlices(Scratch &scratch, Value own, Value slice, Value member) {
  ElementEmitter &e = scratch.e;
  ImplicitLocOpBuilder &b = e.b;
  Value none = scratch.number(links.padded()), zero = scratch.number(0);
  Value no = arith::ConstantOp::create(b, b.getBoolAttr(false));
  Value last = e.indexConstant(links.slices - 1), rounds = e.indexConstant(ceilDiv(links.slices, kTeam));
  return e.loop(e.indexConstant(0), rounds, ceilDiv(links.slices, kTeam), 1, {zero, none, zero},
                [&](const IndexExpr &round, ValueRange carried) {
                  Value wanted = arith::AddIOp::create(b, e.index(e.space.scale(round, kTeam)), member);
                  Value other = arith::MinUIOp::create(b, wanted, last);
                  SmallVector<Value> here = scan(scratch, own, arith::MulIOp::create(b, other, e.indexConstant(kSlice)),
                                                 e.indexConstant(kSlice / kUnroll), kSlice / kUnroll, {none, no},
                                                 [&](SmallVector<Value> &inner, Value same, Value at) {
                                                   Value first = arith::SelectOp::create(b, same, at, none);
                                                   inner[0] = arith::MinSIOp::create(b, inner[0], first);
                                                   inner[1] = arith::OrIOp::create(b, inner[1], same);
                                                 });
                  Value isBefore = compared(e, CmpIPredicate::ult, wanted, slice);
                  // Rounds beyond the last slice read it again, which counts as neither before nor behind.
                  Value isBehind = arith::AndIOp::create(b, compared(e, CmpIPredicate::ugt, wanted, slice),
                                                         compared(e, CmpIPredicate::ule, wanted, last));
                  auto when = [&](Value condition) {
                    Value any = arith::AndIOp::create(b, here[1], condition);
                    return Value(arith::ExtUIOp::create(b, b.getI32Type(), any));
                  };
                  Value first = arith::SelectOp::create(b, isBehind, here[0], none);
                  return SmallVector<Value>{arith::OrIOp::create(b, carried[0], when(isBefore)),
                                            arith::MinSIOp::create(b, carried[1], first),
                                            arith::AddIOp::create(b, carried[2], when(isBehind))};
                });
}

/// In `number`'s own slice: whether an update comes before, the next one, and how many follow.
SmallVector<Value> LinkedScatterKernel::linkSlice(Scratch &scratch, Value own, Value number, Value slice) {
  ElementEmitter &e = scratch.e;
  ImplicitLocOpBuilder &b = e.b;
  constexpr int64_t turns = kSlice / kUnroll;
  Type i32 = b.getI32Type();
  Value none = scratch.number(links.padded()), no = arith::ConstantOp::create(b, b.getBoolAttr(false));
  Value self = arith::IndexCastOp::create(b, i32, number);
  return scan(scratch, own, arith::MulIOp::create(b, slice, e.indexConstant(kSlice)), e.indexConstant(turns), turns,
              {no, none, scratch.number(0)}, [&](SmallVector<Value> &carried, Value same, Value at) {
                Value less = arith::AndIOp::create(b, same, compared(e, CmpIPredicate::slt, at, self));
                Value more = arith::AndIOp::create(b, same, compared(e, CmpIPredicate::sgt, at, self));
                carried[0] = arith::OrIOp::create(b, carried[0], less);
                carried[1] = arith::MinSIOp::create(b, carried[1], arith::SelectOp::create(b, more, at, none));
                carried[2] = arith::AddIOp::create(b, carried[2], arith::ExtUIOp::create(b, i32, more));
              });
}

void LinkedScatterKernel::linkUpdate(Frame &frame, Value number, Value member) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  Scratch scratch = scratchOf(frame);
  Value slice = arith::DivUIOp::create(b, number, e.indexConstant(kSlice));
  Value own = scratch.read(scratch.keys, number);
  SmallVector<Value> others = linkSlices(scratch, own, slice, member);
  // The warps' findings, one behind the other.
  SmallVector<Value> shared;
  for (Value found : others) {
    shared.push_back(sharedBuffer(e, {kTeam * kernel.device.warpThreads}, b.getI32Type(), frame.sharedBytes));
    memref::StoreOp::create(b, found, shared.back(), frame.thread);
  }
  gpu::BarrierOp::create(b);
  e.guarded(compared(e, CmpIPredicate::eq, member, e.indexConstant(0)), [&] {
    for (int64_t i = 1; i < kTeam; ++i) {
      Value at = arith::AddIOp::create(b, frame.thread, e.indexConstant(i * kernel.device.warpThreads));
      others[0] = arith::OrIOp::create(b, others[0], memref::LoadOp::create(b, shared[0], at));
      others[1] = arith::MinSIOp::create(b, others[1], memref::LoadOp::create(b, shared[1], at));
      others[2] = arith::AddIOp::create(b, others[2], memref::LoadOp::create(b, shared[2], at));
    }
    storeLinks(scratch, own, number, linkSlice(scratch, own, number, slice), others);
  });
}

void LinkedScatterKernel::storeLinks(Scratch &scratch, Value own, Value number, ArrayRef<Value> slice,
                                     ArrayRef<Value> others) {
  ElementEmitter &e = scratch.e;
  ImplicitLocOpBuilder &b = e.b;
  Value zero = scratch.number(0), isEarlier = compared(e, CmpIPredicate::ne, others[0], zero);
  Value follows = arith::OrIOp::create(b, slice[0], compared(e, CmpIPredicate::slt, own, zero));
  Value count = arith::SelectOp::create(b, follows, zero, arith::AddIOp::create(b, slice[2], scratch.number(1)));
  Value joins = arith::SelectOp::create(b, arith::OrIOp::create(b, isEarlier, follows), scratch.number(-1), others[2]);
  for (auto [value, memory] : {std::pair(slice[1], scratch.next), std::pair(count, scratch.count),
                               std::pair(others[1], scratch.nextSlice), std::pair(joins, scratch.joins)})
    memref::StoreOp::create(b, value, memory, number);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

/// Positions lie side by side where updates and result agree on it.
void LinkedScatterKernel::choosePositions() {
  auto stride = [&](MemRefType type, int64_t dim) {
    SmallVector<int64_t> strides;
    int64_t offset;
    return succeeded(type.getStridesAndOffset(strides, offset)) ? strides[dim] : 0;
  };
  auto source = dyn_cast<BlockArgument>(form.updates);
  lanes = links.shared.empty() ? 1 : links.shape[links.shared.back().first];
  if (!links.shared.empty() && source && stride(kernel.outputs.front(), links.shared.back().first) == 1 &&
      stride(kernel.inputs[source.getArgNumber()], links.shared.back().second) == 1)
    side = std::min<unsigned>(kernel.vectorWidth(lanes, {bytesOf(links.element)}), 4);
  for (auto [dim, update] : links.shared)
    sharedDims.push_back(dim);
  units = links.positions / side;
}

LinkedScatterKernel::Spot LinkedScatterKernel::spotOf(Frame &frame, Value number, Value update) {
  ElementEmitter &e = frame.e;
  Spot spot{update, SmallVector<IndexExpr>(links.shape.size()), SmallVector<IndexExpr>(links.updateShape.size()),
            IndexExpr(0)};
  if (links.shared.empty())
    return spot;
  Value rest = arith::RemUIOp::create(e.b, number, e.indexConstant(units));
  if (side > 1)
    rest = arith::MulIOp::create(e.b, rest, e.indexConstant(side));
  spot.position = e.variable(rest, links.positions, side);
  auto [outer, lane] = e.space.divide(spot.position, lanes);
  e.spread(outer, links.shape, ArrayRef(sharedDims).drop_back(), spot.at);
  spot.at[sharedDims.back()] = lane;
  for (auto [dim, from] : links.shared)
    spot.from[from] = spot.at[dim];
  return spot;
}

Value LinkedScatterKernel::updateOf(Frame &frame, Spot &spot, const IndexExpr &update) {
  frame.e.spread(update, links.updateShape, links.updateDims, spot.from);
  return frame.e.splat(frame.e.element(form.updates, spot.from), side);
}

/// Stores `total` combined with the start at the place of `spot.update`.
void LinkedScatterKernel::finish(Frame &frame, Scratch &scratch, Spot &spot, Value total) {
  ElementEmitter &e = frame.e;
  IndexExpr place = scratch.index(scratch.read(scratch.keys, spot.update), extentOf(links.shape, links.places));
  e.spread(place, links.shape, links.places, spot.at);
  Value start = e.splat(startAt(e, spot.at), side);
  e.store(e.round(combineUpdates(e, form, start, total), links.element), buffer(frame), spot.at);
}

/// `first`, combined with `count` updates along the links in `memory` from the update `spot.update` on.
template <typename ValueOf>
Value LinkedScatterKernel::chain(Frame &frame, Scratch &scratch, Spot &spot, Value count, Value memory, Value first,
                                 ValueOf valueOf) {
  ElementEmitter &e = frame.e;
  Value turns = arith::IndexCastOp::create(e.b, e.b.getIndexType(), count);
  Value carried[] = {first, scratch.read(memory, spot.update)};
  return e.loop(e.indexConstant(0), turns, links.updates, 1, carried, [&](const IndexExpr &, ValueRange values) {
    IndexExpr update = scratch.index(values[1], links.updates);
    Value both = combineUpdates(e, form, values[0], valueOf(update));
    return SmallVector<Value>{both, scratch.read(memory, e.index(update))};
  })[0];
}

void LinkedScatterKernel::emitSums() {
  threads("scatter-sums", links.updates * units, [&](Frame &frame, Value number) { sumChain(frame, number); });
}

/// The chain of one slice: its first update's thread walks it.
void LinkedScatterKernel::sumChain(Frame &frame, Value number) {
  ElementEmitter &e = frame.e;
  Scratch scratch = scratchOf(frame);
  Value update = arith::DivUIOp::create(e.b, number, e.indexConstant(units));
  Value count = scratch.read(scratch.count, update);
  e.guarded(compared(e, CmpIPredicate::sgt, count, scratch.number(0)), [&] {
    Spot spot = spotOf(frame, number, update);
    IndexExpr own = e.variable(update, links.updates);
    Value first = updateOf(frame, spot, own);
    Value more = arith::SubIOp::create(e.b, count, scratch.number(1));
    Value total = chain(frame, scratch, spot, more, scratch.next, first,
                        [&](const IndexExpr &update) { return updateOf(frame, spot, update); });
    if (links.slices == 1)
      return finish(frame, scratch, spot, total);
    Value joins = scratch.read(scratch.joins, update);
    Value alone = compared(e, CmpIPredicate::eq, joins, scratch.number(0));
    Value others = compared(e, CmpIPredicate::ne, joins, scratch.number(0));
    e.guarded(alone, [&] { finish(frame, scratch, spot, total); });
    e.guarded(others, [&] { e.store(total, scratch.sums, {own, spot.position}); });
  });
}

/// The sums of a place's slices: the first update of all walks them.
void LinkedScatterKernel::emitJoins() {
  threads("scatter-joins", links.updates * units, [&](Frame &frame, Value number) {
    ElementEmitter &e = frame.e;
    Scratch scratch = scratchOf(frame);
    Value update = arith::DivUIOp::create(e.b, number, e.indexConstant(units));
    Value joins = scratch.read(scratch.joins, update);
    e.guarded(compared(e, CmpIPredicate::sgt, joins, scratch.number(0)), [&] {
      Spot spot = spotOf(frame, number, update);
      auto sumOf = [&](const IndexExpr &update) {
        return e.splat(e.load(scratch.sums, {update, spot.position}), side);
      };
      Value first = sumOf(e.variable(update, links.updates));
      finish(frame, scratch, spot, chain(frame, scratch, spot, joins, scratch.nextSlice, first, sumOf));
    });
  });
}

std::unique_ptr<GpuSchedule> mpt::makeLinkedScatterSchedule() { return std::make_unique<LinkedScatter>(); }
