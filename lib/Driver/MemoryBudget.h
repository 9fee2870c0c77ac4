// SPDX-License-Identifier: Apache-2.0
// Which reductions of memory --memory-budget takes: the search, its messages and its report.
#ifndef MPT_LIB_DRIVER_MEMORYBUDGET_H
#define MPT_LIB_DRIVER_MEMORYBUDGET_H

#include "mpt/Driver/CompileOptions.h"
#include "mpt/Fusion/StepCost.h"
#include "mpt/Memory/Report.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

#include <functional>

namespace mpt {

/// A compilation up to its plan.
struct MemoryPlan {
  PipelineOptions options; ///< that it was made with
  memory::Peak peak, gradients;
  StepCost cost;                                                                     ///< of the step
  size_t row = 0;                                                                    ///< of BudgetSearch's report
  std::vector<std::pair<llvm::StringRef, mlir::OwningOpRef<mlir::ModuleOp>>> phases; ///< results, in their order
  std::vector<std::string> messages;                                                 ///< diagnostics, printed
};

/// Searches the options under which a plan is within --memory-budget. Options that change no bit come first, then
/// finite checks by parameter, which change none but of steps that are skipped, and with them or without activations as
/// codes, then narrow optimizer states, then both; of equals the one of the least modelled time.
class BudgetSearch {
public:
  /// A plan under other options. The error has the diagnostics, as they are printed.
  using Planner = std::function<llvm::Expected<MemoryPlan>(const PipelineOptions &)>;

  /// `choosesTypes`: phase precision is among those that `plan` runs.
  BudgetSearch(const CompileOptions &asked, const PipelineOptions &base, bool choosesTypes, Planner plan)
      : asked(asked), base(base), choosesTypes(choosesTypes), plan(std::move(plan)) {}

  /// The plan to take. The error has the lines of a message: the least that was reached, and options that reach less.
  llvm::Expected<MemoryPlan> run();
  /// Each plan that was tried, with its bytes and its modelled time.
  llvm::json::Object report() const;

private:
  /// Options beside the user's.
  struct Choice {
    bool packs = false, checks = false, codes = false;
    std::string slots;
    int64_t rematerialize = 0; ///< bytes
    bool allowed = true;       ///< by the user

    bool isAsked() const { return !rematerialize && !packs && !checks && !codes && slots.empty(); }
    std::string text() const;
    std::string words() const;
  };
  /// A choice that was tried.
  struct Row {
    Choice choice;
    memory::Peak peak;
    StepCost cost;
    std::string missing; ///< why there is no plan
    bool taken = false;
  };

  bool fits(const MemoryPlan &plan) const { return plan.peak.bytes <= asked.memoryBudget; }
  std::optional<MemoryPlan> planWith(const Choice &choice);
  std::optional<MemoryPlan> fit(const Choice &choice) { return fit(choice, planWith(choice)); }
  std::optional<MemoryPlan> fit(Choice choice, std::optional<MemoryPlan> none);
  std::optional<MemoryPlan> fitChecks(Choice &with);
  std::optional<MemoryPlan> cheapest(llvm::ArrayRef<Choice> choices);
  bool mayCode() const { return base.saved.empty(); }
  /// The user leaves the finite check open.
  bool mayCheck() const {
    return choosesTypes && base.lossScale != "none" && !llvm::StringRef(base.lossScale).contains("check=");
  }
  std::vector<Choice> narrowSlots(Choice with, bool allowed) const;
  llvm::Error refuse(Choice with);
  std::string describe(const Row &row) const;

  const CompileOptions &asked;
  const PipelineOptions base; ///< with what the user has decided
  const bool choosesTypes;
  const Planner plan;
  std::vector<Row> rows;
};

} // namespace mpt

#endif // MPT_LIB_DRIVER_MEMORYBUDGET_H
