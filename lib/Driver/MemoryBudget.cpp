// SPDX-License-Identifier: Apache-2.0
// The search for options whose plan is within --memory-budget.
#include "MemoryBudget.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpt;
using llvm::Expected;

namespace {

constexpr int64_t kAll = INT64_MAX; ///< bytes of rematerialization: whatever can be
constexpr int kMaxAmounts = 4;      ///< of rematerialization that are tried between none and all

/// The first of the diagnostics, without its kind and the model's name.
StringRef reasonOf(StringRef diagnostics) {
  StringRef first = diagnostics.split('\n').first;
  first.consume_front("error: ");
  return first.starts_with("at node ") ? first.split("': ").second : first;
}

} // namespace

std::string BudgetSearch::Choice::text() const {
  SmallVector<std::string> parts;
  if (rematerialize)
    parts.push_back(rematerialize == kAll ? "all rematerialized that can be" : "more rematerialized");
  if (packs)
    parts.push_back("no narrow copies of parameters");
  if (checks)
    parts.push_back("finite checks by parameter");
  if (codes)
    parts.push_back("activations in 8 bits");
  if (!slots.empty())
    parts.push_back("optimizer states in " + slots);
  return isAsked() ? "as asked" : llvm::join(parts, ", ");
}

/// The part of the budget's value that allows the choice.
std::string BudgetSearch::Choice::words() const {
  return std::string(checks ? ",check=parameter" : "") + (codes ? ",saved=f8" : "") +
         (slots.empty() ? "" : ",slots=" + slots);
}

/// The plan under a choice, which becomes a row. None where the options do not apply: the row has the reason.
std::optional<MemoryPlan> BudgetSearch::planWith(const Choice &choice) {
  PipelineOptions options = base;
  if (choice.packs)
    options.masters = "packed";
  if (choice.checks)
    options.lossScale += options.lossScale.empty() ? "check=parameter" : ",check=parameter";
  if (!choice.slots.empty())
    options.slots = choice.slots;
  options.codeActivations |= choice.codes;
  options.rematerializeBytes = choice.rematerialize;
  Expected<MemoryPlan> made = plan(options);
  Row &row = rows.emplace_back(Row{choice, {}, {}, "", false});
  if (!made) {
    row.missing = llvm::toString(made.takeError());
    return std::nullopt;
  }
  row.peak = made->peak;
  row.cost = made->cost;
  made->row = rows.size() - 1;
  return std::move(*made);
}

/// A plan within the budget, with as little rematerialized as that takes: `none` has nothing so. None where all of it
/// is not enough.
std::optional<MemoryPlan> BudgetSearch::fit(Choice choice, std::optional<MemoryPlan> none) {
  if (!none || fits(*none))
    return none;
  int64_t before = none->peak.bytes;
  none.reset();
  choice.rematerialize = kAll;
  std::optional<MemoryPlan> all = planWith(choice);
  if (!all || (!fits(*all) && all->peak.bytes < before))
    return std::nullopt;
  if (!fits(*all))
    all.reset(); // what it rematerializes takes more than it saves
  // Bytes kept less are not bytes of the peak less.
  choice.rematerialize = before - asked.memoryBudget;
  for (int amount = 0; amount < kMaxAmounts; ++amount) {
    std::optional<MemoryPlan> some = planWith(choice);
    if (some && fits(*some))
      return all && all->cost.time() < some->cost.time() ? std::move(all) : std::move(some);
    if (!some || some->peak.bytes == before)
      break;
    before = some->peak.bytes;
    choice.rematerialize += before - asked.memoryBudget;
  }
  return all;
}

/// Of the choices that fit, the one of the least modelled time.
std::optional<MemoryPlan> BudgetSearch::cheapest(ArrayRef<Choice> choices) {
  std::optional<MemoryPlan> best;
  for (const Choice &choice : choices)
    if (std::optional<MemoryPlan> found = fit(choice); found && (!best || found->cost.time() < best->cost.time()))
      best = std::move(found);
  return best;
}

/// Narrow optimizer states beside what `with` says: what the user allows, or the rest.
std::vector<BudgetSearch::Choice> BudgetSearch::narrowSlots(Choice with, bool allowed) const {
  std::vector<Choice> choices;
  if (!base.slots.empty() || !choosesTypes || (with.codes && !mayCode()))
    return choices;
  auto isMissing = [&](StringRef type) {
    return llvm::any_of(rows, [&](const Row &row) { return row.choice.slots == type && !row.missing.empty(); });
  };
  bool others = (!with.codes || asked.budgetCodes) && (!with.checks || asked.budgetChecks);
  for (StringRef type : kBudgetSlots)
    if (!isMissing(type) && (llvm::is_contained(asked.budgetSlots, type) && others) == allowed) {
      with.slots = type.str();
      with.allowed = allowed;
      choices.push_back(with);
    }
  return choices;
}

