// SPDX-License-Identifier: Apache-2.0
// Runs a step beside the intended computation, FP64 and the error model, and says where it is farther off than it may
// be.
#include "mpt/Reference/Certificate.h"

#include "Drift.h"
#include "NamedCall.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpt;
using llvm::json::Array;
using llvm::json::Object;

namespace {

/// The error that right code may have beside the spread of the error model's runs.
constexpr double tiny = 1e-5;
/// Two executions of one module round alike but for the order of sums in FP32: the share of the spread that is left,
/// and the error of runs with sums in another order, times a factor.
constexpr double alikeFactor = 0.1, alikeTiny = 1e-4, reorderedFactor = 2.5;
constexpr double codesOff = 1e-3; ///< share of 8-bit codes that may be the next ones
/// A value at a kink goes one way in some right executions and the other way in the rest. The error of
/// such executions is allowed, with a margin, since one more may be off more than all that were run.
constexpr double kinkFactor = 1.25;
constexpr uint64_t samples = 3;
/// Runs of either kind before a value is said to be off: three seldom see both ways of every kink.
constexpr uint64_t manySamples = 15;

/// A factor on the spread: larger where few elements determine it.
double spreadFactor(const Tensor &value) {
  return 1.0 + 4.0 / std::sqrt(static_cast<double>(std::max<int64_t>(1, value.size())));
}

std::string text(double x) {
  std::string digits;
  llvm::raw_string_ostream(digits) << llvm::format("%.4g", x);
  return digits;
}
std::string text(const std::string &x) { return x; }
template <typename T> T text(T x) { return x; }

/// JSON has no NaN and no infinity.
llvm::json::Value number(double x) {
  if (std::isfinite(x))
    return x;
  return std::isnan(x) ? "NaN" : x > 0 ? "Infinity" : "-Infinity";
}

/// Both calls of one step, and the state after it.
struct StepRun {
  NamedTensors gradients, results, after;
  double result(StringRef name, double otherwise) const {
    auto found = results.find(name.str());
    return found != results.end() && found->second.size() == 1 ? found->second.number(0) : otherwise;
  }
  double loss() const { return result("loss", std::numeric_limits<double>::quiet_NaN()); }
  bool skipped() const { return result("skipped", 0.0) == 1.0; }
};

/// Larger of a tensor's distances to the same one in perturbed runs.
double spreadOf(const std::string &name, const NamedTensors &center, NamedTensors StepRun::*part,
                ArrayRef<StepRun> runs) {
  double spread = 0.0;
  for (const StepRun &run : runs)
    if (auto moved = (run.*part).find(name); moved != (run.*part).end())
      spread = std::max(spread, distance(moved->second, center.at(name)));
  return spread;
}

/// A module with the two functions that are compared.
struct Side {
  explicit Side(ModuleOp module, const TensorCore *core)
      : module(module), core(core), step(module.lookupSymbol<func::FuncOp>("step")),
        gradients(module.lookupSymbol<func::FuncOp>("gradients")) {}

  /// `ours` as this module's state: masters are the parameters of a module that has none.
  LogicalResult adopt(Interpreter &interpreter, const NamedTensors &ours) const {
    if (failed(interpreter.initialize()))
      return failure();
    for (auto &[name, value] : interpreter.state()) {
      std::string master = name + ".master";
      auto found = ours.find(interpreter.state().count(master) ? name : master);
      if (found == ours.end())
        found = ours.find(name);
      if (found != ours.end() && found->second.shape() == value.shape() && found->second.isFloat() == value.isFloat())
        value = found->second;
    }
    return success();
  }

  /// Gradients from state `before`, a step from state `between` (random counters have moved).
  FailureOr<StepRun> run(EvaluationMode mode, const NamedTensors &before, const NamedTensors &between,
                         const Batch &batch, InterpreterObserver *inGradients, InterpreterObserver *inStep) const {
    bool rounds = mode == EvaluationMode::Exact;
    StepRun result;
    Interpreter first(module, mode), second(module, mode);
    first.multiplyOn(core);
    second.multiplyOn(core);
    first.observe(inGradients);
    second.observe(inStep);
    if (failed(adopt(first, before)) || failed(adopt(second, between)))
      return failure();
    FailureOr<NamedTensors> g = callByName(first, gradients, batch, rounds),
                            s = callByName(second, step, batch, rounds);
    if (failed(g) || failed(s))
      return failure();
    result.gradients = std::move(*g);
    result.results = std::move(*s);
    result.after = second.state();
    return result;
  }

