// SPDX-License-Identifier: Apache-2.0
// Memory of a planned module: weights, masters, optimizer state, saved activations, workspace, peak.
#ifndef MPT_MEMORY_REPORT_H
#define MPT_MEMORY_REPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace mpt::memory {

/// Bytes by purpose. `state`: one entry a role. For each function: `inputs` and `outputs`; `arena`, the planned
/// scratch; `peak`, all state, the arena and the outputs; `lower_bound`, the largest sum of scratch alive at once,
/// below which no arena gets; `saved`, scratch alive where the first GEMM that the loss does not need begins, and
/// `saved_values`, each of these buffers with its node, type and the node that reads it last; `gradients`, the most
/// that parameters' gradients take while they wait for their updates; `workspace`, the largest scratch of one
/// convolution; `at_peak`, the buffers alive where `lower_bound` is reached; `kernels`, `launches`, `gemms`, `copies`:
/// counts.
llvm::json::Object report(mlir::ModuleOp module);
struct Peak {
  int64_t bytes = 0;
  std::string function;
};
/// The largest `peak` of a function that training runs: all but @gradients, whose results are all gradients at once.
Peak peakOf(const llvm::json::Object &report);
/// The largest `peak` of @gradients, in any size; zero where there is none beside a step.
Peak gradientsPeakOf(const llvm::json::Object &report);
/// As JSON, or as text for people, with what a search under a budget has added as `budget`.
void writeReport(const llvm::json::Object &report, bool json, llvm::raw_ostream &out);

} // namespace mpt::memory

#endif // MPT_MEMORY_REPORT_H
