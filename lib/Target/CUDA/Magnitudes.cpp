// SPDX-License-Identifier: Apache-2.0
// Largest magnitudes of 16-bit floats, two numbers a register, without a step that drops the signs.
// Matcher: trees of arith.maximumf over math.absf on vectors of 16-bit floats, and arith.select of the larger float
// below a math.absf.
#include "ToNvvm.h"

#include "mpt/Lowering/Emission/ValueBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mpt;

namespace {

bool isOfPairs(Value value) {
  auto type = dyn_cast<VectorType>(value.getType());
  return type && type.getNumElements() % 2 == 0 && isa<FloatType>(type.getElementType()) &&
         type.getElementTypeBitWidth() == 16;
}

/// Values that are magnitudes, each beside a number of that magnitude and either sign.
class Magnitudes {
public:
  void run(Operation *kernels) {
    SmallVector<arith::MaximumFOp> trees;
    kernels->walk([&](arith::MaximumFOp op) {
      if (isOfPairs(op) && signedOf(op))
        trees.push_back(op);
    });
    for (arith::MaximumFOp op : trees) {
      ImplicitLocOpBuilder b(op.getLoc(), op->getContext());
      Value number = signedOf(op);
      b.setInsertionPointAfterValue(number);
      Value magnitude = math::AbsFOp::create(b, number);
      op->getResult(0).replaceUsesWithIf(magnitude, [&](OpOperand &use) { return !signs.contains(use.getOwner()); });
    }
  }

private:
  /// A number of the magnitude that `value` is; null where it may be no magnitude.
  Value signedOf(Value value) {
    Operation *op = value.getDefiningOp();
    if (auto abs = dyn_cast_or_null<math::AbsFOp>(op))
      return abs.getOperand();
    if (!op || !isOfPairs(value))
      return {};
    auto [known, isNew] = signs.try_emplace(op);
    if (!isNew)
      return known->second;
    Value result = made(op);
    if (result)
      signs[op] = result;
    else
      signs.erase(op);
    return result;
  }

  Value made(Operation *op) {
    ImplicitLocOpBuilder b(op->getLoc(), op->getContext());
    b.setInsertionPointAfter(op);
    if (auto slice = dyn_cast<vector::ExtractStridedSliceOp>(op)) {
      Value source = isOfPairs(slice.getSource()) ? signedOf(slice.getSource()) : Value();
      return source
                 ? Value(vector::ExtractStridedSliceOp::create(
                       b, op->getResult(0).getType(), source, slice.getOffsets(), slice.getSizes(), slice.getStrides()))
                 : Value();
    }
    auto max = dyn_cast<arith::MaximumFOp>(op);
    Value x = max ? signedOf(max.getLhs()) : Value(), y = x ? signedOf(max.getRhs()) : Value();
    return y ? larger(b, x, y) : Value();
  }

  /// Of each two elements the larger magnitude, with the sign of their product.
  static Value larger(ImplicitLocOpBuilder &b, Value x, Value y) {
    auto type = cast<VectorType>(x.getType());
    auto words = VectorType::get(type.getNumElements() / 2, b.getI32Type());
    std::string text =
        std::string("max.NaN.xorsign.abs.") + (type.getElementType().isBF16() ? "bf16x2" : "f16x2") + " $0, $1, $2;";
    Value p = vector::BitCastOp::create(b, words, x), q = vector::BitCastOp::create(b, words, y);
    SmallVector<Value> results;
    for (int64_t i = 0; i < words.getNumElements(); ++i) {
      Value pair[] = {vector::ExtractOp::create(b, p, i), vector::ExtractOp::create(b, q, i)};
      results.push_back(LLVM::InlineAsmOp::create(b, TypeRange{b.getI32Type()}, pair, text, "=r,r,r",
                                                  /*has_side_effects=*/false, /*is_align_stack=*/false,
                                                  LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(),
                                                  ArrayAttr())
                            .getResult(0));
    }
    return vector::BitCastOp::create(b, type, vector::FromElementsOp::create(b, words, results));
  }

  llvm::DenseMap<Operation *, Value> signs;
};

/// Selections of the larger of two numbers, one below the other, which pooling makes beside the number's position.
class Selections {
public:
  explicit Selections(math::AbsFOp magnitude) : magnitude(magnitude), readers{magnitude} {
    Value value = magnitude.getOperand();
    while (arith::SelectOp select = largerAt(value)) {
      chain.push_back(select);
      value = select.getFalseValue();
    }
    smallest = value;
  }

  /// Makes maxima of them. Those differ in the sign of a zero, which no magnitude has.
  void replace() {
    Value value = smallest;
    for (arith::SelectOp select : llvm::reverse(chain)) {
      OpBuilder b(select);
      value = arith::MaximumFOp::create(b, select.getLoc(), select.getTrueValue(), value);
    }
    magnitude->setOperand(0, value);
  }

private:
  static bool isDead(Operation *op) { return wouldOpBeTriviallyDead(op) && llvm::all_of(op->getUsers(), isDead); }

  bool isReader(Operation *op) const { return llvm::is_contained(readers, op) || isDead(op); }

  /// The selection that makes `value`; null where something else needs it, or the comparison, which would then stay.
  arith::SelectOp largerAt(Value value) {
    auto select = isOfPairs(value) ? value.getDefiningOp<arith::SelectOp>() : arith::SelectOp();
    auto either = select ? select.getCondition().getDefiningOp<arith::OrIOp>() : arith::OrIOp();
    auto greater = either ? either.getLhs().getDefiningOp<arith::CmpFOp>() : arith::CmpFOp();
    auto unordered = either ? either.getRhs().getDefiningOp<arith::CmpFOp>() : arith::CmpFOp();
    if (!greater || !unordered)
      return {};
    Value x = select.getTrueValue(), y = select.getFalseValue();
    bool isLarger = greater.getPredicate() == arith::CmpFPredicate::OGT && greater.getLhs() == x &&
                    greater.getRhs() == y && unordered.getPredicate() == arith::CmpFPredicate::UNO &&
                    unordered.getLhs() == x && unordered.getRhs() == x;
    if (!isLarger || !llvm::all_of(select->getUsers(), [&](Operation *user) { return isReader(user); }))
      return {};
    readers.append({select, either, greater});
    return llvm::all_of(either->getUsers(), [&](Operation *user) { return isReader(user); }) ? select
                                                                                             : arith::SelectOp();
  }

  math::AbsFOp magnitude;
  SmallVector<Operation *> readers; ///< ops that may read the chain's values
  SmallVector<arith::SelectOp> chain;
  Value smallest;
};

} // namespace

void cuda::takeMaxima(Operation *kernels) {
  kernels->walk([](math::AbsFOp op) { Selections(op).replace(); });
}

void cuda::packMagnitudes(Operation *kernels, unsigned sm) {
  if (sm >= 89)
    Magnitudes().run(kernels);
}
