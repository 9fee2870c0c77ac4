// SPDX-License-Identifier: Apache-2.0
// precision-quantize: 8-bit operands of GEMMs and convolutions, and their scales.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Precision/LossyCasts.h"
#include "mpt/Precision/OperandCasts.h"
#include "mpt/Precision/Policy.h"
#include "mpt/Precision/RoundingCasts.h"

namespace mpt {
#define GEN_PASS_DEF_QUANTIZE
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
constexpr StringLiteral kHistory = train::TrainDialect::kAmaxHistory, kScales = train::TrainDialect::kTensorScales;

/// A tensor that is converted once for all its readers.
struct Quantized {
  Value value, scale; ///< scale is null without tensor scaling
};

class Quantize : public mpt::impl::QuantizeBase<Quantize> {
public:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    settings = PrecisionSettings::of(module);
    bool rounds = settings.parameterGradients.getIntOrFloatBitWidth() < 32;
    if (!settings.quantizes() && !rounds)
      return;
    casts.emplace(module);
    // Functions that write state first: they say which tensors have a history.
    SmallVector<func::FuncOp> functions, others;
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal())
        (function.getOps<train::WriteOp>().empty() ? others : functions).push_back(function);
    llvm::append_range(functions, others);
    if (settings.quantizes() && settings.tensorScaling.delayed)
      addHistory(functions);
    for (func::FuncOp function : functions) {
      if (settings.quantizes())
        quantize(function);
      if (rounds)
        roundGradients(function);
    }
  }

