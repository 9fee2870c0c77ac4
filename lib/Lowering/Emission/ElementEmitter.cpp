// SPDX-License-Identifier: Apache-2.0
// Scopes, memory accesses and remembered elements of the element emitter.
#include "mpt/Lowering/Emission/ElementEmitter.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/TargetParser/Host.h"

using namespace mlir;
using namespace mpt;

KernelTarget KernelTarget::host() {
  static const KernelTarget target = [] {
    KernelTarget result;
    llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
    result.vectorBits = features.lookup("avx512f") ? 512 : 256;
    result.fma = features.lookup("fma") || !features.contains("fma");
    result.halves = features.lookup("f16c") || !features.contains("f16c");
    return result;
  }();
  return target;
}

Type mpt::computeType(Type type) {
  if (type.isUnsignedInteger())
    return IntegerType::get(type.getContext(), type.getIntOrFloatBitWidth() <= 16 ? 32 : 64);
  auto real = dyn_cast<FloatType>(type);
  return real && real.getWidth() < 32 ? Float32Type::get(type.getContext()) : type;
}

ReductionStrategy::~ReductionStrategy() = default;

ElementEmitter::ElementEmitter(ImplicitLocOpBuilder &builder, const KernelTarget &target, bool probe)
    : ValueBuilder(builder, target), probe(probe) {
  scopes.push_back({builder.getInsertionBlock(), nullptr});
}

//===----------------------------------------------------------------------===//
// Scopes
//===----------------------------------------------------------------------===//

static void insertAt(OpBuilder &builder, Block *block, Operation *before) {
  if (before)
    builder.setInsertionPoint(before);
  else if (!block->empty() && block->back().hasTrait<OpTrait::IsTerminator>())
    builder.setInsertionPoint(&block->back());
  else
    builder.setInsertionPointToEnd(block);
}

ElementEmitter::AtScope::AtScope(ElementEmitter &emitter, unsigned depth)
    : emitter(emitter), depth(depth), before(emitter.scopes[depth].before), guard(emitter.b) {
  auto &scopes = emitter.scopes;
  if (depth + 1 < scopes.size()) {
    Operation *anchor = scopes[depth + 1].block->getParentOp();
    while (anchor->getBlock() != scopes[depth].block)
      anchor = anchor->getParentOp();
    scopes[depth].before = anchor;
    inner.assign(scopes.begin() + depth + 1, scopes.end());
    scopes.resize(depth + 1);
  }
  insertAt(emitter.b, scopes[depth].block, scopes[depth].before);
}

ElementEmitter::AtScope::~AtScope() {
  emitter.scopes[depth].before = before;
  llvm::append_range(emitter.scopes, inner);
}

SmallVector<Value> ElementEmitter::loop(Value low, Value high, int64_t extent, unsigned width, ValueRange carried,
                                        Body body) {
  auto loop = scf::ForOp::create(b, low, high, indexConstant(width), carried);
  IndexSpace::Variable variable;
  variable.extent = extent;
  variable.depth = scopes.size();
  variable.lane = variable.contiguous = width > 1;
  variable.width = width;
  variable.value = loop.getInductionVar();
  scopes.push_back({loop.getBody(), nullptr});
  OpBuilder::InsertionGuard guard(b);
  insertAt(b, loop.getBody(), nullptr);
  SmallVector<Value> next = body(IndexExpr::variable(space.add(variable)), loop.getRegionIterArgs());
  if (!carried.empty()) {
    b.setInsertionPointToEnd(loop.getBody());
    scf::YieldOp::create(b, next);
  }
  scopes.pop_back();
  return SmallVector<Value>(loop.getResults());
}

void ElementEmitter::guarded(Value condition, llvm::function_ref<void()> body) {
  auto branch = scf::IfOp::create(b, condition, /*withElseRegion=*/false);
  scopes.push_back({branch.thenBlock(), nullptr});
  {
    OpBuilder::InsertionGuard guard(b);
    insertAt(b, branch.thenBlock(), nullptr);
    body();
  }
  scopes.pop_back();
}

