// SPDX-License-Identifier: Apache-2.0
// Values, views, kernels and the ends of functions.
#include "Bufferizer.h"

#include "Schedule.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Memory/Traffic.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// True for constants with infinities, which masks hold on purpose.
bool holdsInfinity(Operation *op) {
  auto constant = dyn_cast_or_null<ConstantOp>(op);
  auto dense = constant ? dyn_cast<DenseFPElementsAttr>(constant.getValue()) : DenseFPElementsAttr();
  if (!dense || dense.empty())
    return false;
  return dense.isSplat() ? dense.getSplatValue<APFloat>().isInfinity()
                         : llvm::any_of(dense.getValues<APFloat>(), [](const APFloat &x) { return x.isInfinity(); });
}

/// The buffer that `memref` is a view of, and where in it the view starts, in elements.
std::pair<Value, int64_t> rootOf(Value memref) {
  int64_t offset = 0;
  while (auto view = memref.getDefiningOp<rt::ViewOp>()) {
    offset += view.getOffset();
    memref = view.getSource();
  }
  return {memref, offset};
}

} // namespace

bool mpt::memory::sameMemory(Value a, Value b) {
  auto typeA = cast<MemRefType>(a.getType()), typeB = cast<MemRefType>(b.getType());
  return typeA.getShape() == typeB.getShape() && rootOf(a) == rootOf(b) &&
         sameAddresses(typeA.getShape(), stridesOf(typeA), stridesOf(typeB));
}

int64_t Bufferizer::alignmentOf(Value memref) const {
  int64_t bytes = rootOf(memref).second * elementBytes(typeOf(memref).getElementType()), alignment = options.alignment;
  while (bytes % alignment != 0)
    alignment /= 2;
  return alignment;
}

bool mpt::memory::isView(Operation *op) { return isa<ReshapeOp, TransposeOp, SliceOp>(op); }

Value Bufferizer::allocate(Location loc, MemRefType type) {
  return rt::AllocOp::create(builder, loc, type, IntegerAttr());
}

Value Bufferizer::view(Location loc, Value memref, ArrayRef<int64_t> shape, ArrayRef<int64_t> strides, int64_t offset) {
  MemRefType type = bufferType(shape, typeOf(memref).getElementType(), strides);
  if (type == memref.getType() && offset == 0)
    return memref;
  return rt::ViewOp::create(builder, loc, type, memref, offset);
}

LogicalResult Bufferizer::copy(Location loc, Value from, Value to) {
  MemRefType fromType = typeOf(from), toType = typeOf(to);
  Sizes strides = stridesOf(fromType);
  bool dense = spanBytes(fromType) == elementCount(fromType.getShape()) * elementBytes(fromType.getElementType());
  if (dense && sameAddresses(fromType.getShape(), strides, stridesOf(toType))) {
    rt::CopyOp::create(builder, loc, from, to);
    return success();
  }
  return launchCopy(loc, from, to);
}

LogicalResult Bufferizer::launchCopy(Location loc, Value from, Value to) {
  MemRefType fromType = typeOf(from), toType = typeOf(to);
  FailureOr<Kernel> kernel = kernels.getCopy(loc, fromType, toType, {alignmentOf(from), alignmentOf(to)});
  if (failed(kernel))
    return failure();
  rt::LaunchOp::create(builder, loc, kernel->function.getSymName(), ValueRange{from, to}, 1, kernel->shape.extent,
                       kernel->shape.grain);
  return success();
}

FailureOr<Value> Bufferizer::dense(Location loc, Value memref, ArrayRef<int64_t> order) {
  MemRefType type = typeOf(memref);
  if (isDense(type, order))
    return memref;
  Value result =
      allocate(loc, bufferType(type.getShape(), type.getElementType(), denseStrides(type.getShape(), order)));
  if (failed(copy(loc, memref, result)))
    return failure();
  return result;
}

