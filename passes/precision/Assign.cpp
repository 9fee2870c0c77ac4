// SPDX-License-Identifier: Apache-2.0
// precision-assign: runs the solver under a policy and writes its decisions down as attributes.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/OrderedSums.h"
#include "mpt/Precision/Decisions.h"
#include "mpt/Precision/Solve.h"

namespace mpt {
#define GEN_PASS_DEF_ASSIGN
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
class Assign : public mpt::impl::AssignBase<Assign> {
public:
  using AssignBase::AssignBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Location loc = module.getLoc();
    FailureOr<Policy> policy = Policy::load({this->policy, keepF32, keepNarrow, rules, ranges, saved}, loc);
    if (failed(policy) || (checksRules && failed(policy->checkRules(module))))
      return signalPassFailure();
    if (!lossScale.empty())
      if (std::string wrong = policy->scaling.override(lossScale); !wrong.empty()) {
        emitError(loc) << wrong;
        return signalPassFailure();
      }
    if (!slots.empty())
      if (std::string wrong = policy->overrideSlots(slots); !wrong.empty()) {
        emitError(loc) << wrong;
        return signalPassFailure();
      }
    setAttr<MPTDialect::PolicyAttrHelper>(module, policy->toAttribute());
    if (!policy->narrows())
      return;

    Builder b(&getContext());
    DecisionCounts counts;
    auto decided = [&](Operation *op, const OpTypes &types) {
      setAttr<MPTDialect::PrecisionAttrHelper>(op, decisionAttr(b, types, counts));
    };
    auto stateDecided = [&](train::StateOp state, const StateType &stored) {
      setAttr<MPTDialect::PrecisionAttrHelper>(
          state, PrecisionAttr::get(b.getContext(), b.getArrayAttr({}), b.getTypeArrayAttr(stored.type),
                                    b.getStringAttr(stored.rule), /*quantized=*/false));
    };
    CostModel cost;
    cost.byTensor = hasOrderedSums(module);
    FailureOr<ByMeasurement> found = solveModule(module, *policy, decided, stateDecided, cost);
    if (failed(found))
      return signalPassFailure();
    policy->bounds = std::move(found->bounds);
    policy->products = std::move(found->products);
    if (!policy->bounds.empty() || !policy->products.empty())
      setAttr<MPTDialect::PolicyAttrHelper>(module, policy->toAttribute());
    numNarrow += counts.narrow;
    numWide += counts.wide;
  }
};
} // namespace