  FailureOr<StepRun> perturbed(uint64_t seed, const NamedTensors &before, const NamedTensors &between, Batch batch,
                               DriftWatch *watch) const {
    Perturbation first(2 * seed, core), second(2 * seed + 1, core);
    for (auto &[name, value] : batch)
      if (value.isFloat())
        first.move(value, Float32Type::get(value.getElementType().getContext()));
    if (!watch)
      return run(EvaluationMode::Oracle, before, between, batch, &first, &second);
    ModelWatch watched(2 * seed + 1, core, *watch);
    return run(EvaluationMode::Oracle, before, between, batch, &first, &watched);
  }

  /// As it is rounded, with sums in another order.
  FailureOr<StepRun> reordered(uint64_t seed, const NamedTensors &before, const NamedTensors &between,
                               const Batch &batch) const {
    Reordering first(2 * seed, core), second(2 * seed + 1, core);
    return run(EvaluationMode::Exact, before, between, batch, &first, &second);
  }

  ModuleOp module;
  const TensorCore *core; ///< that multiplies; null: sums of the types that the module says
  func::FuncOp step, gradients;
};

/// All runs of one step. `ours` is the step under validation.
struct Runs {
  NamedTensors before, between;
  StepRun ours, meant, center, exact, exactMoved;
  SmallVector<StepRun> moved, reordered;
};

/// The rows of a report.
struct Rows {
  Array steps, gradients, updates, meant, tensors, failures;
};

class Certification {
public:
  Certification(CertifiedStep &subject, ModuleOp module, ModuleOp reference, const TensorCore *core,
                const CertificateLimits &limits)
      : subject(subject), ours(module, core), wide(reference, nullptr), exact(reference, EvaluationMode::Oracle),
        limits(limits) {
    ours.module.walk([&](Operation *op) {
      for (Type type : op->getResultTypes())
        if (auto real = dyn_cast<FloatType>(getElementTypeOrSelf(type)))
          narrowest = std::max(narrowest, FloatFormat(real).epsilon());
    });
    for (auto state : module.getOps<train::StateOp>())
      roles[state.getSymName().str()] = state.getRole();
    auto policy = getAttr<MPTDialect::PolicyAttrHelper>(ours.module);
    auto scaling = policy ? policy.getAs<DictionaryAttr>("loss_scaling") : DictionaryAttr();
    auto check = scaling ? scaling.getAs<StringAttr>("check") : StringAttr();
    if (check && check == "parameter")
      for (auto state : ours.module.getOps<train::StateOp>())
        if (state.getOf() || state.getRole() == train::Role::parameter)
          parameters[state.getSymName().str()] = state.getOf().value_or(state.getSymName()).str();
  }

  FailureOr<Object> run(ArrayRef<Batch> batches, int64_t count) {
    if (!ours.step || !ours.gradients || !wide.step || !wide.gradients)
      return ours.module.emitError()
             << "expected functions step and gradients to certify, found none; name an optimizer";
    FailureOr<NamedTensors> initial = subject.state();
    if (failed(initial) || failed(wide.adopt(exact, *initial)))
      return failure();
    int64_t skipped = 0;
    for (int64_t i = 0; i < count; ++i)
      if (failed(certifyStep(i, batches[i % batches.size()], /*last=*/i + 1 == count, skipped)))
        return failure();
    double share = static_cast<double>(skipped) / static_cast<double>(std::max<int64_t>(1, count));
    if (share > limits.skippedShare)
      fail("{0} of {1} steps were skipped", skipped, count);
    bool pass = rows.failures.empty();
    return Object{{"pass", pass},
                  {"failures", std::move(rows.failures)},
                  {"limits", limitsAsJSON()},
                  {"steps", std::move(rows.steps)},
                  {"gradients", std::move(rows.gradients)},
                  {"updates", std::move(rows.updates)},
                  {"meant", std::move(rows.meant)},
                  {"tensors", std::move(rows.tensors)}};
  }

private:
  template <typename... Args> void fail(const char *format, Args &&...args) {
    rows.failures.push_back(llvm::formatv(format, text(args)...).str());
  }

  /// Fails for a limit that more samples could raise, if `mayRise`.
  template <typename... Args> void miss(bool mayRise, const char *format, Args &&...args) {
    isBeyondSamples |= mayRise;
    fail(format, args...);
  }

