// SPDX-License-Identifier: Apache-2.0
// --import-onnx and --import-core: ONNX files as modules, for tools that translate.
#include "mpt/Import/Translations.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Import/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SourceMgr.h"

namespace {

/// The tool's own flags; they exist once it has registered the translations.
struct Flags {
  llvm::cl::list<std::string> bindings{"bind", llvm::cl::desc("Extent of a symbolic dimension"),
                                       llvm::cl::value_desc("name=extent")};
  llvm::cl::list<std::string> train{"train", llvm::cl::desc("Initializers that are parameters"),
                                    llvm::cl::value_desc("regex")};
  llvm::cl::list<std::string> freeze{"freeze", llvm::cl::desc("Parameters that are not trained"),
                                     llvm::cl::value_desc("regex")};
};

Flags &flags() {
  static Flags instance;
  return instance;
}

mlir::OwningOpRef<mlir::ModuleOp> importFile(llvm::SourceMgr &sources, mlir::MLIRContext *context) {
  const llvm::MemoryBuffer *buffer = sources.getMemoryBuffer(sources.getMainFileID());
  mpt::ImportOptions options;
  options.train.assign(flags().train.begin(), flags().train.end());
  options.freeze.assign(flags().freeze.begin(), flags().freeze.end());
  for (llvm::StringRef binding : flags().bindings) {
    auto [name, extent] = binding.split('=');
    if (extent.getAsInteger(10, options.bindings[name]) || options.bindings[name] < 0) {
      mlir::emitError(mlir::UnknownLoc::get(context)) << "expected --bind name=extent, got '" << binding << "'";
      return {};
    }
  }
  llvm::StringRef path = buffer->getBufferIdentifier();
  options.name = path == "<stdin>" ? "model" : llvm::sys::path::stem(path).str();
  llvm::StringRef folder = llvm::sys::path::parent_path(path);
  auto module = mpt::importOnnxBuffer(buffer->getBuffer(),
                                      path == "<stdin>" ? ""
                                      : folder.empty()  ? "."
                                                        : folder,
                                      options, context);
  if (failed(module))
    return {};
  return std::move(*module);
}

mlir::OwningOpRef<mlir::Operation *> importNodes(llvm::SourceMgr &sources, mlir::MLIRContext *context) {
  return mlir::OwningOpRef<mlir::Operation *>(importFile(sources, context).release());
}

mlir::OwningOpRef<mlir::Operation *> importCore(llvm::SourceMgr &sources, mlir::MLIRContext *context) {
  mlir::OwningOpRef<mlir::ModuleOp> module = importFile(sources, context);
  if (!module || failed(mpt::convertOnnxToCore(*module)))
    return {};
  return mlir::OwningOpRef<mlir::Operation *>(module.release());
}

void registerDialects(mlir::DialectRegistry &registry) {
  mpt::registerOperatorClasses(registry);
  registry.insert<mpt::MPTDialect, mpt::onnx::ONNXDialect, mpt::train::TrainDialect, mlir::func::FuncDialect>();
}

} // namespace

void mpt::registerImportTranslations() {
  flags();
  static mlir::TranslateToMLIRRegistration nodes("import-onnx", "import an ONNX model", ::importNodes,
                                                 registerDialects);
  static mlir::TranslateToMLIRRegistration core("import-core", "import an ONNX model as a core graph", importCore,
                                                registerDialects);
}
