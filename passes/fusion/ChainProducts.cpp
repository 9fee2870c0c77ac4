// SPDX-License-Identifier: Apache-2.0
// --fusion-chain-products: GELU, its gradient and bias gradients are made by the library calls of products.
#include "mpt-c/abi.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Interfaces/GemmLike.h"
#include "mpt/Memory/Bufferize.h"
#include "passes/fusion/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"

namespace mpt {
#define GEN_PASS_DEF_CHAINPRODUCTS
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// Columns of what epilogues exchange, in cuBLASLt a multiple of this.
constexpr int64_t columnsTogether = 8;

bool isNarrow(Value value) {
  Type element = tensorType(value).getElementType();
  return element.isF16() || element.isBF16();
}

/// A product of two matrices of one 16-bit type.
bool isMatrixProduct(MatMulOp matmul) {
  return tensorType(matmul.getY()).getRank() == 2 && isNarrow(matmul.getA()) &&
         tensorType(matmul.getA()).getElementType() == tensorType(matmul.getB()).getElementType() &&
         tensorType(matmul.getA()).getDimSize(matmul.getTransposeA() ? 0 : 1) > 1;
}

/// The product that `value`, which one op alone reads, is the result of, perhaps in another shape with the same rows.
MatMulOp productOf(Value value) {
  if (!value.hasOneUse())
    return {};
  int64_t columns = tensorType(value).getRank() ? tensorType(value).getShape().back() : 0;
  if (auto reshape = value.getDefiningOp<ReshapeOp>())
    value = reshape.getX();
  auto matmul = value.getDefiningOp<MatMulOp>();
  bool fits = matmul && value.hasOneUse() && isMatrixProduct(matmul) && isNarrow(value) &&
              tensorType(value).getElementType() == tensorType(matmul.getA()).getElementType() &&
              tensorType(value).getShape().back() == columns && columns % columnsTogether == 0;
  return fits ? matmul : MatMulOp();
}

/// Ops that read `value`, through views.
void collectReaders(Value value, SmallVectorImpl<Operation *> &readers) {
  for (Operation *user : value.getUsers())
    if (isViewOp(user) && user->getNumOperands() == 1)
      collectReaders(user->getResult(0), readers);
    else
      readers.push_back(user);
}

/// `value` can be read where `op` is; a parameter is read sooner if need be.
bool isAvailable(Value value, Operation *op) {
  Operation *source = value.getDefiningOp();
  if (!source || source->isBeforeInBlock(op))
    return true;
  if (source->getNumOperands() != 0)
    return false;
  source->moveBefore(op);
  return true;
}

class Chains {
public:
  explicit Chains(func::FuncOp function) : function(function) {}
  unsigned run() {
    for (GeluOp gelu : llvm::make_early_inc_range(function.getOps<GeluOp>()))
      made += activate(gelu);
    for (GeluBackwardOp gelu : llvm::make_early_inc_range(function.getOps<GeluBackwardOp>()))
      made += differentiate(gelu);
    for (ReduceOp reduce : llvm::make_early_inc_range(function.getOps<ReduceOp>()))
      made += sum(reduce);
    return made;
  }

private:
  bool activate(GeluOp gelu);
  bool differentiate(GeluBackwardOp gelu);
  bool sum(ReduceOp reduce);
  FusionOp outline(OpBuilder &builder, ArrayRef<Operation *> ops, ArrayRef<Value> inputs, ArrayRef<Value> outputs,
                   int64_t flags);

  func::FuncOp function;
  unsigned made = 0;
};

} // namespace

