// SPDX-License-Identifier: Apache-2.0
// The narrow types that a solution gives up for the error budget.
#include "Budget.h"

#include "mpt/Interfaces/GemmLike.h"
#include "mpt/Precision/Slots.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

ErrorBudget::ErrorBudget(ModuleOp module, const Policy &policy)
    : values(module, policy), budget(policy.measured()->budget()) {
  auto trains = [](func::FuncOp function) { return !function.getOps<train::GradientOp>().empty(); };
  bool anyTrains = llvm::any_of(module.getOps<func::FuncOp>(), trains), anyReported = false;
  for (auto function : module.getOps<func::FuncOp>()) {
    if (function.isExternal() || (anyTrains && !trains(function)))
      continue;
    Flow flow{ErrorFlow(function, values), {}};
    flow.errors.run(/*decisions=*/nullptr);
    for (const ErrorFlow::Output &output : flow.errors.outputs())
      flow.floors.push_back(flow.errors.errorOf(output));
    // Functions of one model repeat each other: the first one that writes state stands for them.
    flow.reported = !anyReported && (!anyTrains || !function.getOps<train::WriteOp>().empty());
    anyReported |= flow.reported;
    flows.push_back(std::move(flow));
  }
}

/// The model gives the standard deviation of an error; two of them are held against the budget.
static constexpr double certainty = 2.0;

/// Where FP32 alone takes much of the budget, the gradient cancels to nothing, and is lost whatever the policy does.
static bool isJudged(double floor, double budget) { return floor <= budget / 64.0; }

bool ErrorBudget::restrict(const Decisions &decisions) {
  bool added = false;
  for (Flow &flow : flows) {
    flow.errors.run(&decisions);
    const ErrorFlow::Output *worst = nullptr;
    double most = budget;
    for (auto [output, floor] : llvm::zip_equal(flow.errors.outputs(), flow.floors))
      if (double error = certainty * flow.errors.errorOf(output); isJudged(floor, budget) && error > most) {
        most = error;
        worst = &output;
      }
    added |= worst &&restrict(flow, *worst, decisions);
  }
  return added;
}

/// Bytes that an op saves where it is narrow, with the arithmetic of a GEMM as the traffic that takes as long.
static double gainOfNarrow(Operation *op) {
  double bytes = 1.0;
  for (Type type : llvm::concat<const Type>(op->getOperandTypes(), op->getResultTypes()))
    if (isDecidable(type))
      bytes += 2.0 * static_cast<double>(cast<RankedTensorType>(type).getNumElements());
  if (auto gemm = dyn_cast<GemmLike>(op))
    bytes += static_cast<double>(gemm.getReductionLength()) *
             static_cast<double>(cast<RankedTensorType>(op->getResult(0).getType()).getNumElements()) / 16.0;
  return bytes;
}

bool ErrorBudget::restrict(const Flow &flow, const ErrorFlow::Output &output, const Decisions &decisions) {
  DenseMap<Operation *, double> shares = flow.errors.sharesOf(output);
  double total = 0.0;
  SmallVector<std::pair<double, Operation *>> ranked; // error for the bytes saved
  for (auto [op, share] : shares) {
    total += share;
    auto known = ops.find(op);
    if (known == ops.end() || (!known->second.wide && !decisions.lookup(op).quantized))
      ranked.emplace_back(share / gainOfNarrow(op), op);
  }
  // Ops in the order of the module where they are worth the same: nothing depends on addresses.
  llvm::sort(ranked, [](const auto &a, const auto &b) {
    return a.first != b.first ? a.first > b.first : a.second->isBeforeInBlock(b.second);
  });
  double excess = total - 0.9 * budget * budget / (certainty * certainty);
  for (auto [rank, op] : ranked) {
    if (excess <= 0.0)
      break;
    double share = shares.lookup(op);
    excess -= share;
    Kept &kept = ops[op];
    kept.wide = !decisions.lookup(op).quantized;
    kept.rule = llvm::formatv("error budget {0:e1}: its rounding makes {1:f1} % of the error {2:e1} of '{3}'", budget,
                              100.0 * share / total, certainty * std::sqrt(total), output.name);
  }
  return !ranked.empty();
}

std::vector<ErrorBound> ErrorBudget::bounds() const {
  std::vector<ErrorBound> result;
  for (const Flow &flow : flows)
    if (flow.reported)
      for (auto [output, floor] : llvm::zip_equal(flow.errors.outputs(), flow.floors))
        if (isJudged(floor, budget))
          result.push_back(
              {output.name, certainty * std::sqrt(std::pow(flow.errors.errorOf(output), 2) + floor * floor)});
  return result;
}
