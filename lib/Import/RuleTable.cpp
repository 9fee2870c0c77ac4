// SPDX-License-Identifier: Apache-2.0
// The table of import rules: by domain, operator and version, with what is said of operators that have none.
#include "Binder.h"
#include "Optimizer.h"
#include "RecurrentGradients.h"
#include "RuntimeGradients.h"
#include "Training.h"

#include "mpt/Import/Import.h"
#include "mpt/Support/NearNames.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mpt;

const RuleTable &RuleTable::get() {
  static const RuleTable table = [] {
    RuleTable t;
    for (auto add : {addAttentionRules,
                     addCastRules,
                     addControlRules,
                     addConvRules,
                     addElementwiseRules,
                     addGatherRules,
                     addLossRules,
                     addMatMulRules,
                     addNormRules,
                     addPoolRules,
                     addRandomRules,
                     addRecurrentRules,
                     addReduceRules,
                     addResizeRules,
                     addScatterRules,
                     addSequenceRules,
                     addShapeRules,
                     addTrainingRules,
                     addOptimizerRules,
                     registerRuntimeGradients,
                     registerRecurrentGradients})
      add(t);
    return t;
  }();
  return table;
}

static std::string ruleKey(StringRef domain, StringRef opType) {
  return domain.empty() ? opType.str() : (domain + ":" + opType).str();
}

void RuleTable::on(StringRef opType, int64_t since, Rule rule, NodeClass numericClass) {
  OperatorEntry &entry = entries[opType];
  assert((!entry.numericClass ||
          (entry.numericClass->same == numericClass.same && entry.numericClass->byNode == numericClass.byNode)) &&
         "an operator has one numeric class in all its versions");
  entry.rules.emplace_back(since, rule);
  entry.numericClass = numericClass;
}

void RuleTable::onDomain(StringRef domain, StringRef opType, Rule rule, NodeClass numericClass) {
  on(ruleKey(domain, opType), 1, rule, numericClass);
}

void RuleTable::noRule(StringRef opType, NodeClass numericClass, StringRef why) {
  entries[opType].numericClass = numericClass;
  entries[opType].whyNoRule = why;
}

const OperatorEntry *RuleTable::entry(StringRef domain, StringRef opType) const {
  auto found = entries.find(ruleKey(domain, opType));
  return found == entries.end() ? nullptr : &found->second;
}

LogicalResult Rule::operator()(Binder &b) const {
  if (failed(leastRank ? b.needFloat(operands, *leastRank) : b.need(operands)))
    return failure();
  return import(b);
}

Rule RuleTable::find(StringRef domain, StringRef opType, int64_t version) const {
  Rule best;
  int64_t since = -1;
  const OperatorEntry *known = entry(domain, opType);
  for (auto [from, rule] : known ? ArrayRef(known->rules) : ArrayRef<std::pair<int64_t, Rule>>())
    if (from <= version && from > since) {
      best = rule;
      since = from;
    }
  return best;
}

bool RuleTable::contains(StringRef domain, StringRef opType) const {
  const OperatorEntry *known = entry(domain, opType);
  return known && !known->rules.empty();
}

void RuleTable::standardToo(StringRef opType, int64_t version) {
  entries[ruleKey("com.microsoft", opType)].standardBefore = version;
}

std::string RuleTable::advice(StringRef domain, StringRef opType) const {
  const OperatorEntry *known = entry(domain, opType);
  if (known && !known->whyNoRule.empty())
    return known->whyNoRule.str();
  if (known && !known->rules.empty())
    return "it is supported from opset " + std::to_string(llvm::min_element(known->rules, llvm::less_first())->first) +
           " on; convert the model to a newer opset first";
  if (auto found = domains.find(domain); found != domains.end())
    return found->second.str();
  std::string prefix = ruleKey(domain, "");
  SmallVector<StringRef> others;
  for (const auto &entry : entries)
    if (StringRef name = entry.getKey();
        !entry.second.rules.empty() && name.consume_front(prefix) && !name.contains(':'))
      others.push_back(name);
  if (SmallVector<StringRef> names = nearNames(opType, others); !names.empty())
    return "supported names near it: " + llvm::join(names, ", ");
  return "write it in operators of ai.onnx, or define it as a function of the model; --emit=onnx without a loss keeps "
         "such nodes as they are";
}

std::vector<StringRef> RuleTable::names() const {
  std::vector<StringRef> names(entries.keys().begin(), entries.keys().end());
  llvm::sort(names);
  return names;
}

std::vector<StringRef> mpt::knownOperators() { return RuleTable::get().names(); }

std::vector<Described> mpt::describeOperators() {
  std::vector<Described> all;
  for (StringRef name : RuleTable::get().names()) {
    auto [domain, opType] = name.contains(':') ? name.split(':') : std::pair(StringRef(), name);
    const OperatorEntry &entry = *RuleTable::get().entry(domain, opType);
    std::string text = entry.rules.empty()
                           ? "in rewritten files alone"
                           : "opset " + std::to_string(llvm::min_element(entry.rules, llvm::less_first())->first);
    if (entry.numericClass)
      text += (", class " + (entry.numericClass->byNode ? "by node" : stringifyNumericClass(entry.numericClass->same)))
                  .str();
    SmallVector<std::string> trained;
    for (unsigned operand = 0; entry.numericClass && operand < 64; ++operand)
      if (entry.numericClass->weights >> operand & 1)
        trained.push_back(std::to_string(operand));
    all.push_back({name, text + (trained.empty() ? "" : ", trains operands " + llvm::join(trained, ", "))});
  }
  return all;
}

std::string mpt::unsupportedOperator(StringRef domain, StringRef opType, int64_t version) {
  return ("expected a supported operator, got " + domain + (domain.empty() ? "" : ".") + opType + " (opset " +
          Twine(version) + "); " + RuleTable::get().advice(domain, opType) + " [mpt-unsupported-operator]")
      .str();
}

bool mpt::isRuntimeOperator(StringRef opType, int64_t version) {
  const OperatorEntry *known = RuleTable::get().entry("com.microsoft", opType);
  return known && version < known->standardBefore;
}

bool mpt::hasImportRule(StringRef domain, StringRef opType) { return RuleTable::get().contains(domain, opType); }