  Object limitsAsJSON() const {
    auto stated = [](std::optional<double> limit) { return limit ? number(*limit) : "error model"; };
    return Object{{"loss_difference", stated(limits.lossDifference)},
                  {"gradient_cosine", stated(limits.gradientCosine)},
                  {"gradient_error", stated(limits.gradientError)},
                  {"update_error", stated(limits.updateError)},
                  {"ulp", stated(limits.ulp)},
                  {"overflow_share", limits.overflowShare},
                  {"underflow_share", limits.underflowShare},
                  {"skipped_share", limits.skippedShare}};
  }

  LogicalResult certifyStep(int64_t i, const Batch &batch, bool last, int64_t &skipped) {
    Runs runs;
    if (failed(runOurs(batch, runs)))
      return failure();
    bool skips = runs.ours.skipped();
    Recorder rounded;
    // Tensors of the first step that is committed; of the last one, where none is.
    bool watches = (!skips || last) && rows.tensors.empty();
    FailureOr<StepRun> meant =
        ours.run(EvaluationMode::Exact, runs.before, runs.between, batch, nullptr, watches ? &rounded : nullptr);
    if (failed(meant))
      return failure();
    runs.meant = std::move(*meant);
    if (skips != runs.meant.skipped())
      fail("step {0}: it was {1}skipped, expected {2}", i, skips ? "" : "not ", skips ? "not to be" : "to be");
    if (failed(compareLoss(i, batch, runs)))
      return failure();
    if (skips) {
      ++skipped;
      compareSkipped(i, runs);
      return watches ? watchSkipped(batch, runs, rounded) : success();
    }
    DriftWatch watch(ours.module, rounded);
    DriftWatch *watched = watches ? &watch : nullptr;
    if (failed(runModels(batch, runs, watched)) || failed(sample(batch, runs, watched, samples)))
      return failure();
    Rows soFar = rows;
    judgeStep(i, runs, watched);
    // A few samples may not show how far roundings lead.
    if (!isBeyondSamples)
      return success();
    if (failed(sample(batch, runs, watched, manySamples)))
      return failure();
    rows = std::move(soFar);
    judgeStep(i, runs, watched);
    return success();
  }

  void judgeStep(int64_t i, const Runs &runs, const DriftWatch *watch) {
    isBeyondSamples = false;
    if (watch)
      judgeTensors(*watch, /*modelled=*/true);
    compareGradients(i, runs);
    compareUpdates(i, runs);
    compareCopies(i, runs.ours.after);
    compareWithMeant(i, runs);
  }

  /// Without the error model, which knows no overflow.
  LogicalResult watchSkipped(const Batch &batch, const Runs &runs, const Recorder &rounded) {
    DriftWatch watch(ours.module, rounded);
    if (failed(ours.run(EvaluationMode::Oracle, runs.before, runs.between, batch, nullptr, &watch)))
      return failure();
    judgeTensors(watch, /*modelled=*/false);
    return success();
  }

  LogicalResult runOurs(const Batch &batch, Runs &runs) {
    FailureOr<NamedTensors> before = subject.state();
    FailureOr<NamedTensors> gradients = subject.call("gradients", batch);
    FailureOr<NamedTensors> between = subject.state();
    FailureOr<NamedTensors> results = subject.call("step", batch);
    FailureOr<NamedTensors> after = subject.state();
    if (failed(before) || failed(gradients) || failed(between) || failed(results) || failed(after))
      return failure();
    runs.before = std::move(*before);
    runs.between = std::move(*between);
    runs.ours = {std::move(*gradients), std::move(*results), std::move(*after)};
    return success();
  }

  LogicalResult runModels(const Batch &batch, Runs &runs, DriftWatch *watch) {
    constexpr auto oracle = EvaluationMode::Oracle;
    FailureOr<StepRun> center = ours.run(oracle, runs.before, runs.between, batch, nullptr, watch),
                       exactly = wide.run(oracle, runs.before, runs.between, batch, nullptr, nullptr),
                       moved = wide.perturbed(samples + 1, runs.before, runs.between, batch, nullptr);
    if (failed(center) || failed(exactly) || failed(moved))
      return failure();
    runs.center = std::move(*center);
    runs.exact = std::move(*exactly);
    runs.exactMoved = std::move(*moved);
    return success();
  }

