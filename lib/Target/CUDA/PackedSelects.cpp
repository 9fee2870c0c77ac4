// SPDX-License-Identifier: Apache-2.0
// Selections by comparisons of 16-bit floats, two numbers a register.
// Matcher: arith.select on vectors of 16 bits whose condition is made of arith.cmpf on vectors of 16-bit floats, and on
// such numbers that were widened.
#include "ToNvvm.h"

#include "mpt/Lowering/Emission/ValueBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Whether `value` is a vector of an even number of elements of 16 bits.
bool isOfPairs(Value value) {
  return isa<VectorType>(value.getType()) && ValueBuilder::width(value) % 2 == 0 &&
         getElementTypeOrSelf(value).isIntOrFloat() && getElementTypeOrSelf(value).getIntOrFloatBitWidth() == 16;
}

bool hasBFloat16(arith::CmpFOp op) { return getElementTypeOrSelf(op.getLhs()).isBF16(); }

/// The comparisons that `condition` is made of; none where it is made of others as well.
bool collect(Value condition, SmallVectorImpl<arith::CmpFOp> &found) {
  Operation *op = condition.getDefiningOp();
  if (isa_and_nonnull<arith::OrIOp, arith::AndIOp>(op))
    return collect(op->getOperand(0), found) && collect(op->getOperand(1), found);
  if (auto spread = dyn_cast_or_null<vector::BroadcastOp>(op))
    return !isa<VectorType>(spread.getSource().getType());
  auto compare = dyn_cast_or_null<arith::CmpFOp>(op);
  if (!compare || !isOfPairs(compare.getLhs()))
    return false;
  found.push_back(compare);
  return true;
}

/// The comparison's name in `set` (PTX ISA, "Half Precision Comparison Instructions"); empty where it has none.
std::string nameOf(arith::CmpFPredicate predicate) {
  switch (predicate) {
  case arith::CmpFPredicate::AlwaysFalse:
  case arith::CmpFPredicate::AlwaysTrue:
    return "";
  case arith::CmpFPredicate::ORD:
    return "num";
  case arith::CmpFPredicate::UNO:
    return "nan";
  default:
    StringRef name = arith::stringifyCmpFPredicate(predicate);
    return (name.drop_front() + (name.starts_with("u") ? "u" : "")).str();
  }
}

/// Conditions as masks of words, and selections by them.
class Masks {
public:
  Value select(arith::SelectOp op) {
    ImplicitLocOpBuilder b(op.getLoc(), op);
    Value mask = maskOf(op.getCondition());
    auto type = cast<VectorType>(op.getType());
    Value x = words(b, op.getTrueValue()), y = words(b, op.getFalseValue());
    // Where the mask holds zero is chosen, as ReLU does.
    if (matchPattern(op.getTrueValue(), m_PosZeroFloat())) {
      Value others = arith::XOrIOp::create(b, mask, ones(b, mask.getType()));
      return vector::BitCastOp::create(b, type, arith::AndIOp::create(b, y, others));
    }
    if (matchPattern(op.getFalseValue(), m_PosZeroFloat()))
      return vector::BitCastOp::create(b, type, arith::AndIOp::create(b, x, mask));
    // One instruction, which LLVM would make three of.
    return vector::BitCastOp::create(b, type, byWords(b, "lop3.b32 $0, $1, $2, $3, 0xCA;", {mask, x, y}));
  }

private:
  static VectorType wordsOf(Value value) {
    return VectorType::get(ValueBuilder::width(value) / 2, IntegerType::get(value.getContext(), 32));
  }
  static Value words(ImplicitLocOpBuilder &b, Value value) {
    return vector::BitCastOp::create(b, wordsOf(value), value);
  }
  static Value ones(ImplicitLocOpBuilder &b, Type type) {
    Attribute all = b.getI32IntegerAttr(-1);
    if (auto vector = dyn_cast<VectorType>(type))
      return arith::ConstantOp::create(b, DenseElementsAttr::get(vector, all));
    return arith::ConstantOp::create(b, cast<TypedAttr>(all));
  }

