// SPDX-License-Identifier: Apache-2.0
// Verdicts on measured ranges.
#include "mpt/Precision/Measured.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace mpt;

AutoSettings AutoSettings::limitsAlone() {
  AutoSettings settings;
  settings.budget = std::numeric_limits<double>::infinity();
  settings.underflow = settings.subnormal = settings.headroom = 1.0;
  settings.choosesTypes = false;
  return settings;
}

std::string AutoSettings::set(StringRef text) {
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  for (StringRef part : ArrayRef(parts).drop_front()) {
    auto [key, value] = part.split('=');
    if (key == "base" && !value.empty() && !value.starts_with("auto")) {
      base = value.str();
      continue;
    }
    double *number = llvm::StringSwitch<double *>(key)
                         .Case("budget", &budget)
                         .Case("underflow", &underflow)
                         .Case("subnormal", &subnormal)
                         .Case("headroom", &headroom)
                         .Default(nullptr);
    if (!number)
      return ("expected base, budget, underflow, subnormal or headroom of policy auto, got '" + part + "'").str();
    bool isFactor = number == &headroom;
    if (value.getAsDouble(*number) ||
        !(isFactor ? *number >= 1.0 && std::isfinite(*number) : *number >= 0.0 && *number <= 1.0))
      return ("expected a number " + Twine(isFactor ? "of at least 1" : "from 0 to 1") + " for " + key +
              " of policy auto, got '" + value + "'")
          .str();
  }
  return "";
}

FailureOr<std::shared_ptr<const Measurements>> Measurements::read(StringRef path, const AutoSettings &settings,
                                                                  Location loc) {
  if (path.empty())
    return emitError(loc)
           << "expected measured ranges for policy auto, got none: measure them with mpt-run --calibrate "
              "and give the file with --ranges [mpt-no-ranges]";
  auto result = std::make_shared<Measurements>();
  llvm::Expected<RangeProfiles> profiles = RangeProfiles::read(path);
  if (!profiles)
    return emitError(loc) << llvm::toString(profiles.takeError());
  result->profiles = std::move(*profiles);
  result->settings = settings;
  return std::shared_ptr<const Measurements>(result);
}

const RangeProfile *Measurements::of(Value value, const ValueKeys &keys) const {
  std::string key;
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    auto name = function ? getArgAttr<MPTDialect::NameAttrHelper>(function, argument.getArgNumber()) : StringAttr();
    key = name ? ("input|" + name.getValue()).str() : "";
  } else if (auto read = value.getDefiningOp<train::ReadOp>()) {
    key = ("state|" + read.getState()).str();
  } else {
    // Functions of a model begin alike, so that the n-th op of a node is the same in all of them.
    key = keys.of(cast<OpResult>(value));
    key = ("step|" + StringRef(key).split('|').second).str();
  }
  return named(key);
}

const RangeProfile *Measurements::named(StringRef key) const {
  auto found = profiles.values.find(key.str());
  return found == profiles.values.end() || found->second.count() == 0 ? nullptr : &found->second;
}

bool Measurements::ofGraph() const {
  return llvm::any_of(profiles.values, [](const auto &entry) { return StringRef(entry.first).starts_with("node|"); });
}

Verdict Measurements::judge(const RangeProfile &profile, FloatType type, int shift) const {
  return judge(profile, type, shift, settings.headroom);
}

Verdict Measurements::judge(const RangeProfile &profile, FloatType type, int shift, double headroom) const {
  FloatRange range = FloatRange::of(type);
  RangeShares shares = profile.shares(range, shift);
  double error = profile.relativeError(range, shift);
  Verdict verdict;
  llvm::raw_string_ostream out(verdict.text);
  if (profile.largest == 0.0) {
    out << "measured zero";
    return verdict;
  }
  out << llvm::formatv("measured {0:e1} to {1:e1}", profile.smallest, profile.largest);
  if (shift)
    out << llvm::formatv(" x 2^{0}", shift);
  auto fail = [&](double share, StringRef what) {
    verdict.fits = false;
    out << llvm::formatv(": {0:f2} % {1} ", share * 100.0, what) << type;
  };
  if (profile.infinities || profile.nans)
    fail(static_cast<double>(profile.infinities + profile.nans) / static_cast<double>(profile.count()),
         "infinite or NaN before any rounding to");
  else if (shares.overflow > 0.0)
    fail(shares.overflow, "overflow");
  else if (std::ldexp(profile.largest, shift) * headroom > range.largest) {
    verdict.fits = false;
    out << llvm::formatv(": less than a factor of {0} below the largest value of ", headroom) << type;
  } else if (shares.underflow > settings.underflow)
    fail(shares.underflow, "become zero in");
  else if (shares.subnormal + shares.underflow > settings.subnormal)
    fail(shares.subnormal + shares.underflow, "below the normal values of");
  else {
    verdict.fits = error <= settings.budget;
    out << llvm::formatv(": error {0:e1} in ", error) << type;
    if (!verdict.fits)
      out << llvm::formatv(", the budget is {0:e1}", settings.budget);
  }
  return verdict;
}

int Measurements::ownShift(const RangeProfile &profile, const FloatRange &range) {
  return profile.largest > 0.0 ? std::ilogb(range.largest / profile.largest) : 0;
}

Verdict Measurements::judgeScaled(const RangeProfile &profile, FloatType type) const {
  // Scales follow the largest value, and values beyond it saturate: no headroom.
  return judge(profile, type, ownShift(profile, FloatRange::of(type)), /*headroom=*/1.0);
}

void Measurements::chooseLossScale(PrecisionSettings &policy) const {
  auto type = dyn_cast<FloatType>(policy.storage);
  policy.note = llvm::formatv(
      "base {0}, error budget {1:e1} of results and gradients, headroom {2}, at most {3:f1} % underflow and {4:f1} % "
      "subnormal, ranges of {5} steps",
      settings.base, settings.budget, settings.headroom, settings.underflow * 100.0, settings.subnormal * 100.0,
      profiles.steps);
  if (!type || !policy.scaling.multiplies())
    return;
  constexpr int most = 24;
  int64_t best = -1, total = 0;
  int first = 0, last = 0;
  for (int shift = 0; shift <= most; ++shift) {
    double scale = std::ldexp(1.0, shift);
    if (scale < policy.scaling.min || scale > policy.scaling.max)
      continue;
    int64_t fitting = 0;
    total = 0;
    for (const auto &[key, profile] : profiles.values) {
      if (profile.kind != "gradient" || profile.largest == 0.0)
        continue;
      total += profile.count();
      fitting += judge(profile, type, shift).fits ? profile.count() : 0;
    }
    if (fitting > best) {
      best = fitting;
      first = last = shift;
    } else if (fitting == best && last == shift - 1) {
      last = shift;
    }
  }
  if (total == 0)
    return;
  // In the middle of the scales that do as well: gradients move either way.
  int chosen = (first + last) / 2;
  policy.scaling.init = std::ldexp(1.0, chosen);
  policy.note +=
      llvm::formatv("; loss scale 2^{0}: {1:f1} % of the gradients' values fit {2} with it, as with all from 2^{3} "
                    "to 2^{4}",
                    chosen, 100.0 * static_cast<double>(best) / static_cast<double>(total),
                    type.isBF16() ? "bf16" : "f16", first, last);
}
