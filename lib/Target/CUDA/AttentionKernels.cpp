// SPDX-License-Identifier: Apache-2.0
// Kernels between attention's GEMMs where no engine of cuDNN does all of it: masked softmax with its statistics, and
// the gradient of scores. 32 threads share a row of scores; each walks every 32nd key.
#include "AttentionTiles.h"
#include "KernelMaker.h"

#include "mpt/Dialect/RT/AbiWords.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Memory/Layout.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;

namespace {

// Where the fields of the runtime's AttentionGeometry lie (lib/Runtime/cuda/Attention.cpp), in words.
enum Field {
  Rows,
  Parts, ///< rows times lanes
  Heads,
  Queries,
  Keys,
  ValueDepth,
  Causal,
  Bias,
  Output = Bias + 4,
  OutputGradient = Output + 3,
  Fields = OutputGradient + 3
};

constexpr int64_t kLanes = 32;

std::string nameOf(Type type) {
  std::string text;
  llvm::raw_string_ostream(text) << type;
  return text;
}

class RowKernel : public KernelMaker {
public:
  RowKernel(OpBuilder &outer, Location loc, const std::string &name, ArrayRef<Type> elements, Field total)
      : KernelMaker(outer, loc, name, elements, Fields, total), f32(b.getF32Type()) {}

