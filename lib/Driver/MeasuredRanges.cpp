// SPDX-License-Identifier: Apache-2.0
// --data: calibration as the first part of a compilation.
#include "mpt/Driver/MeasuredRanges.h"

#include "mpt/Driver/Compile.h"
#include "mpt/Reference/Calibrate.h"
#include "mpt/Support/Files.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mpt;

/// Safetensors files of a folder, by name.
static std::vector<std::string> batchFiles(StringRef folder) {
  std::vector<std::string> files;
  std::error_code code;
  for (llvm::sys::fs::directory_iterator file(folder, code), end; !code && file != end; file.increment(code))
    if (StringRef(file->path()).ends_with(".safetensors"))
      files.push_back(file->path());
  llvm::sort(files);
  return files;
}

static llvm::Expected<std::string> rangesFile(const CompileOptions &options) {
  SmallString<128> path(options.output);
  if (options.dryRun || options.output == "-" || options.emit == EmitKind::MLIR) {
    if (std::error_code code = llvm::sys::fs::createTemporaryFile(options.name, "ranges.json", path))
      return llvm::createStringError(code, "cannot make a temporary file for ranges: " + code.message());
  } else if (options.emit == EmitKind::Library || options.emit == EmitKind::Static ||
             options.emit == EmitKind::Products) {
    if (std::error_code code = llvm::sys::fs::create_directories(path))
      return llvm::createStringError(code, "cannot make '" + path + "': " + code.message());
    llvm::sys::path::append(path, options.name + ".ranges.json");
  } else {
    llvm::sys::path::replace_extension(path, "ranges.json");
  }
  return path.str().str();
}

LogicalResult mpt::measureRanges(CompileOptions &options, raw_ostream &log) {
  if (options.data.empty())
    return success();
  auto fail = [&](const Twine &message) {
    log << "error: " << message << "\n";
    return failure();
  };
  std::vector<std::string> files = batchFiles(options.data);
  if (files.empty())
    return fail("expected a folder with .safetensors files, the inputs of one step each, for --data, got '" +
                options.data + "'");
  // The same model in FP32, a training step or with --emit=onnx the graph itself.
  CompileOptions wide = options;
  wide.policy = "fp32";
  wide.lossScale = "none";
  wide.to = options.emit == EmitKind::ONNX && !options.trains ? "import" : "precision";
  wide.emit = EmitKind::MLIR;
  wide.quiet = true;
  wide.reports.clear();
  MLIRContext context;
  prepareContext(context, log);
  FailureOr<OwningOpRef<ModuleOp>> module = compileModule(wide, context, llvm::nulls(), log);
  if (failed(module))
    return failure();
  FailureOr<std::vector<Batch>> batches = readBatches(**module, files);
  if (failed(batches))
    return failure();
  FailureOr<RangeProfiles> profiles = calibrate(**module, *batches, /*steps=*/0);
  if (failed(profiles))
    return failure();
  llvm::Expected<std::string> path = rangesFile(options);
  if (!path)
    return fail(llvm::toString(path.takeError()));
  if (llvm::Error error = writeFile(*path, [&](raw_ostream &os) { os << llvm::formatv("{0:2}", profiles->toJSON()); }))
    return fail(llvm::toString(std::move(error)));
  if (!options.quiet)
    log << "ranges of " << files.size() << " steps measured: " << *path << "\n";
  options.ranges = *path;
  return success();
}
