// mpt-translate: --import-onnx reads a binary or textual ONNX file and writes the module of onnx.node ops,
// --import-core the core graph.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Import/Import.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"
#include "mlir/Tools/mlir-translate/Translation.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SourceMgr.h"

static llvm::cl::list<std::string> bindings("bind", llvm::cl::desc("Extent of a symbolic dimension"),
                                            llvm::cl::value_desc("name=extent"));
static llvm::cl::list<std::string> train("train", llvm::cl::desc("Initializers that are parameters"),
                                         llvm::cl::value_desc("regex"));
static llvm::cl::list<std::string> freeze("freeze", llvm::cl::desc("Parameters that are not trained"),
                                          llvm::cl::value_desc("regex"));

static mlir::OwningOpRef<mlir::ModuleOp> importFile(llvm::SourceMgr &sources, mlir::MLIRContext *context) {
  const llvm::MemoryBuffer *buffer = sources.getMemoryBuffer(sources.getMainFileID());
  mpt::ImportOptions options;
  options.train.assign(train.begin(), train.end());
  options.freeze.assign(freeze.begin(), freeze.end());
  for (llvm::StringRef binding : bindings) {
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

static mlir::OwningOpRef<mlir::Operation *> importNodes(llvm::SourceMgr &sources, mlir::MLIRContext *context) {
  return mlir::OwningOpRef<mlir::Operation *>(importFile(sources, context).release());
}

static mlir::OwningOpRef<mlir::Operation *> importCore(llvm::SourceMgr &sources, mlir::MLIRContext *context) {
  mlir::OwningOpRef<mlir::ModuleOp> module = importFile(sources, context);
  if (!module || failed(mpt::convertOnnxToCore(*module)))
    return {};
  return mlir::OwningOpRef<mlir::Operation *>(module.release());
}

static void registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<mpt::MPTDialect, mpt::onnx::ONNXDialect, mpt::train::TrainDialect, mlir::func::FuncDialect>();
}

int main(int argc, char **argv) {
  mlir::TranslateToMLIRRegistration nodes("import-onnx", "import an ONNX model", importNodes, registerDialects);
  mlir::TranslateToMLIRRegistration core("import-core", "import an ONNX model as a core graph", importCore,
                                         registerDialects);
  return failed(mlir::mlirTranslateMain(argc, argv, "mpt file translations\n")) ? 1 : 0;
}
