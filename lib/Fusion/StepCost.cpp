// SPDX-License-Identifier: Apache-2.0
// Counts the bytes that kernels and library calls of a function move.
#include "mpt/Fusion/StepCost.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Interfaces/GemmLike.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mpt;

namespace {

bool isTensor(Value value) { return isa<RankedTensorType>(value.getType()); }

/// The most elements that a value inside a kernel has. A gather reads no more of a table.
int64_t reachOf(FusionOp fusion) {
  int64_t most = 1;
  for (Operation &op : fusion.getBody().front()) {
    for (Value result : op.getResults())
      most = std::max(most, countOf(result));
    if (isReduction(&op))
      for (Value operand : op.getOperands())
        most = std::max(most, countOf(operand));
  }
  return most;
}

int64_t movedByKernel(FusionOp fusion) {
  int64_t bytes = 0, reach = reachOf(fusion);
  llvm::SmallSetVector<Value, 8> operands(fusion->operand_begin(), fusion->operand_end());
  for (Value operand : operands)
    bytes += std::min(countOf(operand), reach) * bytesOf(elementOf(operand));
  for (Value result : fusion->getResults())
    bytes += bytesOf(result);
  for (Operation &op : fusion.getBody().front())
    if (auto lowering = dyn_cast<LoopLowering>(op); lowering && !lowering.isCheap() && !isReduction(&op))
      bytes += countOf(op.getResult(0)) * kCostlyBytes;
  return bytes;
}

} // namespace

double mpt::contractionFlops(func::FuncOp function) {
  double flops = 0;
  for (auto op : function.getBody().front().getOps<GemmLike>())
    flops += 2.0 * op.getReductionLength() * countOf(op->getResult(0));
  return flops;
}

StepCost mpt::stepCost(func::FuncOp function) {
  StepCost cost;
  cost.contractions = static_cast<int64_t>(contractionFlops(function) / kFlopsPerByte);
  for (Operation &op : function.getBody().front()) {
    if (auto fusion = dyn_cast<FusionOp>(op)) {
      cost.moved += movedByKernel(fusion);
    } else if (isLibraryCall(&op) && isa<MPTDialect>(op.getDialect())) {
      for (Value value : llvm::concat<Value>(op.getOperands(), op.getResults()))
        cost.moved += isTensor(value) ? bytesOf(value) : 0;
    }
  }
  return cost;
}
