// SPDX-License-Identifier: Apache-2.0
// Loading of policy files and matching of their rules.
#include "mpt/Precision/Policy.h"

#include "RuleNames.h"

#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Precision/BuiltinPolicies.h"
#include "mpt/Precision/Products.h"
#include "mpt/Support/NearNames.h"

#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"

using namespace mlir;
using namespace mpt;

LogicalResult Policy::loadFile(StringRef nameOrPath, Location loc) {
  ParserConfig config(loc.getContext());
  OwningOpRef<ModuleOp> file;
  bool isPath = nameOrPath.contains('/') || nameOrPath.contains('.');
  if (isPath) {
    if (!llvm::sys::fs::exists(nameOrPath))
      return emitError(loc) << "cannot find policy file " << nameOrPath << " [mpt-unknown-policy]";
    file = parseSourceFile<ModuleOp>(nameOrPath, config);
  } else {
    std::optional<StringRef> text = builtinPolicyText(nameOrPath);
    if (!text)
      return emitError(loc) << "expected policy " << llvm::join(builtinPolicies(), ", ")
                            << ", auto or the path of a policy file, got " << nameOrPath << " [mpt-unknown-policy]";
    file = parseSourceString<ModuleOp>(*text, config, nameOrPath);
  }
  if (!file)
    return failure(); // the parser has said why
  auto policies = llvm::to_vector(file->getOps<policy::PolicyOp>());
  if (policies.size() != 1)
    return emitError(loc) << "expected one policy.policy in " << nameOrPath << ", got " << policies.size();

  policy::PolicyOp source = policies.front();
  static_cast<PrecisionSettings &>(*this) = PrecisionSettings::from(source);
  if (!isPath)
    name = nameOrPath.str();
  classes.fill(Decision::follow);
  classes[static_cast<size_t>(NumericClass::Pinned)] = Decision::wide;
  return addRules(source.getRules().front(), /*fromCommandLine=*/false);
}

PolicyName PolicyName::of(StringRef text) {
  PolicyName result;
  SmallVector<StringRef> words;
  text.split(words, ',');
  for (StringRef word : words) {
    auto [key, value] = word.split('=');
    if (key == "measure" && &word != words.begin()) {
      result.measures = true;
      result.table = value.str();
    } else {
      result.name += (result.name.empty() ? "" : ",") + word.str();
    }
  }
  return result;
}

LogicalResult Policy::readProducts(StringRef path, Location loc) {
  if (!quantizes())
    return emitError(loc) << "expected a policy with 8-bit operands of GEMMs with measure, got " << name;
  if (path.empty())
    return emitError(loc) << "expected a table of measured products with measure, got none: write the library that "
                             "measures them with --emit=products -o DIR, run python -m mpt.measure DIR -o TABLE on the "
                             "machine to train on, and give measure=TABLE";
  llvm::Expected<ProductTable> read = ProductTable::read(path);
  if (!read)
    return emitError(loc) << llvm::toString(read.takeError());
  if (std::string recipe = recipeOf(*this); read->recipe != recipe)
    return emitError(loc) << "expected times of products with " << recipe << " in '" << path << "', got those with "
                          << read->recipe << ": measure this policy's products";
  timedTarget = read->target;
  timedDevice = read->device;
  timedLibraries = read->libraries;
  timed = std::make_shared<const ProductTable>(std::move(*read));
  return success();
}

FailureOr<Policy> Policy::load(const PolicyWishes &wishes, Location loc) {
  Policy policy;
  PolicyName asked = PolicyName::of(wishes.name);
  std::optional<AutoSettings> measured;
  if (asked.name == "auto" || StringRef(asked.name).starts_with("auto,")) {
    measured.emplace();
    if (std::string wrong = measured->set(asked.name); !wrong.empty())
      return emitError(loc) << wrong;
  }
  if (failed(policy.loadFile(measured ? measured->base : asked.name, loc)))
    return failure();
  if (asked.measures && failed(policy.readProducts(asked.table, loc)))
    return failure();
  if (measured) {
    FailureOr<std::shared_ptr<const Measurements>> read = Measurements::read(wishes.ranges, *measured, loc);
    if (failed(read))
      return failure();
    policy.measurements = *read;
    policy.name = "auto";
    policy.measurements->chooseLossScale(policy);
  } else if (!wishes.ranges.empty()) {
    FailureOr<std::shared_ptr<const Measurements>> read =
        Measurements::read(wishes.ranges, AutoSettings::limitsAlone(), loc);
    if (failed(read))
      return failure();
    policy.measurements = *read;
  }
  if (!wishes.saved.empty())
    policy.savedNodes.push_back({wishes.saved == "f8", ".*"});
  for (StringRef rule : wishes.rules)
    if (failed(policy.addTextRule(rule, loc)))
      return failure();
  for (StringRef regex : wishes.keepF32)
    if (failed(policy.addNodeRule(regex, std::nullopt, Decision::wide, "keep-f32", true, loc)))
      return failure();
  for (StringRef regex : wishes.keepNarrow)
    if (failed(policy.addNodeRule(regex, std::nullopt, Decision::narrow, "keep-narrow", true, loc)))
      return failure();
  return policy;
}

