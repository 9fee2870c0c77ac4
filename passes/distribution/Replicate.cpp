// SPDX-License-Identifier: Apache-2.0
// --distribution-replicate: a training step as every replica runs it, with collectives where replicas meet.
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/MPT/Draws.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Distribution/Replicas.h"
#include "passes/distribution/Passes.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "llvm/Support/Regex.h"

namespace mpt {
#define GEN_PASS_DEF_REPLICATE
#include "passes/distribution/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;
using namespace mpt::dist;
using shard::ReductionKind;

namespace {

/// The program of one replica.
class Replica {
public:
  Replica(func::FuncOp step, int64_t count, bool narrow)
      : step(step), builder(step.getContext()), count(count), narrow(narrow) {}

  /// Rows of several replicas lie one behind the other in every input with a row for each sample, or several: labels of
  /// sequences may be flat. Inputs whose names match `shared` are the same for all.
  LogicalResult splitInputs(llvm::Regex &shared) {
    std::optional<int64_t> rows = batchOf(step);
    if (!rows || *rows == 0)
      return step.emitError() << "expected an input whose first dimension is the batch, found scalars: replicas need "
                                 "rows of their own";
    for (BlockArgument argument : step.getArguments())
      if (tensorType(argument).getRank() > 0 && tensorType(argument).getDimSize(0) % *rows == 0 &&
          !shared.match(nameOfArgument(step, argument.getArgNumber())))
        setArgAttr<DistDialect::SplitAttrHelper>(step, argument.getArgNumber(), builder.getUnitAttr());
    return success();
  }

  /// Lets ops that draw random numbers on the way to a gradient or a result do so by the number of the replica.
  int64_t shiftDraws() {
    SetVector<Operation *> onTheWay = sources();
    DenseMap<Value, Value> shifted;
    int64_t draws = 0;
    Variance variance;
    variance.enter(step);
    for (Operation &op : step.getBody().front()) {
      OpOperand *key = keyOf(&op);
      // A weight that is rounded by chance is rounded alike everywhere: the random numbers belong to the weight.
      if (key && onTheWay.contains(&op) && (!isa<CastOp>(op) || variance.varies(op.getOperand(0)))) {
        Value &mine = shifted[key->get()];
        if (!mine)
          mine = shift(key->get());
        key->set(mine);
        variance.add(mine);
        ++draws;
      }
      variance.visit(op);
    }
    return draws;
  }

  /// Combines the values that replicas must agree on; returns how many.
  FailureOr<int64_t> meet() {
    for (auto gradient : llvm::to_vector(step.getOps<train::GradientOp>())) {
      if (tensorType(gradient.getGradient()).getElementType().isF64())
        return gradient.emitError() << "expected the gradient of '" << gradient.getParameter()
                                    << "' in f32 or narrower, got f64: replicas add in f32";
      gradient.getGradientMutable().assign(mean(gradient.getGradient(), narrow));
    }
    Variance variance(step);
    for (auto roll : llvm::to_vector(step.getOps<train::RollOp>()))
      if (variance.varies(roll.getNewest()))
        roll.getNewestMutable().assign(reduce(roll.getNewest(), ReductionKind::Max));
    for (auto finite : llvm::to_vector(step.getOps<train::AllFiniteOp>()))
      agreeOn(finite, variance);
    variance = Variance(step);
    for (auto write : llvm::to_vector(step.getOps<train::WriteOp>()))
      if (variance.varies(write.getValue()))
        write.getValueMutable().assign(agreed(write));
    auto results = namedResults(step);
    for (NamedValue &result : results)
      if (variance.varies(result.value) && isa<FloatType>(tensorType(result.value).getElementType()) &&
          tensorType(result.value).getNumElements() == 1)
        result.value = mean(result.value);
    setResults(step, results);
    return reduced;
  }

private:
  /// The ops that gradients and results are computed from.
  SetVector<Operation *> sources() {
    SetVector<Operation *> slice;
    BackwardSliceOptions options;
    options.inclusive = true;
    for (auto gradient : step.getOps<train::GradientOp>())
      (void)getBackwardSlice(gradient.getGradient(), &slice, options);
    for (Value result : step.getBody().front().getTerminator()->getOperands())
      (void)getBackwardSlice(result, &slice, options);
    return slice;
  }

  /// [seed, step] of this replica.
  Value shift(Value key) {
    if (!number)
      number = addArgument(step, "replica.number", RankedTensorType::get({}, builder.getI64Type()),
                           train::Role::replica_number);
    builder.setInsertionPointAfterValue(key);
    GraphBuilder b(builder, key.getLoc());
    // The word behind the stream's 16 bits; steps have the 48 below.
    Value apart = b.mul(b.broadcast(number, {2}, {}), b.indices({0, int64_t(1) << 48}));
    return b.add(key, apart);
  }

  Value reduce(Value value, ReductionKind kind) {
    ++reduced;
    builder.setInsertionPointAfterValue(value);
    return allReduce(builder, value, kind);
  }

