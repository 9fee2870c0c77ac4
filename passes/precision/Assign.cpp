// precision-assign: runs the solver under a policy and writes its decisions down as attributes.
#include "passes/precision/Passes.h"

#include "mpt/Precision/Attributes.h"
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
    FailureOr<Policy> policy = Policy::load(this->policy, keepF32, keepNarrow, loc);
    if (failed(policy))
      return signalPassFailure();
    if (!lossScale.empty())
      if (std::string wrong = policy->scaling.override(lossScale); !wrong.empty()) {
        emitError(loc) << wrong;
        return signalPassFailure();
      }
    module->setAttr(kPolicyAttr, policy->toAttribute());
    if (!policy->narrows())
      return;

    if (placement != "cut" && placement != "painting") {
      emitError(loc) << "expected placement cut or painting, got " << placement;
      return signalPassFailure();
    }
    PrecisionSolution solution =
        solvePrecision(module, *policy, placement == "cut" ? Placement::cut : Placement::painting);
    Builder b(&getContext());
    for (auto &[op, types] : solution.ops) {
      SmallVector<NamedAttribute> entries{b.getNamedAttr("operands", typeList(b, types.operands)),
                                          b.getNamedAttr("results", typeList(b, types.results)),
                                          b.getNamedAttr("rule", b.getStringAttr(types.rule))};
      if (types.quantized)
        entries.push_back(b.getNamedAttr("quantized", b.getUnitAttr()));
      op->setAttr(kPrecisionAttr, b.getDictionaryAttr(entries));
    }
    for (auto &[state, decision] : solution.states)
      state->setAttr(kPrecisionAttr, b.getDictionaryAttr({b.getNamedAttr("type", TypeAttr::get(decision.type)),
                                                          b.getNamedAttr("rule", b.getStringAttr(decision.rule))}));
  }

private:
  ArrayAttr typeList(Builder &b, ArrayRef<Type> types) {
    SmallVector<Attribute> list;
    for (Type type : types) {
      list.push_back(type ? Attribute(TypeAttr::get(type)) : b.getUnitAttr());
      if (type)
        ++(type.isF32() ? numWide : numNarrow);
    }
    return b.getArrayAttr(list);
  }
};
} // namespace