LogicalResult Bufferizer::lowerView(Operation *op) {
  Value from = buffer(op->getOperand(0));
  Sizes strides = stridesOf(typeOf(from));
  auto type = cast<RankedTensorType>(op->getResult(0).getType());
  int64_t offset = 0;
  if (auto reshape = dyn_cast<ReshapeOp>(op)) {
    std::optional<Sizes> found = reshapeStrides(typeOf(from).getShape(), strides, type.getShape());
    if (!found) {
      FailureOr<Value> copied = dense(op->getLoc(), from, rowMajor(typeOf(from).getRank()));
      if (failed(copied))
        return failure();
      from = *copied;
      found = denseStrides(type.getShape(), rowMajor(type.getRank()));
    }
    strides = *found;
  } else if (auto transpose = dyn_cast<TransposeOp>(op)) {
    Sizes permuted;
    for (int64_t d : transpose.getPermutation())
      permuted.push_back(strides[d]);
    strides = permuted;
  } else {
    auto slice = cast<SliceOp>(op);
    for (auto [i, stride] : llvm::enumerate(strides)) {
      offset += slice.getStarts()[i] * stride;
      if (!slice.getStrides().empty())
        stride *= slice.getStrides()[i];
    }
  }
  buffers[op->getResult(0)] = view(op->getLoc(), from, type.getShape(), strides, offset);
  return success();
}

bool Bufferizer::lowerAsView(FusionOp fusion) {
  Operation *only = &fusion.getBody().front().front();
  auto broadcast = dyn_cast<BroadcastOp>(only);
  if (!broadcast || fusion.getNumResults() != 1 || fusion.getBody().front().getOperations().size() != 2)
    return false;
  Value output = fusion.getOutputs()[0], from = buffer(fusion.getInputs()[0]);
  if (destinations.count(output))
    return false;
  auto type = cast<RankedTensorType>(output.getType());
  Sizes given = stridesOf(typeOf(from)), strides(type.getRank(), 0);
  for (auto [i, d] : llvm::enumerate(broadcast.getDims()))
    if (typeOf(from).getDimSize(i) == type.getDimSize(d))
      strides[d] = given[i];
  buffers[output] = view(fusion.getLoc(), from, type.getShape(), strides);
  return true;
}

/// Updates of several states: a device's kernel walks all of them as flat memory.
static bool isBundle(FusionOp fusion) {
  return fusion.getNumResults() > 1 &&
         llvm::all_of(fusion->getUsers(), [](Operation *user) { return isa<train::WriteOp>(user); }) &&
         fusion.getBody().front().getOps<ReduceOp>().empty();
}

LogicalResult Bufferizer::lowerFusion(FusionOp fusion) {
  if (lowerAsView(fusion))
    return success();
  Location loc = fusion.getLoc();
  SmallVector<Value> operands, results;
  SmallVector<MemRefType> inputTypes, outputTypes;
  SmallVector<int64_t> alignments;
  bool flat = options.device && isBundle(fusion);
  for (Value input : fusion.getInputs()) {
    FailureOr<Value> operand = buffer(input);
    if (flat && failed(operand = dense(loc, *operand, rowMajor(typeOf(*operand).getRank()))))
      return failure();
    operands.push_back(*operand);
    inputTypes.push_back(typeOf(operands.back()));
    alignments.push_back(alignmentOf(operands.back()));
  }
  SmallVector<Target> targets;
  for (Value output : fusion.getOutputs()) {
    Target target = targetFor(output);
    outputTypes.push_back(target.memref ? typeOf(target.memref)
                                        : denseType(cast<RankedTensorType>(output.getType()), orders.of(output)));
    alignments.push_back(target.memref ? alignmentOf(target.memref) : options.alignment);
    targets.push_back(target);
  }
  FailureOr<Kernel> kernel = kernels.get(fusion, inputTypes, outputTypes, alignments);
  if (failed(kernel))
    return failure();
  for (auto [i, output] : llvm::enumerate(fusion.getOutputs())) {
    Value memref = targets[i].memref;
    if (memref && targets[i].state && readByFusion(targets[i].state, fusion, i, *kernel, memref))
      memref = nullptr; // the end of the function copies it to the state
    if (!memref)
      memref = allocate(loc, outputTypes[i]);
    buffers[output] = memref;
    results.push_back(memref);
  }
  SmallVector<Value> all(operands);
  all.append(results);
  if (int64_t bytes = kernel->shape.scratchBytes)
    all.push_back(allocate(loc, MemRefType::get({bytes}, builder.getI8Type())));
  auto launch = rt::LaunchOp::create(builder, loc, kernel->function.getSymName(), all, operands.size(),
                                     kernel->shape.extent, kernel->shape.grain);
  // Arithmetic hands infinities of a mask on; an exponential, a sum or a product ends them.
  bool holds = false, handsOn = true;
  for (Operation &op : fusion.getBody().front()) {
    holds |= holdsInfinity(&op);
    auto semantics = dyn_cast<PrecisionSemantics>(op);
    NumericClass kind = semantics ? semantics.getNumericClass() : NumericClass::Movement;
    handsOn &= kind == NumericClass::Movement || kind == NumericClass::Neutral;
  }
  for (Value input : fusion.getInputs())
    holds |= holdsInfinity(input.getDefiningOp()) || (handsOn && infinite.contains(input));
  if (holds) {
    launch.setInfinite(true);
    infinite.insert(fusion.getOutputs().begin(), fusion.getOutputs().end());
  }
  return success();
}

