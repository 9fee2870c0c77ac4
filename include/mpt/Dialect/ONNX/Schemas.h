// SPDX-License-Identifier: Apache-2.0
// The operator schemas of the ONNX library, each made when it is first asked for.
#ifndef MPT_DIALECT_ONNX_SCHEMAS_H
#define MPT_DIALECT_ONNX_SCHEMAS_H

#include "llvm/ADT/StringRef.h"
#include <vector>

namespace onnx {
class ISchemaRegistry;
}

namespace mpt::onnx {

/// What onnx::OpSchemaRegistry finds, for ai.onnx and ai.onnx.ml without making the other thousand schemas first, which
/// takes longer than rewriting a model of a hundred nodes. Schemas live as long as the process; any thread may ask.
const ::onnx::ISchemaRegistry &schemas();

/// Operators that have a schema, each once and in order, whatever their domain.
std::vector<llvm::StringRef> operatorNames();

} // namespace mpt::onnx

#endif // MPT_DIALECT_ONNX_SCHEMAS_H
