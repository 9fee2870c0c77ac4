// SPDX-License-Identifier: Apache-2.0
// Feeds bytes to the importer as a model held in memory. Any diagnostic is fine; a crash, a leak or a hang is not.
#include "Mutate.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Import/Import.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

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

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  mlir::MLIRContext &context = sharedContext();
  mlir::ScopedDiagnosticHandler silence(&context, [](mlir::Diagnostic &) { return mlir::success(); });
  llvm::StringRef bytes(reinterpret_cast<const char *>(data), size);
  auto module = mpt::importOnnxBuffer(bytes, /*folder=*/"", mpt::ImportOptions(), &context);
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
