// Moves bias and ReLU from fusions into the products that feed them.
#include "Epilogue.h"

#include "mpt-c/abi.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// The broadcast of a vector along the last dimension that `add` adds to `argument`, or null.
BroadcastOp biasOf(AddOp add, Value argument) {
  Value other = add.getLhs() == argument ? add.getRhs() : add.getLhs();
  auto broadcast = other.getDefiningOp<BroadcastOp>();
  auto type = cast<RankedTensorType>(argument.getType());
  if (!broadcast || other == argument || !isa<BlockArgument>(broadcast.getX()))
    return {};
  auto vector = cast<RankedTensorType>(broadcast.getX().getType());
  bool columns = vector.getRank() == 1 && broadcast.getDims()[0] == type.getRank() - 1 &&
                 vector.getDimSize(0) == type.getShape().back();
  return columns ? broadcast : BroadcastOp();
}

void dropUnusedInputs(FusionOp fusion) {
  Block &body = fusion.getBody().front();
  for (unsigned i = body.getNumArguments(); i-- > 0;)
    if (body.getArgument(i).use_empty()) {
      body.eraseArgument(i);
      fusion.getInputsMutable().erase(i);
    }
}

/// `op`, which takes `argument` to a value of the same type, is done by the product instead.
void replaceByArgument(Operation *op, Value argument) {
  op->getResult(0).replaceAllUsesWith(argument);
  op->erase();
}

} // namespace

llvm::DenseMap<Operation *, Epilogue> mpt::memory::foldEpilogues(func::FuncOp function) {
  llvm::DenseMap<Operation *, Epilogue> result;
  for (auto matmul : function.getOps<MatMulOp>()) {
    Type element = cast<RankedTensorType>(matmul.getY().getType()).getElementType();
    if (!(element.isF32() || element.isF16() || element.isBF16()) || !matmul.getY().hasOneUse())
      continue;
    OpOperand &use = *matmul.getY().getUses().begin();
    auto fusion = dyn_cast<FusionOp>(use.getOwner());
    if (!fusion)
      continue;
    Block &body = fusion.getBody().front();
    Value argument = body.getArgument(use.getOperandNumber());
    auto add = argument.hasOneUse() ? dyn_cast<AddOp>(*argument.getUsers().begin()) : AddOp();
    if (!add)
      continue;
    BroadcastOp broadcast = biasOf(add, argument);
    if (!broadcast)
      continue;
    Value bias = fusion.getInputs()[cast<BlockArgument>(broadcast.getX()).getArgNumber()];
    // The bias has to be there before the product runs.
    if (Operation *source = bias.getDefiningOp(); source && !source->isBeforeInBlock(matmul)) {
      if (!source->getOperands().empty())
        continue;
      source->moveBefore(matmul);
    }
    Epilogue epilogue;
    epilogue.bias = bias;
    if (!element.isF32())
      epilogue.flags |= MPT_GEMM_ROUND;
    replaceByArgument(add, argument);
    if (broadcast->use_empty())
      broadcast->erase();
    if (argument.hasOneUse())
      if (auto relu = dyn_cast<ReluOp>(*argument.getUsers().begin())) {
        replaceByArgument(relu, argument);
        epilogue.flags |= MPT_GEMM_RELU;
      }
    result[matmul] = epilogue;
    dropUnusedInputs(fusion);
    // Nothing left but the product's own value.
    if (fusion.getNumResults() == 1 && fusion.getInputs().size() == 1 && isa<YieldOp>(body.front()) &&
        fusion.getInputs()[0] == matmul.getY()) {
      fusion.getOutputs()[0].replaceAllUsesWith(matmul.getY());
      fusion->erase();
    }
  }
  return result;
}
