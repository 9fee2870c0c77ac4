// SPDX-License-Identifier: Apache-2.0
// Depthwise convolutions, one kernel a shape. A thread makes runs of neighbouring positions for a vector of channels,
// so that each element it reads serves several taps; sums are FP32 in registers.
#include "ConvKernels.h"

#include "TileGemm.h"

#include "mpt-c/conv_direct.hpp"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/GPU/Kernel.h"
#include "mpt/Memory/Bufferize.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <map>

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;

namespace {

class DepthwiseMaker {
public:
  DepthwiseMaker(OpBuilder &outer, Location loc, const mpt_conv_desc &desc)
      : b(loc, outer), math{b}, d(desc), shape(conv::directShape(desc)), data(desc.kind == MPT_CONV_BACKWARD_DATA),
        weights(desc.kind == MPT_CONV_BACKWARD_WEIGHTS), taps(desc.kernel[0] * desc.kernel[1] * desc.kernel[2]),
        channels(shape.across * shape.vector), f32(b.getF32Type()) {}
  func::FuncOp make();

private:
  /// One multiplication of a run: of position `place`, by tap `tap` of the last dimension, with the element at `offset`
  /// from where the run's source begins.
  struct Product {
    int64_t place, tap, offset;
  };
  /// Image, coordinates but the last, and the number of a run.
  struct Run {
    Value image, at[2], number;
  };
  using Visit = llvm::function_ref<SmallVector<Value>(const Run &, ValueRange)>;

  Type typeOf(int64_t type) {
    return type == MPT_FLOAT32 ? Type(f32) : type == MPT_FLOAT16 ? Type(b.getF16Type()) : Type(b.getBF16Type());
  }
  Type wide(Type element) { return shape.vector > 1 ? Type(VectorType::get({shape.vector}, element)) : element; }
  Value zero(Type type) { return arith::ConstantOp::create(b, b.getZeroAttr(type)); }
  static Type elementOf(Value memory) { return cast<MemRefType>(memory.getType()).getElementType(); }

  Value load(Value memory, Value at);
  void store(Value value, Value memory, Value at);
  Value loadInside(Value memory, Value at, Value valid);
  SmallVector<Value> ifHolds(Value valid, ValueRange otherwise, llvm::function_ref<SmallVector<Value>()> body);
  void guarded(Value condition, llvm::function_ref<void()> body);

  func::FuncOp makeFunction();
  void findPlace();
  void stageFilters();
  SmallVector<Product> productsOfRun() const;
  Value sourceAt(int dimension, Value at, Value tap, Value &valid);
  std::map<int64_t, Value> sourcesOf(Value memory, Value line, Value number, ArrayRef<Product> products);
  SmallVector<Value> overRuns(ValueRange initial, Visit visit);
  void makePositions();
  SmallVector<Value> positionsOfRun(const Run &run, ArrayRef<Product> products);
  void storeRun(const Run &run, ValueRange sums);
  void makeWeights();
  void storeWeights(ValueRange sums);

