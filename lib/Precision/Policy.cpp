// Loading of policy files and matching of their rules.
#include "mpt/Precision/Policy.h"

#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Precision/Attributes.h"

#include "mlir/Parser/Parser.h"
#include "llvm/Support/FileSystem.h"

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
  static_cast<PrecisionSettings &>(result) = PrecisionSettings::from(source);
  if (!isPath)
    result.name = nameOrPath.str();
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
    } else if (auto rule = dyn_cast<policy::WhereOp>(op)) {
      result.layerRules.emplace_back(rule.getPredicate(), rule.getDecision());
    } else if (!isa<policy::LossScalingOp, policy::RoundingOp, policy::TensorScalingOp>(op)) {
      return op.emitError() << "expected a rule of the policy dialect, got " << op.getName();
    }
  }
  return result;
}

FailureOr<Policy> Policy::load(StringRef nameOrPath, ArrayRef<std::string> keepF32, ArrayRef<std::string> keepNarrow,
                               Location loc) {
  FailureOr<Policy> policy = load(nameOrPath, loc);
  if (failed(policy))
    return failure();
  for (StringRef regex : keepF32)
    if (failed(policy->addNodeRule(regex, Decision::wide, "keep-f32", loc)))
      return failure();
  for (StringRef regex : keepNarrow)
    if (failed(policy->addNodeRule(regex, Decision::narrow, "keep-narrow", loc)))
      return failure();
  return policy;
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

std::string mpt::ruleName(Operation *op) {
  auto node = dyn_cast<onnx::NodeOp>(op);
  return node ? ("onnx." + node.getOpType()).str() : op->getName().getStringRef().str();
}

Ruling Policy::decide(Operation *op, NumericClass numericClass, const Layers *layers) const {
  if (StringRef node = nodeName(op->getLoc()); !node.empty())
    for (const NodeRule &rule : llvm::reverse(nodes))
      if (rule.regex->match(node))
        return {rule.decision, rule.text, true};
  if (auto rule = ops.find(ruleName(op)); !ops.empty() && rule != ops.end())
    return {rule->second, ("policy.op \"" + rule->first() + "\" -> " + policy::stringifyDecision(rule->second)).str(),
            true};
  for (auto [predicate, decision] : llvm::reverse(layerRules))
    if (layers && layers->is(predicate, op))
      return {decision,
              ("policy.where " + policy::stringifyPredicate(predicate) + " -> " + policy::stringifyDecision(decision))
                  .str(),
              false};
  Decision decision = classes[static_cast<size_t>(numericClass)];
  return {decision,
          ("class " + stringifyNumericClass(numericClass) + " -> " + policy::stringifyDecision(decision)).str(), false};
}
