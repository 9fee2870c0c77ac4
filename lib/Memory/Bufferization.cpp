// SPDX-License-Identifier: Apache-2.0
// Bufferization, one op after the other, and its helpers for ops.
#include "mpt/Memory/Bufferization.h"

#include "Kernels.h"
#include "RowPadding.h"

#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/OrderedSums.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Interfaces/RuntimeCall.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

// ---- values outside any function

std::pair<Value, int64_t> mpt::memory::rootOf(Value memref) {
  int64_t offset = 0;
  while (auto view = memref.getDefiningOp<rt::ViewOp>()) {
    offset += view.getOffset();
    memref = view.getSource();
  }
  return {memref, offset};
}

bool mpt::memory::isInState(Value memref) { return rootOf(memref).first.getDefiningOp<rt::StateOp>() != nullptr; }

bool mpt::memory::sameMemory(Value a, Value b) {
  MemRefType typeA = bufferTypeOf(a), typeB = bufferTypeOf(b);
  return typeA.getShape() == typeB.getShape() && rootOf(a) == rootOf(b) &&
         sameAddresses(typeA.getShape(), stridesOf(typeA), stridesOf(typeB));
}

Strided mpt::memory::stridedOf(Value memref) {
  MemRefType type = bufferTypeOf(memref);
  return {Sizes(type.getShape()), stridesOf(type), 0};
}

// ---- one function

BufferizationState::BufferizationState(func::FuncOp source, func::FuncOp target, KernelTable &kernels,
                                       const BufferizationPolicy &policy)
    : source(source), target(target), builder(source.getContext()), kernels(kernels), policy(policy) {
  builder.setInsertionPointToEnd(target.addEntryBlock());
  for (auto [from, to] : llvm::zip_first(source.getArguments(), target.getArguments()))
    buffers[from] = to;
  for (Operation &op : source.front())
    if (DenseI64ArrayAttr operands = getAttr<library::LibraryDialect::PlacedAttrHelper>(&op))
      for (int64_t operand : operands.asArrayRef()) {
        Destination destination{&op.getOpOperand(operand), {}};
        Value value = makerOf(*destination.use, destination.views);
        destinations[value] = std::move(destination);
      }
}

MemRefType BufferizationState::ownType(Value tensor) const {
  MemRefType type = denseType(tensorType(tensor), layoutOf(tensor));
  MemRefType aligned = withAlignedRows(type, policy.alignment);
  return aligned != type && wantsAlignedRows(tensor, aligned) ? aligned : type;
}
MemRefType BufferizationState::ownType(Value tensor, ArrayRef<int64_t> order) const {
  return denseType(tensorType(tensor), order);
}

// ---- places

bool BufferizationState::isWantedInPlace(Value result) const {
  return llvm::any_of(result.getUses(), [&](OpOperand &use) {
    if (auto owner = dyn_cast<PlacesOperands>(use.getOwner()))
      return owner.getPlaceKind() != PlaceKind::Part || result.hasOneUse();
    auto view = dyn_cast<StridedView>(use.getOwner());
    return view && view.showsAll() && result.hasOneUse() && isWantedInPlace(view->getResult(0));
  });
}

Value BufferizationState::placeFor(Value result) {
  auto lent = getAttr<library::LibraryDialect::LentAttrHelper>(result.getDefiningOp());
  if (auto state = lent ? dyn_cast<FlatSymbolRefAttr>(lent[cast<OpResult>(result).getResultNumber()]) : nullptr)
    return stateBuffer(state, tensorType(result), result.getLoc());
  auto it = destinations.find(result);
  if (it == destinations.end())
    return {};
  auto &[use, views] = it->second;
  Value place = cast<PlacesOperands>(use->getOwner()).bufferFor(use->getOperandNumber(), *this);
  for (Operation *view : llvm::reverse(views)) {
    std::optional<Strided> source = cast<StridedView>(view).sourceOf(stridedOf(place));
    assert(source && "--memory-assign-destinations assigns no place that strides cannot show");
    place = this->view(result.getLoc(), place, *source);
  }
  return place;
}

