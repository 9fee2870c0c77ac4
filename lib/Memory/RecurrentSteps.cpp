// SPDX-License-Identifier: Apache-2.0
// A step of a recurrence is a GEMM and one kernel (two each where a GRU's reset comes first). GEMMs read and write the
// same scratch in every step, operands in the weights' type and sums in FP32; values between steps are FP32.
#include "RecurrentSteps.h"

#include "StepLoop.h"

#include "mpt/Dialect/MPT/RecurrentCells.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

using Values = CellValues;

StepViews operator+(StepViews a, const StepViews &b) {
  a.append(b);
  return a;
}

/// Members that both passes share.
template <typename Op> class RecurrentPass {
protected:
  RecurrentPass(Op op, BufferizationState &state, bool forward)
      : op(op), state(state), loop(op.getLoc(), state), steps(tensorType(op.getY()).getDimSize(0)),
        batch(tensorType(op.getY()).getDimSize(1)), hidden(tensorType(op.getY()).getDimSize(2)),
        gates(tensorType(op.getR()).getDimSize(0) / std::max<int64_t>(hidden, 1)), cell(op.getCell()),
        by(forward == op.getReverse() ? -1 : 1), first(by > 0 ? 0 : steps - 1) {}

  /// Blocks of a tensor [steps, batch, any] in the step that is made, or in the one that runs `later` steps later.
  StepViews read(Value tensor, int64_t count = 1, int64_t from = 0, int64_t later = 0) {
    return loop.blocks(loop.read(tensor), first + (made + later) * by, by, hidden, count, from);
  }
  StepViews write(Value tensor, int64_t count = 1, int64_t from = 0) {
    return loop.blocks(state.buffer(tensor), first + made * by, by, hidden, count, from);
  }
  /// A tensor [batch, hidden], or [hidden].
  StepView whole(Value tensor) { return {loop.read(tensor)}; }
  StepView wideScratch(int64_t blocks = 1) {
    return {loop.scratch(batch, blocks * hidden, Float32Type::get(op.getContext()))};
  }
  /// Of a GEMM, in the weights' type.
  StepView operandScratch(int64_t blocks = 1) {
    return {loop.scratch(batch, blocks * hidden, tensorType(op.getR()).getElementType())};
  }
  StepViews blocks(const StepView &scratch, int64_t count = 1, int64_t from = 0) {
    return loop.blocks(scratch.memref, hidden, count, from);
  }
  /// The weights of gates [from, from + count).
  Value weights(int64_t from, int64_t count) {
    Value r = loop.read(op.getR());
    Sizes strides = stridesOf(bufferTypeOf(r));
    return state.view(op.getLoc(), r, {count * hidden, hidden}, strides, from * hidden * strides[0]);
  }
  /// Copies each input to the output of its number, in that one's type.
  void convert(const StepViews &from, const StepViews &to) {
    loop.launch(from, to, [](GraphBuilder &, ValueRange in) { return Values(in.begin(), in.end()); });
  }
  /// Buffers of the results, and whether there is anything to compute.
  bool makeResults() {
    for (Value result : op->getResults())
      state.denseResult(result, rowMajor(tensorType(result).getRank()));
    return steps > 0 && batch > 0 && hidden > 0;
  }

  Op op;
  BufferizationState &state;
  StepLoop loop;
  int64_t steps, batch, hidden, gates;
  RecurrentCell cell;
  int64_t by, first; ///< from step to step as they run
  int64_t made = 0;  ///< steps that run before the one that is made
};

ValueRange part(ValueRange all, size_t from, size_t count) { return all.drop_front(from).take_front(count); }

/// `running` is the cell state, or a GRU's state, in FP32.
class ForwardPass : RecurrentPass<RecurrenceOp> {
public:
  ForwardPass(RecurrenceOp op, BufferizationState &state)
      : RecurrentPass(op, state, true), isLstm(cell == RecurrentCell::lstm), isGru(cell == RecurrentCell::gru) {}

  void run() {
    if (!makeResults())
      return;
    operand = operandScratch();
    if (isLstm || isGru)
      running = wideScratch();
    // The state before the first step, rounded for the GEMM. A GRU reads it in FP32 too.
    StepView h0 = whole(op.getH0());
    if (isLstm)
      convert({h0, whole(op.getMore()[0])}, {operand, running});
    else if (isGru)
      loop.launch({h0}, {operand, running}, [](GraphBuilder &, ValueRange in) { return Values{in[0], in[0]}; });
    else
      convert({h0}, {operand});
    if (isGru && op.getMore().empty())
      runResetFirst();
    else
      runInOne();
  }

private:
  /// Where a new state goes: the result, and the operand of the next step's GEMM.
  StepViews states() { return write(op.getY()) + StepViews{operand}; }

