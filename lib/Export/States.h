// SPDX-License-Identifier: Apache-2.0
// The states of a module in an ONNX file.
#ifndef MPT_LIB_EXPORT_STATES_H
#define MPT_LIB_EXPORT_STATES_H

#include "Writer.h"

#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace mpt {

/// The states of a module as initializers, made when first asked for.
class States {
public:
  States(mlir::ModuleOp module, OnnxModelParts &parts) : module(module), writer(scratch, parts) {
    writer.context = module.getContext();
  }

  llvm::FailureOr<OnnxValue> get(llvm::StringRef name);
  /// Role, owner and, for states that `updates` names, the output with the new value.
  std::string toJSON(const llvm::StringMap<OnnxValue> &updates);

private:
  /// A state's first value: its own, the one of the state it starts `from`, or zeros for optimizer states and sums.
  mlir::ElementsAttr initialValue(train::StateOp state);

  mlir::ModuleOp module;
  ::ONNX_NAMESPACE::GraphProto scratch;
  OnnxWriter writer;
  llvm::StringMap<OnnxValue> values;
};

} // namespace mpt

#endif // MPT_LIB_EXPORT_STATES_H