Value Bufferizer::concatBuffer(ConcatOp concat, Location loc) {
  if (Value whole = concats.lookup(concat.getY()))
    return whole;
  Value whole = targetFor(concat.getY()).memref;
  if (!whole)
    whole = allocate(loc, denseType(cast<RankedTensorType>(concat.getY().getType()), orders.of(concat.getY())));
  concats[concat.getY()] = whole;
  return whole;
}

LogicalResult Bufferizer::lowerConcat(ConcatOp concat) {
  Location loc = concat.getLoc();
  Value result = concatBuffer(concat, loc);
  Sizes strides = stridesOf(typeOf(result));
  int64_t offset = 0, axis = concat.getAxis();
  for (OpOperand &part : concat->getOpOperands()) {
    auto shape = cast<RankedTensorType>(part.get().getType()).getShape();
    // A producer that took this part as its destination has written it at its place already.
    Value place =
        rt::ViewOp::create(builder, loc, bufferType(shape, typeOf(result).getElementType(), strides), result, offset);
    if (sameMemory(buffer(part.get()), place))
      place.getDefiningOp()->erase();
    else if (failed(copy(loc, buffer(part.get()), place)))
      return failure();
    offset += shape[axis] * strides[axis];
  }
  buffers[concat.getY()] = result;
  return success();
}

LogicalResult Bufferizer::lower(Operation *op) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case<train::ReadOp>([&](train::ReadOp read) {
        buffers[read.getValue()] =
            stateBuffer(read.getStateAttr(), cast<RankedTensorType>(read.getValue().getType()), read.getLoc());
        return success();
      })
      .Case<train::WriteOp>([&](train::WriteOp write) -> LogicalResult {
        if (write.getCondition())
          return write.emitOpError() << "expected an unconditional write; run --fusion-lower-train first";
        return success(); // at the end of the function
      })
      .Case<ConstantOp>([&](ConstantOp constant) {
        auto type = cast<RankedTensorType>(constant.getY().getType());
        buffers[constant.getY()] = rt::ConstantOp::create(
            builder, constant.getLoc(), denseType(type, rowMajor(type.getRank())), constant.getValueAttr());
        return success();
      })
      .Case<ReshapeOp, TransposeOp, SliceOp>([&](Operation *op) { return lowerView(op); })
      .Case<ConcatOp>([&](ConcatOp concat) { return lowerConcat(concat); })
      .Case<FusionOp>([&](FusionOp fusion) { return lowerFusion(fusion); })
      .Case<library::GemmOp>([&](library::GemmOp gemm) { return lowerGemm(gemm); })
      .Case<ConvOp>(
          [&](ConvOp conv) { return lowerConv(conv, rt::ConvKind::forward, conv.getX(), conv.getW(), conv.getY()); })
      .Case<ConvBackwardDataOp>([&](ConvBackwardDataOp conv) {
        return lowerConv(conv, rt::ConvKind::backward_data, conv.getY(), conv.getW(), conv.getDy());
      })
      .Case<ConvBackwardWeightsOp>([&](ConvBackwardWeightsOp conv) {
        return lowerConv(conv, rt::ConvKind::backward_weights, conv.getX(), conv.getY(), conv.getDy());
      })
      .Case<rt::AttendOp>([&](rt::AttendOp attend) { return lowerAttend(attend); })
      .Case<rt::AttendGradientOp>([&](rt::AttendGradientOp attend) { return lowerAttendGradient(attend); })
      .Case<rt::ChannelSumsOp>([](Operation *) { return success(); }) // with their convolution
      .Case<func::ReturnOp>([&](func::ReturnOp op) { return finish(op); })
      .Default([](Operation *op) {
        return op->emitOpError() << "expected a library call, a view or a fusion; run the passes of fusion and library "
                                    "before --memory-bufferize";
      });
}