  Value maskOf(Value condition) {
    if (Value known = masks.lookup(condition))
      return known;
    Operation *op = condition.getDefiningOp();
    ImplicitLocOpBuilder b(op->getLoc(), op);
    Value mask;
    if (auto compare = dyn_cast<arith::CmpFOp>(op)) {
      mask = maskOf(b, compare);
    } else if (auto spread = dyn_cast<vector::BroadcastOp>(op)) {
      Value all = ones(b, b.getI32Type()), none = arith::ConstantOp::create(b, b.getI32IntegerAttr(0));
      Value word = arith::SelectOp::create(b, spread.getSource(), all, none);
      mask = vector::BroadcastOp::create(b, wordsOf(condition), word);
    } else {
      Value x = maskOf(op->getOperand(0)), y = maskOf(op->getOperand(1));
      mask = isa<arith::OrIOp>(op) ? Value(arith::OrIOp::create(b, x, y)) : Value(arith::AndIOp::create(b, x, y));
    }
    return masks[condition] = mask;
  }

  static Value maskOf(ImplicitLocOpBuilder &b, arith::CmpFOp op) {
    Value x = words(b, op.getLhs()), y = words(b, op.getRhs());
    std::string text =
        "set." + nameOf(op.getPredicate()) + ".u32." + (hasBFloat16(op) ? "bf16x2" : "f16x2") + " $0, $1, $2;";
    return byWords(b, text, {x, y});
  }

  /// One instruction for each word of `operands`.
  static Value byWords(ImplicitLocOpBuilder &b, StringRef text, ArrayRef<Value> operands) {
    SmallVector<Value> results;
    std::string constraints = "=r";
    for (size_t k = 0; k < operands.size(); ++k)
      constraints += ",r";
    for (unsigned i = 0, n = ValueBuilder::width(operands.front()); i < n; ++i) {
      SmallVector<Value> own;
      for (Value operand : operands)
        own.push_back(vector::ExtractOp::create(b, operand, int64_t(i)));
      results.push_back(LLVM::InlineAsmOp::create(b, TypeRange{b.getI32Type()}, own, text, constraints,
                                                  /*has_side_effects=*/false, /*is_align_stack=*/false,
                                                  LLVM::tailcallkind::TailCallKind::None, LLVM::AsmDialectAttr(),
                                                  ArrayAttr())
                            .getResult(0));
    }
    return vector::FromElementsOp::create(b, cast<VectorType>(operands.front().getType()), results);
  }

  llvm::DenseMap<Value, Value> masks;
};

/// Selections and comparisons in 32 bits, where an architecture compares no two numbers of 16 bits.
class Widening {
public:
  explicit Widening(ArrayRef<arith::SelectOp> ops) : ops(ops.begin(), ops.end()) {}

  void run() {
    for (arith::SelectOp op : ops) {
      SmallVector<arith::CmpFOp> compares;
      (void)collect(op.getCondition(), compares);
      for (arith::CmpFOp compare : compares)
        if (isOfPairs(compare.getLhs()))
          compare->setOperands({wide(compare.getLhs()), wide(compare.getRhs())});
      (void)wide(op);
    }
    for (arith::SelectOp op : llvm::reverse(ops)) {
      Value whole = wide(op);
      for (Operation *user : llvm::make_early_inc_range(op->getUsers()))
        if (isa<arith::ExtFOp, arith::ExtUIOp>(user) && user->getResult(0).getType() == whole.getType()) {
          user->replaceAllUsesWith(ValueRange{whole});
          user->erase();
        }
      if (!op->use_empty()) {
        ImplicitLocOpBuilder b(op.getLoc(), op);
        bool real = isa<FloatType>(getElementTypeOrSelf(op.getType()));
        op.replaceAllUsesWith(real ? Value(arith::TruncFOp::create(b, op.getType(), whole))
                                   : Value(arith::TruncIOp::create(b, op.getType(), whole)));
      }
      op.erase();
    }
  }

private:
  Value wide(Value value) {
    if (Value known = widened.lookup(value))
      return known;
    ImplicitLocOpBuilder b(value.getLoc(), value.getContext());
    auto op = value.getDefiningOp<arith::SelectOp>();
    bool isOurs = op && llvm::is_contained(ops, op), real = isa<FloatType>(getElementTypeOrSelf(value));
    if (isOurs) {
      Value x = wide(op.getTrueValue()), y = wide(op.getFalseValue());
      b.setInsertionPoint(op);
      return widened[value] = arith::SelectOp::create(b, op.getCondition(), x, y);
    }
    b.setInsertionPointAfterValue(value);
    auto type = cast<VectorType>(value.getType()).clone(real ? Type(b.getF32Type()) : Type(b.getI32Type()));
    return widened[value] =
               real ? Value(arith::ExtFOp::create(b, type, value)) : Value(arith::ExtUIOp::create(b, type, value));
  }

  SmallVector<arith::SelectOp> ops;
  llvm::DenseMap<Value, Value> widened;
};

