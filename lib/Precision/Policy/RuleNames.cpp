// SPDX-License-Identifier: Apache-2.0
// Looks names of ops up among the registered ops and the ONNX schemas.
#include "RuleNames.h"

#include "mpt/Dialect/ONNX/Schemas.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Support/NearNames.h"

using namespace mlir;
using namespace mpt;

namespace {

/// The ops that policies decide about.
std::vector<std::string> namesLike(StringRef name, MLIRContext *context) {
  std::vector<std::string> names;
  if (name.starts_with("onnx.")) {
    for (StringRef type : mpt::onnx::operatorNames())
      names.push_back(("onnx." + type).str());
    return names;
  }
  for (RegisteredOperationName op : context->getRegisteredOperations())
    if (op.hasInterface<PrecisionSemantics>())
      names.push_back(op.getStringRef().str());
  return names;
}

} // namespace

std::string mpt::whatIsWrongWith(StringRef name, DictionaryAttr with, MLIRContext *context) {
  std::vector<std::string> names = namesLike(name, context);
  if (!llvm::is_contained(names, name)) {
    std::string text =
        "expected the name of a core op (mpt.tanh) or of an ONNX operator with a schema (onnx.Tanh), got \"" +
        name.str() + "\"";
    SmallVector<StringRef> all(names.begin(), names.end());
    if (SmallVector<StringRef> near = nearNames(name, all, 1); !near.empty())
      text += ": did you mean \"" + near.front().str() + "\"?";
    return text;
  }
  std::optional<RegisteredOperationName> op = RegisteredOperationName::lookup(name, context);
  for (NamedAttribute attribute : op &&with ? with.getValue() : ArrayRef<NamedAttribute>())
    if (!llvm::is_contained(op->getAttributeNames(), attribute.getName()))
      return ("expected attributes that " + name + " has, got '" + attribute.getName().getValue() + "'").str();
  return "";
}