IndexExpr ElementEmitter::variable(Value value, int64_t extent, unsigned width) {
  IndexSpace::Variable variable;
  variable.extent = extent;
  variable.depth = scopes.size() - 1;
  variable.lane = variable.contiguous = width > 1;
  variable.width = width;
  variable.value = value;
  return IndexExpr::variable(space.add(variable));
}

void ElementEmitter::vectorLoop(Value low, Value high, int64_t extent, unsigned width,
                                llvm::function_ref<void(IndexExpr)> body) {
  auto run = [&](Value from, Value to, unsigned step) {
    loop(from, to, extent, step, {}, [&](const IndexExpr &i, ValueRange) {
      body(i);
      return SmallVector<Value>();
    });
  };
  APInt from, to;
  bool fixed = matchPattern(low, m_ConstantInt(&from)) && matchPattern(high, m_ConstantInt(&to));
  if (width <= 1)
    return run(low, high, 1);
  if (fixed) {
    int64_t count = to.getSExtValue() - from.getSExtValue(), whole = count / width * width;
    Value middle = indexConstant(from.getSExtValue() + whole);
    if (whole > 0)
      run(low, middle, width);
    if (whole < count)
      run(middle, high, 1);
    return;
  }
  if (extent % width == 0)
    return run(low, high, width);
  Value count = arith::SubIOp::create(b, high, low);
  Value whole = arith::MulIOp::create(b, arith::DivUIOp::create(b, count, indexConstant(width)), indexConstant(width));
  Value middle = arith::AddIOp::create(b, low, whole);
  run(low, middle, width);
  run(middle, high, 1);
}

//===----------------------------------------------------------------------===//
// Elements
//===----------------------------------------------------------------------===//

void ElementEmitter::bind(Value argument, Value buffer) { buffers[argument] = buffer; }

/// Indices along extents of 1 do not matter, so that values that are alike are found again.
std::optional<IndexExpr> ElementEmitter::knownPosition(Value indices, Indices at) const {
  auto found = positions.find(key(indices, at));
  return found == positions.end() ? std::nullopt : std::optional<IndexExpr>(found->second);
}

void ElementEmitter::rememberPosition(Value indices, Indices at, const IndexExpr &expr) {
  positions.insert({key(indices, at), expr});
}

ElementEmitter::Key ElementEmitter::key(Value tensor, Indices at) {
  Key key{tensor.getAsOpaquePointer(), {}};
  for (auto [index, extent] : llvm::zip_equal(at, shapeOf(tensor)))
    key.second.push_back(extent == 1 ? IndexExpr(0) : index);
  return key;
}

Value ElementEmitter::element(Value tensor, Indices at) {
  Key key = this->key(tensor, at);
  if (auto found = memo.find(key); found != memo.end())
    return found->second;
  AtScope scope(*this, space.depth(key.second));
  Value value = emit(tensor, key.second);
  memo[key] = value;
  return value;
}

void ElementEmitter::define(Value tensor, Indices at, Value value) { memo[key(tensor, at)] = value; }

Value ElementEmitter::emit(Value tensor, Indices at) {
  Type type = elementOf(tensor);
  if (Value buffer = buffers.lookup(tensor))
    return load(buffer, at);
  Operation *op = tensor.getDefiningOp();
  if (!op)
    return fail(tensor.getParentBlock()->getParentOp(), "expected a buffer for each argument", type);
  ImplicitLocOpBuilder::InsertionGuard guard(b);
  b.setLoc(op->getLoc());
  auto lowering = dyn_cast<LoopLowering>(op);
  if (!lowering)
    return fail(op, "no loop form for this op; it lacks LoopLowering in lib/Lowering/Models", type);
  Value value = lowering.emitElement(*this, cast<OpResult>(tensor).getResultNumber(), at);
  if (!value) {
    hasFailed = true;
    return constant(computeType(type), 0);
  }
  return value;
}

Value ElementEmitter::fail(Operation *op, const Twine &message, Type type) {
  if (!hasFailed)
    op->emitOpError() << message;
  hasFailed = true;
  return constant(computeType(type), 0);
}

//===----------------------------------------------------------------------===//
// Index values
//===----------------------------------------------------------------------===//

