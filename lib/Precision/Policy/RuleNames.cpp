// SPDX-License-Identifier: Apache-2.0
// Looks names of ops up among the registered ops and the ONNX schemas.
#include "RuleNames.h"

#include "mpt/Dialect/ONNX/Schemas.h"
#include "mpt/Interfaces/Interfaces.h"

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
    auto distance = [&](StringRef other) { return name.edit_distance_insensitive(other, true, 4); };
    auto nearest =
        llvm::min_element(names, [&](const std::string &a, const std::string &b) { return distance(a) < distance(b); });
    std::string text =
        "expected the name of a core op (mpt.tanh) or of an ONNX operator with a schema (onnx.Tanh), got \"" +
        name.str() + "\"";
    if (nearest != names.end() && distance(*nearest) < 4)
      text += ": did you mean \"" + *nearest + "\"?";
    return text;
  }
  std::optional<RegisteredOperationName> op = RegisteredOperationName::lookup(name, context);
  for (NamedAttribute attribute : op &&with ? with.getValue() : ArrayRef<NamedAttribute>())
    if (!llvm::is_contained(op->getAttributeNames(), attribute.getName()))
      return ("expected attributes that " + name + " has, got '" + attribute.getName().getValue() + "'").str();
  return "";
}
