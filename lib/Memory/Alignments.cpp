// SPDX-License-Identifier: Apache-2.0
// CTC's recursion on buffers: a loop of one kernel a step, each way. Steps read the states of the step beside them
// where that one wrote them, in the result.
#include "Models.h"
#include "StepLoop.h"

#include "mpt/Dialect/MPT/Alignments.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

using Values = SmallVector<Value>;

/// Members that both directions share.
struct Pass {
  Pass(Operation *op, RankedTensorType type, BufferizationState &state)
      : state(state), loc(op->getLoc()), loop(loc, state), steps(type.getDimSize(0)), batch(type.getDimSize(1)),
        states(type.getDimSize(2)) {}

  BufferizationState &state;
  Location loc;
  StepLoop loop;
  int64_t steps, batch, states;

  /// Step `first` of `memref` [steps, batch, ...], and then every one `by` steps further on.
  StepView from(int64_t first, int64_t by, Value memref) {
    MemRefType type = bufferTypeOf(memref);
    Sizes strides = stridesOf(type);
    ArrayRef<int64_t> shape = type.getShape();
    Value view = state.view(loc, memref, shape.drop_front(), ArrayRef(strides).drop_front(), first * strides[0]);
    return {view, by * strides[0]};
  }
};

template <typename Op, typename Steps> struct Model : Bufferizable::ExternalModel<Model<Op, Steps>, Op> {
  LogicalResult bufferize(Operation *op, BufferizationState &state) const {
    Steps(cast<Op>(op), state).run();
    return success();
  }
};

struct Forward : Pass {
  Forward(AlignmentsOp op, BufferizationState &state) : Pass(op, tensorType(op.getAlphas()), state), op(op) {}
  AlignmentsOp op;

  void run() {
    Value alphas = state.denseResult(op.getAlphas(), rowMajor(3));
    state.setBuffer(op.getLast(), from(steps - 1, 0, alphas).memref);
    if (batch == 0)
      return;
    Value emissions = loop.read(op.getEmissions()), skips = loop.read(op.getSkips()), open = loop.read(op.getOpen());
    loop.launch({from(0, 0, emissions), {skips}, from(0, 0, open)}, {from(0, 0, alphas)},
                [](GraphBuilder &b, ValueRange in) -> Values {
                  return {alignmentStep(b, alignmentStart(b, tensorType(in[0])), in[0], in[1], in[2])};
                });
    StepViews in = {from(0, 1, alphas), from(1, 1, emissions), {skips}, from(1, 1, open)};
    StepView out = from(1, 1, alphas);
    loop.repeat(steps - 1, [&] {
      loop.launch(in, {out}, [](GraphBuilder &b, ValueRange in) -> Values {
        return {alignmentStep(b, in[0], in[1], in[2], in[3])};
      });
    });
  }
};

struct Backward : Pass {
  Backward(AlignmentsBackwardOp op, BufferizationState &state) : Pass(op, tensorType(op.getAlphas()), state), op(op) {}
  AlignmentsBackwardOp op;

  void run() {
    Value gradients = state.denseResult(op.getDalphas(), rowMajor(3));
    if (batch == 0)
      return;
    Value alphas = loop.read(op.getAlphas()), skips = loop.read(op.getSkips()), open = loop.read(op.getOpen());
    state.copy(loc, state.buffer(op.getDlast()), from(steps - 1, 0, gradients).memref);
    if (steps == 1)
      return;
    StepViews in = {from(steps - 1, -1, gradients), from(steps - 2, -1, alphas), {skips}, from(steps - 1, -1, open)};
    StepView out = from(steps - 2, -1, gradients);
    loop.repeat(steps - 1, [&] {
      loop.launch(in, {out}, [](GraphBuilder &b, ValueRange in) -> Values {
        return {alignmentGradient(b, in[0], in[1], in[2], in[3])};
      });
    });
  }
};

} // namespace

void mpt::memory::attachAlignmentModels(MLIRContext *context) {
  AlignmentsOp::attachInterface<Model<AlignmentsOp, Forward>>(*context);
  AlignmentsBackwardOp::attachInterface<Model<AlignmentsBackwardOp, Backward>>(*context);
}
