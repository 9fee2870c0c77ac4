// SPDX-License-Identifier: Apache-2.0
// Reading of settings from a policy, and their form as an attribute of the module.
#include "mpt/Precision/Settings.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "llvm/ADT/StringSwitch.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {
/// One list of fields for both directions.
template <typename F> void eachField(PrecisionSettings &s, F field) {
  field("name", s.name);
  field("note", s.note);
  field("storage", s.storage);
  field("compute", s.compute);
  field("gradients", s.gradients);
  field("accumulate", s.accumulate);
  field("master", s.master);
  field("slots", s.slots);
  field("parameter_gradients", s.parameterGradients);
  field("saved", s.saved);
  field("saved_nodes", s.savedNodes);
  field("operands_stochastic", s.operands.stochastic);
  field("operands_saturate", s.operands.saturates);
  field("gradients_stochastic", s.gradientCasts.stochastic);
  field("gradients_saturate", s.gradientCasts.saturates);
  field("masters_stochastic", s.masters.stochastic);
  field("masters_saturate", s.masters.saturates);
  field("masters_compensated", s.masters.compensated);
  field("slots_stochastic", s.slotCasts.stochastic);
  field("slots_saturate", s.slotCasts.saturates);
  field("slots_asked", s.slotsAreAsked);
  field("tensor_scales", s.tensorScaling.enabled);
  field("delayed", s.tensorScaling.delayed);
  field("most_recent", s.tensorScaling.mostRecent);
  field("power_of_two", s.tensorScaling.powerOfTwo);
  field("history", s.tensorScaling.history);
  field("margin", s.tensorScaling.margin);
  field("bounds", s.bounds);
  field("timed_target", s.timedTarget);
  field("timed_device", s.timedDevice);
  field("timed_libraries", s.timedLibraries);
  field("products", s.products);
}
template <typename F> void eachScalingField(LossScaling &s, F field) {
  field("init", s.init);
  field("growth", s.growth);
  field("backoff", s.backoff);
  field("min", s.min);
  field("max", s.max);
  field("interval", s.interval);
  field("hysteresis", s.hysteresis);
  field("floor_steps", s.floorSteps);
  field("floors", s.floors);
  field("spread", s.spread);
  field("underflow", s.underflow);
  field("layer_max", s.layerMax);
  field("total_max", s.totalMax);
  field("patience", s.patience);
  field("update_interval", s.updateInterval);
  field("total_from", s.totalFrom);
  field("first", s.first);
  field("headroom", s.headroom);
  field("check", s.check);
  field("smallest", s.smallest);
  field("largest", s.largest);
}

struct Writer {
  Builder b;
  SmallVector<NamedAttribute> list;
  void operator()(StringRef key, Type value) { add(key, TypeAttr::get(value)); }
  void operator()(StringRef key, bool value) {
    if (value)
      add(key, b.getUnitAttr());
  }
  void operator()(StringRef key, int64_t value) { add(key, b.getI64IntegerAttr(value)); }
  void operator()(StringRef key, double value) { add(key, b.getF64FloatAttr(value)); }
  void operator()(StringRef key, const std::string &value) {
    if (!value.empty())
      add(key, b.getStringAttr(value));
  }
  void operator()(StringRef key, ArrayRef<int64_t> value) { add(key, b.getDenseI64ArrayAttr(value)); }
  void operator()(StringRef key, ArrayRef<double> value) { add(key, b.getDenseF64ArrayAttr(value)); }
  void operator()(StringRef key, const std::vector<ErrorBound> &value) {
    NamedAttrList errors;
    for (const ErrorBound &bound : value)
      errors.set(bound.output, b.getF64FloatAttr(bound.error));
    if (!value.empty())
      add(key, errors.getDictionary(b.getContext()));
  }
  void operator()(StringRef key, const std::vector<SavedRule> &value) {
    SmallVector<Attribute> rules;
    for (const SavedRule &rule : value)
      rules.push_back(b.getStrArrayAttr({rule.coded ? "narrow" : "storage", rule.regex}));
    if (!value.empty())
      add(key, b.getArrayAttr(rules));
  }
  void operator()(StringRef key, const std::vector<MeasuredProduct> &value) {
    SmallVector<Attribute> rows;
    for (const MeasuredProduct &row : value)
      rows.push_back(b.getDictionaryAttr({b.getNamedAttr("product", b.getStringAttr(row.product)),
                                          b.getNamedAttr("us_16", b.getF64FloatAttr(row.wide)),
                                          b.getNamedAttr("us_8", b.getF64FloatAttr(row.narrow)),
                                          b.getNamedAttr("ops", b.getI64IntegerAttr(row.ops)),
                                          b.getNamedAttr("ops_8", b.getI64IntegerAttr(row.narrowOps))}));
    if (!value.empty())
      add(key, b.getArrayAttr(rows));
  }
  void add(StringRef key, Attribute value) { list.push_back(b.getNamedAttr(key, value)); }
};

