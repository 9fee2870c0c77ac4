// SPDX-License-Identifier: Apache-2.0
// Output files that appear together or not at all, and the linker.
#ifndef MPT_TARGET_FILES_H
#define MPT_TARGET_FILES_H

#include "Program.h"

#include "mpt/Target/Library.h"

namespace mpt::target {

/// Files of one library, written to a temporary folder inside the target folder and renamed at the end.
class OutputFolder {
public:
  explicit OutputFolder(std::string folder) : folder(std::move(folder)) {}
  ~OutputFolder();
  /// Makes a hidden folder inside, in which files wait for the commit; folders of killed compilations go.
  llvm::Error open();
  /// Where to write file `name`; it becomes `folder`/name on commit.
  std::string stage(llvm::StringRef name);
  llvm::Error write(llvm::StringRef name, llvm::ArrayRef<char> bytes);
  llvm::Error commit();
  llvm::StringRef temporary() const { return staging; }

private:
  void removeStale();

  std::string folder, staging;
  int lock = -1; ///< the staging folder, locked while we write it
  llvm::SmallVector<std::string> names;
};

/// Writes all states that have an initial value as one safetensors file. The others start as the master or parameter
/// they belong to, or at zero.
llvm::Error writeWeights(const Program &program, llvm::StringRef path);

/// Links objects into `output`.
llvm::Error link(llvm::ArrayRef<std::string> objects, llvm::StringRef output, const LibraryOptions &options);

} // namespace mpt::target

#endif // MPT_TARGET_FILES_H
