// Scale arithmetic: floors, scales of layers, scales of 8-bit tensors.
#include "Scales.h"

#include "Rules.h"

#include "mpt/Dialect/Train/ScaleOps.h"

using namespace mlir;
using namespace mpt;

namespace {

void setScalar(InterpreterFrame &frame, Value value, double number) {
  Tensor result = frame.zeros(value);
  result.setNumber(0, number);
  frame.set(value, std::move(result));
}

double real(const APFloat &value) { return value.convertToDouble(); }

/// The power of two at or below a positive finite number; 1 for anything else.
double powerOrOne(double x) { return x > 0 && std::isfinite(x) ? std::ldexp(1.0, std::ilogb(x)) : 1.0; }

LogicalResult interpretFloorScale(train::FloorScaleOp op, InterpreterFrame &frame) {
  double scale = scalarOf(frame, op.getScale()), step = scalarOf(frame, op.getSteps()) + 1;
  for (auto [from, floor] : llvm::zip_equal(op.getFloorSteps(), op.getFloors()))
    if (static_cast<double>(from) <= step)
      scale = std::max(scale, floor);
  setScalar(frame, op.getNewScale(), scale);
  return success();
}

LogicalResult interpretRescale(train::RescaleOp op, InterpreterFrame &frame) {
  double factor = scalarOf(frame, op.getTo()) / scalarOf(frame, op.getFrom());
  Tensor y = frame.zeros(op.getResult());
  for (auto [in, out] : llvm::zip_equal(frame.get(op.getGradient()).reals(), y.writeReals()))
    out = in * factor;
  frame.set(op.getResult(), std::move(y));
  return success();
}

LogicalResult interpretMoments(train::MomentsOp op, InterpreterFrame &frame) {
  double sum = 0, squares = 0, low = HUGE_VAL, high = -HUGE_VAL;
  ArrayRef<double> x = frame.get(op.getX()).reals();
  for (double value : x) {
    sum += value;
    squares += value * value;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  auto count = static_cast<double>(x.size());
  setScalar(frame, op.getMean(), sum / count);
  setScalar(frame, op.getSquare(), squares / count);
  setScalar(frame, op.getMin(), low);
  setScalar(frame, op.getMax(), high);
  return success();
}

LogicalResult interpretLogMoments(train::LogMomentsOp op, InterpreterFrame &frame) {
  double sum = 0, squares = 0, top = 0, count = 0;
  for (double value : frame.get(op.getX()).reals()) {
    top = std::max(top, std::fabs(value));
    if (value == 0)
      continue;
    double log = std::log(std::fabs(value));
    sum += log;
    squares += log * log;
    ++count;
  }
  setScalar(frame, op.getMean(), count ? sum / count : 0);
  setScalar(frame, op.getSquare(), count ? squares / count : 0);
  setScalar(frame, op.getMax(), top);
  return success();
}

LogicalResult interpretLayerScale(train::LayerScaleOp op, InterpreterFrame &frame) {
  auto get = [&](Value value) { return scalarOf(frame, value); };
  auto terms = static_cast<double>(op.getTerms());
  double variance = get(op.getGSquare()) * get(op.getWSquare());
  if (op.getSpread() == "sum")
    variance *= terms / 2;
  double low = std::max(1.0, real(op.getSmallest()) / (op.getReach() * std::sqrt(variance)));
  double extreme = std::max(std::fabs(get(op.getGMin())), std::fabs(get(op.getGMax()))) *
                   std::max(std::fabs(get(op.getWMin())), std::fabs(get(op.getWMax())));
  double scale = std::min({low, real(op.getLargest()) / terms / extreme, real(op.getLayerMax()),
                           real(op.getTotalMax()) / get(op.getScale())});
  setScalar(frame, op.getFactor(), variance > 0 && std::isfinite(variance) ? powerOrOne(scale) : 1.0);
  return success();
}

LogicalResult interpretCastScale(train::CastScaleOp op, InterpreterFrame &frame) {
  double mean = scalarOf(frame, op.getMean()), square = scalarOf(frame, op.getSquare());
  double deviation = std::sqrt(std::max(0.0, square - mean * mean));
  double scale = real(op.getSmallest()) / std::exp(mean + deviation * op.getQuantile());
  scale = std::min(scale, real(op.getLargest()) / (2 * scalarOf(frame, op.getMax())));
  setScalar(frame, op.getFactor(), powerOrOne(scale));
  return success();
}

LogicalResult interpretMergeScale(train::MergeScaleOp op, InterpreterFrame &frame) {
  double best = 0, least = HUGE_VAL;
  for (Value scale : op.getScales()) {
    double candidate = scalarOf(frame, scale);
    least = std::min(least, candidate);
    bool fits = llvm::all_of(llvm::zip_equal(op.getScales(), op.getMaxima()), [&](auto pair) {
      auto [own, top] = pair;
      return scalarOf(frame, top) * (candidate / scalarOf(frame, own)) < real(op.getLargest());
    });
    if (fits)
      best = std::max(best, candidate);
  }
  setScalar(frame, op.getScale(), best > 0 ? best : least / 8);
  return success();
}

LogicalResult interpretTensorScale(train::TensorScaleOp op, InterpreterFrame &frame) {
  ArrayRef<double> amax = frame.get(op.getAmax()).reals(), previous = frame.get(op.getPrevious()).reals();
  Tensor result = frame.zeros(op.getScale());
  for (auto [i, scale] : llvm::enumerate(result.writeReals())) {
    scale = previous[i];
    if (!(amax[i] > 0 && std::isfinite(amax[i])))
      continue;
    scale = std::min(std::ldexp(real(op.getLargest()), -static_cast<int>(op.getMargin())) / amax[i],
                     static_cast<double>(std::numeric_limits<float>::max()));
    if (op.getPowerOfTwo())
      scale = powerOrOne(std::min(scale, 0x1p100));
  }
  frame.set(op.getScale(), std::move(result));
  return success();
}

LogicalResult interpretRoll(train::RollOp op, InterpreterFrame &frame) {
  const Tensor &history = frame.get(op.getHistory());
  ArrayRef<double> newest = frame.get(op.getNewest()).reals();
  Tensor result = history;
  MutableArrayRef<double> out = result.writeReals();
  int64_t entries = history.shape()[1];
  for (auto [row, value] : llvm::enumerate(newest)) {
    if (value == 0)
      continue;
    double *first = out.data() + static_cast<int64_t>(row) * entries;
    std::copy_backward(first, first + entries - 1, first + entries);
    *first = value;
  }
  frame.set(op.getResult(), std::move(result));
  return success();
}

} // namespace

void mpt::attachScaleRules(MLIRContext *context) {
  attachRule<train::FloorScaleOp, interpretFloorScale>(context);
  attachRule<train::RescaleOp, interpretRescale>(context);
  attachRule<train::MomentsOp, interpretMoments>(context);
  attachRule<train::LogMomentsOp, interpretLogMoments>(context);
  attachRule<train::LayerScaleOp, interpretLayerScale>(context);
  attachRule<train::CastScaleOp, interpretCastScale>(context);
  attachRule<train::MergeScaleOp, interpretMergeScale>(context);
  attachRule<train::TensorScaleOp, interpretTensorScale>(context);
  attachRule<train::RollOp, interpretRoll>(context);
}
