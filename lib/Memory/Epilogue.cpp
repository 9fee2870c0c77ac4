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

bool isView(Operation *op) { return isa<ReshapeOp, TransposeOp, SliceOp>(op); }

/// The number that `fusion` multiplies its one operand by, and does nothing else.
std::optional<double> scaleOf(FusionOp fusion) {
  Block &body = fusion.getBody().front();
  if (fusion.getNumResults() != 1 || fusion.getInputs().size() != 1 ||
      fusion.getInputs()[0].getType() != fusion.getOutputs()[0].getType())
    return std::nullopt;
  auto mul = body.getTerminator()->getOperand(0).getDefiningOp<MulOp>();
  if (!mul)
    return std::nullopt;
  Value factor = mul.getLhs() == body.getArgument(0) ? mul.getRhs() : mul.getLhs();
  auto constant = factor.getDefiningOp<ConstantOp>();
  auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
  if (!splat || !isa<FloatType>(splat.getElementType()) ||
      (mul.getLhs() != body.getArgument(0) && mul.getRhs() != body.getArgument(0)))
    return std::nullopt;
  return splat.getSplatValue<APFloat>().convertToDouble();
}

bool isWideEnough(Value value) {
  Type element = cast<RankedTensorType>(value.getType()).getElementType();
  return element.isF32() || element.isF16() || element.isBF16();
}

/// Products that `value` is an operand of, once for each use, through views; false where anything else reads it.
bool collectProducts(Value value, SmallVectorImpl<MatMulOp> &products) {
  return llvm::all_of(value.getUses(), [&](OpOperand &use) {
    if (isView(use.getOwner()))
      return collectProducts(use.getOwner()->getResult(0), products);
    auto matmul = dyn_cast<MatMulOp>(use.getOwner());
    if (!matmul || !isWideEnough(matmul.getA()) || !isWideEnough(matmul.getB()) || !isWideEnough(matmul.getY()))
      return false;
    products.push_back(matmul);
    return true;
  });
}

void foldScales(func::FuncOp function, llvm::DenseMap<Operation *, Epilogue> &epilogues) {
  for (auto fusion : llvm::make_early_inc_range(function.getOps<FusionOp>())) {
    std::optional<double> scale = scaleOf(fusion);
    if (!scale)
      continue;
    SmallVector<MatMulOp> products;
    if (!collectProducts(fusion.getOutputs()[0], products)) {
      // The other way round: one product's result, before anything is added to it.
      Value value = fusion.getInputs()[0];
      while (value.hasOneUse() && value.getDefiningOp() && isView(value.getDefiningOp()))
        value = value.getDefiningOp()->getOperand(0);
      auto matmul = value.getDefiningOp<MatMulOp>();
      if (!matmul || !value.hasOneUse() || !isWideEnough(matmul.getA()) || !isWideEnough(value))
        continue;
      products.assign(1, matmul);
    }
    for (MatMulOp matmul : products)
      epilogues[matmul].alpha *= *scale;
    fusion.getOutputs()[0].replaceAllUsesWith(fusion.getInputs()[0]);
    fusion->erase();
  }
}

} // namespace

llvm::DenseMap<Operation *, Epilogue> mpt::memory::foldEpilogues(func::FuncOp function, bool device) {
  llvm::DenseMap<Operation *, Epilogue> result;
  if (device)
    foldScales(function, result);
  for (auto matmul : function.getOps<MatMulOp>()) {
    Value product = matmul.getY();
    if (!isWideEnough(product) || !product.hasOneUse())
      continue;
    if (auto reshape = dyn_cast<ReshapeOp>(*product.getUsers().begin());
        device && reshape && reshape.getY().hasOneUse() &&
        cast<RankedTensorType>(reshape.getY().getType()).getRank() > 0 &&
        cast<RankedTensorType>(reshape.getY().getType()).getShape().back() ==
            cast<RankedTensorType>(product.getType()).getShape().back())
      product = reshape.getY();
    OpOperand &use = *product.getUses().begin();
    Type element = cast<RankedTensorType>(product.getType()).getElementType();
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
    Epilogue &epilogue = result[matmul];
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
    dropUnusedInputs(fusion);
    // Nothing left but the product's own value.
    if (fusion.getNumResults() == 1 && fusion.getInputs().size() == 1 && isa<YieldOp>(body.front()) &&
        fusion.getInputs()[0] == product) {
      fusion.getOutputs()[0].replaceAllUsesWith(product);
      fusion->erase();
    }
  }
  return result;
}