  void runInOne() {
    StepView sums = wideScratch(gates);
    StepViews in = read(op.getX(), gates) + blocks(sums, gates), out;
    if (isLstm || isGru) {
      in.push_back(running);
      out = write(op.getSaved()[0], 4);
    }
    if (isGru)
      in.push_back(whole(op.getMore()[0]));
    if (isLstm)
      out.append(write(op.getSaved()[1]));
    out.append(states());
    if (isLstm || isGru)
      out.push_back(running);
    Value r = weights(0, gates);
    loop.repeat(steps, [&] {
      loop.gemm(operand, r, true, sums);
      loop.launch(in, out, [&](GraphBuilder &b, ValueRange values) { return step(b, values); });
    });
  }

  Values step(GraphBuilder &b, ValueRange in) {
    ValueRange x = part(in, 0, gates), s = part(in, gates, gates), more = in.drop_front(2 * gates);
    if (isLstm) {
      Values made = lstmStep(b, x, s, more[0]);
      return {made[0], made[1], made[2], made[3], made[4], made[5], made[5], made[4]};
    }
    if (isGru) {
      Values made = gruStep(b, x, s, b.broadcast(more[1], {batch, hidden}, {1}), more[0]);
      return {made[0], made[1], made[2], made[3], made[4], made[4], made[4]};
    }
    Value h = plainStep(b, cell, x[0], s[0]);
    return {h, h};
  }

  void runResetFirst() {
    StepView sums = wideScratch(2), sum = wideScratch(), z = wideScratch(), kept = operandScratch();
    Value gatesR = weights(0, 2), lastR = weights(2, 1);
    StepViews gatesIn = read(op.getX(), 2) + blocks(sums, 2) + StepViews{running};
    StepViews gatesOut = write(op.getSaved()[0], 2) + write(op.getSaved()[1]) + StepViews{z, kept};
    StepViews lastIn = read(op.getX(), 1, 2) + StepViews{sum, z, running};
    StepViews lastOut = write(op.getSaved()[0], 1, 2) + states() + StepViews{running};
    loop.repeat(steps, [&] {
      loop.gemm(operand, gatesR, true, sums);
      loop.launch(gatesIn, gatesOut, [](GraphBuilder &b, ValueRange in) -> Values {
        Values made = gruGates(b, part(in, 0, 2), part(in, 2, 2), in[4]);
        return {made[0], made[1], made[2], made[0], made[2]};
      });
      loop.gemm(kept, lastR, true, sum);
      loop.launch(lastIn, lastOut, [](GraphBuilder &b, ValueRange in) -> Values {
        Values made = gruState(b, in[0], in[1], in[2], in[3]);
        return {made[0], made[1], made[1], made[1]};
      });
    });
  }

  bool isLstm, isGru;
  StepView operand, running;
};

/// From the last step on. `sums` is the gradient through the GEMM of the step that ran before, `running` the gradient
/// past it: of a GRU's state, or of the cell state.
class BackwardPass : RecurrentPass<RecurrenceBackwardOp> {
public:
  BackwardPass(RecurrenceBackwardOp op, BufferizationState &state)
      : RecurrentPass(op, state, false), isLstm(cell == RecurrentCell::lstm), isGru(cell == RecurrentCell::gru) {}

  void run() {
    if (!makeResults()) {
      for (Value result : op->getResults().drop_front())
        loop.fill(state.buffer(result));
      return;
    }
    operand = operandScratch(gates);
    loop.fill((sums = wideScratch()).memref);
    if (isLstm || isGru)
      loop.fill((running = wideScratch()).memref);
    // The last step that runs has another predecessor than the others.
    Value initial = isLstm ? op.getMore()[2] : isGru ? op.getH0() : Value();
    if (!initial) {
      repeat(steps, {});
    } else {
      if (steps > 1)
        repeat(steps - 1, read(isLstm ? op.getMore()[1] : op.getY(), 1, 0, 1)[0]);
      made = steps - 1;
      isLast = true;
      repeat(1, whole(initial));
    }
    finish();
  }

private:
  void repeat(int64_t count, const StepView &before) {
    if (isLstm)
      lstm(count, before);
    else if (isGru && !op.getOthers().empty())
      gru(count, before);
    else if (isGru)
      gruResetFirst(count, before);
    else
      plain(count);
  }

  /// The gradient of the state before, through the GEMM; nobody may want that before the first step of all.
  void comeThrough(const StepView &gradient, Value r) {
    if (!isLast || !op.getDh0().use_empty())
      loop.gemm(gradient, r, false, sums);
  }