/// One fusion of `ops` at the builder's place, for the call of a product to make.
FusionOp Chains::outline(OpBuilder &builder, ArrayRef<Operation *> ops, ArrayRef<Value> inputs, ArrayRef<Value> outputs,
                         int64_t flags) {
  Location loc = ops.back()->getLoc();
  auto fusion = FusionOp::create(builder, loc, TypeRange(ValueRange(outputs)), inputs);
  setAttr<MPTDialect::EpilogueAttrHelper>(fusion, builder.getI64IntegerAttr(flags));
  Block &body = fusion.getBody().emplaceBlock();
  IRMapping mapping;
  for (Value input : inputs)
    mapping.map(input, body.addArgument(input.getType(), loc));
  OpBuilder inside = OpBuilder::atBlockEnd(&body);
  for (Operation *op : ops)
    inside.clone(*op, mapping);
  SmallVector<Value> results;
  for (Value output : outputs)
    results.push_back(mapping.lookup(output));
  YieldOp::create(inside, loc, results);
  for (auto [i, output] : llvm::enumerate(outputs))
    Value(output).replaceAllUsesWith(fusion.getOutputs()[i]);
  for (Operation *op : llvm::reverse(ops))
    if (isOpTriviallyDead(op))
      op->erase();
  return fusion;
}

/// The product that feeds the activation makes its result, and keeps the sum before it for whoever else reads that.
bool Chains::activate(GeluOp gelu) {
  Value x = gelu.getX();
  SmallVector<Operation *> readers;
  collectReaders(gelu.getY(), readers);
  // What a kernel made of the activation in the same pass would be a pass of its own.
  if (gelu.getForm() != GeluForm::tanh ||
      !llvm::all_of(readers, [](Operation *op) { return isa<GemmLike, func::ReturnOp>(op); }))
    return false;
  SmallVector<Operation *> ops;
  SmallVector<Value> inputs, outputs{gelu.getY()};
  Value product = x;
  if (auto add = x.getDefiningOp<AddOp>()) {
    auto broadcast = add.getRhs().getDefiningOp<BroadcastOp>();
    product = add.getLhs();
    if (!broadcast) {
      broadcast = add.getLhs().getDefiningOp<BroadcastOp>();
      product = add.getRhs();
    }
    RankedTensorType type = tensorType(x);
    if (!broadcast || tensorType(broadcast.getX()).getRank() != 1 ||
        broadcast.getDims() != ArrayRef<int64_t>{type.getRank() - 1} ||
        tensorType(broadcast.getX()).getDimSize(0) != type.getShape().back())
      return false;
    ops = {broadcast, add};
    inputs = {product, broadcast.getX()};
    if (!x.hasOneUse())
      outputs.push_back(x);
  } else {
    inputs = {product};
  }
  MatMulOp matmul = productOf(product);
  if (!matmul || (inputs.size() > 1 && !isAvailable(inputs[1], matmul)))
    return false;
  ops.push_back(gelu);
  OpBuilder builder(matmul->getContext());
  builder.setInsertionPointAfter(product.getDefiningOp());
  int64_t kept = outputs.size() > 1 ? MPT_GEMM_KEEP : 0;
  outline(builder, ops, inputs, outputs, MPT_GEMM_GELU_TANH | kept);
  return true;
}

/// The product that makes the activation's gradient multiplies it by the slope, at a sum that is in memory.
bool Chains::differentiate(GeluBackwardOp gelu) {
  Value product = gelu.getLhs(), x = gelu.getRhs();
  MatMulOp matmul = productOf(product);
  auto kept = x.getDefiningOp<FusionOp>();
  if (!matmul || gelu.getForm() != GeluForm::tanh || !kept || !hasAttr<MPTDialect::EpilogueAttrHelper>(kept) ||
      !kept->isBeforeInBlock(matmul))
    return false;
  OpBuilder builder(gelu);
  builder.setInsertionPointAfter(product.getDefiningOp());
  outline(builder, {gelu}, {product, x}, {gelu.getY()}, MPT_GEMM_GELU_TANH_GRADIENT);
  return true;
}

