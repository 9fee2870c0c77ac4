// SPDX-License-Identifier: Apache-2.0
// Lines that a compilation writes for its user.
#ifndef MPT_DRIVER_MESSAGES_H
#define MPT_DRIVER_MESSAGES_H

#include "mpt/Driver/CompileOptions.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/LogicalResult.h"
#include "llvm/Support/raw_ostream.h"

namespace mpt {

class Messages {
public:
  Messages(const CompileOptions &options, llvm::raw_ostream &log) : options(options), log(log) {}

  llvm::LogicalResult fail(const llvm::Twine &message) const {
    log << "error: " << message << "\n";
    return llvm::failure();
  }
  void progress(const llvm::Twine &message) const {
    if (!options.quiet)
      log << "mpt-opt: " << message << "\n";
  }
  /// Says `text` once: sizes are found in the same file.
  void say(const std::string &text) {
    if (isNew(text))
      progress(text);
  }
  /// True the first time that it is asked.
  bool isNew(llvm::StringRef text) { return said.insert(text).second; }

  const CompileOptions &options;
  llvm::raw_ostream &log;

private:
  llvm::StringSet<> said;
};

} // namespace mpt

#endif // MPT_DRIVER_MESSAGES_H