  /// Up to `count` runs in all with inputs and roundings moved, and as many with sums in another order.
  LogicalResult sample(const Batch &batch, Runs &runs, DriftWatch *watch, uint64_t count) {
    for (uint64_t seed = runs.moved.size(); seed < count; ++seed) {
      FailureOr<StepRun> moved = ours.perturbed(seed, runs.before, runs.between, batch, watch),
                         other = ours.reordered(seed, runs.before, runs.between, batch);
      if (failed(moved) || failed(other))
        return failure();
      runs.moved.push_back(std::move(*moved));
      runs.reordered.push_back(std::move(*other));
    }
    return success();
  }

  /// Against the same model trained in FP64 all along, which takes back the steps that ours skips.
  LogicalResult compareLoss(int64_t i, const Batch &batch, Runs &runs) {
    for (auto &[name, value] : exact.state()) {
      auto role = roles.find(name);
      auto ours = runs.between.find(name);
      if (role != roles.end() && role->second == train::Role::rng && ours != runs.between.end())
        value = ours->second;
    }
    auto before = exact.state();
    FailureOr<NamedTensors> theirs = callByName(exact, wide.step, batch, /*rounds=*/false);
    if (failed(theirs))
      return failure();
    double loss = runs.ours.loss(), expected = StepRun{{}, *theirs, {}}.loss();
    double difference = std::fabs(loss - expected) / std::max(std::fabs(expected), 1e-30);
    double limit = limits.lossDifference.value_or(std::max(0.01, narrowest / 2));
    rows.steps.push_back(Object{{"step", i},
                                {"loss", number(loss)},
                                {"reference_loss", number(expected)},
                                {"difference", number(difference)},
                                {"limit", number(limit)},
                                {"skipped", runs.ours.skipped()}});
    if (!(difference <= limit))
      fail("step {0}: the loss is {1}, in FP64 {2}", i, loss, expected);
    if (!runs.ours.skipped())
      return success();
    for (auto &[name, value] : exact.state()) {
      auto after = runs.ours.after.find(name);
      // Its own step was not skipped, which counters of updates in skipped steps would have to know.
      if (!isUpdatedApart(name, runs))
        value = before.at(name);
      else if (!value.isFloat() && after != runs.ours.after.end())
        value = after->second;
    }
    return success();
  }

  /// Under a finite check by parameter: whether `state` is updated although the step is skipped.
  bool isUpdatedApart(const std::string &state, const Runs &runs) const {
    auto parameter = parameters.find(state);
    auto gradient =
        parameter == parameters.end() ? runs.ours.gradients.end() : runs.ours.gradients.find(parameter->second);
    return gradient != runs.ours.gradients.end() && std::isfinite(norm(gradient->second)) &&
           std::isfinite(runs.ours.loss());
  }

  /// A skipped step moves scales, random counters, sums over micro-steps, and states that the gradient of their own
  /// parameter decides about, as they were meant to, and nothing else.
  void compareSkipped(int64_t i, const Runs &runs) {
    for (const auto &[name, value] : runs.ours.after) {
      auto role = roles.find(name);
      bool updates = isUpdatedApart(name, runs);
      bool moves =
          updates || (role != roles.end() && (role->second == train::Role::scale || role->second == train::Role::rng ||
                                              role->second == train::Role::accumulator));
      const NamedTensors &expected = moves ? runs.meant.after : runs.between;
      auto found = expected.find(name), before = runs.between.find(name);
      if (found == expected.end() || found->second.shape() != value.shape())
        continue;
      double limit = moves ? alikeTiny * norm(found->second) : 0.0;
      if (updates && before != runs.between.end()) {
        double moved = distance(found->second, before->second);
        limit = moved == 0.0 ? 0.0 : limit + alikeFactor * moved;
      }
      if (!(distance(value, found->second) <= limit))
        fail("step {0}: it was skipped, and {1} changed{2}", i, name, moves ? " as it was not meant to" : "");
    }
  }

  /// The most that a gradient or an update may be off, relative to its `length`, whatever types do to it: the error
  /// that a user expects of a type, or first-order errors of that size where the model itself magnifies errors.
  /// Infinite where the value is noise in FP32 too.
  double ceiling(double spreadInFloat, double length) const {
    double noise = length > 0.0 ? spreadInFloat / length : spreadInFloat > 0.0 ? INFINITY : 0.0;
    if (noise > 1e-3)
      return std::numeric_limits<double>::infinity();
    return std::max({0.2, 4 * narrowest, std::min(0.75, noise * narrowest / 0x1p-24)});
  }

  /// A value's error and its limit, relative to the length of the exact value. More samples do not raise a ceiling.
  struct Judged {
    double relative, limit;
    bool isCeiling;
  };