  ImplicitLocOpBuilder b;
  IndexMath math;
  const mpt_conv_desc &d;
  const conv::DirectShape shape;
  const bool data, weights;
  const int64_t taps, channels;
  const FloatType f32;
  Value thread, source, other, target; ///< x, w and y forward; y, w and x backward data; x, y and w backward weights
  Value filters;                       ///< [taps][channels of the block], FP32, in shared memory
  Value x, y, channel, slice, tapRow;
  int64_t sharedBytes = 0;
};

Value DepthwiseMaker::load(Value memory, Value at) {
  Type element = elementOf(memory);
  int64_t bytes = shape.vector * element.getIntOrFloatBitWidth() / 8;
  if (shape.vector == 1)
    return memref::LoadOp::create(b, memory, ValueRange{at});
  return vector::LoadOp::create(b, cast<VectorType>(wide(element)), memory, ValueRange{at}, false,
                                llvm::MaybeAlign(std::min<int64_t>(bytes, 16)));
}

void DepthwiseMaker::store(Value value, Value memory, Value at) {
  Type element = elementOf(memory);
  int64_t bytes = shape.vector * element.getIntOrFloatBitWidth() / 8;
  if (element != f32)
    value = arith::TruncFOp::create(b, wide(element), value);
  if (shape.vector == 1)
    memref::StoreOp::create(b, value, memory, ValueRange{at});
  else
    vector::StoreOp::create(b, value, memory, ValueRange{at}, false, llvm::MaybeAlign(std::min<int64_t>(bytes, 16)));
}

/// In FP32; zeros where `valid`, if it is given, does not hold.
Value DepthwiseMaker::loadInside(Value memory, Value at, Value valid) {
  if (valid)
    at = math.choose(valid, at, math.number(0));
  Value value = load(memory, at);
  if (valid)
    value = math.choose(valid, value, zero(value.getType()));
  return elementOf(memory) == f32 ? value : arith::ExtFOp::create(b, wide(f32), value).getResult();
}

SmallVector<Value> DepthwiseMaker::ifHolds(Value valid, ValueRange otherwise,
                                           llvm::function_ref<SmallVector<Value>()> body) {
  if (!valid)
    return body();
  auto branch = scf::IfOp::create(b, otherwise.getTypes(), valid, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, body());
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, otherwise);
  return SmallVector<Value>(branch.getResults());
}

void DepthwiseMaker::guarded(Value condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(b, condition, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  body();
}

//===----------------------------------------------------------------------===//
// The thread's share
//===----------------------------------------------------------------------===//

func::FuncOp DepthwiseMaker::makeFunction() {
  auto memory = [&](int64_t elements, int64_t type) { return MemRefType::get({elements}, typeOf(type)); };
  int64_t in = d.n * d.ic, out = d.n * d.oc;
  for (int i = 0; i < 3; ++i)
    in *= d.in[i], out *= d.out[i];
  const int64_t operand = conv::directOperand(d), result = conv::directResult(d), all = d.oc * taps;
  SmallVector<Type> types{memory(data ? out : in, operand), memory(weights ? out : all, operand),
                          weights ? MemRefType::get({shape.slices * all}, f32) : memory(data ? in : out, result)};
  auto function = func::FuncOp::create(b, conv::directName(d), b.getFunctionType(types, {}));
  function.setPrivate();
  setAttr<MPTDialect::KernelAttrHelper>(function);
  setAttr<MPTDialect::GridAttrHelper>(function, b.getDenseI64ArrayAttr({shape.blocks(), 1, 1}));
  setAttr<MPTDialect::BlockAttrHelper>(function, b.getDenseI64ArrayAttr({shape.threads(), 1, 1}));
  setAttr<MPTDialect::ScheduleAttrHelper>(function, b.getStringAttr("depthwise"));
  for (unsigned i : {0, 1})
    for (StringRef attribute : {"llvm.readonly", "llvm.noalias"})
      function.setArgAttr(i, attribute, b.getUnitAttr());
  return function;
}

void DepthwiseMaker::findPlace() {
  thread = gpu::ThreadIdOp::create(b, gpu::Dimension::x);
  Value block = gpu::BlockIdOp::create(b, gpu::Dimension::x), across = math.number(shape.across);
  x = math.rem(thread, across);
  y = math.div(thread, across);
  Value tile = math.rem(block, math.number(shape.tiles)), rest = math.div(block, math.number(shape.tiles));
  tapRow = math.rem(rest, math.number(shape.rows));
  slice = math.div(rest, math.number(shape.rows));
  channel = math.add(math.mul(tile, math.number(channels)), math.mul(x, math.number(shape.vector)));
}

/// The filters [channel][tap] of the block's channels, as [tap][channel].
void DepthwiseMaker::stageFilters() {
  filters = sharedMemory(b, {taps * channels}, f32, sharedBytes);
  Value first = math.mul(math.sub(channel, math.mul(x, math.number(shape.vector))), math.number(taps));
  auto loop = scf::ForOp::create(b, thread, math.number(taps * channels), math.number(shape.threads()));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value i = loop.getInductionVar(), own = math.div(i, math.number(taps)), tap = math.rem(i, math.number(taps));
    Value value = memref::LoadOp::create(b, other, ValueRange{math.add(first, i)});
    if (value.getType() != f32)
      value = arith::ExtFOp::create(b, f32, value);
    memref::StoreOp::create(b, value, filters, ValueRange{math.add(math.mul(tap, math.number(channels)), own)});
  }
  gpu::BarrierOp::create(b);
}

