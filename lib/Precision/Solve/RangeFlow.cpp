// SPDX-License-Identifier: Apache-2.0
// The forward analysis on MLIR's dataflow framework.
#include "RangeFlow.h"

#include "GraphView.h"

#include "mlir/Analysis/DataFlow/DeadCodeAnalysis.h"

using namespace mlir;
using namespace mpt;

using RangeLattice = dataflow::Lattice<RangeFact>;

void RangeFact::print(llvm::raw_ostream &out) const {
  out << (ranged ? "ranged " : "") << (narrowed ? "narrowed" : "");
}

namespace {
class RangeAnalysis : public dataflow::SparseForwardDataFlowAnalysis<RangeLattice> {
public:
  RangeAnalysis(DataFlowSolver &solver, const GraphView &view) : SparseForwardDataFlowAnalysis(solver), view(view) {}

  LogicalResult visitOperation(Operation *op, ArrayRef<const RangeLattice *> operands,
                               ArrayRef<RangeLattice *> results) override {
    RangeFact in;
    for (const RangeLattice *operand : operands)
      in = RangeFact::join(in, operand->getValue());
    for (RangeLattice *result : results) {
      auto value = cast<OpResult>(result->getAnchor());
      RangeFact out = view.transferOf(value)(in);
      for (Value end : view.bodyEnds(value))
        out = RangeFact::join(out, getLatticeElementFor(getProgramPointAfter(op), end)->getValue());
      propagateIfChanged(result, result->join(out));
    }
    return success();
  }

  void setToEntryState(RangeLattice *lattice) override {
    auto argument = dyn_cast<BlockArgument>(lattice->getAnchor());
    propagateIfChanged(lattice, lattice->join(argument ? view.entryOf(argument) : RangeFact()));
  }

private:
  const GraphView &view;
};
} // namespace

RangeFlow::RangeFlow(func::FuncOp function, const GraphView &view)
    : solver(DataFlowConfig().setInterprocedural(false)) {
  solver.load<dataflow::DeadCodeAnalysis>(); // it tells the framework which blocks run: here all of them
  solver.load<RangeAnalysis>(view);
  if (failed(solver.initializeAndRun(function)))
    llvm_unreachable("the transfer functions do not fail");
}

RangeFact RangeFlow::of(Value value) const {
  const auto *lattice = solver.lookupState<RangeLattice>(value);
  return lattice ? lattice->getValue() : RangeFact();
}

RangeFact RangeFlow::into(Operation *op) const {
  RangeFact in;
  for (Value operand : op->getOperands())
    in = RangeFact::join(in, of(operand));
  return in;
}