struct Reader {
  DictionaryAttr dictionary;
  void operator()(StringRef key, Type &value) {
    if (auto attr = dictionary.getAs<TypeAttr>(key))
      value = attr.getValue();
  }
  void operator()(StringRef key, bool &value) { value = dictionary.contains(key); }
  void operator()(StringRef key, int64_t &value) {
    if (auto attr = dictionary.getAs<IntegerAttr>(key))
      value = attr.getInt();
  }
  void operator()(StringRef key, double &value) {
    if (auto attr = dictionary.getAs<FloatAttr>(key))
      value = attr.getValueAsDouble();
  }
  void operator()(StringRef key, std::string &value) {
    if (auto attr = dictionary.getAs<StringAttr>(key))
      value = attr.getValue().str();
  }
  void operator()(StringRef key, SmallVector<int64_t> &value) {
    if (auto attr = dictionary.getAs<DenseI64ArrayAttr>(key))
      value.assign(attr.asArrayRef().begin(), attr.asArrayRef().end());
  }
  void operator()(StringRef key, SmallVector<double> &value) {
    if (auto attr = dictionary.getAs<DenseF64ArrayAttr>(key))
      value.assign(attr.asArrayRef().begin(), attr.asArrayRef().end());
  }
  void operator()(StringRef key, std::vector<ErrorBound> &value) {
    for (NamedAttribute entry : dictionary.getAs<DictionaryAttr>(key) ? dictionary.getAs<DictionaryAttr>(key).getValue()
                                                                      : ArrayRef<NamedAttribute>())
      value.push_back({entry.getName().str(), cast<FloatAttr>(entry.getValue()).getValueAsDouble()});
  }
  void operator()(StringRef key, std::vector<SavedRule> &value) {
    auto rules = dictionary.getAs<ArrayAttr>(key);
    for (auto rule :
         rules ? rules.getAsRange<ArrayAttr>() : ArrayAttr::get(dictionary.getContext(), {}).getAsRange<ArrayAttr>())
      value.push_back({cast<StringAttr>(rule[0]).getValue() == "narrow", cast<StringAttr>(rule[1]).getValue().str()});
  }
  void operator()(StringRef key, std::vector<MeasuredProduct> &value) {
    auto rows = dictionary.getAs<ArrayAttr>(key);
    for (Attribute entry : rows ? rows.getValue() : ArrayRef<Attribute>()) {
      MeasuredProduct product;
      Reader row{cast<DictionaryAttr>(entry)};
      row("product", product.product);
      row("us_16", product.wide);
      row("us_8", product.narrow);
      row("ops", product.ops);
      row("ops_8", product.narrowOps);
      value.push_back(std::move(product));
    }
  }
};
} // namespace

/// Members have the names and the defaults of the op's attributes.
static LossScaling readScaling(policy::LossScalingOp op) {
  LossScaling scaling;
  scaling.mode = op.getMode();
  eachScalingField(scaling, Reader{op->getAttrDictionary()});
  return scaling;
}

static void readRounding(policy::RoundingOp op, PrecisionSettings &settings) {
  RoundingMode mode{op.getMode() == "stochastic", op.getOverflow() == "saturate", op.getMode() == "compensated"};
  bool all = op.getValues() == policy::Values::all;
  if (all || op.getValues() == policy::Values::operands)
    settings.operands = mode;
  if (all || op.getValues() == policy::Values::gradients)
    settings.gradientCasts = mode;
  if (all || op.getValues() == policy::Values::masters)
    settings.masters = mode;
  if (op.getValues() == policy::Values::slots)
    settings.slotCasts = mode;
}

