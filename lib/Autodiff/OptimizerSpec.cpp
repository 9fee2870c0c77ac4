// SPDX-License-Identifier: Apache-2.0
// Parser of optimizer specifications.
#include "mpt/Autodiff/OptimizerSpec.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Regex.h"

#include <cmath>

using namespace llvm;
using namespace mpt;

namespace {

struct Key {
  StringRef name;
  /// Stores `value`; false when it is malformed or out of range.
  std::function<bool(StringRef value)> store;
  StringRef expects;
};

struct KindInfo {
  OptimizerKind kind;
  StringRef name;
  double lr, weightDecay, epsilon;
  StringRef text;
};

constexpr KindInfo kinds[] = {
    {OptimizerKind::sgd, "sgd", 1e-2, 0.0, 0.0, "stochastic gradient descent"},
    {OptimizerKind::adam, "adam", 1e-3, 0.0, 1e-8, "arXiv 1412.6980"},
    {OptimizerKind::adamw, "adamw", 1e-3, 1e-2, 1e-8, "Adam with decoupled weight decay (arXiv 1711.05101)"},
    {OptimizerKind::adagrad, "adagrad", 1e-2, 0.0, 1e-10, "rates from the sum of squared gradients"},
    {OptimizerKind::rmsprop, "rmsprop", 1e-2, 0.0, 1e-8, "rates from a mean of squared gradients"},
    {OptimizerKind::lion, "lion", 1e-4, 0.0, 0.0, "signs of a momentum (arXiv 2302.06675)"},
    {OptimizerKind::lamb, "lamb", 1e-3, 0.0, 1e-6, "Adam with a trust ratio a tensor (arXiv 1904.00962)"},
    {OptimizerKind::lars, "lars", 1e-1, 0.0, 0.0, "SGD with a trust ratio a tensor (arXiv 1708.03888)"},
    {OptimizerKind::adafactor, "adafactor", 1e-2, 0.0, 0.0, "second moments by row and column (arXiv 1804.04235)"}};

struct ScheduleInfo {
  ScheduleKind kind;
  StringRef name;
};
constexpr ScheduleInfo schedules[] = {{ScheduleKind::constant, "constant"},
                                      {ScheduleKind::linear, "linear"},
                                      {ScheduleKind::cosine, "cosine"},
                                      {ScheduleKind::step, "step"},
                                      {ScheduleKind::oneCycle, "one-cycle"}};

bool isNumber(StringRef text, double &value) { return !text.getAsDouble(value); }

Key number(StringRef name, double &field) {
  auto store = [&field](StringRef text) { return isNumber(text, field) && field >= 0.0 && std::isfinite(field); };
  return {name, store, "a number that is not negative"};
}

/// In [0, 1): decay rates.
Key fraction(StringRef name, double &field) {
  auto store = [&field](StringRef text) { return isNumber(text, field) && field >= 0.0 && field < 1.0; };
  return {name, store, "a number in [0, 1)"};
}

Key flag(StringRef name, bool &field) {
  auto store = [&field](StringRef text) {
    field = text == "true" || text == "1" || text.empty();
    return field || text == "false" || text == "0";
  };
  return {name, store, "true or false"};
}

Key count(StringRef name, int64_t &field) {
  auto store = [&field](StringRef text) { return !text.getAsInteger(10, field) && field >= 0; };
  return {name, store, "a whole number that is not negative"};
}

Key betas(OptimizerSpec &spec) {
  auto store = [&spec](StringRef text) {
    auto [first, second] = text.split(':');
    return fraction("", spec.beta1).store(first) && fraction("", spec.beta2).store(second);
  };
  return {"betas", store, "two numbers in [0, 1), as 0.9:0.999"};
}

Key epsilonHat(OptimizerSpec &spec) {
  Key epsilon = number("eps-hat", spec.epsilon);
  auto store = [&spec, epsilon](StringRef text) {
    spec.epsilonHat = true;
    return epsilon.store(text);
  };
  return {epsilon.name, store, epsilon.expects};
}

template <typename Range> std::string namesOf(const Range &range) {
  return join(map_range(range, [](const auto &entry) { return entry.name.str(); }), ", ");
}

/// Keys of the learning rate's schedule, which all optimizers have.
void addScheduleKeys(ScheduleSpec &schedule, SmallVectorImpl<Key> &keys) {
  auto kind = [&schedule](StringRef text) {
    const ScheduleInfo *found = find_if(schedules, [&](const ScheduleInfo &info) { return info.name == text; });
    if (found == std::end(schedules))
      return false;
    schedule.kind = found->kind;
    return true;
  };
  keys.append({Key{"schedule", kind, "constant, linear, cosine, step or one-cycle"}, count("warmup", schedule.warmup),
               count("steps", schedule.steps), number("min", schedule.min), number("gamma", schedule.gamma),
               count("every", schedule.every), fraction("rise", schedule.rise), number("div", schedule.div),
               number("final", schedule.final)});
}

SmallVector<Key> keysOf(OptimizerSpec &spec) {
  SmallVector<Key> keys{number("lr", spec.lr), number("weight-decay", spec.weightDecay)};
  Key anyDecay{"decay", [&spec](StringRef text) { return isNumber(text, spec.decay) && std::isfinite(spec.decay); },
               "a number"};
  switch (spec.kind) {
  case OptimizerKind::sgd:
    keys.append(
        {fraction("momentum", spec.momentum), number("dampening", spec.dampening), flag("nesterov", spec.nesterov)});
    break;
  case OptimizerKind::adam:
  case OptimizerKind::adamw:
    keys.append({epsilonHat(spec), flag("bias-correction", spec.correctsBias)});
    [[fallthrough]];
  case OptimizerKind::lamb:
    keys.append({betas(spec), number("eps", spec.epsilon)});
    break;
  case OptimizerKind::adagrad:
    keys.append({number("lr-decay", spec.lrDecay), number("eps", spec.epsilon)});
    break;
  case OptimizerKind::rmsprop:
    keys.append({fraction("alpha", spec.alpha), number("eps", spec.epsilon), fraction("momentum", spec.momentum),
                 flag("centered", spec.centered)});
    break;
  case OptimizerKind::lion:
    keys.append({betas(spec)});
    break;
  case OptimizerKind::lars:
    keys.append({fraction("momentum", spec.momentum), number("trust", spec.trust), number("eps", spec.epsilon)});
    break;
  case OptimizerKind::adafactor:
    keys.append({anyDecay, number("eps1", spec.epsilon1), number("eps2", spec.epsilon2), number("clip", spec.clip)});
    break;
  }
  addScheduleKeys(spec.schedule, keys);
  return keys;
}

void setDefaults(OptimizerSpec &spec, const KindInfo &info) {
  spec.kind = info.kind;
  spec.lr = info.lr;
  spec.weightDecay = info.weightDecay;
  spec.epsilon = info.epsilon;
  if (spec.kind == OptimizerKind::lion)
    spec.beta2 = 0.99;
  if (spec.kind == OptimizerKind::lars)
    spec.momentum = 0.9;
}

Error problem(const Twine &message) { return createStringError(message + " [mpt-bad-value]"); }

/// A setting that a schedule lacks; empty where all are there.
std::string missing(const ScheduleSpec &schedule) {
  bool ends = schedule.kind == ScheduleKind::linear || schedule.kind == ScheduleKind::cosine ||
              schedule.kind == ScheduleKind::oneCycle;
  if (ends && schedule.steps <= schedule.warmup)
    return "steps above warmup";
  if (schedule.kind == ScheduleKind::step && schedule.every < 1)
    return "every=N, the steps between two reductions,";
  if (schedule.kind != ScheduleKind::oneCycle)
    return "";
  if (schedule.warmup > 0)
    return "rise=SHARE instead of warmup";
  return schedule.div > 0 && schedule.final > 0 && schedule.rise * static_cast<double>(schedule.steps) > 1
             ? ""
             : "positive div and final, and a rise over more than one of the steps,";
}

} // namespace