  /// Roundings may lead `rounded` away, and no farther than `most` lengths. Without a length, an error beyond that is
  /// infinite, and any other 0.
  static Judged judge(double error, double length, double rounded, double most) {
    bool isCeiling = rounded > most * length;
    double allowed = isCeiling ? most * length : rounded;
    if (length > 0.0)
      return {error / length, allowed / length + tiny, isCeiling};
    return {error > allowed ? INFINITY : 0.0, tiny, isCeiling};
  }

  /// Advice where the policy's roundings, not the library, lead beyond the ceiling.
  static std::string adviceFor(double rounding) {
    return llvm::formatv("; the policy's roundings come to {0} on this batch: take more samples, or keep it wide",
                         text(rounding));
  }

  void compareGradients(int64_t i, const Runs &runs) {
    for (const auto &[name, value] : runs.ours.gradients) {
      auto found = runs.exact.gradients.find(name);
      if (name == "loss" || found == runs.exact.gradients.end() || !value.isFloat() ||
          value.shape() != found->second.shape())
        continue;
      double length = norm(found->second), error = distance(value, found->second), factor = spreadFactor(value);
      double spread = spreadOf(name, runs.center.gradients, &StepRun::gradients, runs.moved);
      double inFloat = spreadOf(name, runs.exact.gradients, &StepRun::gradients, {runs.exactMoved});
      double most = ceiling(inFloat, length);
      auto [relative, model, isCeiling] = judge(error, length, factor * spread, most);
      double limit = limits.gradientError.value_or(model);
      // The cosine of a value with another one `model` of its norm away: any, from one norm on.
      double least = limits.gradientCosine.value_or(model < 1.0 ? std::sqrt(1.0 - model * model) : -1.0);
      double angle = cosine(value, found->second);
      std::string advice = isCeiling ? adviceFor(factor * spread / length) : "";
      if (!(angle >= least - 1e-9))
        miss(!isCeiling, "step {0}: the gradient of {1} has cosine {2} with its FP64 gradient, expected {3}{4}", i,
             name, angle, least, advice);
      else if (!(relative <= limit))
        miss(!isCeiling,
             "step {0}: the gradient of {1} differs from its FP64 gradient by {2} of its norm, expected {3}{4}", i,
             name, relative, limit, advice);
      rows.gradients.push_back(Object{{"step", i},
                                      {"parameter", name},
                                      {"cosine", number(angle)},
                                      {"relative_error", number(relative)},
                                      {"limit", number(limit)}});
    }
  }

  /// The step's change of each parameter, of its master where it has one.
  void compareUpdates(int64_t i, const Runs &runs) {
    for (const auto &[name, role] : roles) {
      auto expected = runs.exact.after.find(name);
      if (role != train::Role::parameter || expected == runs.exact.after.end() || !expected->second.isFloat())
        continue;
      std::string key = runs.ours.after.count(name + ".master") ? name + ".master" : name;
      auto value = runs.ours.after.find(key);
      if (value == runs.ours.after.end() || value->second.shape() != expected->second.shape())
        continue;
      const Tensor &before = runs.between.at(key);
      double moved = distance(expected->second, before), error = distance(value->second, expected->second);
      double spread = spreadOf(key, runs.center.after, &StepRun::after, runs.moved);
      double factor = spreadFactor(before);
      double most = ceiling(spreadOf(name, runs.exact.after, &StepRun::after, {runs.exactMoved}), moved);
      // Rounding the sum of parameter and update is no error of the update.
      auto stored = cast<FloatType>(value->second.getElementType());
      double rounding = 2 * FloatFormat(stored).epsilon() * norm(expected->second);
      auto [relative, model, isCeiling] =
          judge(std::max(0.0, error - rounding), moved, factor * spread, std::max(0.75, most));
      double limit = limits.updateError.value_or(model);
      if (!(relative <= limit))
        miss(!isCeiling, "step {0}: the update of {1} differs from its FP64 update by {2} of its norm, expected {3}", i,
             name, relative, limit);
      rows.updates.push_back(
          Object{{"step", i}, {"parameter", name}, {"relative_error", number(relative)}, {"limit", number(limit)}});
    }
  }

  /// A narrow copy of a parameter is its master, rounded.
  void compareCopies(int64_t i, const NamedTensors &states) {
    for (const auto &[name, copy] : states) {
      auto master = states.find(name + ".master");
      if (master != states.end() && (copy.shape() != master->second.shape() ||
                                     distance(master->second.as(copy.getType(), /*rounds=*/true), copy) != 0.0))
        fail("step {0}: {1} is not its master, rounded", i, name);
    }
  }

