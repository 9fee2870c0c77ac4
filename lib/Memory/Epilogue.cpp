// SPDX-License-Identifier: Apache-2.0
// Moves bias, ReLU and scales from fusions into the products that feed them.
#include "Epilogue.h"

#include "mpt-c/abi.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Memory/Bufferize.h"

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

/// Fusions that calls of products make. These run before whatever reads the fusion.
void takeChained(func::FuncOp function, llvm::DenseMap<Operation *, Epilogue> &epilogues) {
  for (auto fusion : function.getOps<FusionOp>()) {
    auto flags = getAttr<MPTDialect::EpilogueAttrHelper>(fusion);
    if (!flags)
      continue;
    bool sums = (flags.getInt() & (MPT_GEMM_SUM_A | MPT_GEMM_SUM_B)) != 0;
    Value product = fusion.getInputs()[sums ? 1 : 0];
    SmallVector<Operation *> chain;
    while (product.getDefiningOp() && isView(product.getDefiningOp())) {
      chain.push_back(product.getDefiningOp());
      product = product.getDefiningOp()->getOperand(0);
    }
    auto matmul = product.getDefiningOp<MatMulOp>();
    if (!matmul)
      continue; // an error when it is lowered
    Epilogue &epilogue = epilogues[matmul];
    epilogue.flags |= flags.getInt();
    (sums ? epilogue.sums : epilogue.activation) = fusion;
    if (sums)
      continue;
    bool gradient = (flags.getInt() & (MPT_GEMM_RELU_GRADIENT | MPT_GEMM_GELU_TANH_GRADIENT)) != 0;
    if (!gradient && fusion.getInputs().size() > 1)
      epilogue.bias = fusion.getInputs()[1];
    // What else the call reads is there by then.
    if (!llvm::all_of(fusion.getInputs(), [&](Value input) {
          Operation *source = input.getDefiningOp();
          return !source || llvm::is_contained(chain, source) || source == matmul || source->isBeforeInBlock(matmul);
        })) {
      matmul->moveBefore(fusion);
      for (Operation *view : llvm::reverse(chain))
        view->moveBefore(fusion);
    }
  }
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
    // What becomes of sums on the way is the library's affair.
    if (llvm::any_of(products, [&](MatMulOp matmul) { return bool(epilogues.lookup(matmul).sums); }))
      continue;
    for (MatMulOp matmul : products)
      epilogues[matmul].alpha *= *scale;
    fusion.getOutputs()[0].replaceAllUsesWith(fusion.getInputs()[0]);
    fusion->erase();
  }
}

/// The operand of `fusion` by which it multiplies operand `product` before rounding it to f16, and does nothing else.
OpOperand *scaleBeforeRounding(FusionOp fusion, OpOperand &product) {
  Block &body = fusion.getBody().front();
  if (fusion.getNumResults() != 1 || fusion.getInputs().size() != 2)
    return nullptr;
  auto cast = body.getTerminator()->getOperand(0).getDefiningOp<CastOp>();
  auto mul = cast ? cast.getX().getDefiningOp<MulOp>() : MulOp();
  if (!mul || !llvm::cast<RankedTensorType>(cast.getY().getType()).getElementType().isF16())
    return nullptr;
  Value argument = body.getArgument(product.getOperandNumber());
  Value other = mul.getLhs() == argument ? mul.getRhs() : mul.getRhs() == argument ? mul.getLhs() : Value();
  auto broadcast = other ? other.getDefiningOp<BroadcastOp>() : BroadcastOp();
  if (!broadcast || !isa<BlockArgument>(broadcast.getX()))
    return nullptr;
  auto number = llvm::cast<RankedTensorType>(broadcast.getX().getType());
  return number.getRank() == 0 && number.getElementType().isF32()
             ? &fusion->getOpOperand(1 - product.getOperandNumber())
             : nullptr;
}

/// Products that are rounded to f16 after they were multiplied by an FP32 number, as layer-wise scales do.
void foldRuntimeScales(func::FuncOp function, llvm::DenseMap<Operation *, Epilogue> &epilogues) {
  for (auto matmul : llvm::make_early_inc_range(function.getOps<MatMulOp>())) {
    auto isF16 = [](Value value) { return cast<RankedTensorType>(value.getType()).getElementType().isF16(); };
    if (!isF16(matmul.getA()) || !isF16(matmul.getB()) ||
        !cast<RankedTensorType>(matmul.getY().getType()).getElementType().isF32() || epilogues.contains(matmul))
      continue;
    SmallVector<Operation *> chain{matmul};
    while (chain.back()->hasOneUse() && isView(*chain.back()->user_begin()))
      chain.push_back(*chain.back()->user_begin());
    if (!chain.back()->hasOneUse())
      continue;
    OpOperand &use = *chain.back()->use_begin();
    auto fusion = dyn_cast<FusionOp>(use.getOwner());
    OpOperand *scale = fusion ? scaleBeforeRounding(fusion, use) : nullptr;
    if (!scale)
      continue;
    epilogues[matmul].scale = scale->get();
    for (Operation *op : chain) {
      op->moveBefore(fusion); // the scale is there by then
      auto type = cast<RankedTensorType>(op->getResult(0).getType());
      op->getResult(0).setType(type.clone(Float16Type::get(op->getContext())));
    }
    fusion.getOutputs()[0].replaceAllUsesWith(chain.back()->getResult(0));
    fusion->erase();
  }
}