  /// With `rounds`, each replica's term is rounded to BF16.
  Value mean(Value value, bool rounds = false) {
    Value added = value;
    if (rounds) {
      builder.setInsertionPointAfterValue(value);
      added = GraphBuilder(builder, value.getLoc()).cast(value, builder.getBF16Type());
    }
    Value sum = reduce(added, ReductionKind::Sum);
    GraphBuilder b(builder, value.getLoc());
    RankedTensorType type = tensorType(sum);
    Value replicas =
        count == kOneAProcess ? b.broadcast(counted(), type.getShape(), {}) : b.splat(type, static_cast<double>(count));
    return b.cast(b.div(sum, replicas), tensorType(value).getElementType());
  }

  /// The number of replicas where only the runtime knows it.
  Value counted() {
    if (!count32)
      count32 = addArgument(step, "replica.count", RankedTensorType::get({}, builder.getF32Type()),
                            train::Role::replica_count);
    return count32;
  }

  /// Lets a check of values that each replica has of its own, such as operands in 8 bits, hold where it holds for all.
  void agreeOn(train::AllFiniteOp finite, const Variance &variance) {
    SmallVector<Value> own, shared;
    for (Value value : finite.getValues())
      (variance.varies(value) ? own : shared).push_back(value);
    if (own.empty())
      return;
    builder.setInsertionPoint(finite);
    GraphBuilder b(builder, finite.getLoc());
    Value isFinite = train::AllFiniteOp::create(builder, finite.getLoc(), finite.getType(), own);
    Value zero = b.scalar(builder.getF32Type(), 0.0);
    Value worst = reduce(b.select(isFinite, zero, b.scalar(builder.getF32Type(), 1.0)), ReductionKind::Max);
    builder.setInsertionPointAfter(finite);
    Value holds = b.compare(Predicate::eq, worst, 0.0);
    finite.getValuesMutable().assign(shared);
    Value both = b.make<AndOp>(finite.getFinite(), holds);
    finite.getFinite().replaceAllUsesExcept(both, both.getDefiningOp());
  }

  /// The value to write. Statistics are means; a scale has to suit every replica, which the smallest one does.
  Value agreed(train::WriteOp write) {
    auto state = SymbolTable::lookupNearestSymbolFrom<train::StateOp>(write, write.getStateAttr());
    Value value = write.getValue();
    if (!state || !isa<FloatType>(tensorType(value).getElementType()))
      return value; // the verifier reports it
    if (state.getRole() == train::Role::statistic)
      return mean(value);
    if (state.getRole() != train::Role::scale)
      return value;
    builder.setInsertionPointAfterValue(value);
    Value least = reduce(GraphBuilder(builder, value.getLoc()).neg(value), ReductionKind::Max);
    return GraphBuilder(builder, value.getLoc()).neg(least);
  }

  func::FuncOp step;
  OpBuilder builder;
  int64_t count;         ///< or kOneAProcess
  bool narrow;           ///< gradients are rounded before they travel
  Value number, count32; ///< arguments, once something needs them
  int64_t reduced = 0;
};

struct Replicate : mpt::impl::ReplicateBase<Replicate> {
  using ReplicateBase::ReplicateBase;

  void runOnOperation() override {
    if (replicas == "1")
      return;
    ModuleOp module = getOperation();
    std::optional<int64_t> count = parseReplicas(replicas);
    if (!count) {
      module.emitError() << "expected 1 to " << kMostReplicas << " replicas or any, got '" << replicas << "'";
      return signalPassFailure();
    }
    if (reduceType != "f32" && reduceType != "bf16") {
      module.emitError() << "expected f32 or bf16 as type of gradients that travel, got '" << reduceType << "'";
      return signalPassFailure();
    }
    func::FuncOp step = findFunction(module, "step");
    if (!step)
      return signalPassFailure();
    if (module.lookupSymbol<func::FuncOp>("accumulate")) {
      step.emitError() << "expected a step without micro-steps: a process runs its replicas one after the other, so "
                          "--replicas takes the place of --accumulate";
      return signalPassFailure();
    }
    if (step.getOps<train::GradientOp>().empty()) {
      step.emitError() << "expected gradients of parameters in the step, found none: replicas have nothing to share";
      return signalPassFailure();
    }
    llvm::Regex pattern(shared.empty() ? "^$" : "^(" + shared + ")$");
    std::string problem;
    if (!pattern.isValid(problem)) {
      module.emitError() << "expected a regular expression for shared inputs, got '" << shared << "': " << problem;
      return signalPassFailure();
    }
    makeGrid(module, *count);
    Replica replica(step, *count, reduceType == "bf16");
    if (failed(replica.splitInputs(pattern)))
      return signalPassFailure();
    numDraws += replica.shiftDraws();
    FailureOr<int64_t> met = replica.meet();
    if (failed(met))
      return signalPassFailure();
    numReduced += *met;
  }
};

} // namespace
