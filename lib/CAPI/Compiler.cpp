// The compiler's C interface (mpt-c/compiler.h).
#include "mpt-c/compiler.h"

#include "mpt/CAPI/Compile.h"

#include "llvm/Support/raw_ostream.h"
#include <cstdlib>
#include <cstring>

extern "C" int32_t mpt_compiler_run(int32_t count, const char *const *arguments, char **diagnostics) {
  llvm::SmallVector<llvm::StringRef> words(arguments, arguments + count);
  std::string text;
  llvm::raw_string_ostream log(text);
  int32_t status = 1;
  llvm::Expected<mpt::CompileOptions> options = mpt::CompileOptions::parse(words);
  if (options) {
    options->quiet = true;
    status = mlir::failed(mpt::compile(*options, llvm::outs(), log));
  } else {
    log << "error: " << llvm::toString(options.takeError()) << "\n";
  }
  if (diagnostics)
    *diagnostics = strdup(text.c_str());
  return status;
}

extern "C" void mpt_compiler_free_text(char *text) { std::free(text); }

extern "C" const char *mpt_compiler_version(void) { return MPT_VERSION; }
