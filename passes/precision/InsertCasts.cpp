// SPDX-License-Identifier: Apache-2.0
// precision-insert-casts: carries out the decisions of precision-assign; where casts stand was decided by
// lib/Precision/Solve/CastPlacement.h.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Precision/Constants.h"
#include "mpt/Precision/LossyCasts.h"

namespace mpt {
#define GEN_PASS_DEF_INSERTCASTS
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
class InsertCasts : public mpt::impl::InsertCastsBase<InsertCasts> {
public:
  void runOnOperation() override {
    if (!hasAttr<MPTDialect::PolicyAttrHelper>(getOperation())) {
      getOperation().emitError() << "expected the decisions of precision-assign, got none: run it first";
      return signalPassFailure();
    }
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && failed(rewrite(function)))
        return signalPassFailure();
  }

private:
  /// A value, a type, and whether the cast stands in the backward pass.
  using Key = std::tuple<Value, Type, bool>;

  LogicalResult rewrite(func::FuncOp function) {
    casts.clear();
    TrainingParts parts(function);
    SmallVector<Operation *> originals;
    for (Operation &op : function.getBody().front())
      originals.push_back(&op);
    for (Operation *op : originals) {
      auto decision = getAttr<MPTDialect::PrecisionAttrHelper>(op);
      if (decision && failed(apply(op, decision, !parts.isForward(op))))
        return failure();
    }
    for (Operation *op : originals)
      if (op->hasTrait<OpTrait::ConstantLike>() && op->use_empty())
        op->erase();
    int64_t lossy = 0; // the model's own as well
    function.walk([&](Operation *op) { lossy += isLossyCast(op); });
    setAttr<MPTDialect::LossyCastsAttrHelper>(function, Builder(&getContext()).getI64IntegerAttr(lossy));
    return success();
  }

  LogicalResult apply(Operation *op, PrecisionAttr decision, bool backward) {
    if (!decision.fits(op))
      return op->emitOpError() << "expected mpt.precision with one type for each operand and result";
    for (OpOperand &operand : op->getOpOperands())
      if (Type type = decision.operandType(operand.getOperandNumber()))
        operand.set(converted(operand.get(), type, op, backward));
    if (isa<train::ReadOp>(op)) // the state is still wide: its readers cast
      return success();
    for (OpResult result : op->getResults())
      if (Type type = decision.resultType(result.getResultNumber()))
        result.setType(tensorType(result).clone(type));
    return success();
  }

  Value converted(Value value, Type type, Operation *user, bool backward) {
    Type have = tensorType(value).getElementType();
    if (have == type)
      return value;
    bool rounds = !APFloat::isRepresentableBy(cast<FloatType>(have).getFloatSemantics(),
                                              cast<FloatType>(type).getFloatSemantics());
    Value &made = casts[{value, type, backward && !rounds}];
    if (made)
      return made;
    OpBuilder builder(user);
    auto constant = value.getDefiningOp<ConstantOp>();
    if (constant && rounds && !hasAttr<MPTDialect::SeedAttrHelper>(constant))
      if (NarrowedConstant narrowed = narrowConstant(constant.getValue(), cast_or_null<FloatType>(type));
          narrowed.value) {
        auto copy = ConstantOp::create(builder, constant.getLoc(), narrowed.value);
        if (!narrowed.note.empty())
          setAttr<MPTDialect::RangeAttrHelper>(copy, builder.getStringAttr(narrowed.note));
        ++numConstants;
        return made = copy;
      }
    made = CastOp::create(builder, value.getLoc(), value, type);
    ++numCasts;
    numLossy += rounds;
    return made;
  }

  std::map<Key, Value, bool (*)(const Key &, const Key &)> casts{[](const Key &a, const Key &b) {
    auto key = [](const Key &k) {
      return std::make_tuple(std::get<0>(k).getAsOpaquePointer(), std::get<1>(k).getAsOpaquePointer(), std::get<2>(k));
    };
    return key(a) < key(b);
  }};
};
} // namespace
