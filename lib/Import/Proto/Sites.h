// SPDX-License-Identifier: Apache-2.0
// Where in the file tensors come from: notes that they keep while preparation moves, renames and copies them.
#ifndef MPT_LIB_IMPORT_PROTO_SITES_H
#define MPT_LIB_IMPORT_PROTO_SITES_H

#include "mpt/Import/Template.h"

#include "mlir/IR/Location.h"
#include "onnx/onnx_pb.h"
#include "llvm/ADT/StringSet.h"

namespace mpt::proto {

/// Parses binary protobuf, or text: the model as it is in the file.
llvm::LogicalResult parseBytes(llvm::StringRef bytes, ::onnx::ModelProto &model, mlir::Location loc);

/// parseModel(), after which tensors and nodes know where they come from.
llvm::LogicalResult parseWithSites(llvm::StringRef bytes, ::onnx::ModelProto &model, mlir::Location loc);

/// The path of number `index` of a kind of parts: i initializers, s sparse ones, n nodes, a attributes, l training
/// information, f functions.
std::string sitePath(const std::string &path, char kind, size_t index);

/// Notes in the metadata of tensors and nodes where they are.
void noteSites(::onnx::ModelProto &model);
/// Notes that operand `input` of `node` reads `tensor`, which was copied for it, instead of the file's tensor.
void noteUse(::onnx::TensorProto &tensor, const ::onnx::NodeProto &node, int input);
/// Notes the name of a copy in a saved file, where it is called otherwise here.
void noteName(::onnx::TensorProto &tensor, const std::string &name);
/// The path of a vector that the file lacks, and its extent; nothing for other paths.
std::string newTensorPath(int64_t extent);
std::optional<int64_t> newTensorExtent(llvm::StringRef path);
/// Notes that the file lacks this FP32 vector.
void noteNew(::onnx::TensorProto &tensor);
/// Notes that `copy` is a view of `tensor`, and has its values in a saved file.
void noteView(::onnx::TensorProto &tensor, const ::onnx::TensorProto &copy, const TensorView &view);
/// `to` takes the other one's place in the file.
void copySite(const ::onnx::TensorProto &from, ::onnx::TensorProto &to);
/// The noted site; no path in tensors that are not the file's.
TensorSite siteOf(const ::onnx::TensorProto &tensor);

/// Weights that the file keeps as Constant nodes or inside subgraphs, also as sparse ones, become initializers of the
/// graph. A part of prepareModel().
llvm::LogicalResult liftTensors(::onnx::ModelProto &model, mlir::MLIRContext *context);

/// Names that values of a file have.
class TakenNames : public llvm::StringSet<> {
public:
  /// Takes a name that no value has: `wanted`, where it is one, or else `base` with a number.
  std::string take(std::string wanted, llvm::StringRef base);

private:
  llvm::StringMap<unsigned> numbers; ///< of the last name, by base: a tensor may have tens of thousands of copies
};

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_SITES_H