/// The two numbers by whose product `fusion` multiplies operand `product`, and then rounds it or not, where it does
/// nothing else.
std::optional<std::pair<Value, Value>> scalesOf(FusionOp fusion, OpOperand &product) {
  Block &body = fusion.getBody().front();
  if (fusion.getNumResults() != 1)
    return std::nullopt;
  Value scaled = body.getTerminator()->getOperand(0), argument = body.getArgument(product.getOperandNumber());
  if (auto cast = scaled.getDefiningOp<CastOp>(); cast && isWideEnough(cast.getY()))
    scaled = cast.getX();
  auto mul = scaled.getDefiningOp<MulOp>();
  Value other = !mul                       ? Value()
                : mul.getLhs() == argument ? mul.getRhs()
                : mul.getRhs() == argument ? mul.getLhs()
                                           : Value();
  auto broadcast = other ? other.getDefiningOp<BroadcastOp>() : BroadcastOp();
  auto both = broadcast ? broadcast.getX().getDefiningOp<MulOp>() : MulOp();
  if (!both || !argument.hasOneUse())
    return std::nullopt;
  Value scales[2];
  for (auto [scale, operand] : llvm::zip_equal(scales, both->getOperands())) {
    auto number = dyn_cast<BlockArgument>(operand);
    auto type = cast<RankedTensorType>(operand.getType());
    if (!number || type.getRank() != 0 || !type.getElementType().isF32())
      return std::nullopt;
    scale = fusion.getInputs()[number.getArgNumber()];
  }
  return std::make_pair(scales[0], scales[1]);
}

/// 8-bit products whose FP32 results are multiplied by their operands' scales and rounded.
void foldOperandScales(func::FuncOp function, llvm::DenseMap<Operation *, Epilogue> &epilogues) {
  for (auto matmul : llvm::make_early_inc_range(function.getOps<MatMulOp>())) {
    if (!isNativeFloat8(matmul) || !matmul.getY().hasOneUse())
      continue;
    OpOperand &use = *matmul.getY().use_begin();
    auto fusion = dyn_cast<FusionOp>(use.getOwner());
    auto scales = fusion ? scalesOf(fusion, use) : std::nullopt;
    if (!scales)
      continue;
    // Which of the two numbers is whose does not matter: both multiply the sums.
    epilogues[matmul].operandScales[0] = scales->first;
    epilogues[matmul].operandScales[1] = scales->second;
    matmul->moveBefore(fusion);
    matmul.getY().setType(cast<RankedTensorType>(fusion.getOutputs()[0].getType()));
    fusion.getOutputs()[0].replaceAllUsesWith(matmul.getY());
    fusion->erase();
  }
}

} // namespace

bool mpt::memory::isNativeFloat8(MatMulOp matmul) {
  auto a = cast<RankedTensorType>(matmul.getA().getType()), b = cast<RankedTensorType>(matmul.getB().getType());
  if (isa<Float8E5M2Type>(a.getElementType()) && isa<Float8E5M2Type>(b.getElementType()))
    return false;
  for (RankedTensorType type : {a, b})
    for (int64_t extent : type.getShape().take_back(2))
      if (extent % 16 != 0)
        return false;
  return a.getElementTypeBitWidth() == 8 && b.getElementTypeBitWidth() == 8;
}

llvm::DenseMap<Operation *, Epilogue> mpt::memory::foldEpilogues(func::FuncOp function, bool device,
                                                                 bool nativeFloat8) {
  llvm::DenseMap<Operation *, Epilogue> result;
  if (device)
    takeChained(function, result);
  if (device && nativeFloat8)
    foldOperandScales(function, result);
  if (device)
    foldScales(function, result);
  else
    foldRuntimeScales(function, result);
  for (auto matmul : function.getOps<MatMulOp>()) {
    Value product = matmul.getY();
    if (!isWideEnough(product) || !product.hasOneUse() || result.lookup(matmul).scale ||
        result.lookup(matmul).activation || result.lookup(matmul).sums)
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
