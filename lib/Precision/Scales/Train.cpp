// SPDX-License-Identifier: Apache-2.0
// How loss scales come and go: state, gradients, and arithmetic on scales.
#include "Rules.h"

#include "mpt/Dialect/Train/RequestOps.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::scales;

namespace {

/// Refuses a factor that is not a scale.
ScaleType needScale(ScaleInference &inference, Value value) {
  ScaleType type = inference.of(value);
  if (!type.isScale())
    inference.refuse() << "expected a scale, got a value with " << type.str();
  return type;
}

/// A gradient that loses `scale` must carry it, once, and no other.
void needCarried(ScaleInference &inference, const ScaleType &carried, const ScaleType &scale) {
  if (carried.isZero() || carried.carriesAs(scale))
    return;
  if (!carried.isProduct()) {
    inference.refuse() << "expected a gradient that carries one scale, got " << carried.str();
    return;
  }
  ScaleType rest = carried.times(*scale.power(-1));
  int64_t times = 0;
  for (int64_t n : {2, 3, 4})
    if (carried.carriesAs(*scale.power(n)))
      times = n;
  if (carried.isUnscaled() || times > 1)
    inference.refuse() << "expected a gradient that carries the loss scale once, got it " << times << " times";
  else
    inference.refuse() << "expected the scale that the gradient carries, got another one: " << carried.str()
                       << " is not " << scale.str();
}

struct Read : GradientScale::ExternalModel<Read, train::ReadOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto read = cast<train::ReadOp>(op);
    if (carriesScales(read.getValue()))
      inference.set(read.getValue(), inference.ofState(read.getValue(), read.getState()));
  }
};
struct Write : GradientScale::ExternalModel<Write, train::WriteOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto write = cast<train::WriteOp>(op);
    if (!carriesScales(write.getValue()))
      return;
    ScaleType type = inference.of(write.getValue()), wanted = inference.ofState(Value(), write.getState());
    if (wanted.isScale() && !type.isScale())
      inference.refuse() << "expected a scale for state " << write.getState() << ", got a value with " << type.str();
    if (wanted.isScales() && !type.isScales() && !type.isScale())
      inference.refuse() << "expected scales for state " << write.getState() << ", got a value with " << type.str();
    if (wanted.isUnscaled() && !type.isUnscaled() && !type.isZero())
      inference.refuse() << "expected a value without the loss scale for state " << write.getState() << ", got "
                         << type.str();
  }
};
struct Gradient : GradientScale::ExternalModel<Gradient, train::GradientOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto gradient = cast<train::GradientOp>(op);
    ScaleType type = inference.of(gradient.getGradient());
    if (!type.isUnscaled() && !type.isZero())
      inference.refuse() << "expected an unscaled gradient of " << gradient.getParameter()
                         << ", got one that carries the loss scale: train.unscale is missing";
    inference.set(gradient.getResult(), type.isZero() ? type : ScaleType::unscaled());
  }
  bool spreadsNonFinite(Operation *) const { return true; }
};
/// A result of a function is a number of the model, or a scale to be reported.
struct Return : GradientScale::ExternalModel<Return, func::ReturnOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    for (auto [i, value] : llvm::enumerate(op->getOperands()))
      if (ScaleType type = inference.of(value);
          carriesScales(value) && !type.isUnscaled() && !type.isZero() && !type.isScale())
        inference.refuse() << "expected result " << i << " without a scale, got " << type.str()
                           << ": train.unscale is missing";
  }
};

struct AddsScale : GradientScale::ExternalModel<AddsScale, train::ScaleLossOp> {
  SmallVector<Value, 2> getScaleOperands(Operation *op) const {
    if (hasAttr<MPTDialect::SeedAttrHelper>(op)) // until loss scaling the scale is a placeholder
      return {};
    return {cast<train::ScaleLossOp>(op).getScale()};
  }
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto scale = cast<train::ScaleLossOp>(op);
    ScaleType seed = inference.of(scale.getSeed());
    if (!seed.isUnscaled() && !seed.isZero())
      inference.refuse() << "expected a seed without a scale: the loss is scaled twice";
    if (!getScaleOperands(op).empty())
      inference.set(scale.getResult(), seed.times(needScale(inference, scale.getScale())).withoutPurity());
  }
};
struct RemovesScale : GradientScale::ExternalModel<RemovesScale, train::UnscaleOp> {
  SmallVector<Value, 2> getScaleOperands(Operation *op) const { return {cast<train::UnscaleOp>(op).getScale()}; }
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto unscale = cast<train::UnscaleOp>(op);
    ScaleType carried = inference.of(unscale.getGradient()), scale = needScale(inference, unscale.getScale());
    needCarried(inference, carried, scale);
    ScaleType rest = carried.times(*scale.power(-1));
    inference.set(unscale.getResult(), carried.isUnscaled() ? carried : rest.withoutPurity());
  }
  bool spreadsNonFinite(Operation *) const { return true; }
};
struct ExchangesScale : GradientScale::ExternalModel<ExchangesScale, train::RescaleOp> {
  SmallVector<Value, 2> getScaleOperands(Operation *op) const {
    return {cast<train::RescaleOp>(op).getFrom(), cast<train::RescaleOp>(op).getTo()};
  }
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto rescale = cast<train::RescaleOp>(op);
    ScaleType carried = inference.of(rescale.getGradient());
    needCarried(inference, carried, needScale(inference, rescale.getFrom()));
    ScaleType to = needScale(inference, rescale.getTo());
    inference.set(rescale.getResult(), carried.isZero() ? carried : to.withoutPurity());
  }
  bool spreadsNonFinite(Operation *) const { return true; }
};

