// What a planned module needs: weights, masters, slots, saved activations, workspace, peak.
#ifndef MPT_MEMORY_REPORT_H
#define MPT_MEMORY_REPORT_H

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace mpt::memory {

/// Bytes by purpose. `state`: one entry a role. For each function: `inputs` and `outputs`; `arena`, the planned
/// scratch; `live_peak`, the largest sum of scratch alive at once, below which no plan gets; `saved`, scratch alive
/// from the forward to the backward pass; `workspace`, the largest scratch of one convolution; `kernels`, `launches`,
/// `products`.
llvm::json::Object report(mlir::ModuleOp module);
/// The same as text for people.
void printReport(const llvm::json::Object &report, llvm::raw_ostream &out);

} // namespace mpt::memory

#endif // MPT_MEMORY_REPORT_H