/// Backward data, those taps of which some multiple of the stride reaches a position.
SmallVector<DepthwiseMaker::Product> DepthwiseMaker::productsOfRun() const {
  SmallVector<Product> products;
  const int64_t s = d.stride[2], pad = d.pad_low[2];
  for (int64_t place = 0; place < shape.run; ++place)
    for (int64_t tap = 0; tap < d.kernel[2]; ++tap) {
      const int64_t reach = data ? place + pad - tap * d.dilation[2] : place * s + tap * d.dilation[2] - pad;
      if (!data)
        products.push_back({place, tap, reach});
      else if (reach % s == 0)
        products.push_back({place, tap, reach / s});
    }
  return products;
}

/// Where position `at` of a dimension before the last reads by `tap`; `valid` becomes false where it reads nothing.
Value DepthwiseMaker::sourceAt(int dimension, Value at, Value tap, Value &valid) {
  const int64_t s = d.stride[dimension], pad = d.pad_low[dimension], step = d.dilation[dimension];
  const int64_t extent = data ? d.out[dimension] : d.in[dimension], made = data ? d.in[dimension] : d.out[dimension];
  if (d.kernel[dimension] == 1 && pad == 0 && s == 1 && made <= extent)
    return at;
  Value far = math.mul(tap, math.number(step)), place, ok;
  if (data) {
    Value reach = math.sub(math.add(at, math.number(pad)), far);
    place = s == 1 ? reach : math.div(reach, math.number(s));
    // Negative numbers are large ones without signs.
    ok = math.below(place, math.number(extent));
    if (s != 1)
      ok = math.both(ok, arith::CmpIOp::create(b, arith::CmpIPredicate::eq, math.mul(place, math.number(s)), reach));
  } else {
    place = math.sub(math.add(math.mul(at, math.number(s)), far), math.number(pad));
    ok = math.below(place, math.number(extent));
  }
  valid = valid ? math.both(valid, ok) : ok;
  return place;
}

/// The vectors of a line of `memory` that a run's products want, by their offsets.
std::map<int64_t, Value> DepthwiseMaker::sourcesOf(Value memory, Value line, Value number, ArrayRef<Product> products) {
  const int64_t extent = data ? d.out[2] : d.in[2], step = data ? shape.run / d.stride[2] : shape.run * d.stride[2];
  std::map<int64_t, Value> values;
  Value first = math.mul(number, math.number(step));
  for (const Product &product : products) {
    auto [slot, isNew] = values.try_emplace(product.offset);
    if (!isNew)
      continue;
    Value at = math.add(first, math.number(product.offset)), valid;
    if (product.offset < 0 || (shape.positions - 1) * step + product.offset >= extent)
      valid = math.below(at, math.number(extent));
    Value address = math.add(math.mul(math.add(line, at), math.number(d.ic)), channel);
    slot->second = loadInside(memory, address, valid);
  }
  return values;
}

