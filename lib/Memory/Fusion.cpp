// SPDX-License-Identifier: Apache-2.0
// Fusions on buffers: each a launch of a generated kernel, or a view where it only repeats its operand.
#include "Kernels.h"
#include "Models.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Memory/Bufferization.h"
#include "mpt/Memory/Destinations.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// A view of `from` as `broadcast` repeats it, with strides of 0.
Value repeated(BroadcastOp broadcast, Value from, Location loc, BufferizationState &state) {
  RankedTensorType type = tensorType(broadcast.getY());
  Sizes given = stridesOf(bufferTypeOf(from)), strides(type.getRank(), 0);
  for (auto [i, d] : llvm::enumerate(broadcast.getDims()))
    if (bufferTypeOf(from).getDimSize(i) == type.getDimSize(d))
      strides[d] = given[i];
  return state.view(loc, from, type.getShape(), strides);
}

/// Updates of several states, which some kernels walk as flat memory.
bool isBundle(FusionOp fusion) {
  return fusion.getNumResults() > 1 &&
         llvm::all_of(fusion->getUsers(), [](Operation *user) { return isa<train::WriteOp>(user); }) &&
         fusion.getBody().front().getOps<ReduceOp>().empty();
}

/// True for constants with infinities, which masks hold on purpose.
bool holdsInfinity(Operation *op) {
  auto constant = dyn_cast_or_null<ConstantOp>(op);
  auto dense = constant ? dyn_cast<DenseFPElementsAttr>(constant.getValue()) : DenseFPElementsAttr();
  if (!dense || dense.empty())
    return false;
  return dense.isSplat() ? dense.getSplatValue<APFloat>().isInfinity()
                         : llvm::any_of(dense.getValues<APFloat>(), [](const APFloat &x) { return x.isInfinity(); });
}

/// Results of `fusion` may hold infinities of a mask: arithmetic hands them on; an exponential, a sum or a GEMM ends
/// them.
bool mayHoldInfinity(FusionOp fusion, const BufferizationState &state) {
  bool holds = false, handsOn = true;
  for (Operation &op : fusion.getBody().front()) {
    holds |= holdsInfinity(&op);
    auto semantics = dyn_cast<PrecisionSemantics>(op);
    NumericClass kind = semantics ? semantics.getNumericClass() : NumericClass::Movement;
    handsOn &= kind == NumericClass::Movement || kind == NumericClass::Neutral;
  }
  return holds || llvm::any_of(fusion.getInputs(), [&](Value input) {
           return holdsInfinity(input.getDefiningOp()) || (handsOn && state.mayHoldInfinity.contains(input));
         });
}

/// Buffers of a launch, and the types and alignments that its kernel is made for.
struct LaunchBuffers {
  SmallVector<Value> operands;
  SmallVector<Value> places; ///< of the outputs; null for buffers of their own
  SmallVector<MemRefType> inputTypes, outputTypes;
  SmallVector<int64_t> alignments;

  void addInputs(FusionOp fusion, BufferizationState &state) {
    bool flat = state.policy.bundles == BufferizationPolicy::Bundles::Flat && isBundle(fusion);
    for (Value input : fusion.getInputs()) {
      Value operand = state.buffer(input);
      if (flat)
        operand = state.dense(fusion.getLoc(), operand, rowMajor(tensorType(input).getRank()));
      operands.push_back(operand);
      inputTypes.push_back(bufferTypeOf(operand));
      alignments.push_back(state.alignmentOf(operand));
    }
  }
  void addOutputs(FusionOp fusion, BufferizationState &state) {
    for (Value output : fusion.getOutputs()) {
      Value place = state.placeFor(output);
      outputTypes.push_back(place ? bufferTypeOf(place) : state.ownType(output));
      alignments.push_back(place ? state.alignmentOf(place) : state.policy.alignment);
      places.push_back(place);
    }
  }
};

struct FusionBufferization : Bufferizable::ExternalModel<FusionBufferization, FusionOp> {
  WritesTo writesTo(Operation *) const { return WritesTo::StatesInPlace; }

  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    auto fusion = cast<FusionOp>(op);
    BroadcastOp broadcast = onlyBroadcast(fusion);
    if (!broadcast || state.isWantedInPlace(fusion.getOutputs()[0])) {
      launch(fusion, state);
      return success();
    }
    Value from = state.buffer(fusion.getInputs()[0]);
    state.setBuffer(fusion.getOutputs()[0], repeated(broadcast, from, fusion.getLoc(), state));
    return success();
  }

private:
  static void launch(FusionOp fusion, BufferizationState &state) {
    Location loc = fusion.getLoc();
    LaunchBuffers buffers;
    buffers.addInputs(fusion, state);
    buffers.addOutputs(fusion, state);
    // Nothing to compute: the results have no elements.
    if (llvm::all_of(buffers.outputTypes, [](MemRefType type) { return type.getNumElements() == 0; })) {
      for (auto [i, output] : llvm::enumerate(fusion.getOutputs())) {
        Value place = buffers.places[i];
        state.setBuffer(output, place ? place : state.allocate(loc, buffers.outputTypes[i]));
      }
      return;
    }
    func::FuncOp kernel = state.kernels.get(fusion, buffers.inputTypes, buffers.outputTypes, buffers.alignments);
    SmallVector<Value> all(buffers.operands);
    for (auto [i, output] : llvm::enumerate(fusion.getOutputs())) {
      Value place = buffers.places[i];
      state.setBuffer(output, place ? place : state.allocate(loc, buffers.outputTypes[i]));
      all.push_back(state.buffer(output));
    }
    auto launch = state.launch(loc, kernel, all, buffers.operands.size());
    if (mayHoldInfinity(fusion, state)) {
      launch.setInfinite(true);
      state.mayHoldInfinity.insert_range(fusion.getOutputs());
    }
  }
};

} // namespace

void mpt::memory::attachFusionModel(MLIRContext *context) { FusionOp::attachInterface<FusionBufferization>(*context); }
