// SPDX-License-Identifier: Apache-2.0
// A call in the interpreter whose operands and results go by name.
#ifndef MPT_LIB_REFERENCE_NAMEDCALL_H
#define MPT_LIB_REFERENCE_NAMEDCALL_H

#include "mpt/Reference/Certificate.h"

namespace mpt {

/// `rounds`: inputs are rounded to the types of the function's arguments. Fails after reporting an error.
llvm::FailureOr<NamedTensors> callByName(Interpreter &interpreter, mlir::func::FuncOp function, const Batch &batch,
                                         bool rounds);

} // namespace mpt

#endif // MPT_LIB_REFERENCE_NAMEDCALL_H