Value ElementEmitter::variableValue(unsigned id) {
  if (space[id].value)
    return space[id].value;
  // Derived from other indices; made once, where they are known.
  IndexSpace::Variable variable = space[id];
  AtScope scope(*this, variable.depth);
  Value source = index(variable.source), divisor = indexConstant(variable.divisor);
  Value value = variable.kind == IndexSpace::Kind::Quotient ? Value(arith::DivUIOp::create(b, source, divisor))
                                                            : Value(arith::RemUIOp::create(b, source, divisor));
  return space[id].value = value;
}

static Value laneNumbers(OpBuilder &b, Location loc, unsigned width) {
  auto type = VectorType::get(width, b.getIndexType());
  SmallVector<Attribute> values;
  for (unsigned i = 0; i < width; ++i)
    values.push_back(b.getIndexAttr(i));
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, values));
}

Value ElementEmitter::index(const IndexExpr &expr) {
  Value sum;
  for (const IndexExpr::Term &term : expr.terms) {
    Value value = variableValue(term.variable);
    if (term.coefficient != 1)
      value = arith::MulIOp::create(b, value, indexConstant(term.coefficient));
    sum = sum ? Value(arith::AddIOp::create(b, sum, value)) : value;
  }
  if (!sum)
    return indexConstant(expr.constant);
  return expr.constant ? Value(arith::AddIOp::create(b, sum, indexConstant(expr.constant))) : sum;
}

Value ElementEmitter::variableLanes(unsigned id, unsigned width) {
  if (space[id].lanes)
    return space[id].lanes;
  if (!space[id].lane)
    return splat(variableValue(id), width);
  IndexSpace::Variable variable = space[id];
  AtScope scope(*this, variable.depth);
  Value result;
  if (variable.contiguous) {
    result = arith::AddIOp::create(b, splat(variableValue(id), width), laneNumbers(b, b.getLoc(), width));
  } else {
    Value source = splat(indexAs(variable.source, b.getIndexType()), width);
    Value divisor = splat(indexConstant(variable.divisor), width);
    result = variable.kind == IndexSpace::Kind::Quotient ? Value(arith::DivUIOp::create(b, source, divisor))
                                                         : Value(arith::RemUIOp::create(b, source, divisor));
  }
  return space[id].lanes = result;
}

/// Width of the lane loop that `expr` depends on.
static unsigned laneWidthOf(const IndexSpace &space, const IndexExpr &expr) {
  for (const IndexExpr::Term &term : expr.terms) {
    const IndexSpace::Variable &variable = space[term.variable];
    if (!variable.lane)
      continue;
    if (variable.lanes)
      return ElementEmitter::width(variable.lanes);
    return variable.contiguous ? variable.width : laneWidthOf(space, variable.source);
  }
  return 1;
}

unsigned ElementEmitter::laneWidth(Indices at) const {
  unsigned width = 1;
  for (const IndexExpr &index : at)
    width = std::max(width, laneWidthOf(space, index));
  return width;
}

ElementEmitter::Address ElementEmitter::address(const IndexExpr &linear) {
  Address result;
  if (!space.isLane(linear)) {
    result.base = index(linear);
    return result;
  }
  result.width = laneWidthOf(space, linear);
  bool regular = llvm::all_of(linear.terms, [&](const IndexExpr::Term &term) {
    return !space[term.variable].lane || space[term.variable].contiguous;
  });
  if (regular) {
    result.base = index(linear);
    for (const IndexExpr::Term &term : linear.terms)
      if (space[term.variable].lane)
        result.stride += term.coefficient;
    return result;
  }
  IndexExpr uniform(linear.constant);
  Value sum;
  for (const IndexExpr::Term &term : linear.terms) {
    if (!space[term.variable].lane) {
      uniform.terms.push_back(term);
      continue;
    }
    Value value = variableLanes(term.variable, result.width);
    if (term.coefficient != 1)
      value = arith::MulIOp::create(b, value, splat(indexConstant(term.coefficient), result.width));
    sum = sum ? Value(arith::AddIOp::create(b, sum, value)) : value;
  }
  if (!(uniform == IndexExpr(0)))
    sum = arith::AddIOp::create(b, sum, splat(index(uniform), result.width));
  result.lanes = sum;
  return result;
}

