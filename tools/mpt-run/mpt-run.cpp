// mpt-run: runs functions of .mlir files in the reference interpreter.
#include "mpt/Reference/Reference.h"
#include "mpt/Reference/RunTool.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Support/ToolUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/SourceMgr.h"

int main(int argc, char **argv) {
  namespace cl = llvm::cl;
  mpt::RunOptions options;
  cl::opt<std::string> file(cl::Positional, cl::desc("<module>"), cl::init("-"));
  cl::opt<std::string, true> function("function", cl::location(options.function),
                                      cl::desc("Function to run (default: every public one without arguments)"));
  cl::opt<std::string, true> inputs("inputs", cl::location(options.inputs), cl::desc("Safetensors file of inputs"));
  cl::opt<std::string, true> state("state", cl::location(options.state),
                                   cl::desc("Safetensors file of initial states"));
  cl::opt<std::string, true> outputs("outputs", cl::location(options.outputs), cl::desc("Write results to this file"));
  cl::opt<std::string, true> newState("new-state", cl::location(options.newState),
                                      cl::desc("Write final states to this file"));
  cl::opt<std::string, true> expect("expect", cl::location(options.expect),
                                    cl::desc("Compare results with this file's, within the error model's tolerance"));
  cl::opt<bool, true> oracle("fp64", cl::location(options.oracle), cl::desc("Compute every float in FP64"));
  cl::opt<int64_t, true> steps("steps", cl::location(options.steps), cl::desc("Calls in a row"), cl::init(1));
  cl::ParseCommandLineOptions(argc, argv, "mpt reference interpreter\n");

  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> buffer = mlir::openInputFile(file, &message);
  if (!buffer) {
    llvm::errs() << "mpt-run: " << message << "\n";
    return 1;
  }
  mlir::DialectRegistry registry;
  mpt::registerReferenceDialects(registry);
  mlir::MLIRContext context(registry);
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  mlir::SourceMgrDiagnosticHandler diagnostics(sources, &context);
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::parseSourceFile<mlir::ModuleOp>(sources, &context);
  return module && succeeded(mpt::runModule(*module, options)) ? 0 : 1;
}