Value BufferizationState::stateBuffer(FlatSymbolRefAttr state, RankedTensorType type, Location loc) {
  Value &memref = states[state];
  if (!memref) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(&target.front());
    memref = rt::StateOp::create(builder, loc, denseType(type, rowMajor(type.getRank())), state);
  }
  return memref;
}

// ---- memory

Value BufferizationState::allocate(Location loc, MemRefType type) {
  return rt::AllocOp::create(builder, loc, type, IntegerAttr());
}

Value BufferizationState::view(Location loc, Value memref, ArrayRef<int64_t> shape, ArrayRef<int64_t> strides,
                               int64_t offset) {
  MemRefType type = bufferType(shape, bufferTypeOf(memref).getElementType(), strides);
  if (type == memref.getType() && offset == 0)
    return memref;
  return rt::ViewOp::create(builder, loc, type, memref, offset);
}

void BufferizationState::copy(Location loc, Value from, Value to) {
  MemRefType type = bufferTypeOf(from);
  bool isWhole = spanBytes(type) == elementCount(type.getShape()) * elementBytes(type.getElementType());
  if (!isWhole || !sameAddresses(type.getShape(), stridesOf(type), stridesOf(bufferTypeOf(to))))
    return convert(loc, from, to);
  rt::CopyOp::create(builder, loc, from, to);
}

void BufferizationState::convert(Location loc, Value from, Value to) {
  if (bufferTypeOf(from).getNumElements() == 0)
    return;
  func::FuncOp kernel =
      kernels.getCopy(loc, bufferTypeOf(from), bufferTypeOf(to), {alignmentOf(from), alignmentOf(to)});
  launch(loc, kernel, {from, to}, 1);
}

rt::LaunchOp BufferizationState::launch(Location loc, func::FuncOp kernel, ValueRange buffers, int64_t inputs) {
  return rt::LaunchOp::create(builder, loc, kernel.getSymName(), buffers, inputs, /*extent=*/0, /*grain=*/0);
}

Value BufferizationState::dense(Location loc, Value memref, ArrayRef<int64_t> order) {
  MemRefType type = bufferTypeOf(memref);
  if (isDense(type, order))
    return memref;
  Value result =
      allocate(loc, bufferType(type.getShape(), type.getElementType(), denseStrides(type.getShape(), order)));
  copy(loc, memref, result);
  return result;
}

Value BufferizationState::denseResult(Value tensor, ArrayRef<int64_t> order) {
  Value memref = placeFor(tensor);
  if (!memref || !isDense(bufferTypeOf(memref), order))
    memref = allocate(tensor.getLoc(), ownType(tensor, order));
  setBuffer(tensor, memref);
  return memref;
}

int64_t BufferizationState::alignmentOf(Value memref) const {
  int64_t bytes = rootOf(memref).second * elementBytes(bufferTypeOf(memref).getElementType());
  int64_t alignment = policy.alignment;
  while (bytes % alignment != 0)
    alignment /= 2;
  return alignment;
}

// ---- the pass