/// A sum down the columns of a matrix that a product reads along them too comes with that product, where nothing else
/// passes over the matrix. The library stores the sum in the type of the product: one that only conversions to FP32
/// read is stored in FP32.
bool Chains::sum(ReduceOp reduce) {
  Value x = reduce.getX();
  RankedTensorType type = tensorType(x), sums = tensorType(reduce.getY());
  if (reduce.getKind() != ReduceKind::sum || !isNarrow(x) || sums.getRank() != 1 ||
      reduce.getAxes() != ArrayRef<int64_t>(axisRange(0, type.getRank() - 1)))
    return false;
  Value root = x;
  while (root.getDefiningOp() && isViewOp(root.getDefiningOp()) && root.getDefiningOp()->getNumOperands() == 1)
    root = root.getDefiningOp()->getOperand(0);
  // What makes the matrix in a kernel adds it up on the way.
  Operation *source = root.getDefiningOp();
  if (source && !isa<ConcatOp>(source) && (isa<LoopLowering>(source) || isa<Decomposable>(source)))
    return false;
  SmallVector<Operation *> readers;
  collectReaders(root, readers);
  if (!llvm::all_of(readers, [&](Operation *op) { return op == reduce || isa<MatMulOp>(op); }))
    return false;
  for (Operation *reader : readers) {
    auto matmul = dyn_cast<MatMulOp>(reader);
    if (!matmul || !isMatrixProduct(matmul))
      continue;
    auto isSummed = [&](Value operand) {
      auto view = operand.getDefiningOp<ReshapeOp>();
      return (operand == x || (view && view.getX() == x)) &&
             tensorType(operand).getShape().back() == sums.getDimSize(0);
    };
    bool first = matmul.getTransposeA() && isSummed(matmul.getA());
    bool second = !matmul.getTransposeB() && isSummed(matmul.getB());
    Value operand = first ? matmul.getA() : matmul.getB(), other = first ? matmul.getB() : matmul.getA();
    SmallVector<Operation *> users;
    collectReaders(matmul.getY(), users);
    if (first == second ||
        llvm::any_of(users, [](Operation *user) { return hasAttr<MPTDialect::EpilogueAttrHelper>(user); }))
      continue;
    // What the product's result costs in FP32: being written, and being read by each conversion.
    Type element = tensorType(matmul.getY()).getElementType();
    SmallVector<CastOp> casts;
    if (element != sums.getElementType()) {
      for (Operation *user : matmul->getUsers())
        if (auto cast = dyn_cast<CastOp>(user); cast && tensorType(cast.getY()).getElementType().isF32())
          casts.push_back(cast);
      int64_t more = countOf(matmul.getY()) * 2 * static_cast<int64_t>(casts.size() + 1);
      if (!sums.getElementType().isF32() || !element.isIntOrFloat() || casts.empty() || more >= bytesOf(x) ||
          !llvm::all_of(matmul->getUsers(), [&](Operation *user) {
            auto cast = dyn_cast<CastOp>(user);
            return cast && llvm::is_contained(casts, cast);
          }))
        continue;
    }
    // The product runs before the first reader of the sum.
    if (!matmul->isBeforeInBlock(reduce)) {
      Operation *source = other.getDefiningOp();
      if (source && !source->isBeforeInBlock(reduce))
        continue;
      if (Operation *view = operand.getDefiningOp(); view && !view->isBeforeInBlock(reduce))
        view->moveBefore(reduce);
      matmul->moveBefore(reduce);
    }
    if (!casts.empty()) {
      Type wide = Float32Type::get(matmul.getContext());
      matmul.getY().setType(tensorType(matmul.getY()).clone(wide));
      if (NumericsAttr numerics = matmul.getNumericsAttr())
        matmul.setNumericsAttr(NumericsAttr::get(matmul.getContext(), numerics.getIn(), numerics.getAcc(), wide));
      for (CastOp cast : casts) {
        cast.getY().replaceAllUsesWith(matmul.getY());
        cast.erase();
      }
    }
    OpBuilder builder(reduce);
    outline(builder, {reduce}, {x, matmul.getY()}, {reduce.getY()}, first ? MPT_GEMM_SUM_A : MPT_GEMM_SUM_B);
    return true;
  }
  return false;
}

namespace {

struct ChainProducts : mpt::impl::ChainProductsBase<ChainProducts> {
  using ChainProductsBase::ChainProductsBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        numChained += Chains(function).run();
  }
};

} // namespace
