// SPDX-License-Identifier: Apache-2.0
// Histograms of exponents: gathering, shares, and their JSON form.
#include "mpt/Support/RangeProfile.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cmath>

using namespace llvm;
using namespace mpt;

FloatRange FloatRange::of(mlir::FloatType type) {
  const fltSemantics &semantics = type.getFloatSemantics();
  return {APFloat::getLargest(semantics).convertToDouble(), ilogb(APFloat::getSmallestNormalized(semantics)),
          ilogb(APFloat::getSmallest(semantics))};
}

void RangeProfile::add(double x) {
  if (x == 0.0) {
    ++zeros;
  } else if (std::isnan(x)) {
    ++nans;
  } else if (std::isinf(x)) {
    ++infinities;
  } else {
    double magnitude = std::fabs(x);
    smallest = std::min(smallest, magnitude);
    largest = std::max(largest, magnitude);
    ++exponents[std::ilogb(magnitude)];
  }
}

void RangeProfile::merge(const RangeProfile &other) {
  zeros += other.zeros;
  infinities += other.infinities;
  nans += other.nans;
  smallest = std::min(smallest, other.smallest);
  largest = std::max(largest, other.largest);
  for (auto [exponent, count] : other.exponents)
    exponents[exponent] += count;
}

int64_t RangeProfile::nonZero() const {
  int64_t sum = 0;
  for (auto [exponent, count] : exponents)
    sum += count;
  return sum;
}

RangeShares RangeProfile::shares(const FloatRange &range, int shift) const {
  RangeShares shares;
  auto total = static_cast<double>(nonZero());
  if (total == 0.0)
    return shares;
  int top = std::ilogb(range.largest);
  bool topOverflows = std::ldexp(largest, shift) > range.largest;
  for (auto [exponent, count] : exponents) {
    int e = exponent + shift;
    double share = static_cast<double>(count) / total;
    // To nearest even, everything up to half the smallest value becomes zero.
    if (e > top || (e == top && topOverflows && std::ilogb(largest) == exponent))
      shares.overflow += share;
    else if (e < range.minSubnormal - 1)
      shares.underflow += share;
    else if (e < range.minNormal)
      shares.subnormal += share;
  }
  return shares;
}

double RangeProfile::relativeError(const FloatRange &range, int shift) const {
  int bits = range.minNormal - range.minSubnormal, top = std::ilogb(range.largest);
  double changes = 0.0, squares = 0.0;
  int reference = exponents.empty() ? 0 : exponents.rbegin()->first + shift; // keeps squares in range
  for (auto [exponent, count] : exponents) {
    int e = exponent + shift;
    auto n = static_cast<double>(count);
    // The mean square of values that are spread evenly in [1, 2) is 7/3, and of a rounding error a twelfth.
    double square = 7.0 / 3.0 * std::ldexp(1.0, 2 * (e - reference));
    squares += n * square;
    if (e > top)
      continue;
    int unit = std::max(e, range.minNormal) - bits;
    changes += n * (e < range.minSubnormal - 1 ? square : std::ldexp(1.0, 2 * (unit - reference)) / 12.0);
  }
  return squares > 0.0 ? std::sqrt(changes / squares) : 0.0;
}

double RangeProfile::rootMeanSquare() const {
  double squares = 0.0;
  for (auto [exponent, count] : exponents)
    squares += 7.0 / 3.0 * static_cast<double>(count) * std::ldexp(1.0, 2 * exponent);
  int64_t finite = zeros + nonZero();
  return finite == 0 ? 0.0 : std::sqrt(squares / static_cast<double>(finite));
}

json::Value RangeProfile::toJSON() const {
  json::Object histogram;
  for (auto [exponent, count] : exponents)
    histogram[std::to_string(exponent)] = count;
  json::Object object{{"kind", kind},
                      {"type", type},
                      {"zeros", zeros},
                      {"infinities", infinities},
                      {"nans", nans},
                      {"largest", largest},
                      {"exponents", std::move(histogram)}};
  if (!exponents.empty())
    object["smallest"] = smallest;
  return object;
}

Expected<RangeProfile> RangeProfile::fromJSON(const json::Value &value) {
  const json::Object *object = value.getAsObject();
  const json::Object *histogram = object ? object->getObject("exponents") : nullptr;
  if (!histogram)
    return createStringError("expected an object with \"exponents\"");
  RangeProfile profile;
  profile.kind = object->getString("kind").value_or("").str();
  profile.type = object->getString("type").value_or("").str();
  profile.zeros = object->getInteger("zeros").value_or(0);
  profile.infinities = object->getInteger("infinities").value_or(0);
  profile.nans = object->getInteger("nans").value_or(0);
  profile.largest = object->getNumber("largest").value_or(0.0);
  profile.smallest = object->getNumber("smallest").value_or(profile.smallest);
  for (const auto &[key, entry] : *histogram) {
    int exponent = 0;
    std::optional<int64_t> count = entry.getAsInteger();
    if (StringRef(key).getAsInteger(10, exponent) || !count || *count < 0)
      return createStringError("expected counts by exponent, got \"" + StringRef(key) + "\"");
    profile.exponents[exponent] = *count;
  }
  return profile;
}

json::Value RangeProfiles::toJSON() const {
  json::Object entries;
  for (const auto &[key, profile] : values)
    entries[key] = profile.toJSON();
  return json::Object{{"steps", steps}, {"loss_scale", lossScale}, {"values", std::move(entries)}};
}

Expected<RangeProfiles> RangeProfiles::fromJSON(const json::Value &value) {
  const json::Object *object = value.getAsObject();
  const json::Object *entries = object ? object->getObject("values") : nullptr;
  if (!entries)
    return createStringError("expected an object with \"values\"");
  RangeProfiles profiles;
  profiles.steps = object->getInteger("steps").value_or(0);
  profiles.lossScale = object->getNumber("loss_scale").value_or(1.0);
  for (const auto &[key, entry] : *entries) {
    Expected<RangeProfile> profile = RangeProfile::fromJSON(entry);
    if (!profile)
      return createStringError("value \"" + StringRef(key) + "\": " + toString(profile.takeError()));
    profiles.values[StringRef(key).str()] = std::move(*profile);
  }
  return profiles;
}

Expected<RangeProfiles> RangeProfiles::read(StringRef path) {
  auto buffer = MemoryBuffer::getFile(path);
  if (!buffer)
    return createStringError("cannot read the ranges in '" + path + "': " + buffer.getError().message());
  Expected<json::Value> value = json::parse((*buffer)->getBuffer());
  if (!value)
    return createStringError("'" + path + "' is not JSON: " + toString(value.takeError()));
  Expected<RangeProfiles> profiles = fromJSON(*value);
  if (!profiles)
    return createStringError("'" + path +
                             "' holds no ranges of mpt-run --calibrate: " + toString(profiles.takeError()));
  return profiles;
}