LogicalResult Bufferizer::finish(func::ReturnOp terminator) {
  unsigned inputs = source.getNumArguments();
  for (OpOperand &operand : terminator->getOpOperands()) {
    Value output = target.getArgument(inputs + operand.getOperandNumber());
    if (!sameMemory(buffer(operand.get()), output) && failed(copy(terminator.getLoc(), buffer(operand.get()), output)))
      return failure();
  }
  // States that exchange values go through scratch, so that every write sees the old ones.
  SmallVector<std::tuple<Location, Value, Value>> writes;
  llvm::SmallPtrSet<Operation *, 8> written;
  for (auto write : source.getOps<train::WriteOp>())
    written.insert(stateBuffer(write.getStateAttr(), cast<RankedTensorType>(write.getValue().getType()), write.getLoc())
                       .getDefiningOp());
  for (auto write : source.getOps<train::WriteOp>()) {
    Value state = states.lookup(write.getStateAttr()), value = buffer(write.getValue());
    if (sameMemory(value, state))
      continue;
    Operation *root = rootOf(value).first.getDefiningOp();
    if (root && isa<rt::StateOp>(root) && written.contains(root)) {
      Value scratch = allocate(write.getLoc(), typeOf(state));
      if (failed(copy(write.getLoc(), value, scratch)))
        return failure();
      value = scratch;
    }
    writes.emplace_back(write.getLoc(), value, state);
  }
  for (auto [loc, value, state] : writes)
    if (failed(copy(loc, value, state)))
      return failure();
  func::ReturnOp::create(builder, terminator.getLoc());
  return success();
}

LogicalResult Bufferizer::run() {
  SmallVector<Type> types;
  SmallVector<Attribute> attributes;
  DictionaryAttr none = builder.getDictionaryAttr({});
  for (auto [i, type] : llvm::enumerate(source.getArgumentTypes())) {
    auto tensor = cast<RankedTensorType>(type);
    types.push_back(denseType(tensor, rowMajor(tensor.getRank())));
    DictionaryAttr given = source.getArgAttrDict(i);
    attributes.push_back(given ? given : none);
  }
  for (auto [i, type] : llvm::enumerate(source.getResultTypes())) {
    auto tensor = cast<RankedTensorType>(type);
    types.push_back(denseType(tensor, rowMajor(tensor.getRank())));
    NamedAttrList given(source.getResultAttrDict(i) ? source.getResultAttrDict(i) : none);
    given.set(MPTDialect::OutputAttrHelper::getNameStr(), builder.getUnitAttr());
    attributes.push_back(given.getDictionary(builder.getContext()));
  }
  builder.setInsertionPoint(source);
  target = func::FuncOp::create(builder, source.getLoc(), source.getSymName(), builder.getFunctionType(types, {}));
  target.setArgAttrsAttr(builder.getArrayAttr(attributes));
  if (options.countTraffic)
    if (std::optional<Traffic> least = leastTraffic(source))
      setAttr<MPTDialect::TrafficAttrHelper>(target, builder.getDenseI64ArrayAttr({least->minimum, least->withSums}));
  builder.setInsertionPointToEnd(target.addEntryBlock());
  auto cleanup = llvm::make_scope_exit([&] { source.erase(); });

  for (auto [from, to] : llvm::zip_first(source.getArguments(), target.getArguments()))
    buffers[from] = to;
  for (auto [i, op] : llvm::enumerate(source.front()))
    positions[&op] = i;
  findDestinations();
  for (Operation &op : source.front())
    if (failed(lower(&op)))
      return failure();
  return success();
}

LogicalResult mpt::memory::bufferize(ModuleOp module, const KernelEmitter &emitter, const BufferizeOptions &options) {
  KernelTable kernels(module, emitter);
  SmallVector<func::FuncOp> functions;
  for (auto function : module.getOps<func::FuncOp>())
    if (!function.isPrivate() && !function.isDeclaration())
      functions.push_back(function);
  for (func::FuncOp function : functions) {
    if (!function.getBody().hasOneBlock())
      return function.emitOpError() << "expected one block";
    scheduleUpdates(function);
    if (failed(Bufferizer(function, kernels, options).run()))
      return failure();
  }
  return success();
}
