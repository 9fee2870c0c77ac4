// SPDX-License-Identifier: Apache-2.0
// Files through temporary ones.
#include "mpt/Support/Files.h"

#include "llvm/Support/FileSystem.h"

using namespace llvm;

/// The error of the stream; cleared, else the stream ends the program when it goes.
static std::error_code settle(raw_fd_ostream &out) {
  out.flush();
  std::error_code code = out.error();
  out.clear_error();
  return code;
}

static std::error_code writeThrough(StringRef path, function_ref<void(raw_ostream &)> print) {
  std::error_code code;
  raw_fd_ostream out(path, code, sys::fs::CD_OpenExisting, sys::fs::FA_Write, sys::fs::OF_None);
  if (code)
    return code;
  print(out);
  return settle(out);
}

static std::error_code writeBeside(StringRef path, function_ref<void(raw_ostream &)> print) {
  Expected<sys::fs::TempFile> file = sys::fs::TempFile::create(path + ".tmp-%%%%%%", 0666);
  if (!file)
    return errorToErrorCode(file.takeError());
  std::error_code code;
  {
    raw_fd_ostream out(file->FD, /*shouldClose=*/false);
    print(out);
    code = settle(out);
  }
  if (!code)
    code = errorToErrorCode(file->keep(path));
  if (code)
    consumeError(file->discard());
  return code;
}

Error mpt::writeFile(StringRef path, function_ref<void(raw_ostream &)> print) {
  std::error_code code;
  sys::fs::file_status status;
  if (path == "-") {
    print(outs());
    code = settle(outs());
  } else if (!sys::fs::status(path, status) && sys::fs::exists(status) && !sys::fs::is_regular_file(status)) {
    code = sys::fs::is_directory(status) ? std::make_error_code(std::errc::is_a_directory) : writeThrough(path, print);
  } else {
    code = writeBeside(path, print);
  }
  if (code)
    return createStringError(code, "cannot write '" + path + "': " + code.message());
  return Error::success();
}
