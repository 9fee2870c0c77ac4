// Loading of policy files and matching of their rules.
#include "mpt/Precision/Policy.h"

#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Precision/Attributes.h"

#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {
struct Builtin {
  StringRef name, text;
};
const Builtin builtins[] = {
#include "mpt/Precision/BuiltinPolicies.inc"
};
} // namespace

std::vector<StringRef> mpt::builtinPolicies() {
  std::vector<StringRef> names;
  for (const Builtin &builtin : builtins)
    names.push_back(builtin.name);
  return names;
}

static LogicalResult readScaling(policy::LossScalingOp op, LossScaling &scaling) {
  scaling.mode = op.getMode();
  scaling.init = op.getInit().convertToDouble();
  scaling.growth = op.getGrowth().convertToDouble();
  scaling.backoff = op.getBackoff().convertToDouble();
  scaling.min = op.getMin().convertToDouble();
  scaling.max = op.getMax().convertToDouble();
  scaling.interval = op.getInterval();
  scaling.hysteresis = op.getHysteresis();
  return success();
}

FailureOr<Policy> Policy::load(StringRef nameOrPath, Location loc) {
  ParserConfig config(loc.getContext());
  OwningOpRef<ModuleOp> file;
  bool isPath = nameOrPath.contains('/') || nameOrPath.contains('.');
  if (isPath) {
    if (!llvm::sys::fs::exists(nameOrPath))
      return emitError(loc) << "cannot find policy file " << nameOrPath;
    file = parseSourceFile<ModuleOp>(nameOrPath, config);
  } else {
    const Builtin *found = llvm::find_if(builtins, [&](const Builtin &builtin) { return builtin.name == nameOrPath; });
    if (found == std::end(builtins))
      return emitError(loc) << "expected policy " << llvm::join(builtinPolicies(), ", ")
                            << " or the path of a policy file, got " << nameOrPath;
    file = parseSourceString<ModuleOp>(found->text, config, found->name);
  }
  if (!file)
    return failure(); // the parser has said why
  auto policies = llvm::to_vector(file->getOps<policy::PolicyOp>());
  if (policies.size() != 1)
    return emitError(loc) << "expected one policy.policy in " << nameOrPath << ", got " << policies.size();

  policy::PolicyOp source = policies.front();
  Policy result;
  result.name = isPath ? source.getSymName().str() : nameOrPath.str();
  result.storage = source.getStorage();
  result.accumulate = source.getAccumulate();
  result.master = source.getMaster();
  result.gradients = source.getGradients();
  result.classes.fill(Decision::follow);
  result.classes[static_cast<size_t>(NumericClass::Pinned)] = Decision::wide;
  for (Operation &op : source.getRules().front()) {
    if (auto rule = dyn_cast<policy::ClassOp>(op))
      result.classes[static_cast<size_t>(*symbolizeNumericClass(rule.getNumericClass()))] = rule.getDecision();
    else if (auto rule = dyn_cast<policy::OpRuleOp>(op))
      result.ops[rule.getOp()] = rule.getDecision();
    else if (auto rule = dyn_cast<policy::NodeOp>(op)) {
      if (failed(result.addNodeRule(rule.getRegex(), rule.getDecision(), "policy.node", rule.getLoc())))
        return failure();
    } else if (auto rule = dyn_cast<policy::LossScalingOp>(op)) {
      if (failed(readScaling(rule, result.scaling)))
        return failure();
    } else if (!isa<policy::RoundingOp>(op)) {
      return op.emitError() << "expected a rule of the policy dialect, got " << op.getName();
    }
  }
  return result;
}

LogicalResult Policy::addNodeRule(StringRef regex, Decision decision, StringRef source, Location loc) {
  auto compiled = std::make_shared<llvm::Regex>(("^(" + regex + ")$").str());
  std::string error;
  if (!compiled->isValid(error))
    return emitError(loc) << "expected a regular expression, got \"" << regex << "\": " << error;
  nodes.push_back(
      {compiled, decision, (source + " \"" + regex + "\" -> " + policy::stringifyDecision(decision)).str()});
  return success();
}

