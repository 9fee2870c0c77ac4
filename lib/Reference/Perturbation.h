// SPDX-License-Identifier: Apache-2.0
// The error model of a whole step: Monte Carlo arithmetic (Parker, UCLA CSD-970002, 1997).
#ifndef MPT_LIB_REFERENCE_PERTURBATION_H
#define MPT_LIB_REFERENCE_PERTURBATION_H

#include "mpt/Reference/Interpreter.h"

#include <random>

namespace mpt {

/// How many roundings to its results' types `op` may err by: 0 where it moves values that are in the type already.
double roundingsOf(mlir::Operation *op);

/// In an interpreter that computes in FP64: moves every float that an op computes, or reads from state, by a random
/// share of `magnified` times the error that rounding it to its type may have. A stochastic rounding errs by twice
/// that, a sum of n terms by the root of n roundings of its accumulator, or by the error of the Tensor Core that adds
/// it up. Such runs differ by as much as right code in these types may, whatever the order of its sums. Magnified, they
/// cross every kink (of ReLU, of a maximum) that right code may cross. Scales (powers of two) and values that are only
/// moved stay as they are.
class Perturbation : public InterpreterObserver {
public:
  explicit Perturbation(uint64_t seed, const TensorCore *core = nullptr, double magnified = 4.0)
      : engine(seed), core(core), magnified(magnified) {}
  void adjust(mlir::Operation *op, InterpreterFrame &frame) override;
  void computed(mlir::Operation *op, const InterpreterFrame &frame) override {}
  /// `value` moved by up to a rounding to `type`.
  void move(Tensor &value, mlir::FloatType type, double roundings = 1.0) {
    FloatFormat format(type);
    move(value, roundings * format.epsilon(), format.smallestNormal());
  }

private:
  /// `value` moved by a relative error, numbers below `smallest` by the error of that.
  void move(Tensor &value, double error, double smallest);

  std::mt19937_64 engine;
  const TensorCore *core;
  double magnified;
};

/// In an interpreter that rounds exactly: moves the result of every op but casts by a random share of `magnified` times
/// the error that FP32 may have (the root of n roundings for a sum of n terms), or the Tensor Core that adds up, before
/// the op rounds it. Such runs differ as two right executions of one module in one set of types may: by sums in another
/// order, by other polynomials of functions. An element of a narrow type moves as seldom as it lies so close to where
/// its rounding turns.
class Reordering : public InterpreterObserver {
public:
  explicit Reordering(uint64_t seed, const TensorCore *core = nullptr, double magnified = 4.0)
      : engine(seed), core(core), magnified(magnified) {}
  void adjust(mlir::Operation *op, InterpreterFrame &frame) override;
  void computed(mlir::Operation *op, const InterpreterFrame &frame) override {}

private:
  std::mt19937_64 engine;
  const TensorCore *core;
  double magnified;
};

} // namespace mpt

#endif // MPT_LIB_REFERENCE_PERTURBATION_H
