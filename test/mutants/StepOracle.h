// SPDX-License-Identifier: Apache-2.0
// The behaviour of a module's training step under scale: steps that are finite, that overflow, and that move the scale.
#ifndef MPT_TEST_MUTANTS_STEPORACLE_H
#define MPT_TEST_MUTANTS_STEPORACLE_H

#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace mpt::mutants {

/// States and results after each call of a run, in the interpreter's FP64 mode, which rounds nothing.
using Trace = std::vector<std::map<std::string, std::vector<double>>>;

/// Runs of a step: two scales far apart, and for each gradient (and each value that is checked beside them) a run in
/// which it is not finite at one step. A run that failed has no trace.
struct Behaviour {
  std::vector<Trace> scales, overflows;
  std::vector<std::string> always; ///< states that a skipped step moves
  bool ran = true;
};
Behaviour behaviourOf(mlir::ModuleOp module);

enum class Verdict {
  equivalent, ///< the same states and results in every run, but for the last bits of FP64
  legitimate, ///< others, which do not depend on the scale: a step that was not finite left everything, and the scale
              ///< moved as it did
  wrong       ///< results depend on the scale, or something that is not finite was committed
};
Verdict compare(const Behaviour &original, const Behaviour &mutant);
/// The same, with nothing said of steps that are not finite and of how the scale moves.
Verdict compareUnderScale(const Behaviour &original, const Behaviour &mutant);

/// Runs that need no marks of gradients, so that they mean the same after each phase: under two scales in FP64; then
/// rounding exactly, from a scale under which FP16 overflows, and with an input that is not finite in the second
/// update.
struct PhaseRuns {
  std::vector<Trace> scales, exact;
};
std::optional<PhaseRuns> phaseRunsOf(mlir::ModuleOp module);
/// The first difference: of states and results in FP64, but for its last bits, and of the steps that are skipped. Empty
/// where there is none.
std::string differenceUnderScale(const PhaseRuns &a, const PhaseRuns &b);
/// The same of bits in exact runs.
std::string differenceOfBits(const PhaseRuns &a, const PhaseRuns &b);

} // namespace mpt::mutants

#endif // MPT_TEST_MUTANTS_STEPORACLE_H
