// SPDX-License-Identifier: Apache-2.0
// The compiler's flags: a table of names, help and setters, in groups.
#ifndef MPT_LIB_DRIVER_COMPILEFLAGS_H
#define MPT_LIB_DRIVER_COMPILEFLAGS_H

#include "mpt/Driver/CompileOptions.h"

#include <functional>
#include <optional>
#include <vector>

namespace mpt {

/// The phases in their order, as --from and --to take them: `import|training|...|target`.
llvm::StringRef phaseNames();

/// Stores a flag's value; returns the expected form when it does not fit.
using Setter = std::function<std::optional<std::string>(CompileOptions &, llvm::StringRef)>;

struct Flag {
  llvm::StringRef name, value; ///< an empty `value` means a switch
  std::string text;            ///< empty: --help does not show the flag
  Setter set;
};

/// Flags under one heading of the help.
struct FlagGroup {
  llvm::StringRef name, heading, example;
  std::vector<Flag> (*flags)();
};

llvm::ArrayRef<FlagGroup> flagGroups();
/// The flags of all groups. Targets are registered first.
const std::vector<Flag> &flagTable();

} // namespace mpt

#endif // MPT_LIB_DRIVER_COMPILEFLAGS_H
