// SPDX-License-Identifier: Apache-2.0
// --training-loss: appends a loss to @forward.
#include "mpt/Autodiff/LossFormulas.h"
#include "mpt/Autodiff/LossSpec.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "passes/training/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_LOSS
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Loss : mpt::impl::LossBase<Loss> {
  using LossBase::LossBase;

  void runOnOperation() override {
    func::FuncOp forward = findFunction(getOperation(), "forward");
    if (!forward)
      return signalPassFailure();
    auto parsed = parseLossSpecs(loss);
    if (!parsed) {
      forward.emitError() << "loss: " << llvm::toString(parsed.takeError());
      return signalPassFailure();
    }
    SmallVector<NamedValue> results = namedResults(forward), losses;
    bool several = parsed->size() > 1;
    DenseSet<Value> consumed;
    Value sum;
    for (const LossSpec &spec : *parsed) {
      FailureOr<Value> prediction = predictionOf(forward, results, spec);
      if (failed(prediction))
        return signalPassFailure();
      OpBuilder builder(forward.getBody().front().getTerminator());
      std::string name = several ? "loss_" + spec.output : "loss";
      GraphBuilder b(builder, NameLoc::get(builder.getStringAttr(name), prediction->getLoc()));
      FailureOr<Value> value = build(forward, b, *prediction, spec, several ? spec.output + "_" : "");
      if (failed(value))
        return signalPassFailure();
      // Losses of single samples stay results beside their mean or sum.
      if (spec.kind == LossKind::none && spec.reduction == OwnReduction::none)
        consumed.insert(*prediction);
      if (several)
        losses.emplace_back(name, *value);
      Value term = spec.weight == 1.0 ? *value : b.mul(*value, spec.weight);
      sum = sum ? b.add(sum, term) : term;
      if (sum != *value)
        for (Value made : {term, sum})
          if (made != *value)
            setAttr<MPTDialect::LossAttrHelper>(made.getDefiningOp());
    }
    llvm::erase_if(results, [&](const NamedValue &result) { return consumed.contains(result.value); });
    losses.insert(losses.begin(), {train::Role::loss, sum});
    results.insert(results.begin(), losses.begin(), losses.end());
    setResults(forward, results);
    if (several) // where the gradients start, each with a loss scale of its own
      for (auto [i, spec] : llvm::enumerate(*parsed))
        setResultAttr<MPTDialect::WeightAttrHelper>(forward, i + 1,
                                                    Builder(&getContext()).getF64FloatAttr(spec.weight));
  }

private:
  static bool isFloat(Value value) {
    auto type = dyn_cast<RankedTensorType>(value.getType());
    return type && isa<FloatType>(type.getElementType());
  }

  static FailureOr<Value> predictionOf(func::FuncOp forward, ArrayRef<NamedValue> results, const LossSpec &spec) {
    const NamedValue *found = spec.output.empty() && !results.empty() ? &results.front() : nullptr;
    for (const NamedValue &result : results)
      if (!spec.output.empty() && result.name == spec.output)
        found = &result;
    if (found && isFloat(found->value))
      return found->value;
    InFlightDiagnostic error = forward.emitError() << "expected a float tensor as ";
    if (spec.output.empty())
      error << "the first result";
    else
      error << "a result named '" << spec.output << "'";
    error << ", to take the loss of, got ";
    if (found) {
      const auto *other = llvm::find_if(results, [](const NamedValue &result) { return isFloat(result.value); });
      error << found->value.getType();
      return other == results.end() ? error : error << "; name another result, as in --loss=mse,output=" << other->name;
    }
    if (results.empty())
      return error << "no result";
    llvm::interleaveComma(results, error, [&](const NamedValue &result) { error << "'" << result.name << "'"; });
    return error;
  }

  /// The loss; its target's name starts with `prefix`.
  FailureOr<Value> build(func::FuncOp forward, GraphBuilder &b, Value prediction, const LossSpec &spec,
                         const std::string &prefix) {
    if (hasClasses(spec.kind))
      return classLoss(forward, b, prediction, spec, prefix + "labels");
    if (spec.kind == LossKind::none)
      return ownLoss(forward, b, prediction, spec);
    if (spec.kind == LossKind::ctc)
      return sequenceLoss(forward, b, prediction, spec, prefix);
    FailureOr<Value> target = addTarget(forward, prefix + "target", prediction.getType());
    if (failed(target))
      return failure();
    Value loss = lossOfTarget(b, spec, b.widen(prediction), b.widen(*target));
    markLoss(forward, b.loc);
    return loss;
  }

  /// Precision passes keep the loss written out here in FP32, and its gradient, which has the same location.
  static void markLoss(func::FuncOp forward, Location loc) {
    for (Operation &op : forward.getBody().front())
      if (op.getLoc() == loc)
        setAttr<MPTDialect::LossAttrHelper>(&op);
  }

  FailureOr<Value> ownLoss(func::FuncOp forward, GraphBuilder &b, Value value, const LossSpec &spec) {
    RankedTensorType type = tensorType(value);
    if (spec.reduction != OwnReduction::none) {
      if (type.getNumElements() == 0)
        return forward.emitError() << "expected a loss with elements to reduce, got " << type;
      SmallVector<int64_t> all = axisRange(0, type.getRank());
      Value wide = b.widen(value);
      Value loss = all.empty() ? wide : spec.reduction == OwnReduction::mean ? b.mean(wide, all) : b.sum(wide, all);
      markLoss(forward, b.loc);
      return loss;
    }
    if (type.getNumElements() != 1)
      return forward.emitError() << "expected the first result to be a scalar loss, got " << type
                                 << ": name a loss with --loss, or, where these are losses of single samples, their "
                                    "reduction: --loss=none,reduction=mean or --loss=none,reduction=sum [mpt-no-loss]";
    return b.widen(b.reshape(value, {}));
  }

  /// Classes go last, everything else becomes rows.
  FailureOr<Value> classLoss(func::FuncOp forward, GraphBuilder &b, Value logits, const LossSpec &spec,
                             const std::string &target) {
    RankedTensorType type = tensorType(logits);
    int64_t rank = type.getRank(), axis = spec.classAxis < 0 ? spec.classAxis + rank : spec.classAxis;
    if (rank < 2 || axis < 0 || axis >= rank)
      return forward.emitError() << "expected logits with classes on axis " << spec.classAxis << ", got " << type
                                 << ": set class-axis, or another loss [mpt-class-axis]";
    SmallVector<int64_t> order = otherAxes(rank, {axis}), samples;
    for (int64_t i : order)
      samples.push_back(type.getDimSize(i));
    auto labelType = RankedTensorType::get(samples, b.builder.getI64Type());
    FailureOr<Value> labels = addTarget(forward, target, labelType);
    if (failed(labels))
      return failure();
    order.push_back(axis);
    int64_t classes = type.getDimSize(axis), rows = labelType.getNumElements();
    Value flat = b.reshape(b.transpose(logits, order), {rows, classes});
    if (spec.kind != LossKind::softmaxCrossEntropy) {
      Value loss = lossOfLabels(b, spec, b.widen(flat), b.reshape(*labels, {rows}));
      markLoss(forward, b.loc);
      return loss;
    }
    IntegerAttr ignored = spec.ignoreIndex ? b.builder.getI64IntegerAttr(*spec.ignoreIndex) : IntegerAttr();
    auto reduction = LossReductionAttr::get(b.builder.getContext(), LossReduction::mean);
    return b.make<SoftmaxCrossEntropyOp>(flat, b.reshape(*labels, {rows}), Value(), reduction, ignored);
  }

  /// Steps go first, sequences second, classes last.
  FailureOr<Value> sequenceLoss(func::FuncOp forward, GraphBuilder &b, Value scores, const LossSpec &spec,
                                const std::string &prefix) {
    RankedTensorType type = tensorType(scores);
    auto axisOf = [](int64_t axis) { return axis < 0 ? axis + 3 : axis; };
    int64_t batch = axisOf(spec.batchAxis), classes = axisOf(spec.classAxis), steps = 3 - batch - classes;
    if (type.getRank() != 3 || batch == classes ||
        !llvm::all_of(ArrayRef({batch, classes}), [](int64_t axis) { return 0 <= axis && axis < 3; }))
      return forward.emitError() << "expected scores of rank 3 with sequences on axis " << spec.batchAxis
                                 << " and classes on axis " << spec.classAxis << ", got " << type
                                 << ": set batch-axis and class-axis [mpt-class-axis]";
    if (spec.blank >= type.getDimSize(classes))
      return forward.emitError() << "expected the blank to be one of " << type.getDimSize(classes) << " classes, got "
                                 << spec.blank;
    SmallVector<Value, 3> targets;
    int64_t count = type.getDimSize(batch);
    for (const auto &[name, shape] : {std::pair<StringRef, SmallVector<int64_t>>{"labels", {count, spec.maxLabels}},
                                      {"input_lengths", {count}},
                                      {"label_lengths", {count}}}) {
      FailureOr<Value> target =
          addTarget(forward, prefix + name.str(), RankedTensorType::get(shape, b.builder.getI64Type()));
      if (failed(target))
        return failure();
      targets.push_back(*target);
    }
    Value loss = lossOfSequences(b, spec, b.widen(b.transpose(scores, {steps, batch, classes})),
                                 {targets[0], targets[1], targets[2]});
    markLoss(forward, b.loc);
    return loss;
  }

  static FailureOr<Value> addTarget(func::FuncOp forward, StringRef name, Type type) {
    for (unsigned i = 0; i < forward.getNumArguments(); ++i)
      if (nameOfArgument(forward, i) == name)
        return forward.emitError() << "expected no input named '" << name
                                   << "', which the loss adds: the model seems to hold its loss, use --loss=none; "
                                      "if not, rename the input [mpt-second-loss]";
    return addArgument(forward, name, type);
  }
};

} // namespace
