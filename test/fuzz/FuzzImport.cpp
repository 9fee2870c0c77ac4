// SPDX-License-Identifier: Apache-2.0
// Feeds bytes to the importer as a model held in memory, with the files of ONNX Runtime's artifacts that it has beside
// it. Any diagnostic is fine; a crash, a leak or a hang is not.
#include "Mutate.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Import/Import.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

namespace {

mlir::MLIRContext &sharedContext() {
  static std::unique_ptr<mlir::MLIRContext> context = [] {
    mlir::DialectRegistry registry;
    registry.insert<mpt::MPTDialect, mpt::train::TrainDialect, mpt::onnx::ONNXDialect, mlir::func::FuncDialect,
                    mlir::arith::ArithDialect>();
    auto made = std::make_unique<mlir::MLIRContext>(registry, mlir::MLIRContext::Threading::DISABLED);
    made->loadAllAvailableDialects();
    return made;
  }();
  return *context;
}

/// The path of a file with these bytes; empty for none.
std::string fileOf(llvm::StringRef name, const std::string &bytes) {
  static const std::string folder = [] {
    llvm::SmallString<128> made;
    (void)llvm::sys::fs::createUniqueDirectory("mpt-fuzz", made);
    return made.str().str();
  }();
  if (bytes.empty())
    return "";
  std::string path = folder + "/" + name.str();
  std::error_code code;
  llvm::raw_fd_ostream(path, code) << bytes;
  return path;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  mlir::MLIRContext &context = sharedContext();
  mlir::ScopedDiagnosticHandler silence(&context, [](mlir::Diagnostic &) { return mlir::success(); });
  mpt::fuzz::Parts parts = mpt::fuzz::split(std::string(reinterpret_cast<const char *>(data), size));
  mpt::ImportOptions options;
  options.checkpoint = fileOf("checkpoint", parts.checkpoint);
  options.optimizerModel = fileOf("optimizer", parts.optimizer);
  options.evalModel = fileOf("evaluation", parts.evaluation);
  options.evalModelIsFound = size % 2;
  options.backward = size % 3 ? "" : "own";
  options.bindings["N"] = 4;
  auto module = mpt::importOnnxBuffer(parts.model, /*folder=*/"", options, &context);
  if (mlir::succeeded(module))
    (void)mpt::convertOnnxToCore(module->get());
  return 0;
}

/// Half of the time by the fields of the message, which random bytes seldom leave whole.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  if (seed % 2)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string changed = mpt::fuzz::mutateModel(std::string(reinterpret_cast<char *>(data), size), seed);
  if (changed.size() > maxSize)
    return LLVMFuzzerMutate(data, size, maxSize);
  memcpy(data, changed.data(), changed.size());
  return changed.size();
}
