// What a matrix product does to its result before it is stored.
#ifndef MPT_MEMORY_EPILOGUE_H
#define MPT_MEMORY_EPILOGUE_H

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace mpt::memory {

struct Epilogue {
  mlir::Value bias;  ///< one value a column, or null
  int64_t flags = 0; ///< MPT_GEMM_RELU, MPT_GEMM_ROUND
};

/// Takes the addition of a bias, and a ReLU after it, out of the fusions that read products. In narrow types the
/// product and the sum are each rounded, as the ops say.
llvm::DenseMap<mlir::Operation *, Epilogue> foldEpilogues(mlir::func::FuncOp function);

} // namespace mpt::memory

#endif // MPT_MEMORY_EPILOGUE_H