  void plain(int64_t count) {
    StepViews in = read(op.getDy()) + read(op.getY()) + StepViews{sums};
    StepViews out = write(op.getDx()) + StepViews{operand};
    Value r = weights(0, 1);
    loop.repeat(count, [&] {
      loop.launch(in, out, [&](GraphBuilder &b, ValueRange in) -> Values {
        Value dx = plainGradient(b, cell, b.add(in[0], in[2]), in[1]);
        return {dx, dx};
      });
      comeThrough(operand, r);
    });
  }

  void lstm(int64_t count, const StepView &before) {
    ValueRange more = op.getMore();
    StepViews in = read(op.getDy()) + StepViews{sums} + read(more[0], 4) + read(more[1]) + StepViews{running, before};
    if (more.size() > 3)
      in.append(read(more[3]));
    Value dc0 = op.getOthers()[0];
    bool ends = isLast && !dc0.use_empty();
    StepViews out = write(op.getDx(), 4) + blocks(operand, 4) + StepViews{ends ? StepView{state.buffer(dc0)} : running};
    Value r = weights(0, 4);
    loop.repeat(count, [&] {
      loop.launch(in, out, [](GraphBuilder &b, ValueRange in) -> Values {
        Value dc = in.size() > 9 ? b.add(in[7], in[9]) : in[7];
        Values made = lstmGradient(b, b.add(in[0], in[1]), part(in, 2, 4), in[6], dc, in[8]);
        return {made[0], made[1], made[2], made[3], made[0], made[1], made[2], made[3], made[4]};
      });
      comeThrough(operand, r);
    });
  }

  /// The gradient of a GRU's state: of dy, sums and `running`.
  static Value total(GraphBuilder &b, ValueRange in) { return b.add(in[0], b.add(in[2], in[1])); }
  StepViews ofState() { return read(op.getDy()) + StepViews{sums, running}; }

  void gru(int64_t count, const StepView &before) {
    StepViews in = ofState() + read(op.getMore()[0], 4) + StepViews{before};
    StepViews out = write(op.getDx(), 3) + write(op.getOthers()[0]) + blocks(operand, 3) + StepViews{running};
    Value r = weights(0, 3);
    loop.repeat(count, [&] {
      loop.launch(in, out, [](GraphBuilder &b, ValueRange in) -> Values {
        Values made = gruGradient(b, total(b, in), part(in, 3, 4), in[7]);
        return {made[0], made[1], made[2], made[3], made[0], made[1], made[3], made[4]};
      });
      comeThrough(operand, r);
    });
  }

  void gruResetFirst(int64_t count, const StepView &before) {
    Value saved = op.getMore()[0], gatesR = weights(0, 2), lastR = weights(2, 1);
    StepView last = operandScratch(), dKept = wideScratch(), first = operandScratch(2);
    StepViews lastIn = ofState() + read(saved) + read(saved, 1, 2), lastOut = write(op.getDx(), 1, 2) + StepViews{last};
    StepViews in = ofState() + read(saved, 3) + StepViews{before, dKept};
    StepViews out = write(op.getDx(), 2) + blocks(first, 2) + StepViews{running};
    loop.repeat(count, [&] {
      loop.launch(lastIn, lastOut, [](GraphBuilder &b, ValueRange in) -> Values {
        Value dx = gruLastGradient(b, total(b, in), {in[3], Value(), in[4]});
        return {dx, dx};
      });
      loop.gemm(last, lastR, false, dKept);
      loop.launch(in, out, [](GraphBuilder &b, ValueRange in) -> Values {
        Values made = gruGatesGradient(b, total(b, in), part(in, 3, 3), in[6], in[7]);
        return {made[0], made[1], made[0], made[1], made[2]};
      });
      comeThrough(first, gatesR);
    });
  }

  /// The gradient of h0.
  void finish() {
    if (op.getDh0().use_empty())
      return;
    StepView dh0{state.buffer(op.getDh0())};
    if (!isGru)
      return convert({sums}, {dh0});
    loop.launch({sums, running}, {dh0}, [](GraphBuilder &b, ValueRange in) { return Values{b.add(in[1], in[0])}; });
  }

  bool isLstm, isGru, isLast = false;
  StepView sums, operand, running;
};

} // namespace

void mpt::memory::loopOverSteps(RecurrenceOp op, BufferizationState &state) { ForwardPass(op, state).run(); }
void mpt::memory::loopOverSteps(RecurrenceBackwardOp op, BufferizationState &state) { BackwardPass(op, state).run(); }
