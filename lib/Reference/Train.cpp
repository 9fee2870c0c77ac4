// Train ops: state, the gradient boundary, loss-scale arithmetic.
#include "Rules.h"
#include "Scales.h"

using namespace mlir;
using namespace mpt;

namespace {

LogicalResult interpretRead(train::ReadOp op, InterpreterFrame &frame) {
  auto found = frame.state().values.find(op.getState().str());
  if (found == frame.state().values.end() || !found->second)
    return op.emitOpError() << "expected a value of state @" << op.getState()
                            << ": give one in the module or with --state";
  frame.set(op.getValue(), found->second);
  return success();
}

LogicalResult interpretWrite(train::WriteOp op, InterpreterFrame &frame) {
  if (!op.getCondition() || scalarOf(frame, op.getCondition()) != 0.0)
    frame.state().writes[op.getState().str()] = frame.get(op.getValue());
  return success();
}

LogicalResult interpretGradient(train::GradientOp op, InterpreterFrame &frame) {
  frame.set(op.getResult(), frame.get(op.getGradient()));
  return success();
}

void setScalar(InterpreterFrame &frame, Value value, double number) {
  Tensor result = frame.zeros(value);
  result.setNumber(0, number);
  frame.set(value, std::move(result));
}

LogicalResult interpretAllFinite(train::AllFiniteOp op, InterpreterFrame &frame) {
  bool finite = llvm::all_of(op.getValues(), [&](Value value) {
    return llvm::all_of(frame.get(value).reals(), [](double x) { return std::isfinite(x); });
  });
  setScalar(frame, op.getFinite(), finite);
  return success();
}

LogicalResult interpretGlobalNorm(train::GlobalNormOp op, InterpreterFrame &frame) {
  double sum = 0.0;
  withRounding(frame.accumulatorType(tensorType(op.getNorm()).getElementType()), [&](auto round) {
    for (Value value : op.getValues())
      for (double x : frame.get(value).reals())
        sum = round(sum + x * x);
  });
  setScalar(frame, op.getNorm(), std::sqrt(sum));
  return success();
}

/// Every element of `x` times a number.
void setScaled(InterpreterFrame &frame, Value result, Value x, double factor) {
  Tensor y = frame.zeros(result);
  for (auto [in, out] : llvm::zip_equal(frame.get(x).reals(), y.writeReals()))
    out = in * factor;
  frame.set(result, std::move(y));
}

LogicalResult interpretScaleLoss(train::ScaleLossOp op, InterpreterFrame &frame) {
  setScaled(frame, op.getResult(), op.getSeed(), scalarOf(frame, op.getScale()));
  return success();
}

LogicalResult interpretUnscale(train::UnscaleOp op, InterpreterFrame &frame) {
  setScaled(frame, op.getResult(), op.getGradient(), 1.0 / scalarOf(frame, op.getScale()));
  return success();
}

LogicalResult interpretUpdateScale(train::UpdateScaleOp op, InterpreterFrame &frame) {
  double scale = scalarOf(frame, op.getScale());
  double good = scalarOf(frame, op.getGoodSteps()), left = scalarOf(frame, op.getHysteresisLeft());
  auto interval = static_cast<int64_t>(op.getInterval()), hysteresis = static_cast<int64_t>(op.getHysteresis());
  if (scalarOf(frame, op.getFinite()) == 0.0) {
    good = 0;
    left -= 1;
    if (left <= 0)
      scale = std::max(scale * op.getBackoff().convertToDouble(), op.getMin().convertToDouble());
  } else {
    left = hysteresis;
    good += 1;
    if (good >= interval) {
      good = 0;
      double grown = std::min(scale * op.getGrowth().convertToDouble(), op.getMax().convertToDouble());
      if (std::isfinite(static_cast<float>(grown)))
        scale = grown;
    }
  }
  setScalar(frame, op.getNewScale(), scale);
  setScalar(frame, op.getNewGoodSteps(), good);
  setScalar(frame, op.getNewHysteresisLeft(), left);
  return success();
}

} // namespace

void mpt::attachTrainRules(MLIRContext *context) {
  attachRule<train::ReadOp, interpretRead>(context);
  attachRule<train::WriteOp, interpretWrite>(context);
  attachRule<train::GradientOp, interpretGradient>(context);
  attachRule<train::AllFiniteOp, interpretAllFinite>(context);
  attachRule<train::GlobalNormOp, interpretGlobalNorm>(context);
  attachRule<train::ScaleLossOp, interpretScaleLoss>(context);
  attachRule<train::UnscaleOp, interpretUnscale>(context);
  attachRule<train::UpdateScaleOp, interpretUpdateScale>(context);
  attachScaleRules(context);
}
