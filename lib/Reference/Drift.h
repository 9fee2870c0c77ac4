// SPDX-License-Identifier: Apache-2.0
// How far tensors are from their values in FP64: as vectors, and element by element in units of their type.
#ifndef MPT_LIB_REFERENCE_DRIFT_H
#define MPT_LIB_REFERENCE_DRIFT_H

#include "Perturbation.h"

#include "mpt/Dialect/MPT/ValueKeys.h"

namespace mpt {

double norm(const Tensor &value);
/// L2 norm of `a` - `b`, infinite where one of them alone is not finite.
double distance(const Tensor &a, const Tensor &b);
/// 1 for two zero vectors.
double cosine(const Tensor &a, const Tensor &b);

/// The errors that the type of one tensor caused in its values in one run.
struct TensorDrift {
  std::string key, type;
  double underflowShare = 0.0, overflowShare = 0.0, maxUlp = 0.0, meanUlp = 0.0, relativeError = 0.0;
  double modelUlp = 0.0; ///< mean error that the error model has for it
  bool isMoved =
      false; ///< its values were made, and are judged, elsewhere: repeated ones tell no more than one of them
};

/// Keeps every float value of one call by its op.
class Recorder : public InterpreterObserver {
public:
  void computed(mlir::Operation *op, const InterpreterFrame &frame) override;
  llvm::DenseMap<mlir::Value, Tensor> values;
};

/// Watches a call in FP64 beside recorded values of the same function in its own precision.
class DriftWatch : public Recorder {
public:
  DriftWatch(mlir::ModuleOp module, const Recorder &rounded) : keys(module), rounded(rounded) {}
  void computed(mlir::Operation *op, const InterpreterFrame &frame) override;
  llvm::MapVector<mlir::Value, TensorDrift> drifts;

private:
  ValueKeys keys;
  const Recorder &rounded;
};

/// A perturbed call, which adds to each drift the error that the error model has for it.
class ModelWatch : public Perturbation {
public:
  ModelWatch(uint64_t seed, const TensorCore *core, DriftWatch &watch) : Perturbation(seed, core), watch(watch) {}
  void computed(mlir::Operation *op, const InterpreterFrame &frame) override;

private:
  DriftWatch &watch;
};

} // namespace mpt

#endif // MPT_LIB_REFERENCE_DRIFT_H