/// `visit` for each of the thread's runs.
SmallVector<Value> DepthwiseMaker::overRuns(ValueRange initial, Visit visit) {
  const int64_t *made = data ? d.in : d.out;
  Value first = math.add(math.mul(slice, math.number(shape.down)), y);
  auto loop = scf::ForOp::create(b, first, math.number(shape.runs), math.number(shape.slices * shape.down), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value rest = loop.getInductionVar();
  auto take = [&](int64_t extent) {
    Value at = math.rem(rest, math.number(extent));
    rest = math.div(rest, math.number(extent));
    return at;
  };
  Run run;
  run.number = take(shape.positions);
  run.at[1] = take(made[1]);
  run.at[0] = take(made[0]);
  run.image = rest;
  SmallVector<Value> next = visit(run, loop.getRegionIterArgs());
  if (!initial.empty())
    scf::YieldOp::create(b, next);
  return SmallVector<Value>(loop.getResults());
}

//===----------------------------------------------------------------------===//
// Positions of the result: forward, and backward data
//===----------------------------------------------------------------------===//

SmallVector<Value> DepthwiseMaker::positionsOfRun(const Run &run, ArrayRef<Product> products) {
  const int64_t *extents = data ? d.out : d.in;
  SmallVector<Value> sums(shape.run, zero(wide(f32)));
  for (int64_t k0 = 0; k0 < d.kernel[0]; ++k0)
    for (int64_t k1 = 0; k1 < d.kernel[1]; ++k1) {
      Value valid, plane = sourceAt(0, run.at[0], math.number(k0), valid);
      Value line = sourceAt(1, run.at[1], math.number(k1), valid);
      sums = ifHolds(valid, sums, [&] {
        Value at = math.add(math.mul(run.image, math.number(extents[0])), plane);
        at = math.mul(math.add(math.mul(at, math.number(extents[1])), line), math.number(extents[2]));
        std::map<int64_t, Value> sources = sourcesOf(source, at, run.number, products);
        SmallVector<Value> row(d.kernel[2]), next(sums);
        for (const Product &product : products) {
          Value &filter = row[product.tap];
          if (!filter) {
            int64_t tap = (k0 * d.kernel[1] + k1) * d.kernel[2] + product.tap;
            filter = load(filters, math.add(math.mul(x, math.number(shape.vector)), math.number(tap * channels)));
          }
          next[product.place] =
              math::FmaOp::create(b, sources.at(product.offset), filter, next[product.place]).getResult();
        }
        return next;
      });
    }
  return sums;
}

void DepthwiseMaker::storeRun(const Run &run, ValueRange sums) {
  const int64_t *made = data ? d.in : d.out;
  Value at = math.add(math.mul(run.image, math.number(made[0])), run.at[0]);
  at = math.mul(math.add(math.mul(at, math.number(made[1])), run.at[1]), math.number(made[2]));
  Value first = math.mul(run.number, math.number(shape.run));
  for (auto [i, sum] : llvm::enumerate(sums)) {
    Value place = math.add(first, math.number(static_cast<int64_t>(i)));
    auto write = [&, sum = sum] {
      store(sum, target, math.add(math.mul(math.add(at, place), math.number(d.ic)), channel));
    };
    if (made[2] % shape.run == 0)
      write();
    else
      guarded(math.below(place, math.number(made[2])), write);
  }
}

void DepthwiseMaker::makePositions() {
  stageFilters();
  SmallVector<Product> products = productsOfRun();
  overRuns({}, [&](const Run &run, ValueRange) {
    storeRun(run, positionsOfRun(run, products));
    return SmallVector<Value>();
  });
}

//===----------------------------------------------------------------------===//
// Backward weights
//===----------------------------------------------------------------------===//

/// A block has a row of taps: sums over its slice of the runs.
void DepthwiseMaker::makeWeights() {
  SmallVector<Product> products = productsOfRun();
  Value k0 = math.div(tapRow, math.number(d.kernel[1])), k1 = math.rem(tapRow, math.number(d.kernel[1]));
  SmallVector<Value> none(d.kernel[2], zero(wide(f32)));
  SmallVector<Value> sums = overRuns(none, [&](const Run &run, ValueRange carried) {
    Value valid, plane = sourceAt(0, run.at[0], k0, valid), line = sourceAt(1, run.at[1], k1, valid);
    return ifHolds(valid, carried, [&] {
      auto lineOf = [&](const int64_t (&extents)[3], Value first, Value second) {
        Value at = math.add(math.mul(run.image, math.number(extents[0])), first);
        return math.mul(math.add(math.mul(at, math.number(extents[1])), second), math.number(extents[2]));
      };
      std::map<int64_t, Value> sources = sourcesOf(source, lineOf(d.in, plane, line), run.number, products);
      Value gradients = lineOf(d.out, run.at[0], run.at[1]), first = math.mul(run.number, math.number(shape.run));
      SmallVector<Value> next(carried), ofPlace;
      for (int64_t i = 0; i < shape.run; ++i) {
        Value place = math.add(first, math.number(i)), exists;
        if (d.out[2] % shape.run != 0)
          exists = math.below(place, math.number(d.out[2]));
        Value address = math.add(math.mul(math.add(gradients, place), math.number(d.oc)), channel);
        ofPlace.push_back(loadInside(other, address, exists));
      }
      for (const Product &product : products)
        next[product.tap] =
            math::FmaOp::create(b, sources.at(product.offset), ofPlace[product.place], next[product.tap]).getResult();
      return next;
    });
  });
  storeWeights(sums);
}

/// Adds up the sums of the threads below each other, tap by tap, in the order of the threads.
void DepthwiseMaker::storeWeights(ValueRange sums) {
  Value stage = sharedMemory(b, {shape.down * channels}, f32, sharedBytes);
  Value own = math.add(math.mul(y, math.number(channels)), math.mul(x, math.number(shape.vector)));
  Value all = math.number(d.oc * taps), rowTaps = math.number(d.kernel[2]);
  Value block = math.sub(channel, math.mul(x, math.number(shape.vector)));
  for (auto [tap, sum] : llvm::enumerate(sums)) {
    store(sum, stage, own);
    gpu::BarrierOp::create(b);
    auto columns = scf::ForOp::create(b, thread, math.number(channels), math.number(shape.threads()));
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(columns.getBody());
      Value column = columns.getInductionVar();
      auto threads =
          scf::ForOp::create(b, math.number(0), math.number(shape.down), math.number(1), ValueRange{zero(f32)});
      {
        OpBuilder::InsertionGuard inner(b);
        b.setInsertionPointToStart(threads.getBody());
        Value at = math.add(math.mul(threads.getInductionVar(), math.number(channels)), column);
        Value part = memref::LoadOp::create(b, stage, ValueRange{at});
        scf::YieldOp::create(b, ValueRange{arith::AddFOp::create(b, threads.getRegionIterArg(0), part)});
      }
      Value number = math.add(math.mul(tapRow, rowTaps), math.number(static_cast<int64_t>(tap)));
      Value at = math.add(math.mul(math.add(block, column), math.number(taps)), number);
      memref::StoreOp::create(b, threads.getResult(0), target, ValueRange{math.add(math.mul(slice, all), at)});
    }
    gpu::BarrierOp::create(b);
  }
}

func::FuncOp DepthwiseMaker::make() {
  func::FuncOp function = makeFunction();
  b.setInsertionPointToStart(function.addEntryBlock());
  source = function.getArgument(0), other = function.getArgument(1), target = function.getArgument(2);
  func::ReturnOp end = func::ReturnOp::create(b);
  b.setInsertionPoint(end);
  findPlace();
  weights ? makeWeights() : makePositions();
  setAttr<MPTDialect::SharedBytesAttrHelper>(function, b.getI64IntegerAttr(sharedBytes));
  return function;
}

} // namespace

func::FuncOp mpt::cuda::makeDepthwiseKernel(OpBuilder &builder, Location loc, const mpt_conv_desc &desc) {
  return DepthwiseMaker(builder, loc, desc).make();
}
