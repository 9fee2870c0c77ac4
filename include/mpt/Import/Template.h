// SPDX-License-Identifier: Apache-2.0
// Templates of model files: bytes of an .onnx and its external data, with places for tensors that training changes.
#ifndef MPT_IMPORT_TEMPLATE_H
#define MPT_IMPORT_TEMPLATE_H

#include "mpt/Import/Import.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace mpt {

/// Elements of a tensor in another arrangement: by strides, where one of 0 repeats, or one by one.
struct TensorView {
  std::vector<int64_t> extents, strides;
  int64_t offset = 0;
  std::vector<int64_t> elements; ///< which of the tensor's each one is; there are no extents then
  std::string function;          ///< of each element: exp, sigmoid or tanh; empty where it is as it is
};

/// Which tensor of the file a state takes its values from.
struct TensorSite {
  std::string path; ///< in the file, as `g/i3` for initializer 3 of the graph
  /// Operands of nodes that read this state alone, where the file has one tensor for several states: the node's path
  /// and the operand's number.
  std::vector<std::pair<std::string, int>> uses;
  std::vector<std::pair<std::string, TensorView>> copies; ///< paths of tensors that repeat the state's elements
  std::string name; ///< of the initializer that the saved file has for these; empty: the state's

  bool isInFile() const { return !path.empty() || !copies.empty(); }
};

/// By the tensor name of the state.
using TensorSites = llvm::StringMap<TensorSite>;

/// importOnnxBuffer() of a file; where `sites` is not null, it says where in the file the states come from.
llvm::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> importWithSites(llvm::StringRef path, const ImportOptions &options,
                                                                   mlir::MLIRContext *context, TensorSites *sites);

/// A tensor of the file whose values a saved file has from the state.
struct SavedTensor {
  std::string name; ///< of the parameter or statistic
  TensorSite site;
  std::string source;  ///< the state with the values: the master where there is one
  std::string average; ///< the state with their average; empty without one
  int32_t type = 0;    ///< ONNX data type of the source
  TensorView view;     ///< of the source that the file has; all of it where it is empty
  /// Where it does not, the file's values stay unless the source has the same ones.
  bool changes = true;
};

/// Writes the template of the model file `model`, binary or text, and of its external data to `out`. No data is stored
/// that the saved tensors replace. The form: docs/onnx.md.
llvm::Error writeTemplate(llvm::StringRef model, llvm::ArrayRef<SavedTensor> tensors, llvm::StringRef out);

/// The tensors of the model file `model` that may be states, by the names that import gives them, without importing it.
llvm::Expected<TensorSites> sitesOf(llvm::StringRef model);

} // namespace mpt

#endif // MPT_IMPORT_TEMPLATE_H
