// SPDX-License-Identifier: Apache-2.0
// Kernels that the runtime launches by itself: convolutions as GEMMs, where there is no cuDNN or nothing in it fits,
// the search for values that are not finite, and sums over replicas. Attention: AttentionKernels.cpp.
#include "ConvKernels.h"
#include "KernelMaker.h"
#include "TileGemm.h"

#include "mpt-c/abi.h"
#include "mpt-c/conv_direct.hpp"
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/RT/AbiWords.h"
#include "mpt/Dialect/RT/RTDialect.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;

namespace {

// Where the fields of the runtime's Geometry lie (lib/Runtime/cuda/ConvColumns.cpp), in words.
enum Field {
  Total,
  Channels,
  Groups,
  GroupChannels,
  Taps,
  In,
  Out = In + 3,
  Kernel = Out + 3,
  Stride = Kernel + 3,
  Dilation = Stride + 3,
  Pad = Dilation + 3,
  Fields = Pad + 3
};

// The words of the runtime's search (lib/Runtime/cuda/Finite.cpp): findings, bit patterns to look for, values' layout.
enum Word {
  FoundNan,
  FoundInfinity,
  Values,
  Magnitude,
  Infinity,
  LargestNumber,
  Shape,
  Strides = Shape + 8,
  Words = Strides + 8
};

constexpr int64_t kSearchBlocks = 132;

/// columns[position, group, tap, channel] = x[where the tap reads], or 0 in the padding.
func::FuncOp makeIm2Col(OpBuilder &builder, Location loc, const std::string &suffix, Type type) {
  KernelMaker k(builder, loc, "mpt_im2col_" + suffix, {type, type}, Fields, Total);
  auto &f = k.fields;
  Value flat = k.index();
  Value c = k.take(flat, f[GroupChannels]), tap = k.take(flat, f[Taps]), group = k.take(flat, f[Groups]);
  Value at[3], ok;
  for (int i = 2; i >= 0; --i) {
    Value o = k.take(flat, f[Out + i]), t = k.take(tap, f[Kernel + i]);
    at[i] = k.sub(k.add(k.mul(o, f[Stride + i]), k.mul(t, f[Dilation + i])), f[Pad + i]);
    Value in = k.inside(at[i], f[In + i]);
    ok = ok ? k.both(ok, in) : in;
  }
  Value address = flat; // the image
  for (int i = 0; i < 3; ++i)
    address = k.add(k.mul(address, f[In + i]), at[i]);
  address = k.add(k.mul(address, f[Channels]), k.add(k.mul(group, f[GroupChannels]), c));
  Value read = memref::LoadOp::create(k.b, k.from(), ValueRange{k.choose(ok, address, k.number(0))});
  memref::StoreOp::create(k.b, k.choose(ok, read, k.zero(type)), k.to(), ValueRange{k.index()});
  return k.function;
}

/// x[position, channel] = the sum of the columns, in FP32, that read it, in the order of the taps.
func::FuncOp makeCol2Im(OpBuilder &builder, Location loc, const std::string &suffix, Type type) {
  Type wide = builder.getF32Type();
  KernelMaker k(builder, loc, "mpt_col2im_" + suffix, {wide, type}, Fields, Total);
  auto &f = k.fields;
  Value flat = k.index(), channel = k.take(flat, f[Channels]);
  Value group = arith::DivUIOp::create(k.b, channel, f[GroupChannels]);
  Value c = k.sub(channel, k.mul(group, f[GroupChannels])), at[3];
  for (int i = 2; i >= 0; --i)
    at[i] = k.take(flat, f[In + i]);
  auto taps = scf::ForOp::create(k.b, k.number(0), f[Taps], k.number(1), ValueRange{k.zero(wide)});
  {
    OpBuilder::InsertionGuard guard(k.b);
    k.b.setInsertionPointToStart(taps.getBody());
    Value tap = taps.getInductionVar(), o[3], ok;
    for (int i = 2; i >= 0; --i) {
      Value reach = k.sub(k.add(at[i], f[Pad + i]), k.mul(k.take(tap, f[Kernel + i]), f[Dilation + i]));
      // Negative values round toward zero; they are no positions either way.
      o[i] = arith::DivSIOp::create(k.b, reach, f[Stride + i]);
      Value hit = k.both(k.equal(k.mul(o[i], f[Stride + i]), reach), k.inside(o[i], f[Out + i]));
      ok = ok ? k.both(ok, hit) : hit;
    }
    Value address = flat;
    for (int i = 0; i < 3; ++i)
      address = k.add(k.mul(address, f[Out + i]), o[i]);
    address = k.add(k.mul(address, f[Groups]), group);
    address = k.add(k.mul(address, f[Taps]), taps.getInductionVar());
    address = k.add(k.mul(address, f[GroupChannels]), c);
    Value read = memref::LoadOp::create(k.b, k.from(), ValueRange{k.choose(ok, address, k.number(0))});
    Value term = k.choose(ok, read, k.zero(wide));
    scf::YieldOp::create(k.b, ValueRange{arith::AddFOp::create(k.b, taps.getRegionIterArg(0), term)});
  }
  Value sum = taps.getResult(0);
  if (type != wide)
    sum = arith::TruncFOp::create(k.b, type, sum);
  memref::StoreOp::create(k.b, sum, k.to(), ValueRange{k.index()});
  return k.function;
}

func::FuncOp makeNarrow(OpBuilder &builder, Location loc, const std::string &suffix, Type type) {
  KernelMaker k(builder, loc, "mpt_narrow_" + suffix, {builder.getF32Type(), type}, Fields, Total);
  Value read = memref::LoadOp::create(k.b, k.from(), ValueRange{k.index()});
  memref::StoreOp::create(k.b, arith::TruncFOp::create(k.b, type, read), k.to(), ValueRange{k.index()});
  return k.function;
}

/// The sums of so many slices, one behind another, in their order. Words: results, slices.
void makeSlices(OpBuilder &builder, Location loc, Type type) {
  Type wide = builder.getF32Type();
  std::string name;
  llvm::raw_string_ostream(name) << "mpt_slices_" << type;
  KernelMaker k(builder, loc, name, {wide, type}, 2, 0);
  auto slices = scf::ForOp::create(k.b, k.number(0), k.fields[1], k.number(1), ValueRange{k.zero(wide)});
  {
    OpBuilder::InsertionGuard guard(k.b);
    k.b.setInsertionPointToStart(slices.getBody());
    Value at = k.add(k.mul(slices.getInductionVar(), k.fields[0]), k.index());
    Value term = memref::LoadOp::create(k.b, k.from(), ValueRange{at});
    scf::YieldOp::create(k.b, ValueRange{arith::AddFOp::create(k.b, slices.getRegionIterArg(0), term)});
  }
  Value sum = slices.getResult(0);
  if (type != wide)
    sum = arith::TruncFOp::create(k.b, type, sum);
  memref::StoreOp::create(k.b, sum, k.to(), ValueRange{k.index()});
}

/// Implicit-GEMM kernels for the convolutions of `module`, one for all of a kind, of the same types and access, and a
/// direct one for each shape of depthwise ones.
void makeConvKernels(OpBuilder &builder, ModuleOp module) {
  llvm::StringSet<> made;
  llvm::SetVector<Type> sums;
  module.walk([&](rt::ConvOp conv) {
    auto type = [](Value buffer) { return cast<MemRefType>(buffer.getType()); };
    auto x = type(conv.getX()), w = type(conv.getW()), y = type(conv.getY());
    const int64_t kind = rt::runtimeKind(conv.getKind());
    MemRefType result = type(conv.getMade().get());
    Type one = (kind == MPT_CONV_BACKWARD_DATA ? w : x).getElementType();
    Type other = (kind == MPT_CONV_FORWARD ? w : y).getElementType(), to = result.getElementType();
    if (one != other || (to != one && !to.isF32()) || !(one.isF32() || one.isF16() || one.isBF16()))
      return;
    const int64_t groups = static_cast<int64_t>(conv.getGroups()), run = conv::vectorWidth(one.isF32());
    bool vectors = x.getShape()[1] / groups % run == 0 && y.getShape()[1] / groups % run == 0;
    if (kind == MPT_CONV_BACKWARD_WEIGHTS) {
      sums.insert(to);
      to = builder.getF32Type();
    }
    ConvKernel kernel{kind, one, to, vectors};
    if (made.insert(kernel.name()).second)
      makeConvKernel(builder, module.getLoc(), kernel);
    mpt_conv_desc shape = rt::describe(conv, /*native=*/false);
    if (conv::hasDirect(shape) && made.insert(conv::directName(shape)).second)
      makeDepthwiseKernel(builder, conv.getLoc(), shape);
  });
  for (Type type : sums)
    makeSlices(builder, module.getLoc(), type);
}

/// Whether some value of `bits` bits is NaN or infinite, by its pattern without the sign: all types of a width alike.
void makeFinite(OpBuilder &builder, Location loc, unsigned bits) {
  Type pattern = builder.getIntegerType(bits), wide = builder.getI64Type();
  KernelMaker k(builder, loc, "mpt_finite_i" + std::to_string(bits), {pattern}, Words, Values, kSearchBlocks);
  Value flat = k.index(), at = k.number(0);
  for (int d = 7; d >= 0; --d)
    at = k.add(at, k.mul(k.take(flat, k.fields[Shape + d]), k.fields[Strides + d]));
  Value value = memref::LoadOp::create(k.b, k.from(), ValueRange{at});
  if (pattern != wide)
    value = arith::ExtUIOp::create(k.b, wide, value);
  auto word = [&](int64_t i) -> Value { return arith::IndexCastOp::create(k.b, wide, k.fields[i]); };
  value = arith::AndIOp::create(k.b, value, word(Magnitude));
  Value infinity = k.equal(value, word(Infinity));
  Value nan = arith::CmpIOp::create(k.b, arith::CmpIPredicate::sgt, value, word(LargestNumber));
  Value one = arith::ConstantIntOp::create(k.b, 1, 64);
  // Threads that find something write the same.
  for (auto [found, place] : {std::pair(infinity, FoundInfinity), std::pair(nan, FoundNan)}) {
    auto branch = scf::IfOp::create(k.b, found, /*withElseRegion=*/false);
    OpBuilder::InsertionGuard guard(k.b);
    k.b.setInsertionPointToStart(branch.thenBlock());
    memref::StoreOp::create(k.b, one, k.words(), ValueRange{k.number(place)});
  }
}

/// out = a + b, or the larger ones, as the runtime's addTo and maximumTo compute them (lib/Runtime/world/Sums.cpp): NaN
/// is one NaN, whichever operand it comes from.
void makeFold(OpBuilder &builder, Location loc, bool sums) {
  Type type = builder.getF32Type();
  KernelMaker k(builder, loc, sums ? "mpt_fold_sum" : "mpt_fold_max", {type, type, type}, 1, 0);
  auto compare = [&](arith::CmpFPredicate predicate, Value x, Value y) -> Value {
    return arith::CmpFOp::create(k.b, predicate, x, y);
  };
  Value a = memref::LoadOp::create(k.b, k.from(), ValueRange{k.index()});
  Value b = memref::LoadOp::create(k.b, k.to(), ValueRange{k.index()});
  Value nan = arith::ConstantOp::create(k.b, k.b.getFloatAttr(type, APFloat::getQNaN(APFloat::IEEEsingle())));
  Value result =
      sums ? arith::AddFOp::create(k.b, a, b).getResult() : k.choose(compare(arith::CmpFPredicate::OGT, a, b), a, b);
  Value isNan = sums ? compare(arith::CmpFPredicate::UNO, result, result) : compare(arith::CmpFPredicate::UNO, a, b);
  memref::StoreOp::create(k.b, k.choose(isNan, nan, result), k.function.getArgument(2), ValueRange{k.index()});
}

void makeWiden(OpBuilder &builder, Location loc, const std::string &suffix, Type type) {
  KernelMaker k(builder, loc, "mpt_widen_" + suffix, {type, builder.getF32Type()}, 1, 0);
  Value read = memref::LoadOp::create(k.b, k.from(), ValueRange{k.index()});
  memref::StoreOp::create(k.b, arith::ExtFOp::create(k.b, builder.getF32Type(), read), k.to(), ValueRange{k.index()});
}

/// Kernels that add the values of replicas, where `module` has any.
void makeReplicaKernels(OpBuilder &builder, ModuleOp module) {
  if (llvm::none_of(module.getOps<func::FuncOp>(), hasAttr<dist::DistDialect::PhaseAttrHelper>))
    return;
  for (bool sums : {true, false})
    makeFold(builder, module.getLoc(), sums);
  makeWiden(builder, module.getLoc(), "f16", builder.getF16Type());
  makeWiden(builder, module.getLoc(), "bf16", builder.getBF16Type());
}

} // namespace

void mpt::cuda::addSupportKernels(ModuleOp module, bool checks) {
  llvm::SetVector<Type> types;
  module.walk([&](rt::ConvOp conv) { types.insert(cast<MemRefType>(conv.getX().getType()).getElementType()); });
  addAttentionKernels(module);
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  for (unsigned bits : {8, 16, 32, 64})
    if (checks)
      makeFinite(builder, module.getLoc(), bits);
  for (Type type : types) {
    if (!type.isF32() && !type.isF16() && !type.isBF16())
      continue;
    std::string suffix;
    llvm::raw_string_ostream(suffix) << type;
    makeIm2Col(builder, module.getLoc(), suffix, type);
    makeCol2Im(builder, module.getLoc(), suffix, type);
    if (!type.isF32())
      makeNarrow(builder, module.getLoc(), suffix, type);
  }
  makeConvKernels(builder, module);
  makeReplicaKernels(builder, module);
}