Value ElementEmitter::indexAs(const IndexExpr &expr, Type type) {
  AtScope scope(*this, space.depth(expr));
  Address at = address(expr);
  Value value = at.base;
  if (at.width > 1 && !at.lanes) {
    Value lane = laneNumbers(b, b.getLoc(), at.width);
    if (at.stride != 1)
      lane = arith::MulIOp::create(b, lane, splat(indexConstant(at.stride), at.width));
    value = arith::AddIOp::create(b, splat(at.base, at.width), lane);
  } else if (at.lanes) {
    value = at.lanes;
  }
  if (type.isIndex())
    return value;
  Type integer = isa<FloatType>(type) ? Type(b.getI64Type()) : type;
  value = arith::IndexCastOp::create(b, typeLike(integer, value), value);
  if (!isa<FloatType>(type))
    return value;
  return arith::SIToFPOp::create(b, typeLike(type, value), value);
}

IndexExpr ElementEmitter::opaque(Value value, int64_t extent, unsigned depth) {
  IndexSpace::Variable variable;
  variable.kind = IndexSpace::Kind::Opaque;
  variable.extent = extent;
  variable.depth = depth;
  if (!getElementTypeOrSelf(value).isIndex())
    value = arith::IndexCastOp::create(b, typeLike(b.getIndexType(), value), value);
  if (width(value) > 1) {
    variable.lane = true;
    variable.lanes = value;
  } else {
    variable.value = value;
  }
  return IndexExpr::variable(space.add(variable));
}

