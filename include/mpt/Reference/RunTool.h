// SPDX-License-Identifier: Apache-2.0
// mpt-run: runs functions of a module in the reference interpreter.
#ifndef MPT_REFERENCE_RUNTOOL_H
#define MPT_REFERENCE_RUNTOOL_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/LogicalResult.h"
#include <string>

namespace mpt {

class ElementCode;
class TensorCore;

struct RunOptions {
  std::string function; ///< empty: every public function without arguments, as test cases
  std::string inputs;   ///< safetensors file with a tensor a named input ("arg<i>" without a name); absent ones are 0
  std::string state;    ///< safetensors file that overrides initial states by name
  std::string outputs;  ///< where to write the results of the last call, by name
  std::string newState; ///< where to write all states after the last call
  std::string expect; ///< safetensors file of results from elsewhere: each must agree within the function's ErrorModel
  std::string tolerances; ///< where to write how far results from elsewhere may be off, an FP64 scalar a result
  bool oracle = false;    ///< FP64 throughout; outputs and states are written as F64
  ElementCode *elements = nullptr;  ///< see Interpreter::computeBy
  const TensorCore *core = nullptr; ///< see Interpreter::multiplyOn
  int64_t steps = 1;                ///< calls in a row, each on the same inputs
};

/// Runs; errors and failed checks are diagnostics at their ops. Fails when any occurred, or nothing was run.
llvm::LogicalResult runModule(mlir::ModuleOp module, const RunOptions &options);

} // namespace mpt

#endif // MPT_REFERENCE_RUNTOOL_H
