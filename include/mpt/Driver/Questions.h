// SPDX-License-Identifier: Apache-2.0
// Questions about the compiler itself, which need no model.
#ifndef MPT_DRIVER_QUESTIONS_H
#define MPT_DRIVER_QUESTIONS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace mpt {

/// True when the words ask for a compilation (an ONNX input, or a phase or product by flag), or about the compiler,
/// rather than for single passes.
bool isCompilation(llvm::ArrayRef<llvm::StringRef> words);

/// Prints the compiler's answer to words that ask about it: none, --help, --help=GROUP, --version, --list-KIND,
/// --explain[=CODE], --completion=SHELL. False after an error was printed; nothing for other words.
std::optional<bool> answered(llvm::StringRef tool, llvm::ArrayRef<llvm::StringRef> words);
/// The line of --version.
std::string versionText();

} // namespace mpt

#endif // MPT_DRIVER_QUESTIONS_H
