// SPDX-License-Identifier: Apache-2.0
// The data files beside a model, as parts of its template, and the form of templates on disk.
#ifndef MPT_LIB_IMPORT_PROTO_TEMPLATEDATA_H
#define MPT_LIB_IMPORT_PROTO_TEMPLATEDATA_H

#include "Pieces.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

namespace mpt::proto {

/// Bytes of an element in files; 0 for types of which several share a byte, and for types that are no numbers.
int64_t elementBytes(int32_t type);

struct DataRange {
  uint64_t offset = 0;
  int64_t bytes = 0;
};

class TemplateData {
public:
  explicit TemplateData(llvm::StringRef model);

  /// The number of the data file `location`, from 1 on; fails where it cannot be read.
  llvm::Expected<size_t> fileOf(llvm::StringRef location);
  /// Notes the data of the tensor at `path` and says where they lie, which settle() may have changed. `place`: where
  /// they are saved.
  uint64_t take(size_t file, llvm::StringRef path, DataRange range, std::optional<Place> place);
  /// Gives tensors that share bytes with a saved one bytes of their own, at the end of the file.
  void settle();
  /// Writes the template: 8 bytes with the length of a JSON header, the header, all bytes that are no tensors'.
  llvm::Error write(const Pieces &model, llvm::StringRef out);

private:
  struct Taken {
    std::string path;
    DataRange range;
    std::optional<Place> place;
  };
  struct File {
    std::string location;
    std::unique_ptr<llvm::MemoryBuffer> bytes;
    std::vector<Taken> tensors;
    Pieces pieces;
  };
  void settle(File &file);

  std::string folder;
  std::vector<File> files;
  llvm::StringMap<uint64_t> offsets; ///< once settled, by path
  bool settled = false;
};

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_TEMPLATEDATA_H
