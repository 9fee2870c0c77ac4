// SPDX-License-Identifier: Apache-2.0
// precision-assign-nodes: runs the solver over ONNX nodes and writes its decisions down as attributes.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/Decisions.h"
#include "mpt/Precision/Solve.h"

namespace mpt {
#define GEN_PASS_DEF_ASSIGNNODES
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
class AssignNodes : public mpt::impl::AssignNodesBase<AssignNodes> {
public:
  using AssignNodesBase::AssignNodesBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Location loc = module.getLoc();
    auto main = module.lookupSymbol<func::FuncOp>("main");
    if (!main || main.isExternal()) {
      module.emitError() << "expected func @main of ONNX nodes, found none: import a model as it is in the file";
      return signalPassFailure();
    }
    FailureOr<Policy> policy = Policy::load({this->policy, keepF32, keepNarrow, rules, ranges}, loc);
    if (failed(policy) || (checksRules && failed(policy->checkRules(module))))
      return signalPassFailure();
    if (policy->times()) {
      module.emitError() << "expected no measure for a graph that is rewritten node by node, whose GEMMs keep 16-bit "
                            "operands: make a training step of the model (--loss or --optimizer)";
      return signalPassFailure();
    }
    if (policy->measured() && !policy->measured()->ofGraph()) {
      module.emitError() << "expected ranges of the graph's own nodes, got those of a training step: measure them with "
                            "mpt-run --emit=onnx --calibrate";
      return signalPassFailure();
    }
    setAttr<MPTDialect::PolicyAttrHelper>(module, policy->toAttribute());
    if (!policy->narrows())
      return;
    if (!policy->storage.isF16() && !policy->storage.isBF16()) {
      module.emitError() << "expected a policy that stores f16 or bf16, got " << policy->storage
                         << ": ONNX operators take no 8-bit floats; make a training step of the model instead";
      return signalPassFailure();
    }

    Builder b(&getContext());
    DecisionCounts counts;
    numCastBytes += solveNodes(main, *policy, [&](Operation *op, const OpTypes &types) {
      setAttr<MPTDialect::PrecisionAttrHelper>(op, decisionAttr(b, types, counts));
    });
    numNarrow += counts.narrow;
    numWide += counts.wide;
  }
};
} // namespace