StringRef mpt::stringifyOptimizerKind(OptimizerKind kind) {
  return find_if(kinds, [&](const KindInfo &info) { return info.kind == kind; })->name;
}

std::vector<Described> mpt::describeOptimizers() {
  std::vector<Described> all;
  for (const KindInfo &info : kinds) {
    OptimizerSpec spec;
    setDefaults(spec, info);
    all.push_back({info.name, (info.text + "; " + namesOf(keysOf(spec))).str()});
  }
  return all;
}

Expected<OptimizerSpec> mpt::parseOptimizerSpec(StringRef text) {
  auto [settings, params] = text.split(",params=");
  auto [name, rest] = settings.split(',');
  const KindInfo *info = find_if(kinds, [kind = name.trim()](const KindInfo &info) { return info.name == kind; });
  if (info == std::end(kinds))
    return problem("expected an optimizer (" + namesOf(kinds) + "), got '" + name + "'");
  OptimizerSpec spec;
  spec.params = params.str();
  std::string why;
  if (settings.size() != text.size() && !Regex(params).isValid(why))
    return problem("expected a regular expression for params of " + info->name + ", got '" + params + "'");
  setDefaults(spec, *info);
  SmallVector<Key> keys = keysOf(spec);
  SmallVector<StringRef> parts;
  rest.split(parts, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef part : parts) {
    StringRef key = part.trim().split('=').first, value = part.trim().split('=').second;
    const Key *found = find_if(keys, [&](const Key &known) { return known.name == key; });
    if (found == keys.end())
      return problem("expected a key of " + info->name + " (" + namesOf(keys) + "), got '" + key + "'");
    if (!found->store(value))
      return problem("expected " + found->expects + " for " + key + " of " + info->name + ", got '" + value + "'");
  }
  if (spec.nesterov && (spec.momentum == 0.0 || spec.dampening != 0.0))
    return problem("expected momentum and no dampening with nesterov");
  if (std::string wanted = missing(spec.schedule); !wanted.empty())
    return problem("expected " + wanted + " with the schedule of " + info->name);
  return spec;
}

Expected<SmallVector<OptimizerSpec, 1>> mpt::parseOptimizerSpecs(StringRef text) {
  SmallVector<OptimizerSpec, 1> specs;
  SmallVector<StringRef> parts;
  text.split(parts, ';');
  for (StringRef part : parts) {
    Expected<OptimizerSpec> spec = parseOptimizerSpec(part);
    if (!spec)
      return spec.takeError();
    specs.push_back(*spec);
  }
  return specs;
}

const OptimizerSpec *mpt::optimizerFor(ArrayRef<OptimizerSpec> groups, StringRef name) {
  const OptimizerSpec *all = nullptr;
  for (const OptimizerSpec &group : reverse(groups)) {
    if (group.params.empty())
      all = all ? all : &group;
    else if (Regex("^(" + group.params + ")$").match(name))
      return &group;
  }
  return all;
}