/// The type of 16 bits that `value` was widened from; null without one.
Type narrowTypeOf(Value value) {
  auto widened = value.getDefiningOp<arith::ExtFOp>();
  return widened && getElementTypeOrSelf(value).isF32() && isOfPairs(widened.getIn())
             ? getElementTypeOrSelf(widened.getIn())
             : Type();
}

/// `value` before it was widened from `type`, or zero, as `type`; null elsewhere.
Value narrowed(ValueBuilder &e, Value value, Type type) {
  if (narrowTypeOf(value) == type)
    return value.getDefiningOp<arith::ExtFOp>().getIn();
  auto vector = cast<VectorType>(value.getType()).clone(type);
  return matchPattern(value, m_PosZeroFloat())
             ? Value(arith::ConstantOp::create(e.b, DenseElementsAttr::get(vector, e.b.getFloatAttr(type, 0))))
             : Value();
}

/// x of ReLU's x < 0 ? 0 : x, which is positive where that is; other values as they are.
Value beforeRelu(Value value) {
  auto relu = value.getDefiningOp<arith::SelectOp>();
  auto compare = relu ? relu.getCondition().getDefiningOp<arith::CmpFOp>() : arith::CmpFOp();
  bool isRelu = compare && compare.getPredicate() == arith::CmpFPredicate::OLT &&
                compare.getLhs() == relu.getFalseValue() && matchPattern(compare.getRhs(), m_PosZeroFloat()) &&
                matchPattern(relu.getTrueValue(), m_PosZeroFloat());
  return isRelu ? relu.getFalseValue() : value;
}

/// A choice between widened numbers by a comparison of such, as ReLU and its gradient make, as one between the narrow
/// ones; null where it is none.
Value narrowChoice(arith::SelectOp op, unsigned sm) {
  auto compare = op.getCondition().getDefiningOp<arith::CmpFOp>();
  if (!compare || !isa<VectorType>(op.getType()) || compare.getLhs().getType() != op.getType())
    return {};
  Value operands[] = {compare.getLhs(), compare.getRhs(), op.getTrueValue(), op.getFalseValue()};
  Type type;
  for (Value operand : operands)
    type = type ? type : narrowTypeOf(operand);
  if (!type || (type.isBF16() && sm < 90))
    return {};
  ImplicitLocOpBuilder b(op.getLoc(), op);
  KernelTarget target;
  ValueBuilder e(b, target);
  for (Value &operand : operands)
    if (!(operand = narrowed(e, operand, type)))
      return {};
  if (compare.getPredicate() == arith::CmpFPredicate::OGT && matchPattern(operands[1], m_PosZeroFloat()))
    operands[0] = beforeRelu(operands[0]);
  Value flags = arith::CmpFOp::create(b, compare.getPredicate(), operands[0], operands[1]);
  Value choice = arith::SelectOp::create(b, flags, operands[2], operands[3]);
  return arith::ExtFOp::create(b, op.getType(), choice);
}

void narrowChoices(Operation *kernels, unsigned sm) {
  kernels->walk([&](Operation *op) {
    Value value;
    if (auto select = dyn_cast<arith::SelectOp>(op)) {
      value = narrowChoice(select, sm);
    } else if (auto narrow = dyn_cast<arith::TruncFOp>(op); narrow && narrowTypeOf(narrow.getIn())) {
      Value before = narrow.getIn().getDefiningOp<arith::ExtFOp>().getIn();
      value = before.getType() == narrow.getType() ? before : Value();
    }
    if (!value)
      return;
    op->replaceAllUsesWith(ValueRange{value});
    op->erase();
  });
}

} // namespace

void cuda::packSelects(Operation *kernels, unsigned sm) {
  narrowChoices(kernels, sm);
  SmallVector<arith::SelectOp> packed, others;
  kernels->walk([&](arith::SelectOp op) {
    SmallVector<arith::CmpFOp> compares;
    if (!isOfPairs(op) || !isa<VectorType>(op.getCondition().getType()) || !collect(op.getCondition(), compares) ||
        compares.empty() ||
        llvm::any_of(compares, [](arith::CmpFOp compare) { return nameOf(compare.getPredicate()).empty(); }))
      return;
    (sm < 90 && llvm::any_of(compares, hasBFloat16) ? others : packed).push_back(op);
  });
  Masks masks;
  for (arith::SelectOp op : packed) {
    op.replaceAllUsesWith(masks.select(op));
    op.erase();
  }
  Widening(others).run();
}
