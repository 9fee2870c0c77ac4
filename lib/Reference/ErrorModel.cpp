// SPDX-License-Identifier: Apache-2.0
// Error bounds of whole functions, from the types and extents of their ops.
#include "mpt/Reference/ErrorModel.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Evaluation/TensorCoreProducts.h"

using namespace mlir;
using namespace mpt;

static double epsilonOf(Type type) {
  auto real = dyn_cast<FloatType>(getElementTypeOrSelf(type));
  return real ? FloatFormat(real).epsilon() : 0.0;
}

int64_t mpt::reductionLength(Operation *op) {
  if (auto running = dyn_cast<CumSumOp>(op)) // the last of its results has all terms
    return running.getType().getDimSize(running.getAxis());
  SmallVector<int64_t> sizes;
  for (Type type : op->getOperandTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      sizes.push_back(tensor.getNumElements());
  llvm::sort(sizes, std::greater<>());
  // Statistics beside a full-sized result tell the length of the sums inside.
  int64_t results = std::numeric_limits<int64_t>::max();
  for (Type type : op->getResultTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type))
      results = std::min(results, std::max<int64_t>(1, tensor.getNumElements()));
  if (sizes.empty())
    return 1;
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (semantics && semantics.getNumericClass() == NumericClass::Contraction) {
    // For y = a b with contracted extent k: |a| |b| / |y| = k^2 (times batch, over batch).
    double square = static_cast<double>(sizes[0]) * static_cast<double>(sizes.size() > 1 ? sizes[1] : 1) / results;
    return std::max<int64_t>(1,
                             static_cast<int64_t>(std::ceil(std::max(std::sqrt(square), double(sizes[0]) / results))));
  }
  return std::max<int64_t>(1, sizes[0] / results);
}

static void addErrors(Operation *op, const TensorCore *core, ErrorModel &model);

/// Composite contractions err as the steps that they stand for: the steps are built before `op`, and erased again.
static bool addErrorsOfSteps(Operation *op, PrecisionSemantics semantics, const TensorCore *core, ErrorModel &model) {
  auto composite = dyn_cast<Decomposable>(op);
  if (!composite || semantics.getNumericClass() != NumericClass::Contraction)
    return false;
  Operation *before = op->getPrevNode();
  OpBuilder builder(op);
  if (failed(composite.decompose(builder)))
    return false;
  Operation *first = before ? before->getNextNode() : &op->getBlock()->front();
  for (Operation *step = first; step != op; step = step->getNextNode())
    addErrors(step, core, model);
  for (Operation *step = op->getPrevNode(); step != before;) {
    Operation *previous = step->getPrevNode();
    step->erase();
    step = previous;
  }
  return true;
}

static void addErrors(Operation *op, const TensorCore *core, ErrorModel &model) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (!semantics || op->getNumResults() == 0 || op->hasTrait<OpTrait::ConstantLike>() ||
      addErrorsOfSteps(op, semantics, core, model))
    return;
  double result = 0.0, wide = 0.0;
  for (Type type : op->getResultTypes()) {
    result = std::max(result, epsilonOf(type));
    if (auto real = dyn_cast<FloatType>(getElementTypeOrSelf(type)))
      wide = std::max(wide, epsilonOf(wideType(real)));
  }
  if (semantics.getNumericClass() == NumericClass::Movement) {
    // Casts round; selections and copies do not.
    bool narrows = llvm::any_of(op->getOperandTypes(), [&](Type type) { return epsilonOf(type) < result; });
    model.relative += narrows ? 2 * result : 0.0;
    return;
  }
  int64_t length = reductionLength(op);
  std::optional<ContractionSums> how = core ? sumsOnTensorCore(op, *core) : std::nullopt;
  double sums = how ? how->sums.largestError(length) : ErrorModel::ofSum(length, 0.0, wide, 0.0);
  model.relative += 2 * (sums + 4 * result);
  model.cancellation += 2 * sums;
}

double mpt::tensorCoreError(Operation *op, const TensorCore *core) {
  std::optional<ContractionSums> how = core ? sumsOnTensorCore(op, *core) : std::nullopt;
  return how ? how->sums.typicalError(reductionLength(op)) : 0.0;
}

ErrorModel ErrorModel::of(func::FuncOp function, const TensorCore *core) {
  ErrorModel model;
  function.walk([&](Operation *op) { addErrors(op, core, model); });
  return model;
}

double mpt::largestMagnitude(const Tensor &tensor) {
  double magnitude = 0.0;
  if (tensor.isFloat())
    for (double x : tensor.reals())
      if (std::isfinite(x))
        magnitude = std::max(magnitude, std::fabs(x));
  return magnitude;
}

double ErrorModel::tolerance(const Tensor &expected, double inputMagnitude) const {
  if (!expected.isFloat())
    return 0.0;
  FloatFormat format(cast<FloatType>(expected.getElementType()));
  double magnitude = largestMagnitude(expected);
  return std::max(
      {relative * magnitude + cancellation * inputMagnitude, 2 * format.epsilon() * magnitude, format.smallest()});
}
