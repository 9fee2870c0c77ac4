// SPDX-License-Identifier: Apache-2.0
// Learning-rate schedules in core ops, on scalars in FP64.
#include "mpt/Autodiff/Schedule.h"

using namespace mlir;
using namespace mpt;

namespace {

Value clamp01(GraphBuilder &b, Value x) {
  return b.make<MinOp>(b.make<MaxOp>(x, b.splatLike(x, 0.0)), b.splatLike(x, 1.0));
}

/// From `start` at q = 0 to `end` at q = 1 along half a cosine.
Value halfCosine(GraphBuilder &b, Value q, double start, double end) {
  Value wave = b.add(b.make<CosOp>(b.mul(q, llvm::numbers::pi)), 1.0);
  return b.add(b.mul(wave, (start - end) / 2), end);
}

Value oneCycle(GraphBuilder &b, const ScheduleSpec &schedule, Value done) {
  double last = static_cast<double>(schedule.steps) - 1, peak = schedule.rise * static_cast<double>(schedule.steps) - 1;
  double start = 1 / schedule.div;
  Value up = halfCosine(b, clamp01(b, b.mul(done, 1 / peak)), start, 1.0);
  Value down = halfCosine(b, clamp01(b, b.mul(b.add(done, -peak), 1 / (last - peak))), 1.0, start / schedule.final);
  return b.select(b.compare(Predicate::le, done, peak), up, down);
}

} // namespace

Value mpt::buildSchedule(GraphBuilder &b, const ScheduleSpec &schedule, Value step) {
  Value done = b.add(b.cast(step, b.builder.getF64Type()), -1.0);
  if (schedule.kind == ScheduleKind::oneCycle)
    return oneCycle(b, schedule, done);
  double warmup = static_cast<double>(schedule.warmup), all = static_cast<double>(schedule.steps);
  Value after = b.add(done, -warmup), share;
  switch (schedule.kind) {
  case ScheduleKind::linear:
    share = b.add(b.mul(clamp01(b, b.mul(after, 1 / (all - warmup))), schedule.min - 1), 1.0);
    break;
  case ScheduleKind::cosine:
    share = halfCosine(b, clamp01(b, b.mul(after, 1 / (all - warmup))), 1.0, schedule.min);
    break;
  case ScheduleKind::step: {
    Value times = b.make<FloorOp>(b.div(after, b.splatLike(after, static_cast<double>(schedule.every))));
    share = b.make<PowOp>(b.splatLike(after, schedule.gamma), times);
    break;
  }
  default:
    share = b.splatLike(after, 1.0);
  }
  if (schedule.warmup == 0)
    return share;
  Value rise = b.mul(b.add(done, 1.0), 1 / warmup);
  return b.select(b.compare(Predicate::lt, done, warmup), rise, share);
}
