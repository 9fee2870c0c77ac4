// SPDX-License-Identifier: Apache-2.0
// The drift certificate: a step in its precision against the same model in FP64.
#include "mpt/Reference/Calibrate.h"

#include "mpt/Dialect/MPT/ValueKeys.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpt;
using llvm::json::Array;
using llvm::json::Object;

namespace {

/// JSON has no NaN and no infinity.
llvm::json::Value number(double x) {
  if (std::isfinite(x))
    return x;
  return std::isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity";
}

struct Comparison {
  double cosine = 1.0;        ///< 1 for two zero vectors
  double relativeError = 0.0; ///< L2 norm of the difference over the reference's
};

Comparison compareVectors(const Tensor &value, const Tensor &reference) {
  double dot = 0.0, a = 0.0, b = 0.0, difference = 0.0;
  for (int64_t i = 0; i < value.size(); ++i) {
    double x = value.number(i), y = reference.number(i);
    dot += x * y;
    a += x * x;
    b += y * y;
    difference += (x - y) * (x - y);
  }
  Comparison result;
  if (b > 0.0) {
    result.cosine = a > 0.0 ? dot / std::sqrt(a * b) : 0.0;
    result.relativeError = std::sqrt(difference / b);
  } else if (a > 0.0) {
    result = {0.0, std::numeric_limits<double>::infinity()};
  }
  return result;
}

/// What the type of one tensor did to its values in one run.
struct TensorDrift {
  std::string key, type;
  double underflowShare = 0.0, overflowShare = 0.0, maxUlp = 0.0, meanUlp = 0.0, relativeError = 0.0;
};

/// Distance between neighbouring values of `format` at `x`.
double ulpAt(const FloatFormat &format, double x) {
  double magnitude = std::max(std::fabs(x), format.smallestNormal());
  return std::ldexp(2.0 * format.epsilon(), std::ilogb(magnitude));
}

TensorDrift driftOf(const Tensor &value, const Tensor &reference) {
  TensorDrift drift;
  auto type = cast<FloatType>(value.getElementType());
  llvm::raw_string_ostream(drift.type) << type;
  FloatFormat format(type);
  int64_t nonZero = 0;
  double sum = 0.0;
  for (int64_t i = 0; i < value.size(); ++i) {
    double x = value.number(i), y = reference.number(i);
    nonZero += y != 0.0;
    drift.underflowShare += y != 0.0 && x == 0.0;
    drift.overflowShare += std::isfinite(y) && !std::isfinite(x);
    if (!std::isfinite(x) || !std::isfinite(y))
      continue;
    double ulps = std::fabs(x - y) / ulpAt(format, y);
    drift.maxUlp = std::max(drift.maxUlp, ulps);
    sum += ulps;
  }
  drift.underflowShare /= std::max<int64_t>(1, nonZero);
  drift.overflowShare /= std::max<int64_t>(1, value.size());
  drift.meanUlp = sum / std::max<int64_t>(1, value.size());
  drift.relativeError = compareVectors(value, reference).relativeError;
  return drift;
}

/// Keeps every float value of one call by its op.
class Recorder : public InterpreterObserver {
public:
  void computed(Operation *op, const InterpreterFrame &frame) override {
    for (OpResult result : op->getResults())
      if (frame.get(result).isFloat())
        values[result] = frame.get(result);
  }
  llvm::DenseMap<Value, Tensor> values;
};

/// Compares with recorded values of the same module, op by op.
class DriftWatch : public InterpreterObserver {
public:
  DriftWatch(ModuleOp module, const Recorder &recorded) : keys(module), recorded(recorded) {}
  void computed(Operation *op, const InterpreterFrame &frame) override {
    for (OpResult result : op->getResults()) {
      auto found = recorded.values.find(result);
      std::string key = keys.of(result);
      if (found == recorded.values.end() || key.empty())
        continue;
      TensorDrift drift = driftOf(found->second, frame.get(result));
      drift.key = key;
      drifts.push_back(std::move(drift));
    }
  }
  std::vector<TensorDrift> drifts;

private:
  ValueKeys keys;
  const Recorder &recorded;
};

class Certification {
public:
  Certification(ModuleOp module, ModuleOp reference, const CertificateLimits &limits)
      : module(module), reference(reference), limits(limits), trained(module),
        exact(reference, EvaluationMode::Oracle) {
    step = module.lookupSymbol<func::FuncOp>("step");
    gradients = module.lookupSymbol<func::FuncOp>("gradients");
    exactStep = reference.lookupSymbol<func::FuncOp>("step");
    exactGradients = reference.lookupSymbol<func::FuncOp>("gradients");
  }

  FailureOr<Object> run(ArrayRef<Batch> batches, int64_t count) {
    if (!step || !gradients || !exactStep || !exactGradients)
      return module.emitError() << "expected functions step and gradients to certify, found none; name an optimizer";
    if (failed(trained.initialize()) || failed(exact.initialize()))
      return failure();
    int64_t skipped = 0;
    for (int64_t i = 0; i < count; ++i) {
      const Batch &batch = batches[i % batches.size()];
      if (i == 0 && failed(watchTensors(batch)))
        return failure();
      if (failed(compareStep(i, batch, skipped)))
        return failure();
    }
    double share = static_cast<double>(skipped) / static_cast<double>(std::max<int64_t>(1, count));
    if (share > limits.skippedShare)
      fail("{0} of {1} steps were skipped", skipped, count);
    bool pass = failures.empty();
    return Object{{"pass", pass},
                  {"failures", std::move(failures)},
                  {"limits", Object{{"loss_difference", limits.lossDifference},
                                    {"gradient_cosine", limits.gradientCosine},
                                    {"gradient_error", limits.gradientError},
                                    {"underflow_share", limits.underflowShare},
                                    {"skipped_share", limits.skippedShare}}},
                  {"steps", std::move(steps)},
                  {"gradients", std::move(gradientRows)},
                  {"tensors", std::move(tensors)}};
  }

private:
  template <typename... Args> void fail(const char *format, Args &&...args) {
    failures.push_back(llvm::formatv(format, args...).str());
  }

