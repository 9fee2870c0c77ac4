// SPDX-License-Identifier: Apache-2.0
// Defaults of the standard for attributes that a node does not give.
#ifndef MPT_DIALECT_ONNX_DEFAULTS_H
#define MPT_DIALECT_ONNX_DEFAULTS_H

#include "mlir/IR/Attributes.h"

namespace mpt::onnx {

/// The default of attribute `name` of an operator in a version of its domain, in onnx.node's form; null where there is
/// none or the operator is not the standard's.
mlir::Attribute defaultAttribute(mlir::MLIRContext *context, llvm::StringRef domain, llvm::StringRef opType,
                                 int64_t version, llvm::StringRef name);

} // namespace mpt::onnx

#endif // MPT_DIALECT_ONNX_DEFAULTS_H
