// SPDX-License-Identifier: Apache-2.0
// Reading and writing safetensors files (version 0.4): a JSON header, then packed little-endian tensors.
#ifndef MPT_SUPPORT_SAFETENSORS_H
#define MPT_SUPPORT_SAFETENSORS_H

#include "mlir/IR/BuiltinTypes.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include <map>
#include <string>

namespace mpt {

/// One tensor: its type and its bytes (row-major, little endian; i1 and i8 take one byte). The bytes belong to the file
/// that was read, or to the caller when writing.
struct SafeTensor {
  mlir::RankedTensorType type;
  llvm::ArrayRef<char> bytes;
};

/// A mapped file; entries stay valid as long as it lives.
class SafeTensorsFile {
public:
  /// Fails with a message when the file cannot be read, or its header is malformed, or a tensor's bytes do not fit its
  /// type.
  static llvm::Expected<SafeTensorsFile> open(llvm::StringRef path, mlir::MLIRContext *context);

  const std::map<std::string, SafeTensor> &tensors() const { return entries; }
  /// Null type when there is no such tensor.
  SafeTensor find(llvm::StringRef name) const;
  const std::map<std::string, std::string> &metadata() const { return notes; }

private:
  std::unique_ptr<llvm::MemoryBuffer> buffer;
  std::map<std::string, SafeTensor> entries;
  std::map<std::string, std::string> notes;
};

/// Writes `tensors` to `path`, in the order of their names, data aligned to 64 bytes.
llvm::Error writeSafeTensors(llvm::StringRef path, const std::map<std::string, SafeTensor> &tensors,
                             const std::map<std::string, std::string> &metadata = {});

/// The format's name of an element type ("F32", "BF16", "I64", "BOOL", ...), empty when it has none; and the way back.
llvm::StringRef safeTensorsName(mlir::Type elementType);
mlir::Type safeTensorsType(llvm::StringRef name, mlir::MLIRContext *context);

} // namespace mpt

#endif // MPT_SUPPORT_SAFETENSORS_H