LogicalResult Policy::addTextRule(StringRef text, Location loc) {
  // The types are a policy's, which says nothing here.
  std::string source =
      ("policy.policy @rule storage = f32 compute = f32 accumulate = f32 master = f32 gradients = f32 {\n"
       "policy." +
       text + "\n}")
          .str();
  OwningOpRef<ModuleOp> file = parseSourceString<ModuleOp>(source, ParserConfig(loc.getContext()), "--rule");
  if (!file)
    return emitError(loc)
           << "expected a rule such as 'op \"mpt.tanh\" -> wide' or 'node \"/head/.*\" operand 1 -> wide', "
              "got '"
           << text << "'";
  auto policies = file->getOps<policy::PolicyOp>();
  Block &rules = (*policies.begin()).getRules().front();
  if (!llvm::hasSingleElement(policies) || !llvm::hasSingleElement(rules))
    return emitError(loc) << "expected one rule, got '" << text << "'";
  return addRules(rules, /*fromCommandLine=*/true);
}

/// The text of a rule, as reports quote it.
static std::string textOf(StringRef source, StringRef name, DictionaryAttr with, std::optional<int64_t> operand,
                          Decision decision) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << source << " \"" << name << "\"";
  if (with)
    out << " with " << with;
  if (operand)
    out << " operand " << *operand;
  out << " -> " << policy::stringifyDecision(decision);
  return text;
}

LogicalResult Policy::addRules(Block &rules, bool fromCommandLine) {
  for (Operation &op : rules) {
    bool isSetting = isa_and_nonnull<policy::PolicyDialect>(op.getDialect()) && !op.hasTrait<policy::DecidesOps>();
    if (!op.hasTrait<policy::DecidesOps>() && (fromCommandLine || !isSetting))
      return op.emitError() << "expected a rule of kind class, where, op, node or saved, got " << op.getName();
  }
  for (auto rule : rules.getOps<policy::ClassOp>())
    classes[static_cast<size_t>(*symbolizeNumericClass(rule.getNumericClass()))] = rule.getDecision();
  for (auto rule : rules.getOps<policy::WhereOp>())
    layerRules.emplace_back(rule.getPredicate(), rule.getDecision());
  for (auto rule : rules.getOps<policy::OpRuleOp>())
    if (failed(addOpRule(rule, fromCommandLine)))
      return failure();
  for (auto rule : rules.getOps<policy::SavedOp>()) {
    savedNodes.push_back({rule.getDecision() == Decision::narrow, rule.getRegex().str()});
    if (fromCommandLine)
      asked.push_back({rule.getDecision(),
                       textOf("rule saved", rule.getRegex(), {}, {}, rule.getDecision()),
                       {},
                       true,
                       DictionaryAttr(),
                       std::make_shared<llvm::Regex>(("^(" + rule.getRegex() + ")$").str()),
                       rule.getRegex().str()});
  }
  for (auto rule : rules.getOps<policy::NodeOp>())
    if (failed(addNodeRule(rule.getRegex(), rule.getOperand(), rule.getDecision(),
                           fromCommandLine ? "rule node" : "policy.node", fromCommandLine, rule.getLoc())))
      return failure();
  return success();
}

LogicalResult Policy::addNodeRule(StringRef regex, std::optional<int64_t> operand, Decision decision, StringRef source,
                                  bool fromCommandLine, Location loc) {
  auto compiled = std::make_shared<llvm::Regex>(("^(" + regex + ")$").str());
  std::string error;
  if (!compiled->isValid(error))
    return emitError(loc) << "expected a regular expression, got \"" << regex << "\": " << error;
  hasOperandRules |= operand.has_value();
  nodes.push_back({decision, textOf(source, regex, {}, operand, decision), operand, fromCommandLine, DictionaryAttr(),
                   compiled, regex.str()});
  return success();
}

