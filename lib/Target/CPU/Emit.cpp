// Everything that an emitted library consists of, in order.
#include "mpt/Target/CPU.h"

#include "Files.h"
#include "KernelCode.h"

#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Threading.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cpu;

namespace {

using Object = SmallVector<char, 0>;

llvm::Error compileEntries(Program &program, StringRef manifest, const Machine &machine, llvm::Module &code,
                           Object &object) {
  buildTables(program, manifest, machine.cpu, machine.features, code);
  machine.adopt(code);
  return machine.compile(code, object);
}

llvm::Error writeAll(const Program &program, const std::string &manifest, ArrayRef<Object> objects,
                     const std::string &listing, const EmitOptions &options) {
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

/// libmpt_rt of the tree or installation that this program belongs to; empty when there is none.
std::string findRuntime() {
  std::string program = llvm::sys::fs::getMainExecutable(nullptr, nullptr);
  SmallString<128> path(llvm::sys::path::parent_path(program));
  llvm::sys::path::append(path, "..", "lib", "libmpt_rt.so");
  llvm::sys::path::remove_dots(path, /*remove_dot_dot=*/true);
  return llvm::sys::fs::exists(path) ? path.str().str() : "";
}

} // namespace

LogicalResult mpt::cpu::emitLibrary(ModuleOp module, const EmitOptions &given) {
  EmitOptions options = given;
  if (options.runtimeLibrary.empty())
    options.runtimeLibrary = findRuntime();
  else if (options.runtimeLibrary == "none")
    options.runtimeLibrary.clear();
  auto odd = [](char c) { return c == '/' || c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' '; };
  if (options.name.empty() || llvm::any_of(options.name, odd))
    return module.emitError() << "expected a file name for the library without quotes and control characters, got '"
                              << options.name << "'; name it with --name";
  FailureOr<Program> program = Program::read(module, options.name);
  if (failed(program))
    return failure();
  llvm::Expected<Machine> machine = Machine::create(options.cpu);
  if (!machine)
    return module.emitError() << llvm::toString(machine.takeError());
  unsigned threads = options.threads ? options.threads : llvm::hardware_concurrency().compute_thread_count();
  std::string manifest = manifestOf(module, *program, machine->cpu, machine->features), listing;

  SmallVector<Object> objects;
  if (failed(compileKernels(module, *program, options.cpu, threads, objects, options.keepIR ? &listing : nullptr)))
    return failure();
  llvm::LLVMContext context;
  llvm::Module code(options.name, context);
  code.setDataLayout(machine->target->createDataLayout());
  if (failed(buildEntries(*program, code)))
    return failure();
  objects.emplace_back();
  if (llvm::Error error = compileEntries(*program, manifest, *machine, code, objects.back()))
    return module.emitError() << llvm::toString(std::move(error));
  if (options.keepIR)
    llvm::raw_string_ostream(listing) << code;
  if (llvm::Error error = writeAll(*program, manifest, objects, listing, options))
    return module.emitError() << llvm::toString(std::move(error));
  return success();
}