PrecisionSettings PrecisionSettings::from(policy::PolicyOp op) {
  PrecisionSettings result;
  Type f32 = Float32Type::get(op.getContext());
  result.name = op.getSymName().str();
  result.storage = op.getStorage();
  result.compute = op.getCompute();
  result.gradients = op.getGradients();
  result.accumulate = op.getAccumulate();
  result.master = op.getMaster();
  result.slots = op.getSlots().value_or(f32);
  result.parameterGradients = op.getParameterGradients().value_or(f32);
  result.saved = op.getSaved().value_or(result.storage);
  Block &rules = op.getRules().front();
  for (auto scaling : rules.getOps<policy::LossScalingOp>())
    result.scaling = readScaling(scaling);
  for (auto rounding : rules.getOps<policy::RoundingOp>())
    readRounding(rounding, result);
  for (auto tensors : rules.getOps<policy::TensorScalingOp>())
    result.tensorScaling = {true,
                            tensors.getMode() == policy::TensorScaling::delayed,
                            tensors.getMostRecent(),
                            tensors.getPowerOfTwo(),
                            static_cast<int64_t>(tensors.getHistory()),
                            static_cast<int64_t>(tensors.getMargin())};
  return result;
}

std::string PrecisionSettings::overrideSlots(StringRef text) {
  MLIRContext *context = storage.getContext();
  Type type = llvm::StringSwitch<Type>(text)
                  .Case("f32", Float32Type::get(context))
                  .Case("f16", Float16Type::get(context))
                  .Case("bf16", BFloat16Type::get(context))
                  .Case("i8", IntegerType::get(context, 8))
                  .Case("f8", Float8E4M3FNType::get(context))
                  .Default(Type());
  if (!type)
    return ("expected f32, f16, bf16, i8 or f8 for the type of slots, got " + text).str();
  slots = type;
  slotsAreAsked = !type.isF32();
  return "";
}

/// Reads "SCALE" (from the first step on), "STEP:SCALE/STEP:SCALE..." or "none" as the floors of a dynamic scale.
static std::string readFloors(StringRef text, LossScaling &scaling) {
  scaling.floorSteps.clear();
  scaling.floors.clear();
  if (text == "none")
    return "";
  SmallVector<StringRef> parts;
  text.split(parts, '/');
  for (StringRef part : parts) {
    auto [step, scale] = part.contains(':') ? part.split(':') : std::pair(StringRef("0"), part);
    int64_t from = 0;
    double floor = 0;
    if (step.getAsInteger(10, from) || from < 0 || scale.getAsDouble(floor) || !(floor > 0.0) || !std::isfinite(floor))
      return ("expected floors of the loss scale as SCALE, STEP:SCALE/STEP:SCALE or none, got " + text).str();
    if (!scaling.floorSteps.empty() && from <= scaling.floorSteps.back())
      return ("expected steps of the loss scale's floors that ascend, got " + text).str();
    scaling.floorSteps.push_back(from);
    scaling.floors.push_back(floor);
  }
  return "";
}

/// A smaller or larger scale takes every gradient out of the range of FP32 itself, so that no step could succeed.
static bool isUsableScale(double scale) { return scale >= std::ldexp(1.0, -32) && scale <= std::ldexp(1.0, 64); }

/// Reads one of the settings behind a scale, `part` of `text`.
static std::string readSetting(StringRef part, StringRef text, LossScaling &scaling) {
  auto [key, value] = part.split('=');
  if (key == "check") {
    if (scaling.mode == Scaling::none || (value != "step" && value != "parameter"))
      return ("expected check=step or check=parameter of a loss scale, got " + text).str();
    scaling.check = value.str();
    return "";
  }
  if (scaling.mode != Scaling::dynamic)
    return ("expected settings of the loss scale after dynamic only, got " + text).str();
  if (key == "floors")
    return readFloors(value, scaling);
  double *real = llvm::StringSwitch<double *>(key)
                     .Case("init", &scaling.init)
                     .Case("growth", &scaling.growth)
                     .Case("backoff", &scaling.backoff)
                     .Case("min", &scaling.min)
                     .Case("max", &scaling.max)
                     .Default(nullptr);
  int64_t *whole = llvm::StringSwitch<int64_t *>(key)
                       .Case("interval", &scaling.interval)
                       .Case("hysteresis", &scaling.hysteresis)
                       .Case("patience", &scaling.patience)
                       .Default(nullptr);
  if (!real && !whole)
    return ("expected init, growth, backoff, interval, hysteresis, min, max, floors, patience or check of the loss "
            "scale, got " +
            part)
        .str();
  if (real ? value.getAsDouble(*real) || !std::isfinite(*real) : value.getAsInteger(10, *whole))
    return ("expected a " + Twine(real ? "finite" : "whole") + " number for " + key + " of the loss scale, got " +
            value)
        .str();
  return "";
}