private:
  /// An operand of a contraction that changes its type, and the type.
  template <typename F> void eachOperand(func::FuncOp function, F visit) {
    TrainingParts parts(function);
    llvm::StringMap<int> seen;
    DenseMap<std::pair<Value, Type>, std::string> names;
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
      auto decision = getAttr<MPTDialect::PrecisionAttrHelper>(&op);
      if (!decision || !decision.getQuantized())
        continue;
      for (OpOperand &operand : op.getOpOperands()) {
        bool isGradient = parts.isGradient(operand.get());
        Type type = isGradient ? settings.gradients : settings.compute;
        if (!isa<FloatType>(tensorType(operand.get()).getElementType()) || type.getIntOrFloatBitWidth() != 8)
          continue;
        std::string &name = names[{operand.get(), type}];
        if (name.empty()) {
          // A tensor is the n-th that a node reads at an operand: the same in every function made of one model.
          name = (nodeName(op.getLoc()) + "/" + Twine(operand.getOperandNumber()) + (isGradient ? "/g" : "/f")).str();
          name += "/" + std::to_string(seen[name]++);
        }
        visit(operand, type, isGradient, name);
      }
    }
  }

  /// Numbers the tensors of the first function that writes state, and adds the states.
  void addHistory(ArrayRef<func::FuncOp> functions) {
    func::FuncOp first = functions.empty() ? func::FuncOp() : functions.front();
    if (!first || first.getOps<train::WriteOp>().empty())
      return;
    eachOperand(first, [&](OpOperand &, Type, bool, StringRef name) {
      numbers.try_emplace(name, static_cast<int64_t>(numbers.size()));
    });
    if (numbers.empty())
      return;
    auto builder = OpBuilder::atBlockBegin(getOperation().getBody());
    for (auto state : getOperation().getOps<train::StateOp>())
      builder.setInsertionPointAfter(state);
    int64_t count = numbers.size();
    auto add = [&](StringRef name, RankedTensorType type, float fill) {
      train::StateOp::create(builder, NameLoc::get(builder.getStringAttr(name)), name, type, train::Role::statistic,
                             StringAttr(), DenseElementsAttr::get(type, fill), /*frozen=*/false, StringAttr());
    };
    add(kHistory, RankedTensorType::get({count, settings.tensorScaling.history}, builder.getF32Type()), 0);
    add(kScales, RankedTensorType::get({count}, builder.getF32Type()), 1);
  }

  void quantize(func::FuncOp function) {
    known.clear();
    amax.assign(numbers.size(), Value());
    scales = Value();
    DenseMap<Operation *, SmallVector<Value, 2>> scalesOf;
    SmallVector<CastOp> unread;
    eachOperand(function, [&](OpOperand &operand, Type type, bool isGradient, StringRef name) {
      Operation *op = operand.getOwner();
      const Quantized &q = convert(op, operand.get(), type, isGradient, name);
      auto [entry, isNew] = scalesOf.try_emplace(op);
      numContractions += isNew;
      if (q.scale)
        entry->second.push_back(q.scale);
      Value before = operand.get();
      operand.set(q.value);
      if (auto cast = before.getDefiningOp<CastOp>(); cast && cast->use_empty())
        unread.push_back(cast);
    });
    // Roundings to the storage type that nothing reads any more.
    for (CastOp cast : unread) {
      addLossyCasts(cast, isLossyCast(cast) ? -1 : 0);
      cast.erase();
    }
    for (auto &[op, list] : scalesOf)
      if (!list.empty())
        takeScalesOut(op, list, *casts);
    if (!function.getOps<train::WriteOp>().empty() && !numbers.empty())
      writeHistory(function);
  }

  const Quantized &convert(Operation *user, Value value, Type type, bool isGradient, StringRef name) {
    Quantized &result = known[{value, type}];
    if (result.value)
      return result;
    OpBuilder builder(user);
    GraphBuilder b(builder, user->getLoc());
    RoundingMode mode = isGradient ? settings.gradientCasts : settings.operands;
    Value source = value;
    if (auto cast = value.getDefiningOp<CastOp>(); cast && isLossyCast(cast) && !cast.getKey())
      source = cast.getX(); // one rounding, not two
    if (settings.tensorScaling.enabled)
      result.scale = scaleOf(b, source, type, name);
    result.value = toNarrowOperand(b, *casts, source, result.scale, type, mode);
    ++numQuantized;
    return result;
  }

  Value scaleOf(GraphBuilder &b, Value x, Type type, StringRef name) {
    const TensorScaling &options = settings.tensorScaling;
    auto number = numbers.find(name);
    if (!options.delayed || number == numbers.end()) {
      Value top = largestMagnitude(b, x);
      return tensorScale(b, top, b.splatLike(top, 1), type, settings.tensorScaling);
    }
    auto function = b.builder.getInsertionBlock()->getParentOp();
    if (!cast<func::FuncOp>(function).getOps<train::WriteOp>().empty()) {
      amax[number->second] = largestMagnitude(b, x);
      formats[number->second] = type;
    }
    if (!scales) {
      auto start = OpBuilder::atBlockBegin(&cast<func::FuncOp>(function).getBody().front());
      auto all = RankedTensorType::get({static_cast<int64_t>(numbers.size())}, b.builder.getF32Type());
      scales = train::ReadOp::create(start, b.loc, all, kScales);
    }
    return b.reshape(b.slice(scales, {number->second}, {1}), {});
  }

  void writeHistory(func::FuncOp function) {
    OpBuilder builder(function.getBody().front().getTerminator());
    GraphBuilder b(builder, NameLoc::get(builder.getStringAttr(kHistory)));
    auto count = static_cast<int64_t>(numbers.size());
    auto vector = RankedTensorType::get({count}, builder.getF32Type());
    auto history = RankedTensorType::get({count, settings.tensorScaling.history}, builder.getF32Type());
    SmallVector<Value> parts;
    for (Value top : amax)
      parts.push_back(top ? b.reshape(top, {1}) : b.splat(vector.clone({1}), 0));
    Value newest = parts.size() == 1 ? parts.front() : b.concat(parts, 0);
    Value old = train::ReadOp::create(builder, b.loc, history, kHistory);
    Value rolled = b.make<train::RollOp>(history, old, newest);
    Value top = settings.tensorScaling.mostRecent ? newest : b.reduce(ReduceKind::max, rolled, {1});
    train::WriteOp::create(builder, b.loc, kHistory, rolled, Value());
    // Formats differ in their largest value: bring magnitudes to one format.
    SmallVector<float> relative;
    Type format = settings.compute;
    auto largest = [](Type type) {
      return APFloat::getLargest(cast<FloatType>(type).getFloatSemantics()).convertToDouble();
    };
    for (int64_t i = 0; i < count; ++i)
      relative.push_back(static_cast<float>(largest(format) / largest(formats.count(i) ? formats[i] : format)));
    Value previous = scales ? scales : Value(train::ReadOp::create(builder, b.loc, vector, kScales));
    Value next = tensorScale(b, b.mul(top, b.constant(DenseElementsAttr::get(vector, ArrayRef<float>(relative)))),
                             previous, format, settings.tensorScaling);
    train::WriteOp::create(builder, b.loc, kScales, next, Value());
  }

  /// Parameter gradients in the policy's type, widened again for their readers.
  void roundGradients(func::FuncOp function) {
    for (auto gradient : function.getOps<train::GradientOp>()) {
      OpBuilder builder(gradient);
      GraphBuilder b(builder, gradient.getLoc());
      Value value = gradient.getGradient();
      Type element = tensorType(value).getElementType(), narrow = settings.parameterGradients;
      if (element.getIntOrFloatBitWidth() <= narrow.getIntOrFloatBitWidth())
        continue;
      Value rounded = casts->cast(builder, gradient.getLoc(), value, narrow, settings.gradientCasts);
      gradient.getGradientMutable().assign(b.cast(rounded, element));
    }
  }

  PrecisionSettings settings;
  std::optional<RoundingCasts> casts;
  llvm::StringMap<int64_t> numbers; ///< of tensors with a history
  DenseMap<int64_t, Type> formats;
  DenseMap<std::pair<Value, Type>, Quantized> known;
  SmallVector<Value> amax; ///< by number, of the function at hand
  Value scales;
};
} // namespace
