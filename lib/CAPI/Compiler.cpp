// SPDX-License-Identifier: Apache-2.0
// The compiler's C interface (mpt-c/compiler.h).
#include "mpt-c/compiler.h"

#include "mpt/Driver/Compile.h"

#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
#include <cstring>
#include <exception>

extern "C" int32_t mpt_compiler_run(int32_t count, const char *const *arguments, char **diagnostics) {
  std::string text;
  llvm::raw_string_ostream log(text);
  int32_t status = 1;
  llvm::SmallVector<llvm::StringRef> words;
  for (int32_t i = 0; arguments && i < count && arguments[i]; ++i)
    words.push_back(arguments[i]);
  if (static_cast<int32_t>(words.size()) != count) {
    log << "error: expected " << count << " arguments, got NULL after " << words.size() << "\n";
  } else if (llvm::Expected<mpt::CompileOptions> options = mpt::CompileOptions::parse(words)) {
    options->quiet = true;
    try {
      status = mlir::failed(mpt::compile(*options, llvm::outs(), log));
    } catch (const std::exception &problem) { // no memory, mostly
      log << "error: " << problem.what() << "\n";
    }
  } else {
    log << "error: " << llvm::toString(options.takeError()) << "\n";
  }
  if (diagnostics)
    *diagnostics = strdup(text.c_str());
  return status;
}

extern "C" void mpt_compiler_free_text(char *text) { std::free(text); }

extern "C" const char *mpt_compiler_version(void) { return mpt::compilerVersion().data(); }
