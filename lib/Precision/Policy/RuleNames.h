// SPDX-License-Identifier: Apache-2.0
// Names that rules of policies use, checked against the registered ops and their attributes.
#ifndef MPT_LIB_PRECISION_RULENAMES_H
#define MPT_LIB_PRECISION_RULENAMES_H

#include "mlir/IR/BuiltinAttributes.h"

namespace mpt {

/// Why no op is called `name` or can have the attributes `with` (null: any), or nothing.
std::string whatIsWrongWith(llvm::StringRef name, mlir::DictionaryAttr with, mlir::MLIRContext *context);

} // namespace mpt

#endif // MPT_LIB_PRECISION_RULENAMES_H