std::string LossScaling::override(StringRef text) {
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  StringRef named = parts.front();
  LossScaling next = mode == Scaling::dynamic || named.starts_with("check=") ? *this : LossScaling();
  next.check = check;
  if (named.starts_with("check=")) {
    if (mode == Scaling::none)
      return ("expected a loss scale before its check, since the policy has no finite check, got " + text).str();
  } else if (std::optional<Scaling> known = policy::symbolizeScaling(named);
             known && *known != Scaling::fixed && *known != Scaling::adaptive) {
    next.mode = *known;
  } else {
    next.mode = Scaling::fixed;
    if (named.getAsDouble(next.init) || !(next.init > 0.0) || !std::isfinite(next.init))
      return ("expected a loss scale of dynamic, none or a positive number, got " + named).str();
    if (!isUsableScale(next.init))
      return ("expected a loss scale from 2^-32 to 2^64, got " + named + ": no step could succeed with it").str();
  }
  for (StringRef part : ArrayRef(parts).drop_front(named.starts_with("check=") ? 0 : 1))
    if (std::string wrong = readSetting(part, text, next); !wrong.empty())
      return wrong;
  if (!(0.0 < next.min && next.min <= next.init && next.init <= next.max) && next.mode == Scaling::dynamic)
    return ("expected 0 < min <= init <= max of the loss scale, got " + text).str();
  if (next.mode == Scaling::dynamic && (!isUsableScale(next.min) || !isUsableScale(next.max)))
    return ("expected min and max of the loss scale from 2^-32 to 2^64, got " + text).str();
  if (!(next.growth > 1.0 && 0.0 < next.backoff && next.backoff < 1.0) || next.interval < 1 || next.hysteresis < 1 ||
      next.patience < 1)
    return ("expected growth above 1, backoff between 0 and 1, interval, hysteresis and patience of at least 1, got " +
            text)
        .str();
  for (double floor : next.floors)
    if (floor > next.max)
      return ("expected floors of the loss scale of at most max, got " + text).str();
  *this = next;
  return "";
}

DictionaryAttr PrecisionSettings::toAttribute() const {
  PrecisionSettings copy = *this;
  Builder b(storage.getContext());
  Writer loss{b, {}}, all{b, {}};
  loss("mode", policy::stringifyScaling(scaling.mode).str());
  eachScalingField(copy.scaling, [&](StringRef key, auto &value) { loss(key, value); });
  eachField(copy, [&](StringRef key, auto &value) { all(key, value); });
  all.add("loss_scaling", b.getDictionaryAttr(loss.list));
  return b.getDictionaryAttr(all.list);
}

PrecisionSettings PrecisionSettings::of(ModuleOp module) {
  PrecisionSettings result;
  Type f32 = Float32Type::get(module.getContext());
  for (Type *type : {&result.storage, &result.compute, &result.gradients, &result.accumulate, &result.master,
                     &result.slots, &result.parameterGradients, &result.saved})
    *type = f32;
  auto summary = getAttr<MPTDialect::PolicyAttrHelper>(module);
  if (!summary)
    return result;
  Reader all{summary};
  eachField(result, all);
  if (auto loss = summary.getAs<DictionaryAttr>("loss_scaling")) {
    if (auto mode = loss.getAs<StringAttr>("mode"))
      result.scaling.mode = policy::symbolizeScaling(mode.getValue()).value_or(Scaling::none);
    eachScalingField(result.scaling, Reader{loss});
  }
  return result;
}
