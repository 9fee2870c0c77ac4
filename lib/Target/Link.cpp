// SPDX-License-Identifier: Apache-2.0
// Runs the system's linker.
#include "Files.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

using namespace llvm;
using namespace mpt::target;

namespace {

/// A compiler driver knows where the C library lies; bare linkers leave its symbols to the process that loads us.
std::string findLinker(const LibraryOptions &options, bool &driver) {
  StringRef wanted = options.linker;
  std::vector<std::string> names;
  if (!wanted.empty())
    names = {wanted.str()};
  else if (!options.architecture.empty())
    names = {options.architecture + "-gcc", "ld.lld-22", "ld.lld", options.architecture + "-ld"};
  else
    names = {"cc", "gcc", "clang", "clang-22", "ld.lld-22", "ld.lld", "ld"};
  for (StringRef name : names)
    if (auto found = sys::findProgramByName(name)) {
      StringRef stem = sys::path::filename(name);
      driver = !stem.starts_with("ld") && !stem.contains("-ld");
      return *found;
    }
  if (!wanted.empty() || !options.architecture.empty())
    return "";
  // Wheels have one beside the compiler.
  driver = false;
  SmallString<128> own(sys::path::parent_path(sys::fs::getMainExecutable(nullptr, nullptr)));
  sys::path::append(own, "ld");
  return sys::fs::can_execute(own) ? own.str().str() : "";
}

} // namespace

Error mpt::target::link(ArrayRef<std::string> objects, StringRef output, const LibraryOptions &options) {
  bool driver = false;
  std::string linker = findLinker(options, driver);
  if (linker.empty() && !options.linker.empty())
    return createStringError("cannot run the linker '" + options.linker + "'");
  if (linker.empty()) {
    std::string driverName = options.architecture.empty() ? "cc" : options.architecture + "-gcc";
    return createStringError("no linker found: install " + driverName + " or ld.lld, or emit a static library");
  }
  std::vector<std::string> arguments{linker};
  auto add = [&](std::initializer_list<std::string> more) { arguments.insert(arguments.end(), more); };
  // An option of the linker itself, as a driver passes it on.
  auto forward = [&](std::string option) {
    if (driver)
      arguments.push_back("-Xlinker"); // -Wl would split a name at its commas
    arguments.push_back(std::move(option));
  };
  if (options.kind == LibraryKind::Object) {
    add({"-r", "-o", output.str()});
    if (driver)
      add({"-nostdlib"});
  } else {
    add({"-shared", "-o", output.str()});
    forward("-soname=lib" + options.name + ".so");
    forward("--gc-sections");
    if (!options.runtimeLibrary.empty()) {
      // RUNPATH: beside the emitted library first, so that a folder with both can be moved.
      forward("--enable-new-dtags");
      forward("-rpath=$ORIGIN");
      SmallString<128> runtime(options.runtimeLibrary);
      sys::fs::make_absolute(runtime);
      forward("-rpath=" + sys::path::parent_path(runtime).str());
    }
  }
  arguments.insert(arguments.end(), objects.begin(), objects.end());
  if (options.kind == LibraryKind::Shared) {
    if (!options.runtimeLibrary.empty())
      add({options.runtimeLibrary});
    if (driver)
      add({"-lm"});
  }
  SmallVector<StringRef> views(arguments.begin(), arguments.end());
  // The linker's output is kept for the diagnostic.
  SmallString<128> log;
  if (std::error_code code = sys::fs::createTemporaryFile("mpt-link", "log", log))
    return createStringError(code, "cannot make a temporary file: " + code.message());
  std::optional<StringRef> redirects[] = {StringRef(""), StringRef(log), StringRef(log)};
  std::string problem;
  int result = sys::ExecuteAndWait(linker, views, std::nullopt, redirects, 0, 0, &problem);
  if (result != 0 && problem.empty())
    if (auto text = MemoryBuffer::getFile(log))
      problem = (*text)->getBuffer().rtrim().str();
  sys::fs::remove(log);
  if (result != 0)
    return createStringError("'" + linker + "' could not link " + sys::path::filename(output).str() + ": " + problem);
  return Error::success();
}
