// SPDX-License-Identifier: Apache-2.0
// Writing the files of a library and linking it.
#include "Emit.h"

#include "Files.h"
#include "mpt/Target/Runtime.h"

#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::target;

llvm::Error mpt::target::writeLibrary(const Program &program, const std::string &manifest, ArrayRef<Object> objects,
                                      const std::string &listing, const LibraryOptions &options) {
  OutputFolder folder(options.outDir);
  if (llvm::Error error = folder.open())
    return error;
  if (options.kind == LibraryKind::Static) {
    SmallVector<llvm::NewArchiveMember> members;
    for (auto [i, object] : llvm::enumerate(objects)) {
      auto buffer = llvm::MemoryBuffer::getMemBuffer(StringRef(object.data(), object.size()),
                                                     options.name + std::to_string(i) + ".o", false);
      members.emplace_back(buffer->getMemBufferRef());
      members.back().Buf = std::move(buffer);
      members.back().MemberName = members.back().Buf->getBufferIdentifier();
    }
    if (llvm::Error error =
            llvm::writeArchive(folder.stage("lib" + options.name + ".a"), members,
                               llvm::SymtabWritingMode::NormalSymtab, llvm::object::Archive::K_GNU, true, false))
      return error;
  } else {
    std::vector<std::string> paths;
    for (auto [i, object] : llvm::enumerate(objects)) {
      std::string path = (folder.temporary() + "/part" + llvm::Twine(i) + ".o").str();
      std::error_code code;
      llvm::raw_fd_ostream out(path, code);
      if (!code) {
        out.write(object.data(), object.size());
        out.close();
        code = out.error();
        out.clear_error();
      }
      if (code)
        return llvm::createStringError(code, "cannot write '" + path + "': " + code.message());
      paths.push_back(path);
    }
    bool shared = options.kind == LibraryKind::Shared;
    if (llvm::Error error =
            link(paths, folder.stage(shared ? "lib" + options.name + ".so" : options.name + ".o"), options))
      return error;
  }
  if (llvm::Error error = writeWeights(program, folder.stage(options.name + ".safetensors")))
    return error;
  std::string header = headerOf(program);
  if (llvm::Error error = folder.write(options.name + ".h", ArrayRef<char>(header.data(), header.size())))
    return error;
  if (llvm::Error error = folder.write(options.name + ".json", ArrayRef<char>(manifest.data(), manifest.size())))
    return error;
  if (options.keepIR)
    if (llvm::Error error = folder.write(options.name + ".ll", ArrayRef<char>(listing.data(), listing.size())))
      return error;
  return folder.commit();
}

std::string mpt::target::findRuntime(StringRef file) {
  std::string program = llvm::sys::fs::getMainExecutable(nullptr, nullptr);
  SmallString<128> path(llvm::sys::path::parent_path(program));
  llvm::sys::path::append(path, "..", "lib", file);
  llvm::sys::path::remove_dots(path, /*remove_dot_dot=*/true);
  return llvm::sys::fs::exists(path) ? path.str().str() : "";
}

LogicalResult mpt::target::complete(ModuleOp module, StringRef runtime, LibraryOptions &options) {
  if (options.runtimeLibrary == "none") {
    options.runtimeLibrary.clear();
  } else if (options.runtimeLibrary.empty()) {
    SmallString<64> file(options.architecture);
    llvm::sys::path::append(file, runtime);
    options.runtimeLibrary = findRuntime(file);
    if (options.runtimeLibrary.empty() && !options.architecture.empty() && options.kind == LibraryKind::Shared)
      return module.emitError() << "expected lib/" << file
                                << " beside the folder of this program, found none; make it with "
                                << "scripts/build-runtime.sh " << StringRef(options.architecture).split('-').first
                                << ", or emit a static library, which is linked with the program that uses it";
  }
  auto odd = [](char c) { return c == '/' || c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' '; };
  if (options.name.empty() || llvm::any_of(options.name, odd))
    return module.emitError() << "expected a file name for the library without quotes and control characters, got '"
                              << options.name << "'; name it with --name";
  return success();
}