IndexExpr ElementEmitter::clamp(const IndexExpr &expr, int64_t extent, Value &inside) {
  if (extent <= 0) { // nothing is inside
    inside = constant(b.getI1Type(), 0);
    return IndexExpr(0);
  }
  if (space.minimum(expr) >= 0 && space.maximum(expr) < extent)
    return expr;
  auto [ok, result] = this->at(space.depth(expr), [&] {
    Value value = indexAs(expr, b.getIndexType());
    Value zero = constantLike(value, APInt(64, 0)), last = constantLike(value, APInt(64, extent - 1));
    // As unsigned numbers, negative ones are too large as well.
    Value ok = arith::CmpIOp::create(b, arith::CmpIPredicate::ule, value, last);
    return std::make_pair(ok, opaque(arith::SelectOp::create(b, ok, value, zero), extent, space.depth(expr)));
  });
  Value both[] = {ok, inside};
  if (inside)
    unify(both);
  inside = inside ? Value(arith::AndIOp::create(b, both[0], both[1])) : ok;
  return result;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// The buffer as a vector of its elements in address order.
Value ElementEmitter::flat(Value buffer) {
  if (Value found = flats.lookup(buffer))
    return found;
  auto type = cast<MemRefType>(buffer.getType());
  SmallVector<int64_t> strides;
  int64_t offset, size = 1;
  (void)type.getStridesAndOffset(strides, offset);
  for (auto [extent, stride] : llvm::zip_equal(type.getShape(), strides))
    size += (extent - 1) * stride;
  if (type.getNumElements() == 0)
    size = 0;
  AtScope scope(*this, 0);
  // Beside the buffer, so that every use comes after it.
  if (isa<BlockArgument>(buffer))
    b.setInsertionPointToStart(scopes[0].block);
  else
    b.setInsertionPointAfterValue(buffer);
  auto flatType = MemRefType::get({size}, type.getElementType());
  Value result = memref::ReinterpretCastOp::create(b, flatType, buffer, /*offset=*/0, ArrayRef<int64_t>{size},
                                                   ArrayRef<int64_t>{1});
  return flats[buffer] = result;
}

IndexExpr ElementEmitter::linearAddress(Value buffer, Indices at) {
  SmallVector<int64_t> strides;
  int64_t offset;
  (void)cast<MemRefType>(buffer.getType()).getStridesAndOffset(strides, offset);
  IndexExpr linear(0);
  for (auto [index, stride, extent] : llvm::zip_equal(at, strides, cast<MemRefType>(buffer.getType()).getShape()))
    if (extent != 1)
      linear = space.add(linear, space.scale(index, stride));
  return linear;
}

/// Tables of constants are no arguments.
static unsigned argumentNumber(Value buffer) {
  auto argument = dyn_cast<BlockArgument>(buffer);
  return argument ? argument.getArgNumber() : ~0u;
}

/// The largest power of two up to the buffer's alignment that divides the address of the first lane.
llvm::MaybeAlign ElementEmitter::alignmentOf(Value buffer, const IndexExpr &linear) const {
  auto known = alignments.find(buffer);
  if (known == alignments.end())
    return std::nullopt;
  uint64_t bytes = std::max<unsigned>(1, cast<MemRefType>(buffer.getType()).getElementTypeBitWidth() / 8);
  uint64_t divisor = std::max<uint64_t>(known->second, bytes) / bytes;
  auto limit = [&](int64_t step) {
    while (divisor > 1 && step % static_cast<int64_t>(divisor) != 0)
      divisor /= 2;
  };
  limit(linear.constant);
  for (const IndexExpr::Term &term : linear.terms) {
    const IndexSpace::Variable &variable = space[term.variable];
    limit(term.coefficient * (variable.lane && variable.contiguous ? variable.width : 1));
  }
  return llvm::Align(divisor * bytes);
}

/// A flat buffer read as elements of another type that is the same to LLVM, where the cast disappears.
static Value viewedAs(ImplicitLocOpBuilder &b, Type element, Value memory) {
  auto type = MemRefType::get(cast<MemRefType>(memory.getType()).getShape(), element);
  return UnrealizedConversionCastOp::create(b, TypeRange{type}, memory).getResult(0);
}
/// A flat buffer of i1 as the bytes that it consists of.
static Value asBytes(ImplicitLocOpBuilder &b, Value memory) { return viewedAs(b, b.getI8Type(), memory); }

/// The type by which memory holds elements of `type`. BF16 moves as its bits: LLVM moves single ones by their
/// conversion on processors that have it (vcvtneps2bf16), which turns subnormal numbers into zeros.
static Type movedAs(Type type, const KernelTarget &target) {
  bool asBits = type.isUnsignedInteger() || (type.isBF16() && !target.keepsFloatOps);
  return asBits ? IntegerType::get(type.getContext(), type.getIntOrFloatBitWidth()) : type;
}

/// Whether lanes look numbers up in `memory` faster together: in a table that stays in the first cache. LLVM takes one
/// instruction for it where the processor has a fast one.
static bool isTable(const KernelTarget &target, Type element, Value memory) {
  constexpr int64_t mostElements = 4096;
  return element.isF32() && !target.keepsFloatOps &&
         cast<MemRefType>(memory.getType()).getNumElements() <= mostElements;
}

Value ElementEmitter::load(Value buffer, Indices at) {
  Type source = cast<MemRefType>(buffer.getType()).getElementType();
  if (cast<MemRefType>(buffer.getType()).getNumElements() == 0) // no index leads to an element
    return constant(computeType(source), 0);
  IndexExpr linear = linearAddress(buffer, at);
  accesses.push_back({linear, std::max<int64_t>(1, source.getIntOrFloatBitWidth() / 8), false, argumentNumber(buffer)});
  Address where = address(linear);
  Type type = movedAs(source, target);
  Value memory = flat(buffer), value;
  if (type != source)
    memory = viewedAs(b, type, memory);
  if (where.width == 1 || (!where.lanes && where.stride == 0)) {
    value = memref::LoadOp::create(b, memory, where.base);
  } else if (!where.lanes && where.stride == 1 && type.isInteger(1)) {
    // An i1 is a byte of 0 or 1 in memory; vectors of i1 would be packed bits.
    Value bytes = vector::LoadOp::create(b, VectorType::get(where.width, b.getI8Type()), asBytes(b, memory),
                                         ValueRange{where.base}, false, alignmentOf(buffer, linear));
    value = arith::TruncIOp::create(b, VectorType::get(where.width, type), bytes);
  } else if (!where.lanes && where.stride == 1) {
    value = vector::LoadOp::create(b, VectorType::get(where.width, type), memory, ValueRange{where.base}, false,
                                   alignmentOf(buffer, linear));
  } else if (where.lanes && isTable(target, source, memory)) {
    auto lanes = VectorType::get(where.width, type);
    Value all = splat(constant(b.getI1Type(), 1), where.width), none = splat(constant(type, 0), where.width);
    value = vector::GatherOp::create(b, lanes, memory, indexConstant(0), where.lanes, all, none);
  } else {
    SmallVector<Value> lanes;
    for (unsigned i = 0; i < where.width; ++i) {
      Value position = where.lanes ? Value(vector::ExtractOp::create(b, where.lanes, static_cast<int64_t>(i)))
                                   : Value(arith::AddIOp::create(b, where.base, indexConstant(where.stride * i)));
      lanes.push_back(memref::LoadOp::create(b, memory, position));
    }
    value = vector::FromElementsOp::create(b, VectorType::get(where.width, type), lanes);
  }
  if (source.isUnsignedInteger())
    return widenUnsigned(value, source);
  return widen(type == source ? value : Value(arith::BitcastOp::create(b, typeLike(source, value), value)));
}

void ElementEmitter::store(Value value, Value buffer, Indices at) {
  Type type = cast<MemRefType>(buffer.getType()).getElementType();
  IndexExpr linear = linearAddress(buffer, at);
  accesses.push_back({linear, std::max<int64_t>(1, type.getIntOrFloatBitWidth() / 8), true, argumentNumber(buffer)});
  Address where = address(linear);
  value = narrow(value, type);
  Value memory = flat(buffer);
  if (Type moved = movedAs(type, target); moved != type) {
    memory = viewedAs(b, moved, memory);
    if (!type.isUnsignedInteger()) // unsigned values are signless already
      value = arith::BitcastOp::create(b, typeLike(moved, value), value);
  }
  if (where.width == 1) {
    memref::StoreOp::create(b, value, memory, where.base);
    return;
  }
  value = splat(value, where.width);
  if (!where.lanes && where.stride == 1 && type.isInteger(1)) {
    value = arith::ExtUIOp::create(b, VectorType::get(where.width, b.getI8Type()), value);
    vector::StoreOp::create(b, value, asBytes(b, memory), ValueRange{where.base}, false, alignmentOf(buffer, linear));
    return;
  }
  if (!where.lanes && where.stride == 1) {
    vector::StoreOp::create(b, value, memory, ValueRange{where.base}, false, alignmentOf(buffer, linear));
    return;
  }
  for (unsigned i = 0; i < where.width; ++i) {
    Value position = where.lanes ? Value(vector::ExtractOp::create(b, where.lanes, static_cast<int64_t>(i)))
                                 : Value(arith::AddIOp::create(b, where.base, indexConstant(where.stride * i)));
    memref::StoreOp::create(b, vector::ExtractOp::create(b, value, static_cast<int64_t>(i)), memory, position);
  }
}

//===----------------------------------------------------------------------===//
// Walks
//===----------------------------------------------------------------------===//

SmallVector<int64_t> ElementEmitter::stridesFor(ArrayRef<int64_t> shape) {
  for (auto &[tensor, buffer] : buffers) {
    auto type = cast<MemRefType>(buffer.getType());
    SmallVector<int64_t> strides; // filled by appending
    int64_t offset;
    if (type.getShape() == shape && succeeded(type.getStridesAndOffset(strides, offset)))
      return strides;
  }
  return computeSuffixProduct(shape);
}

SmallVector<SmallVector<int64_t>> ElementEmitter::walk(ArrayRef<int64_t> shape, ArrayRef<int64_t> axes) {
  SmallVector<int64_t> strides = stridesFor(shape), order;
  for (int64_t axis : axes)
    if (shape[axis] != 1)
      order.push_back(axis);
  llvm::sort(order, [&](int64_t a, int64_t b) { return std::pair(-strides[a], a) < std::pair(-strides[b], b); });
  SmallVector<SmallVector<int64_t>> groups;
  for (int64_t axis : order) {
    if (!groups.empty() && strides[groups.back().back()] == strides[axis] * shape[axis])
      groups.back().push_back(axis);
    else
      groups.push_back({axis});
  }
  return groups;
}

void ElementEmitter::spread(const IndexExpr &index, ArrayRef<int64_t> shape, ArrayRef<int64_t> group,
                            MutableArrayRef<IndexExpr> at) {
  SmallVector<int64_t> extents;
  for (int64_t axis : group)
    extents.push_back(shape[axis]);
  for (auto [axis, part] : llvm::zip_equal(group, space.delinearize(index, extents)))
    at[axis] = part;
}