std::string LossScaling::override(StringRef text) {
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  StringRef named = parts.front();
  LossScaling next = mode == Scaling::dynamic ? *this : LossScaling();
  if (std::optional<Scaling> known = policy::symbolizeScaling(named); known && *known != Scaling::fixed) {
    next.mode = *known;
  } else {
    next.mode = Scaling::fixed;
    if (named.getAsDouble(next.init) || !(next.init > 0.0) || !std::isfinite(next.init))
      return ("expected a loss scale of dynamic, none or a positive number, got " + named).str();
  }
  if (parts.size() > 1 && next.mode != Scaling::dynamic)
    return ("expected settings of the loss scale after dynamic only, got " + text).str();
  for (StringRef part : ArrayRef(parts).drop_front()) {
    auto [key, value] = part.split('=');
    double *real = llvm::StringSwitch<double *>(key)
                       .Case("init", &next.init)
                       .Case("growth", &next.growth)
                       .Case("backoff", &next.backoff)
                       .Case("min", &next.min)
                       .Case("max", &next.max)
                       .Default(nullptr);
    int64_t *whole = llvm::StringSwitch<int64_t *>(key)
                         .Case("interval", &next.interval)
                         .Case("hysteresis", &next.hysteresis)
                         .Default(nullptr);
    if (!real && !whole)
      return ("expected init, growth, backoff, interval, hysteresis, min or max of the loss scale, got " + part).str();
    if (real ? value.getAsDouble(*real) || !std::isfinite(*real) : value.getAsInteger(10, *whole))
      return ("expected a " + Twine(real ? "finite" : "whole") + " number for " + key + " of the loss scale, got " +
              value)
          .str();
  }
  if (!(0.0 < next.min && next.min <= next.init && next.init <= next.max) && next.mode == Scaling::dynamic)
    return ("expected 0 < min <= init <= max of the loss scale, got " + text).str();
  if (!(next.growth > 1.0 && 0.0 < next.backoff && next.backoff < 1.0) || next.interval < 1 || next.hysteresis < 1)
    return ("expected growth above 1, backoff between 0 and 1, interval and hysteresis of at least 1, got " + text)
        .str();
  *this = next;
  return "";
}

std::string mpt::ruleName(Operation *op) {
  auto node = dyn_cast<onnx::NodeOp>(op);
  return node ? ("onnx." + node.getOpType()).str() : op->getName().getStringRef().str();
}

Ruling Policy::decide(Operation *op, NumericClass numericClass) const {
  if (StringRef node = nodeName(op->getLoc()); !node.empty())
    for (const NodeRule &rule : llvm::reverse(nodes))
      if (rule.regex->match(node))
        return {rule.decision, rule.text, true};
  if (auto rule = ops.find(ruleName(op)); !ops.empty() && rule != ops.end())
    return {rule->second, ("policy.op \"" + rule->first() + "\" -> " + policy::stringifyDecision(rule->second)).str(),
            true};
  Decision decision = classes[static_cast<size_t>(numericClass)];
  return {decision,
          ("class " + stringifyNumericClass(numericClass) + " -> " + policy::stringifyDecision(decision)).str(), false};
}

DictionaryAttr Policy::toAttribute() const {
  Builder b(storage.getContext());
  auto scalingAttr = b.getDictionaryAttr({
      b.getNamedAttr("mode", b.getStringAttr(policy::stringifyScaling(scaling.mode))),
      b.getNamedAttr("init", b.getF64FloatAttr(scaling.init)),
      b.getNamedAttr("growth", b.getF64FloatAttr(scaling.growth)),
      b.getNamedAttr("backoff", b.getF64FloatAttr(scaling.backoff)),
      b.getNamedAttr("min", b.getF64FloatAttr(scaling.min)),
      b.getNamedAttr("max", b.getF64FloatAttr(scaling.max)),
      b.getNamedAttr("interval", b.getI64IntegerAttr(scaling.interval)),
      b.getNamedAttr("hysteresis", b.getI64IntegerAttr(scaling.hysteresis)),
  });
  return b.getDictionaryAttr({
      b.getNamedAttr("name", b.getStringAttr(name)),
      b.getNamedAttr("storage", TypeAttr::get(storage)),
      b.getNamedAttr("accumulate", TypeAttr::get(accumulate)),
      b.getNamedAttr("master", TypeAttr::get(master)),
      b.getNamedAttr("loss_scaling", scalingAttr),
  });
}

static DictionaryAttr summaryOf(ModuleOp module) { return module->getAttrOfType<DictionaryAttr>(kPolicyAttr); }

LossScaling mpt::scalingOf(ModuleOp module) {
  LossScaling scaling;
  DictionaryAttr summary = summaryOf(module);
  auto attr = summary ? summary.getAs<DictionaryAttr>("loss_scaling") : DictionaryAttr();
  if (!attr)
    return scaling;
  auto number = [&](StringRef key, double &value) {
    if (auto given = attr.getAs<FloatAttr>(key))
      value = given.getValueAsDouble();
  };
  auto integer = [&](StringRef key, int64_t &value) {
    if (auto given = attr.getAs<IntegerAttr>(key))
      value = given.getInt();
  };
  if (auto mode = attr.getAs<StringAttr>("mode"))
    scaling.mode = policy::symbolizeScaling(mode.getValue()).value_or(Scaling::none);
  number("init", scaling.init);
  number("growth", scaling.growth);
  number("backoff", scaling.backoff);
  number("min", scaling.min);
  number("max", scaling.max);
  integer("interval", scaling.interval);
  integer("hysteresis", scaling.hysteresis);
  return scaling;
}

static Type typeEntry(ModuleOp module, StringRef key) {
  DictionaryAttr summary = summaryOf(module);
  auto type = summary ? summary.getAs<TypeAttr>(key) : TypeAttr();
  return type ? type.getValue() : Type();
}
Type mpt::storageOf(ModuleOp module) { return typeEntry(module, "storage"); }
Type mpt::accumulatorOf(ModuleOp module) { return typeEntry(module, "accumulate"); }
