// SPDX-License-Identifier: Apache-2.0
// Staged output, weights files.
#include "Files.h"

#include "mpt-c/abi.h"
#include "mpt/Memory/Layout.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace mlir;
using namespace mpt;
using namespace mpt::target;
namespace fs = llvm::sys::fs;

namespace {

constexpr llvm::StringLiteral stagingName = ".mpt";

llvm::Error fileError(const llvm::Twine &file, std::error_code code) {
  return llvm::createStringError(code, "cannot write '" + file + "': " + code.message());
}

std::string pathIn(StringRef folder, StringRef name) {
  SmallString<128> result(folder);
  llvm::sys::path::append(result, name);
  return result.str().str();
}

StringRef safetensorsType(int64_t dtype) {
  switch (dtype) {
  case MPT_FLOAT32:
    return "F32";
  case MPT_FLOAT64:
    return "F64";
  case MPT_FLOAT16:
    return "F16";
  case MPT_BFLOAT16:
    return "BF16";
  case MPT_INT8:
    return "I8";
  case MPT_UINT8:
    return "U8";
  case MPT_INT16:
    return "I16";
  case MPT_UINT16:
    return "U16";
  case MPT_INT32:
    return "I32";
  case MPT_UINT32:
    return "U32";
  case MPT_INT64:
    return "I64";
  case MPT_UINT64:
    return "U64";
  case MPT_BOOL:
    return "BOOL";
  case MPT_FLOAT8E4M3FN:
    return "F8_E4M3";
  default:
    return "F8_E5M2";
  }
}

ElementsAttr initialValue(const TensorInfo &info) { return train::StateOp(info.state).getValueAttr(); }

/// Closes `out` and reports an error of it.
llvm::Error finish(llvm::raw_fd_ostream &out, StringRef file) {
  out.close();
  if (!out.has_error())
    return llvm::Error::success();
  std::error_code code = out.error();
  out.clear_error();
  return fileError(file, code);
}

} // namespace

OutputFolder::~OutputFolder() {
  if (!staging.empty())
    fs::remove_directories(staging);
  if (lock >= 0)
    close(lock);
}

llvm::Error OutputFolder::open() {
  if (std::error_code code = fs::create_directories(folder))
    return fileError(folder, code);
  // Inside the folder, so that renaming never crosses file systems. A relative prefix would mean the system's
  // temporary folder.
  SmallString<128> unique, absolute(folder);
  if (std::error_code code = fs::make_absolute(absolute))
    return fileError(folder, code);
  folder = absolute.str().str();
  removeStale();
  for (;;) {
    if (std::error_code code = fs::createUniqueDirectory(pathIn(folder, stagingName), unique))
      return fileError(folder, code);
    staging = unique.str().str();
    lock = ::open(staging.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat info;
    if (lock >= 0 && flock(lock, LOCK_EX | LOCK_NB) == 0 && fstat(lock, &info) == 0 && info.st_nlink > 0)
      return llvm::Error::success();
    // Taken for a stale one before it was locked: make another.
    if (lock < 0 && errno != ENOENT)
      return fileError(folder, std::error_code(errno, std::generic_category()));
    if (lock >= 0)
      close(lock);
    lock = -1;
  }
}

/// Removes folders that killed compilations have left: living ones hold a lock.
void OutputFolder::removeStale() {
  std::error_code code;
  for (fs::directory_iterator entry(folder, code), end; entry != end && !code; entry.increment(code)) {
    if (!llvm::sys::path::filename(entry->path()).starts_with((llvm::Twine(stagingName) + "-").str()))
      continue;
    int fd = ::open(entry->path().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
      fs::remove_directories(entry->path());
    if (fd >= 0)
      close(fd);
  }
}

std::string OutputFolder::stage(StringRef name) {
  names.push_back(name.str());
  return pathIn(staging, name);
}

llvm::Error OutputFolder::write(StringRef name, ArrayRef<char> bytes) {
  std::string file = stage(name);
  std::error_code code;
  llvm::raw_fd_ostream out(file, code);
  if (code)
    return fileError(pathIn(folder, name), code);
  out.write(bytes.data(), bytes.size());
  return finish(out, pathIn(folder, name));
}

llvm::Error OutputFolder::commit() {
  // Who loads meanwhile holds this lock too, and gets files of one compilation. Not every file system has locks.
  int exchange = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (exchange >= 0)
    flock(exchange, LOCK_EX);
  auto unlock = llvm::scope_exit([&] {
    if (exchange >= 0)
      close(exchange);
  });
  for (const std::string &name : names)
    if (std::error_code code = fs::rename(pathIn(staging, name), pathIn(folder, name)))
      return fileError(pathIn(folder, name), code);
  return llvm::Error::success();
}

llvm::Error mpt::target::writeWeights(const Program &program, StringRef file) {
  llvm::json::Object header;
  header["__metadata__"] =
      llvm::json::Object{{"format", "mpt"}, {"model", program.name}, {"fingerprint", program.fingerprint}};
  int64_t offset = 0;
  for (const auto &[name, info] : program.state) {
    if (!initialValue(info))
      continue;
    // The whole tensor, also of a state that replicas divide.
    auto type = cast<RankedTensorType>(train::StateOp(info.state).getType());
    int64_t bytes = type.getNumElements() * memory::elementBytes(info.element);
    header[info.name] = llvm::json::Object{{"dtype", safetensorsType(info.dtype)},
                                           {"shape", llvm::json::Array(type.getShape())},
                                           {"data_offsets", llvm::json::Array{offset, offset + bytes}}};
    offset += bytes;
  }
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(header));
  text.resize(llvm::alignTo(text.size(), 8), ' ');

  std::error_code code;
  llvm::raw_fd_ostream out(file, code);
  if (code)
    return fileError(file, code);
  uint64_t length = text.size();
  out.write(reinterpret_cast<const char *>(&length), sizeof length);
  out << text;
  for (const auto &[name, info] : program.state) {
    ElementsAttr value = initialValue(info);
    if (!value)
      continue;
    if (failed(streamBytes(value, [&](ArrayRef<char> piece) { out.write(piece.data(), piece.size()); })))
      return llvm::createStringError("state '" + llvm::Twine(info.name) + "' has no readable initial value");
  }
  return finish(out, file);
}
