// SPDX-License-Identifier: Apache-2.0
// Distances between tensors, and the errors that types cause in the values of a call.
#include "Drift.h"

using namespace mlir;
using namespace mpt;

double mpt::norm(const Tensor &value) {
  double sum = 0.0;
  for (int64_t i = 0; i < value.size(); ++i)
    sum += value.number(i) * value.number(i);
  return std::sqrt(sum);
}

double mpt::distance(const Tensor &a, const Tensor &b) {
  double sum = 0.0;
  for (int64_t i = 0; i < a.size(); ++i) {
    double x = a.number(i), y = b.number(i);
    if (x == y || (std::isnan(x) && std::isnan(y)))
      continue;
    if (!std::isfinite(x) || !std::isfinite(y))
      return std::numeric_limits<double>::infinity();
    sum += (x - y) * (x - y);
  }
  return std::sqrt(sum);
}

double mpt::cosine(const Tensor &a, const Tensor &b) {
  double dot = 0.0;
  for (int64_t i = 0; i < a.size(); ++i)
    dot += a.number(i) * b.number(i);
  double lengths = norm(a) * norm(b);
  return lengths > 0.0 ? dot / lengths : norm(a) == norm(b) ? 1.0 : 0.0;
}

/// Distance between neighbouring values of `format` at `x`.
static double ulpAt(const FloatFormat &format, double x) {
  double magnitude = std::max(std::fabs(x), format.smallestNormal());
  return std::ldexp(2.0 * format.epsilon(), std::ilogb(magnitude));
}

static TensorDrift driftOf(const Tensor &value, const Tensor &reference) {
  TensorDrift drift;
  auto type = cast<FloatType>(value.getElementType());
  llvm::raw_string_ostream(drift.type) << type;
  FloatFormat format(type);
  int64_t nonZero = 0;
  // Next to nothing beside the others, an element is measured in their units.
  double sum = 0.0, length = norm(reference),
         least = std::ldexp(length, -8) / std::sqrt(std::max(1.0, double(value.size())));
  for (int64_t i = 0; i < value.size(); ++i) {
    double x = value.number(i), y = reference.number(i);
    nonZero += y != 0.0;
    drift.underflowShare += y != 0.0 && x == 0.0 && std::fabs(y) < format.smallestNormal(); // else it cancelled
    drift.overflowShare += std::isfinite(y) && !std::isfinite(x);
    if (!std::isfinite(x) || !std::isfinite(y))
      continue;
    double ulps = std::fabs(x - y) / ulpAt(format, std::max(std::fabs(y), std::isfinite(least) ? least : 0.0));
    drift.maxUlp = std::max(drift.maxUlp, ulps);
    sum += ulps;
  }
  drift.underflowShare /= std::max<int64_t>(1, nonZero);
  drift.overflowShare /= std::max<int64_t>(1, value.size());
  drift.meanUlp = sum / std::max<int64_t>(1, value.size());
  drift.relativeError = length > 0.0 ? distance(value, reference) / length : 0.0;
  return drift;
}

void Recorder::computed(Operation *op, const InterpreterFrame &frame) {
  for (OpResult result : op->getResults())
    if (frame.get(result).isFloat())
      values[result] = frame.get(result);
}

void DriftWatch::computed(Operation *op, const InterpreterFrame &frame) {
  Recorder::computed(op, frame);
  for (OpResult result : op->getResults()) {
    auto found = rounded.values.find(result);
    std::string key = keys.of(result);
    if (found == rounded.values.end() || key.empty())
      continue;
    TensorDrift drift = driftOf(found->second, frame.get(result));
    drift.key = key;
    drift.isMoved = roundingsOf(op) == 0.0;
    drifts.insert({result, std::move(drift)});
  }
}

void ModelWatch::computed(Operation *op, const InterpreterFrame &frame) {
  for (OpResult result : op->getResults()) {
    auto drift = watch.drifts.find(result);
    if (drift == watch.drifts.end())
      continue;
    const Tensor &moved = frame.get(result);
    double found = driftOf(moved, watch.values.find(result)->second).meanUlp;
    drift->second.modelUlp = std::max(drift->second.modelUlp, found);
  }
}