  /// How far the value `name` may be from the intended one: as far as sums in another order lead.
  double alikeLimit(const std::string &name, NamedTensors StepRun::*part, const Runs &runs) {
    const Tensor &meant = (runs.meant.*part).at(name);
    // Of codes with scales a few are the next ones, where numbers lie between two codes.
    if (!meant.isFloat())
      return (runs.meant.*part).count(name + ".scale") ? std::sqrt(std::max(1.0, codesOff * meant.size())) : 0.0;
    double spread = spreadOf(name, runs.center.*part, part, runs.moved);
    double share = alikeFactor * spreadFactor(meant) + 0.5 / std::sqrt(static_cast<double>(meant.size()));
    double other = spreadOf(name, runs.meant.*part, part, runs.reordered);
    double alike = spreadFactor(meant) * other;
    return std::min(std::max(share * spread, kinkFactor * alike), reorderedFactor * alike) + alikeTiny * norm(meant);
  }

  /// Values and states that the interpreter has too, which started from the same state: roundings are the same ones.
  void compareWithMeant(int64_t i, const Runs &runs) {
    auto compare = [&](StringRef what, NamedTensors StepRun::*part) {
      for (const auto &[name, meant] : runs.meant.*part) {
        auto found = (runs.ours.*part).find(name);
        // A copy is compared with the master beside it: of two masters that differ in their last places, one may lie on
        // the other side of the middle between two narrow values.
        bool isCopy = part == &StepRun::after && runs.ours.after.count(name + ".master");
        if (found == (runs.ours.*part).end() || found->second.shape() != meant.shape() || isCopy)
          continue;
        std::string value = (what + " " + name).str();
        double off = distance(found->second, meant), limit = alikeLimit(name, part, runs);
        if (meant.isFloat())
          rows.meant.push_back(
              Object{{"step", i}, {"value", value}, {"distance", number(off)}, {"limit", number(limit)}});
        if (!(off <= limit))
          miss(true, "step {0}: {1} is {2} off what the module says, expected {3}", i, value, off, limit);
      }
    };
    compare("the gradient of", &StepRun::gradients);
    compare("result", &StepRun::results);
    compare("state", &StepRun::after);
  }

  void judgeTensors(const DriftWatch &watch, bool modelled) {
    for (const auto &[value, drift] : watch.drifts) {
      double limit = limits.ulp.value_or(spreadFactor(watch.values.find(value)->second) * drift.modelUlp + 1.0);
      if (drift.underflowShare > limits.underflowShare)
        fail("{0} of the values of {1} ({2}) became zero", drift.underflowShare, drift.key, drift.type);
      if (modelled && drift.overflowShare > limits.overflowShare)
        fail("{0} of the values of {1} ({2}) are finite in FP64 alone", drift.overflowShare, drift.key, drift.type);
      if (modelled && !drift.isMoved && !(drift.meanUlp <= limit))
        miss(true, "the values of {0} ({1}) are {2} units in the last place off, expected {3}", drift.key, drift.type,
             drift.meanUlp, limit);
      rows.tensors.push_back(Object{{"value", drift.key},
                                    {"type", drift.type},
                                    {"underflow_share", drift.underflowShare},
                                    {"overflow_share", drift.overflowShare},
                                    {"max_ulp", number(drift.maxUlp)},
                                    {"mean_ulp", number(drift.meanUlp)},
                                    {"ulp_limit", number(limit)},
                                    {"relative_error", number(drift.relativeError)}});
    }
  }

  CertifiedStep &subject;
  Side ours, wide;
  Interpreter exact; ///< trains by itself
  const CertificateLimits &limits;
  double narrowest = 0.0; ///< relative error of a rounding to the narrowest type of the module
  std::map<std::string, train::Role> roles;
  std::map<std::string, std::string> parameters; ///< by state, under a finite check by parameter
  Rows rows;
  bool isBeyondSamples = false; ///< a limit that hangs on samples is not met
};

} // namespace

FailureOr<Object> mpt::certify(CertifiedStep &subject, ModuleOp module, ModuleOp reference, ArrayRef<Batch> batches,
                               int64_t steps, const CertificateLimits &limits, const TensorCore *core) {
  return Certification(subject, module, reference, core, limits)
      .run(batches, steps ? steps : static_cast<int64_t>(batches.size()));
}