Expected<MemoryPlan> BudgetSearch::run() {
  std::optional<MemoryPlan> found = fit({});
  if (!rows.front().missing.empty())
    return llvm::createStringError(rows.front().missing);
  Choice with; // what saves memory is part of all later choices
  // Under the user's own --masters there is nothing to choose.
  if ((!found || found->options.rematerializeBytes) && base.masters.empty() && choosesTypes) {
    with.packs = true;
    std::optional<MemoryPlan> packed = planWith(with);
    with.packs = packed && packed->peak.bytes < rows.front().peak.bytes;
    if (with.packs)
      packed = fit(with, std::move(packed));
    if (with.packs && packed && (!found || packed->cost.time() < found->cost.time()))
      found = std::move(packed);
  }
  if (!found && asked.budgetChecks && mayCheck())
    found = fitChecks(with);
  if (!found && asked.budgetCodes && mayCode()) {
    Choice codes = with;
    codes.codes = true;
    found = fit(codes);
  }
  for (bool codes : {false, true}) {
    Choice states = with;
    states.codes = codes;
    if (!found)
      found = cheapest(narrowSlots(states, true));
  }
  if (!found)
    return refuse(with);
  rows[found->row].taken = true;
  return std::move(*found);
}

/// A plan with finite checks by parameter, which become part of `with` where they save memory.
std::optional<MemoryPlan> BudgetSearch::fitChecks(Choice &with) {
  int64_t least = INT64_MAX;
  for (const Row &row : rows)
    if (row.missing.empty() && row.choice.packs == with.packs)
      least = std::min(least, row.peak.bytes);
  Choice checks = with;
  checks.checks = true;
  std::optional<MemoryPlan> found = fit(checks);
  for (const Row &row : rows)
    with.checks |= row.choice.checks && row.missing.empty() && row.peak.bytes < least;
  return found;
}

/// Plans the choices that the user did not allow as well, so that the message can say how little is possible.
llvm::Error BudgetSearch::refuse(Choice with) {
  const Row *least = nullptr;
  for (const Row &row : rows)
    if (row.missing.empty() && (!least || row.peak.bytes < least->peak.bytes))
      least = &row;
  std::string text = llvm::formatv(
      "error: expected a plan of at most {0} bytes (--memory-budget), got {1} of '{2}'{3}\n", asked.memoryBudget,
      least->peak.bytes, least->peak.function, (least->choice.isAsked() ? " " : " with ") + least->choice.text());
  with.rematerialize = kAll;
  if (!asked.budgetChecks && mayCheck()) {
    Choice checks = with;
    checks.checks = true;
    checks.allowed = false;
    std::optional<MemoryPlan> plan = planWith(checks);
    with.checks = plan && plan->peak.bytes < least->peak.bytes;
  }
  for (bool codes : {false, true}) {
    Choice choice = with;
    choice.codes = codes;
    choice.allowed = false;
    if (codes && mayCode() && !(asked.budgetCodes && (!with.checks || asked.budgetChecks)))
      planWith(choice);
    for (const Choice &states : narrowSlots(choice, false))
      planWith(states);
  }
  for (const Row &row : rows)
    text += "note: " + describe(row) + "\n";
  return llvm::createStringError(text);
}

std::string BudgetSearch::describe(const Row &row) const {
  if (!row.missing.empty())
    return llvm::formatv("{0}: no plan: {1}", row.choice.text(), reasonOf(row.missing));
  std::string text = llvm::formatv("{0}: {1} bytes", row.choice.text(), row.peak.bytes);
  if (!row.choice.allowed)
    text += llvm::formatv(", if you allow it with --memory-budget={0}{1}", asked.memoryBudget, row.choice.words());
  return text;
}

llvm::json::Object BudgetSearch::report() const {
  const Row &first = rows.front();
  llvm::json::Array all;
  for (const Row &row : rows) {
    llvm::json::Object entry{{"rung", row.choice.text()}, {"taken", row.taken}};
    if (!row.missing.empty()) {
      entry["missing"] = reasonOf(row.missing);
    } else {
      entry["peak"] = row.peak.bytes;
      entry["saves"] = first.peak.bytes - row.peak.bytes;
      entry["moves_more"] = row.cost.moved - first.cost.moved;
      entry["time"] =
          static_cast<double>(row.cost.time()) / static_cast<double>(std::max<int64_t>(1, first.cost.time()));
    }
    all.push_back(std::move(entry));
  }
  return llvm::json::Object{{"bytes", asked.memoryBudget}, {"rungs", std::move(all)}};
}
