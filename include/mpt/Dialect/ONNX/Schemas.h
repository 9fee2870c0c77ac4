// SPDX-License-Identifier: Apache-2.0
// The operator schemas of the ONNX library, each made when it is first asked for.
#ifndef MPT_DIALECT_ONNX_SCHEMAS_H
#define MPT_DIALECT_ONNX_SCHEMAS_H

#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>
#include <vector>

namespace onnx {
class ISchemaRegistry;
}

namespace mpt::onnx {

/// The schemas of onnx::OpSchemaRegistry, for ai.onnx and ai.onnx.ml without making the other thousand schemas first,
/// which takes longer than to rewrite a model of 100 nodes. Schemas live as long as the process; any thread may ask.
const ::onnx::ISchemaRegistry &schemas();

/// Domain of nodes of ai.onnx that have the meaning of operator set `version`, whichever the model imports: nodes of
/// functions with an older set, and operators that no set has. No file sees it.
std::string domainOfVersion(int64_t version);
/// The version that such a domain names; nothing for others.
std::optional<int64_t> versionOfDomain(llvm::StringRef domain);

/// Operators that have a schema, each once and in order, whatever their domain.
std::vector<llvm::StringRef> operatorNames();

} // namespace mpt::onnx

#endif // MPT_DIALECT_ONNX_SCHEMAS_H