LogicalResult Policy::addOpRule(policy::OpRuleOp rule, bool fromCommandLine) {
  StringRef op = rule.getOp();
  if (std::string wrong = whatIsWrongWith(op, rule.getWithAttr(), rule.getContext()); !wrong.empty())
    return rule.emitError() << wrong;
  hasOperandRules |= rule.getOperand().has_value();
  ops[op].push_back(
      {rule.getDecision(),
       textOf(fromCommandLine ? "rule op" : "policy.op", op, rule.getWithAttr(), rule.getOperand(), rule.getDecision()),
       rule.getOperand(), fromCommandLine, rule.getWithAttr(), nullptr, op.str()});
  return success();
}

std::string mpt::ruleName(Operation *op) {
  auto node = dyn_cast<onnx::NodeOp>(op);
  return node ? ("onnx." + node.getOpType()).str() : op->getName().getStringRef().str();
}

/// True when the op has all attributes in `with`.
static bool hasAttributes(Operation *op, DictionaryAttr with) {
  auto node = dyn_cast<onnx::NodeOp>(op);
  return !with || llvm::all_of(with, [&](NamedAttribute wanted) {
    return (node ? node.getAttrs().get(wanted.getName()) : op->getAttr(wanted.getName())) == wanted.getValue();
  });
}

LogicalResult Policy::checkRules(ModuleOp module) const {
  SmallVector<const NamedRule *> open;
  for (const NamedRule &rule : nodes)
    if (rule.fromCommandLine)
      open.push_back(&rule);
  for (const auto &entry : ops)
    for (const NamedRule &rule : entry.second)
      if (rule.fromCommandLine)
        open.push_back(&rule);
  for (const NamedRule &rule : asked)
    open.push_back(&rule);
  if (open.empty())
    return success();
  llvm::StringSet<> nodeNames, opNames;
  module.walk([&](Operation *op) {
    if (!isa<onnx::NodeOp>(op) && !isa<PrecisionSemantics>(op))
      return;
    StringRef node = nodeName(op->getLoc());
    std::string name = ruleName(op);
    nodeNames.insert(node);
    opNames.insert(name);
    llvm::erase_if(open, [&](const NamedRule *rule) {
      return rule->regex ? !node.empty() && rule->regex->match(node) : name == rule->name;
    });
  });
  nodeNames.erase("");
  for (const NamedRule *rule : open) {
    const llvm::StringSet<> &names = rule->regex ? nodeNames : opNames;
    emitError(module.getLoc()) << "expected a rule about " << (rule->regex ? "nodes" : "ops") << " of the model, got '"
                               << rule->text << "', which matches none; "
                               << whatThereIs(rule->name, llvm::to_vector(names.keys())) << " [mpt-no-match]";
  }
  return success(open.empty());
}

const Policy::NamedRule *Policy::find(Operation *op, std::optional<int64_t> operand) const {
  const NamedRule *best = nullptr;
  auto rank = [](const NamedRule &rule) {
    return std::make_tuple(rule.fromCommandLine, rule.regex != nullptr, rule.decision == Decision::narrow);
  };
  auto consider = [&](const NamedRule &rule) {
    if (!best || rank(rule) >= rank(*best))
      best = &rule;
  };
  if (!ops.empty())
    if (auto rules = ops.find(ruleName(op)); rules != ops.end())
      for (const NamedRule &rule : rules->second)
        if (rule.operand == operand && hasAttributes(op, rule.with))
          consider(rule);
  if (StringRef node = nodes.empty() ? StringRef() : nodeName(op->getLoc()); !node.empty())
    for (const NamedRule &rule : nodes)
      if (rule.operand == operand && rule.regex->match(node))
        consider(rule);
  return best;
}

Ruling Policy::decide(Operation *op, NumericClass numericClass, const Layers *layers) const {
  if (const NamedRule *rule = find(op, std::nullopt))
    return {rule->decision, rule->text, true};
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

std::optional<Ruling> Policy::decideOperand(Operation *op, unsigned index) const {
  const NamedRule *rule = hasOperandRules ? find(op, index) : nullptr;
  if (!rule)
    return std::nullopt;
  // The command line's word on the whole op is the later one.
  if (const NamedRule *whole = find(op, std::nullopt);
      whole && whole->fromCommandLine && !rule->fromCommandLine && whole->decision != Decision::follow)
    return std::nullopt;
  return Ruling{rule->decision, rule->text, true};
}