  Value real(double x) { return arith::ConstantOp::create(b, b.getF32FloatAttr(static_cast<float>(x))); }
  Value integer(int32_t x) { return arith::ConstantOp::create(b, b.getI32IntegerAttr(x)); }
  Value plus(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value minus(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value times(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value ordered(arith::CmpFPredicate predicate, Value x, Value y) { return arith::CmpFOp::create(b, predicate, x, y); }
  Value load(unsigned argument, Value at) {
    Value x = memref::LoadOp::create(b, function.getArgument(argument), ValueRange{at});
    return x.getType() == f32 ? x : arith::ExtFOp::create(b, f32, x).getResult();
  }
  void store(Value x, unsigned argument, Value at) {
    Value memory = function.getArgument(argument);
    Type element = cast<MemRefType>(memory.getType()).getElementType();
    if (element != f32)
      x = arith::TruncFOp::create(b, element, x);
    memref::StoreOp::create(b, x, memory, ValueRange{at});
  }
  /// `body` for every `step`-th number from `first` below `end`, with values that it hands on.
  SmallVector<Value> forEach(Value first, Value end, int64_t step, ValueRange initial,
                             llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body) {
    auto inner = scf::ForOp::create(b, first, end, number(step), initial);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(inner.getBody());
    SmallVector<Value> next = body(inner.getInductionVar(), inner.getRegionIterArgs());
    if (!next.empty())
      scf::YieldOp::create(b, next);
    return SmallVector<Value>(inner.getResults());
  }
  /// 0 instead of -inf.
  Value finite(Value x) { return choose(ordered(arith::CmpFPredicate::OEQ, x, real(-INFINITY)), real(0), x); }
  Value exp(Value x);

  /// Query, head and batch of `row`, and the keys that it may see.
  void takeRow(Value row) {
    Value rest = row;
    start = mul(row, fields[Keys]);
    query = take(rest, fields[Queries]);
    head = take(rest, fields[Heads]);
    batch = rest;
    Value behind = add(query, number(1));
    Value limit = choose(less(behind, fields[Keys]), behind, fields[Keys]);
    seen = choose(equal(fields[Causal], number(0)), fields[Keys], limit);
  }
  /// The score of `key` with the bias, whose memory is argument `bias` (none if negative).
  Value score(Value key, int bias) {
    Value x = load(0, add(start, key));
    if (bias < 0)
      return x;
    Value at = add(add(mul(batch, fields[Bias]), mul(head, fields[Bias + 1])),
                   add(mul(query, fields[Bias + 2]), mul(key, fields[Bias + 3])));
    return plus(x, load(static_cast<unsigned>(bias), at));
  }

  Type f32;
  Value start, query, head, batch, seen;
};

/// e^x for x below 80, to 2 ulp: 2^n e^r with a series. 0 below -87.
Value RowKernel::exp(Value x) {
  Value low = real(-87), high = real(80);
  // NaN goes through the series, not through the integer.
  Value bounded = choose(ordered(arith::CmpFPredicate::OGT, x, low), x, low);
  bounded = choose(ordered(arith::CmpFPredicate::OLT, bounded, high), bounded, high);
  Value n = arith::FPToSIOp::create(b, b.getI32Type(), minus(times(bounded, real(1.4426950408889634)), real(0.5)));
  Value whole = arith::SIToFPOp::create(b, f32, n);
  Value r = minus(minus(x, times(whole, real(0.693145751953125))), times(whole, real(1.42860682030941723212e-6)));
  Value sum = real(1.0 / 5040);
  for (double factor : {1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0})
    sum = plus(times(sum, r), real(factor));
  Value bits = arith::ShLIOp::create(b, arith::AddIOp::create(b, n, integer(127)), integer(23));
  Value result = times(sum, arith::BitcastOp::create(b, f32, bits));
  return choose(ordered(arith::CmpFPredicate::OLT, x, low), real(0), result);
}

/// parts[row, lane] = the largest score of the lane's keys and the sum of exponentials below it.
void makeParts(OpBuilder &builder, Location loc, Type bias) {
  Type f32 = builder.getF32Type();
  SmallVector<Type> memory{f32, f32};
  if (bias)
    memory.push_back(bias);
  RowKernel k(builder, loc, "mpt_attention_parts" + (bias ? "_" + nameOf(bias) : ""), memory, Parts);
  Value row = k.index(), lane = k.take(row, k.number(kLanes));
  k.takeRow(row);
  int from = bias ? 2 : -1;
  Value top = k.forEach(lane, k.seen, kLanes, k.real(-INFINITY), [&](Value key, ValueRange carried) {
    Value x = k.score(key, from);
    return SmallVector<Value>{k.choose(k.ordered(arith::CmpFPredicate::OGT, x, carried[0]), x, carried[0])};
  })[0];
  Value base = k.finite(top);
  Value sum = k.forEach(lane, k.seen, kLanes, k.real(0), [&](Value key, ValueRange carried) {
    return SmallVector<Value>{k.plus(carried[0], k.exp(k.minus(k.score(key, from), base)))};
  })[0];
  Value at = k.mul(k.index(), k.number(2));
  k.store(top, 1, at);
  k.store(sum, 1, k.add(at, k.number(1)));
}

/// stats[row] = the log of the sum of exponentials; -inf for rows without keys.
void makeStatistics(OpBuilder &builder, Location loc) {
  Type f32 = builder.getF32Type();
  RowKernel k(builder, loc, "mpt_attention_stats", {f32, f32}, Rows);
  Value first = k.mul(k.index(), k.number(2 * kLanes)), zero = k.number(0), lanes = k.number(kLanes);
  auto at = [&](Value lane) { return k.add(first, k.mul(lane, k.number(2))); };
  Value top = k.forEach(zero, lanes, 1, k.real(-INFINITY), [&](Value lane, ValueRange carried) {
    Value x = k.load(0, at(lane));
    return SmallVector<Value>{k.choose(k.ordered(arith::CmpFPredicate::OGT, x, carried[0]), x, carried[0])};
  })[0];
  Value base = k.finite(top);
  Value sum = k.forEach(zero, lanes, 1, k.real(0), [&](Value lane, ValueRange carried) {
    Value scale = k.exp(k.minus(k.load(0, at(lane)), base));
    return SmallVector<Value>{k.plus(carried[0], k.times(k.load(0, k.add(at(lane), k.number(1))), scale))};
  })[0];
  // The logarithm takes NaN for a number.
  Value isNumber = k.ordered(arith::CmpFPredicate::ORD, sum, sum);
  Value stats = k.choose(isNumber, k.plus(base, logarithm(k.b, sum)), sum);
  Value none = k.ordered(arith::CmpFPredicate::OEQ, sum, k.real(0));
  k.store(k.choose(none, k.real(-INFINITY), stats), 1, k.index());
}

/// p = e^(score - stats) where the row sees the key, else 0.
void makeProbabilities(OpBuilder &builder, Location loc, Type type, Type bias) {
  Type f32 = builder.getF32Type();
  SmallVector<Type> memory{f32, f32, type};
  if (bias)
    memory.push_back(bias);
  RowKernel k(builder, loc, "mpt_attention_probabilities_" + nameOf(type) + (bias ? "_" + nameOf(bias) : ""), memory,
              Parts);
  Value row = k.index(), lane = k.take(row, k.number(kLanes));
  k.takeRow(row);
  Value stats = k.finite(k.load(1, row));
  k.forEach(lane, k.fields[Keys], kLanes, {}, [&](Value key, ValueRange) {
    Value p = k.exp(k.minus(k.score(key, bias ? 3 : -1), stats));
    k.store(k.choose(k.less(key, k.seen), p, k.real(0)), 2, k.add(k.start, key));
    return SmallVector<Value>();
  });
}

/// delta[row] = the sum of o do.
void makeDelta(OpBuilder &builder, Location loc, Type type) {
  Type f32 = builder.getF32Type();
  RowKernel k(builder, loc, "mpt_attention_delta_" + nameOf(type), {type, type, f32}, Rows);
  k.takeRow(k.index());
  auto at = [&](Field strides) {
    return k.add(k.add(k.mul(k.batch, k.fields[strides]), k.mul(k.head, k.fields[strides + 1])),
                 k.mul(k.query, k.fields[strides + 2]));
  };
  Value o = at(Output), dO = at(OutputGradient);
  Value sum = k.forEach(k.number(0), k.fields[ValueDepth], 1, k.real(0), [&](Value d, ValueRange carried) {
    return SmallVector<Value>{k.plus(carried[0], k.times(k.load(0, k.add(o, d)), k.load(1, k.add(dO, d))))};
  })[0];
  k.store(sum, 2, k.index());
}

/// p as above and ds = p (dp - delta).
void makeGradient(OpBuilder &builder, Location loc, Type type, Type bias) {
  Type f32 = builder.getF32Type();
  SmallVector<Type> memory{f32, f32, f32, f32, type, type};
  if (bias)
    memory.push_back(bias);
  RowKernel k(builder, loc, "mpt_attention_gradient_" + nameOf(type) + (bias ? "_" + nameOf(bias) : ""), memory, Parts);
  Value row = k.index(), lane = k.take(row, k.number(kLanes));
  k.takeRow(row);
  Value stats = k.finite(k.load(1, row)), delta = k.load(3, row);
  k.forEach(lane, k.fields[Keys], kLanes, {}, [&](Value key, ValueRange) {
    Value at = k.add(k.start, key), sees = k.less(key, k.seen);
    Value p = k.exp(k.minus(k.score(key, bias ? 6 : -1), stats));
    p = k.choose(sees, p, k.real(0));
    Value ds = k.times(p, k.minus(k.load(2, at), delta));
    k.store(p, 4, at);
    k.store(k.choose(sees, ds, k.real(0)), 5, at);
    return SmallVector<Value>();
  });
}

} // namespace

/// 2^n m with m around 1, and the series of the inverse hyperbolic tangent.
Value mpt::cuda::logarithm(ImplicitLocOpBuilder &b, Value x) {
  Type f32 = b.getF32Type();
  auto real = [&](double value) -> Value {
    return arith::ConstantOp::create(b, b.getF32FloatAttr(static_cast<float>(value)));
  };
  auto integer = [&](int32_t value) -> Value { return arith::ConstantOp::create(b, b.getI32IntegerAttr(value)); };
  auto plus = [&](Value y, Value z) -> Value { return arith::AddFOp::create(b, y, z); };
  auto times = [&](Value y, Value z) -> Value { return arith::MulFOp::create(b, y, z); };
  Value bits = arith::BitcastOp::create(b, b.getI32Type(), x);
  Value n = arith::ShRSIOp::create(b, arith::SubIOp::create(b, bits, integer(0x3f3504f3)), integer(23));
  Value m = arith::BitcastOp::create(b, f32, arith::SubIOp::create(b, bits, arith::ShLIOp::create(b, n, integer(23))));
  Value t = arith::DivFOp::create(b, arith::SubFOp::create(b, m, real(1)), plus(m, real(1))), square = times(t, t);
  Value sum = real(2.0 / 11);
  for (double factor : {2.0 / 9, 2.0 / 7, 2.0 / 5, 2.0 / 3, 2.0})
    sum = plus(times(sum, square), real(factor));
  Value whole = arith::SIToFPOp::create(b, f32, n);
  return plus(times(whole, real(0.6931471805599453)), times(sum, t));
}

/// Whether some tensor of the call has elements that indices of 32 bits do not reach.
static bool isLarge(Operation *call) {
  return llvm::any_of(call->getOperands(), [](Value operand) {
    auto type = dyn_cast<MemRefType>(operand.getType());
    return type && memory::spanBytes(type) >= int64_t(1) << 31;
  });
}

void mpt::cuda::addWarpgroupKernels(ModuleOp module) {
  SmallVector<rt::AttentionOp> calls;
  module.walk([&](rt::AttentionOp op) { calls.push_back(op); });
  const bool large = llvm::any_of(calls, [](rt::AttentionOp op) { return isLarge(op); });
  ModuleOp own;
  for (rt::AttentionOp op : calls) {
    mpt_attention_desc desc = rt::describe(op);
    const bool drops = op.getKey() != nullptr;
    attention::Tile tile = attention::tileOf(attention::Kind::Forward, desc, drops);
    if (!attention::wantsTiles(desc, drops) || (own && own.lookupSymbol(tile.name())))
      continue;
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    if (!own)
      own = ModuleOp::create(builder, module.getLoc(), warpgroupArch);
    builder.setInsertionPointToEnd(own.getBody());
    makeWarpgroupAttention(builder, module.getLoc(), tile, large);
  }
}

void mpt::cuda::addAttentionKernels(ModuleOp module) {
  llvm::SetVector<std::pair<Type, Type>> forward, backward; // types of operands and of the bias
  llvm::SetVector<Type> types, biases;                      // of gradients; of forward calls
  llvm::StringSet<> tiles;
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  Location loc = module.getLoc();
  SmallVector<rt::AttentionOp> calls;
  SmallVector<rt::AttentionGradientOp> gradients;
  bool large = false;
  auto collect = [&](auto op, auto &into) {
    into.push_back(op);
    large |= isLarge(op);
  };
  module.walk([&](rt::AttentionOp op) { collect(op, calls); });
  module.walk([&](rt::AttentionGradientOp op) { collect(op, gradients); });
  // Kernels in tiles where the call is one for them; the others want rows.
  auto addTiles = [&](auto op, ArrayRef<attention::Kind> kinds, auto &rows) {
    auto element = [](Value value) { return value ? cast<MemRefType>(value.getType()).getElementType() : Type(); };
    mpt_attention_desc desc = rt::describe(op);
    const bool drops = op.getKey() != nullptr;
    if (!attention::wantsTiles(desc, drops)) {
      rows.insert({element(op.getQ()), element(op.getBias())});
      return;
    }
    for (attention::Kind kind : kinds)
      if (attention::Tile tile = attention::tileOf(kind, desc, drops); tiles.insert(tile.name()).second)
        makeAttentionTile(builder, loc, tile, large);
    if (kinds.size() > 1 && types.insert(element(op.getQ())))
      makeDelta(builder, loc, element(op.getQ()));
  };
  using attention::Kind;
  for (rt::AttentionOp op : calls)
    addTiles(op, {Kind::Forward}, forward);
  for (rt::AttentionGradientOp op : gradients)
    addTiles(op, {Kind::Queries, Kind::Keys}, backward);
  if (forward.empty() && backward.empty())
    return;
  for (auto [type, bias] : forward) {
    if (biases.insert(bias))
      makeParts(builder, loc, bias);
    makeProbabilities(builder, loc, type, bias);
  }
  makeStatistics(builder, loc);
  for (auto [type, bias] : backward) {
    if (types.insert(type))
      makeDelta(builder, loc, type);
    makeGradient(builder, loc, type, bias);
  }
}
