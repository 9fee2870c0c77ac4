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
};

constexpr KindInfo kinds[] = {{OptimizerKind::sgd, "sgd", 1e-2, 0.0, 0.0},
                              {OptimizerKind::adam, "adam", 1e-3, 0.0, 1e-8},
                              {OptimizerKind::adamw, "adamw", 1e-3, 1e-2, 1e-8},
                              {OptimizerKind::adagrad, "adagrad", 1e-2, 0.0, 1e-10}};

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

SmallVector<Key> keysOf(OptimizerSpec &spec) {
  SmallVector<Key> keys{number("lr", spec.lr), number("weight-decay", spec.weightDecay)};
  switch (spec.kind) {
  case OptimizerKind::sgd:
    keys.append(
        {fraction("momentum", spec.momentum), number("dampening", spec.dampening), flag("nesterov", spec.nesterov)});
    break;
  case OptimizerKind::adam:
  case OptimizerKind::adamw: {
    auto betas = [&spec](StringRef text) {
      auto [first, second] = text.split(':');
      return fraction("", spec.beta1).store(first) && fraction("", spec.beta2).store(second);
    };
    keys.append({Key{"betas", betas, "two numbers in [0, 1), as 0.9:0.999"}, number("eps", spec.epsilon)});
    break;
  }
  case OptimizerKind::adagrad:
    keys.append({number("lr-decay", spec.lrDecay), number("eps", spec.epsilon)});
    break;
  }
  return keys;
}

template <typename Range> std::string namesOf(const Range &range) {
  return join(map_range(range, [](const auto &entry) { return entry.name.str(); }), ", ");
}

Error problem(const Twine &message) { return createStringError(inconvertibleErrorCode(), message); }

} // namespace

StringRef mpt::stringifyOptimizerKind(OptimizerKind kind) {
  return find_if(kinds, [&](const KindInfo &info) { return info.kind == kind; })->name;
}

Expected<OptimizerSpec> mpt::parseOptimizerSpec(StringRef text) {
  auto [settings, params] = text.split(",params=");
  auto [name, rest] = settings.split(',');
  const KindInfo *info = find_if(kinds, [kind = name.trim()](const KindInfo &info) { return info.name == kind; });
  if (info == std::end(kinds))
    return problem("expected an optimizer (" + namesOf(kinds) + "), got '" + name + "'");
  OptimizerSpec spec;
  spec.kind = info->kind;
  spec.params = params.str();
  std::string why;
  if (settings.size() != text.size() && !Regex(params).isValid(why))
    return problem("expected a regular expression for params of " + info->name + ", got '" + params + "'");
  spec.lr = info->lr;
  spec.weightDecay = info->weightDecay;
  spec.epsilon = info->epsilon;
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