  static FailureOr<SmallVector<Tensor>> call(Interpreter &interpreter, func::FuncOp function, const Batch &batch,
                                             bool rounds) {
    FailureOr<SmallVector<Tensor>> inputs = bindInputs(function, batch, rounds);
    if (failed(inputs))
      return failure();
    return interpreter.call(function, *inputs);
  }

  /// Every tensor of the first step: as computed, against FP64 from the same state.
  LogicalResult watchTensors(const Batch &batch) {
    Recorder recorder;
    Interpreter rounded(module), wide(module, EvaluationMode::Oracle);
    rounded.state() = trained.state();
    wide.state() = trained.state();
    rounded.observe(&recorder);
    DriftWatch watch(module, recorder);
    wide.observe(&watch);
    if (failed(call(rounded, step, batch, true)) || failed(call(wide, step, batch, false)))
      return failure();
    for (const TensorDrift &drift : watch.drifts) {
      if (drift.underflowShare > limits.underflowShare)
        fail("{0} of the values of {1} ({2}) became zero", drift.underflowShare, drift.key, drift.type);
      tensors.push_back(Object{{"value", drift.key},
                               {"type", drift.type},
                               {"underflow_share", drift.underflowShare},
                               {"overflow_share", drift.overflowShare},
                               {"max_ulp", number(drift.maxUlp)},
                               {"mean_ulp", number(drift.meanUlp)},
                               {"relative_error", number(drift.relativeError)}});
    }
    return success();
  }

  /// One step of both, from their own states. A step that ours skips, the reference takes back.
  LogicalResult compareStep(int64_t i, const Batch &batch, int64_t &skipped) {
    // Gradients are compared at the same point, ours: apart, a ReLU may open in one and not in the other.
    Interpreter aligned(reference, EvaluationMode::Oracle);
    aligned.state() = exact.state();
    for (auto &[name, value] : aligned.state())
      if (const Tensor *ours = trainedState(name); ours && ours->shape() == value.shape() && ours->isFloat())
        value = *ours;
    FailureOr<SmallVector<Tensor>> ourGradients = call(trained, gradients, batch, true),
                                   theirGradients = call(aligned, exactGradients, batch, false);
    if (failed(ourGradients) || failed(theirGradients))
      return failure();
    auto before = exact.state();
    FailureOr<SmallVector<Tensor>> ours = call(trained, step, batch, true),
                                   theirs = call(exact, exactStep, batch, false);
    if (failed(ours) || failed(theirs))
      return failure();
    constexpr double missing = std::numeric_limits<double>::quiet_NaN();
    double loss = resultNumber(step, *ours, "loss").value_or(missing),
           expected = resultNumber(exactStep, *theirs, "loss").value_or(missing);
    bool wasSkipped = resultNumber(step, *ours, "skipped") == 1.0;
    double difference = std::fabs(loss - expected) / std::max(std::fabs(expected), 1e-30);
    steps.push_back(Object{{"step", i},
                           {"loss", number(loss)},
                           {"reference_loss", number(expected)},
                           {"difference", number(difference)},
                           {"skipped", wasSkipped}});
    if (!(difference <= limits.lossDifference))
      fail("step {0}: the loss is {1}, in FP64 {2}", i, loss, expected);
    if (wasSkipped) {
      ++skipped;
      exact.state() = std::move(before);
    } else {
      compareGradients(i, *ourGradients, *theirGradients);
    }
    return success();
  }

  void compareGradients(int64_t i, ArrayRef<Tensor> ours, ArrayRef<Tensor> theirs) {
    std::map<std::string, const Tensor *> expected;
    for (auto [k, value] : llvm::enumerate(theirs))
      expected[resultName(exactGradients, k)] = &value;
    for (auto [k, value] : llvm::enumerate(ours)) {
      std::string name = resultName(gradients, k);
      auto found = expected.find(name);
      if (name == "loss" || found == expected.end() || !value.isFloat() || value.shape() != found->second->shape())
        continue;
      Comparison comparison = compareVectors(value, *found->second);
      if (!(comparison.cosine >= limits.gradientCosine))
        fail("step {0}: the gradient of {1} has cosine {2} with its FP64 gradient", i, name, comparison.cosine);
      else if (!(comparison.relativeError <= limits.gradientError))
        fail("step {0}: the gradient of {1} differs from its FP64 gradient by {2} of its norm", i, name,
             comparison.relativeError);
      gradientRows.push_back(Object{{"step", i},
                                    {"parameter", name},
                                    {"cosine", number(comparison.cosine)},
                                    {"relative_error", number(comparison.relativeError)}});
    }
  }

  /// State `name` as it is trained: the master, where the parameter has one.
  const Tensor *trainedState(const std::string &name) {
    for (const std::string &key : {name + ".master", name})
      if (auto found = trained.state().find(key); found != trained.state().end())
        return &found->second;
    return nullptr;
  }

  ModuleOp module, reference;
  const CertificateLimits &limits;
  Interpreter trained, exact;
  func::FuncOp step, gradients, exactStep, exactGradients;
  Array steps, gradientRows, tensors, failures;
};

} // namespace

FailureOr<Object> mpt::certify(ModuleOp module, ModuleOp reference, ArrayRef<Batch> batches, int64_t steps,
                               const CertificateLimits &limits) {
  return Certification(module, reference, limits).run(batches, steps ? steps : static_cast<int64_t>(batches.size()));
}
