// SPDX-License-Identifier: Apache-2.0
// A model's file in pieces: protobuf bytes, and tensors whose elements are read only when they are written.
#ifndef MPT_LIB_EXPORT_MODELFILE_H
#define MPT_LIB_EXPORT_MODELFILE_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Location.h"
#include "onnx/onnx_pb.h"
#include "llvm/Support/raw_ostream.h"
#include <string>
#include <vector>

namespace mpt {

class MappedFiles;

/// Appends the elements' bytes in ONNX's raw layout (little-endian, row-major; booleans one byte each).
void appendRaw(mlir::ElementsAttr value, std::string &raw);

/// The elements of one initializer, in the type in which they are written. Pages of mapped files are given back once
/// written.
struct TensorPayload {
  mlir::ElementsAttr value;
  mlir::Type element; ///< float elements may be narrowed on the way out (see narrowToFloat16)

  uint64_t bytes() const;
  void write(llvm::raw_ostream &out, const MappedFiles *files = nullptr) const;

private:
  void writeChunk(llvm::raw_ostream &out, llvm::ArrayRef<char> chunk) const;
};

/// Collects a GraphProto field by field. Memory holds the bytes of nodes and references to tensors.
class ModelFile {
public:
  /// Appends the fields of `message`, which become fields of the graph.
  void addFields(const ::ONNX_NAMESPACE::GraphProto &message) { message.AppendToString(&last()); }
  void addNode(const ::ONNX_NAMESPACE::NodeProto &node);
  void addValueInfo(const ::ONNX_NAMESPACE::ValueInfoProto &info);
  /// `tensor` has everything but its elements.
  void addInitializer(::ONNX_NAMESPACE::TensorProto tensor, TensorPayload payload);

  /// Writes `model` (everything but the graph) with the graph to `path`; from 1 GiB on, or when `external` says so,
  /// tensors of 1 KiB and more go to `<path>.data` beside it.
  llvm::LogicalResult write(const ::ONNX_NAMESPACE::ModelProto &model, llvm::StringRef path, bool external,
                            mlir::Location loc);

private:
  struct Piece {
    std::string bytes;    ///< complete fields of the graph
    int64_t payload = -1; ///< the initializer that follows them
  };
  struct Initializer {
    ::ONNX_NAMESPACE::TensorProto tensor;
    TensorPayload payload;
  };
  std::string &last() {
    if (pieces.empty() || pieces.back().payload >= 0)
      pieces.emplace_back();
    return pieces.back().bytes;
  }
  llvm::LogicalResult writeData(llvm::StringRef path, mlir::Location loc);

  std::vector<Piece> pieces;
  std::vector<Initializer> initializers;
};

} // namespace mpt

#endif // MPT_LIB_EXPORT_MODELFILE_H