/// An empty function on buffers: the arguments of `source`, then its results as outputs.
static func::FuncOp signatureOf(func::FuncOp source) {
  OpBuilder builder(source);
  SmallVector<Type> types;
  SmallVector<Attribute> attributes;
  DictionaryAttr none = builder.getDictionaryAttr({});
  auto add = [&](Type given, DictionaryAttr attribute) {
    auto tensor = cast<RankedTensorType>(given);
    types.push_back(denseType(tensor, rowMajor(tensor.getRank())));
    attributes.push_back(attribute ? attribute : none);
  };
  for (auto [i, type] : llvm::enumerate(source.getArgumentTypes()))
    add(type, source.getArgAttrDict(i));
  for (auto [i, type] : llvm::enumerate(source.getResultTypes())) {
    NamedAttrList given(source.getResultAttrDict(i) ? source.getResultAttrDict(i) : none);
    given.set(MPTDialect::OutputAttrHelper::getNameStr(), builder.getUnitAttr());
    add(type, given.getDictionary(builder.getContext()));
  }
  auto target = func::FuncOp::create(builder, source.getLoc(), source.getSymName(), builder.getFunctionType(types, {}));
  target.setArgAttrsAttr(builder.getArrayAttr(attributes));
  if (DenseI64ArrayAttr traffic = getAttr<MPTDialect::TrafficAttrHelper>(source))
    setAttr<MPTDialect::TrafficAttrHelper>(target, traffic);
  if (DenseI64ArrayAttr coded = getAttr<MPTDialect::CodedAttrHelper>(source))
    setAttr<MPTDialect::CodedAttrHelper>(target, coded);
  if (ArrayAttr apart = getAttr<library::LibraryDialect::ApartAttrHelper>(source))
    setAttr<library::LibraryDialect::ApartAttrHelper>(target, apart);
  if (IntegerAttr phase = getAttr<dist::DistDialect::PhaseAttrHelper>(source))
    setAttr<dist::DistDialect::PhaseAttrHelper>(target, phase);
  return target;
}

/// Sums of gradients in a fusion state their part: they need no order.
static void stateSums(FusionOp fusion, const TrainingParts &parts) {
  DenseSet<Value> gradients;
  Block &body = fusion.getBody().front();
  for (auto [argument, operand] : llvm::zip_equal(body.getArguments(), fusion->getOperands()))
    if (parts.isGradient(operand))
      gradients.insert(argument);
  for (Operation &op : body.without_terminator())
    if (llvm::any_of(op.getOperands(), [&](Value operand) { return gradients.contains(operand); })) {
      gradients.insert(op.getResults().begin(), op.getResults().end());
      if (isa<ReduceOp>(op))
        statePart(&op, TrainingPart::backward);
    }
}

static LogicalResult bufferizeFunction(func::FuncOp source, KernelTable &kernels, const BufferizationPolicy &policy) {
  BufferizationState state(source, signatureOf(source), kernels, policy);
  TrainingParts parts(source);
  const bool isOrdered = hasOrderedSums(source);
  Block &body = state.target.front();
  for (Operation &op : source.front()) {
    Operation *last = body.empty() ? nullptr : &body.back();
    auto bufferizable = dyn_cast<Bufferizable>(op);
    if (!bufferizable)
      return op.emitOpError() << "expected a library call, a view or a fusion; run the fusion and library passes "
                                 "before --memory-bufferize";
    if (auto fusion = dyn_cast<FusionOp>(op); fusion && isOrdered)
      stateSums(fusion, parts);
    if (failed(bufferizable.bufferize(state)))
      return failure();
    // Buffers do not tell which calls compute a gradient.
    if (llvm::none_of(op.getResults(), [&](Value result) { return parts.isGradient(result); }))
      continue;
    for (Operation &made : llvm::make_range(last ? std::next(last->getIterator()) : body.begin(), body.end()))
      if (auto call = dyn_cast<RuntimeCall>(made); call && isLibraryCall(call.getCallKind()))
        statePart(&made, parts.of(&op));
  }
  return success();
}

LogicalResult mpt::memory::bufferize(ModuleOp module, const BufferizationPolicy &policy) {
  KernelTable kernels(module);
  for (auto function : llvm::to_vector(module.getOps<func::FuncOp>())) {
    if (function.isPrivate() || function.isDeclaration())
      continue;
    if (!function.getBody().hasOneBlock())
      return function.emitOpError() << "expected one block";
    LogicalResult result = bufferizeFunction(function, kernels, policy);
    function.erase();
    if (failed(result))
      return failure();
  }
  return success();
}