/// Says whether values are finite, whatever they carry.
struct Check : GradientScale::ExternalModel<Check, train::AllFiniteOp> {
  void inferScales(Operation *, ScaleInference &) const {}
  bool checksFinite(Operation *) const { return true; }
  Flag evaluateFlag(Operation *op, ArrayRef<Flag>) const {
    return op->getNumOperands() == 0 ? Flag(true) : std::nullopt;
  }
};

// ---- scales from statistics of gradients

struct Moments : GradientScale::ExternalModel<Moments, train::MomentsOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto moments = cast<train::MomentsOp>(op);
    ScaleType type = inference.of(moments.getX());
    inference.set(moments.getSquare(), *type.power(2));
    inference.set(moments.getMax(), type.withoutPurity());
  }
};
struct LogMoments : GradientScale::ExternalModel<LogMoments, train::LogMomentsOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    ScaleType type = inference.of(op->getOperand(0));
    setResults(op, inference, type.isUnscaled() ? type : ScaleType::mixed());
  }
};
/// Makes scales, which are positive and finite whatever they were made of.
template <typename Op> struct MakesScale : GradientScale::ExternalModel<MakesScale<Op>, Op> {
  ResultRange getMadeScales(Operation *op) const { return op->getResults(); }
  void inferScales(Operation *op, ScaleInference &inference) const { setResults(op, inference, ScaleType::scales()); }
};
struct MergesScales : GradientScale::ExternalModel<MergesScales, train::MergeScaleOp> {
  SmallVector<Value, 2> getScaleOperands(Operation *op) const {
    return llvm::to_vector<2>(cast<train::MergeScaleOp>(op).getScales());
  }
  ResultRange getMadeScales(Operation *op) const { return op->getResults(); }
  void inferScales(Operation *op, ScaleInference &inference) const {
    for (Value scale : cast<train::MergeScaleOp>(op).getScales())
      needScale(inference, scale);
    setResults(op, inference, ScaleType::scales());
  }
};
/// The next scale of one: counters are no scales.
template <typename Op> struct NextScale : GradientScale::ExternalModel<NextScale<Op>, Op> {
  SmallVector<Value, 2> getScaleOperands(Operation *op) const { return {op->getOperand(0)}; }
  ResultRange getMadeScales(Operation *op) const { return op->getResults().take_front(1); }
  void inferScales(Operation *op, ScaleInference &inference) const {
    needScale(inference, op->getOperand(0));
    inference.set(op->getResult(0), ScaleType::scales());
  }
};
struct History : GradientScale::ExternalModel<History, train::RollOp> {
  void inferScales(Operation *op, ScaleInference &inference) const { setResults(op, inference, ScaleType::mixed()); }
};

} // namespace

void scales::attachTrainScales(MLIRContext *context) {
  train::ReadOp::attachInterface<Read>(*context);
  train::WriteOp::attachInterface<Write>(*context);
  train::GradientOp::attachInterface<Gradient>(*context);
  train::ScaleLossOp::attachInterface<AddsScale>(*context);
  train::UnscaleOp::attachInterface<RemovesScale>(*context);
  train::RescaleOp::attachInterface<ExchangesScale>(*context);
  train::AllFiniteOp::attachInterface<Check>(*context);
  train::MomentsOp::attachInterface<Moments>(*context);
  train::LogMomentsOp::attachInterface<LogMoments>(*context);
  attach<MakesScale, train::LayerScaleOp, train::CastScaleOp, train::TensorScaleOp>(context);
  train::MergeScaleOp::attachInterface<MergesScales>(*context);
  attach<NextScale, train::UpdateScaleOp, train::FloorScaleOp>(context);
  train::RollOp::attachInterface<History>(*context);
  // A norm is of degree 1, but one of scaled gradients is of use to nobody: clipping would take the scale for size.
  attach<NotHomogeneous, train::GlobalNormOp>(context);
  // A request is answered before there are scales.
  attach<NotHomogeneous, train::DeriveOp>(context);
}

void scales::attachFunctionScales(MLIRContext *context) { func::ReturnOp::attachInterface<Return>(*context); }
