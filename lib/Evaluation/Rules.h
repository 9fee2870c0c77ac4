// SPDX-License-Identifier: Apache-2.0
// Shared by the families: rules by decomposition, running sums and random words.
#ifndef MPT_LIB_EVALUATION_RULES_H
#define MPT_LIB_EVALUATION_RULES_H

#include "mpt/Dialect/MPT/Accumulators.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Evaluation/Rule.h"
#include "mpt/Evaluation/TensorCoreProducts.h"

namespace mpt {

/// Builds core ops in the place of an op; one value a result.
using Expansion = llvm::function_ref<llvm::FailureOr<llvm::SmallVector<mlir::Value>>(mlir::OpBuilder &)>;
/// Meaning by other ops: builds them in a scratch block and runs that.
llvm::LogicalResult interpretExpansion(mlir::Operation *op, InterpreterFrame &frame, Expansion expand);
/// Meaning by decomposition: builds it in a scratch block and runs that.
llvm::LogicalResult interpretDecomposition(mlir::Operation *op, InterpreterFrame &frame);
/// The same, rounded as the types say in oracle mode too: for arithmetic that finds powers of two by rounding.
llvm::LogicalResult interpretRounded(mlir::Operation *op, InterpreterFrame &frame);

template <typename Op, llvm::LogicalResult (*rule)(mlir::Operation *, InterpreterFrame &)>
struct DecompositionModel : Interpretable::ExternalModel<DecompositionModel<Op, rule>, Op> {
  llvm::LogicalResult interpret(mlir::Operation *op, InterpreterFrame &frame) const { return rule(op, frame); }
};

template <typename... Ops> void attachDecompositions(mlir::MLIRContext *context) {
  (Ops::template attachInterface<DecompositionModel<Ops, interpretDecomposition>>(*context), ...);
}
template <typename... Ops> void attachRoundedDecompositions(mlir::MLIRContext *context) {
  (Ops::template attachInterface<DecompositionModel<Ops, interpretRounded>>(*context), ...);
}

/// The scalar in a tensor of one element.
inline double scalarOf(const InterpreterFrame &frame, mlir::Value value) { return frame.get(value).number(0); }

/// sums[i] = round(sums[i] + factor others[i]): a step of `count` running sums side by side.
template <typename Round>
void addProducts(double *__restrict sums, double factor, const double *others, int64_t count, Round round) {
  for (int64_t i = 0; i < count; ++i)
    sums[i] = round(sums[i] + factor * others[i]);
}

/// As addProducts, each product and addition rounded once as processors fuse them.
inline void fuseProducts(double *__restrict sums, double factor, const double *others, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    sums[i] = static_cast<double>(
        __builtin_fmaf(static_cast<float>(factor), static_cast<float>(others[i]), static_cast<float>(sums[i])));
}

/// Calls `fn` with the step of running sums in type `accumulator`: (sums, factor, others, count).
template <typename Fn> void withProducts(const InterpreterFrame &frame, mlir::FloatType accumulator, Fn fn) {
  if (frame.ordersSums() && accumulator.isF32())
    return fn(fuseProducts);
  withRounding(accumulator, [&](auto round) {
    fn([round](double *__restrict sums, double factor, const double *others, int64_t count) {
      addProducts(sums, factor, others, count, round);
    });
  });
}

template <typename Fn> void fillRows(GroupedRows &rows, Fn fn) {
  fn([&](double *sums, double factor, const double *others, int64_t) { rows.add(sums, factor, others); });
  rows.finish();
}

/// The same for the products of contraction `op`, of accumulator type, in two chains or on a Tensor Core. `results` are
/// zero; the step's sums are rows of them, `rowLength` each.
template <typename Fn>
void withProducts(const InterpreterFrame &frame, mlir::Operation *op, llvm::MutableArrayRef<double> results,
                  int64_t rowLength, Fn fn) {
  const TensorCore *core = frame.tensorCore();
  if (std::optional<ContractionSums> how = core ? sumsOnTensorCore(op, *core) : std::nullopt) {
    TensorCoreRows rows(*how, results, rowLength);
    return fillRows(rows, fn);
  }
  mlir::Type element = mlir::getElementTypeOrSelf(op->getOperand(0).getType());
  mlir::FloatType accumulator = frame.accumulatorType(element, numericsOf(op));
  if (frame.ordersSums() && accumulator.isF32() && sumOrderOf(op) == SumOrder::TwoChains) {
    TwoChainRows rows(results, rowLength);
    return fillRows(rows, fn);
  }
  withProducts(frame, accumulator, fn);
}

/// The numbers of stream `stream` for the key tensor (seed, step), made four at a time.
class RandomWords {
public:
  RandomWords(const Tensor &key, int64_t stream)
      : seed(static_cast<uint64_t>(key.ints()[0])), step(static_cast<uint64_t>(key.ints()[1])),
        stream(static_cast<uint64_t>(stream)) {}
  uint32_t operator[](uint64_t index) {
    if (index / 4 != block)
      fill(index / 4);
    return words[index % 4];
  }

private:
  void fill(uint64_t wanted);

  uint64_t seed, step, stream, block = UINT64_MAX;
  uint32_t words[4];
};

// One function a family, in the family's file.
void attachElementwiseRules(mlir::MLIRContext *context);
void attachCastRules(mlir::MLIRContext *context);
void attachMatMulRules(mlir::MLIRContext *context);
void attachConvRules(mlir::MLIRContext *context);
void attachPoolRules(mlir::MLIRContext *context);
void attachResizeRules(mlir::MLIRContext *context);
void attachRecurrentRules(mlir::MLIRContext *context);
void attachReduceRules(mlir::MLIRContext *context);
void attachShapeRules(mlir::MLIRContext *context);
void attachGatherRules(mlir::MLIRContext *context);
void attachScatterRules(mlir::MLIRContext *context);
void attachRandomRules(mlir::MLIRContext *context);
void attachNormRules(mlir::MLIRContext *context);
void attachLossRules(mlir::MLIRContext *context);
void attachOptimizerRules(mlir::MLIRContext *context);
void attachTrainingRules(mlir::MLIRContext *context);
void attachFusionRules(mlir::MLIRContext *context);
void attachTrainRules(mlir::MLIRContext *context);
void attachScaleRules(mlir::MLIRContext *context);
void attachGemmRules(mlir::MLIRContext *context);
void attachConvCallRule(mlir::MLIRContext *context);
void attachAttentionRules(mlir::MLIRContext *context);

} // namespace mpt

#endif // MPT_LIB_EVALUATION_RULES_H
