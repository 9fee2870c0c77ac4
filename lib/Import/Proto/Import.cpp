// Entry points of the importer: from a file, from memory.
#include "Proto.h"

#include "Roles.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mpt;

FailureOr<OwningOpRef<ModuleOp>> mpt::importOnnxBuffer(StringRef bytes, StringRef folder, const ImportOptions &options,
                                                       MLIRContext *context) {
  context->loadDialect<MPTDialect, onnx::ONNXDialect, train::TrainDialect, func::FuncDialect>();
  Location loc = proto::namedLoc(context, options.name.empty() ? "model" : options.name);
  ::onnx::ModelProto model;
  std::vector<::onnx::TensorProto> initializers;
  if (failed(proto::parseModel(bytes, model, loc)) || failed(proto::prepareModel(model, initializers, options, loc)))
    return failure();
  FailureOr<OwningOpRef<ModuleOp>> module = proto::buildModule(model, initializers, folder, options, context);
  if (failed(module) || failed(assignRoles(**module, options)) || failed(verify(**module)))
    return failure();
  return module;
}

FailureOr<OwningOpRef<ModuleOp>> mpt::importOnnx(StringRef path, const ImportOptions &options, MLIRContext *context) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return emitError(FileLineColLoc::get(context, path, 0, 0)) << "cannot open model: " << file.getError().message();
  ImportOptions named = options;
  if (named.name.empty())
    named.name = llvm::sys::path::stem(path).str();
  StringRef folder = llvm::sys::path::parent_path(path);
  return importOnnxBuffer((*file)->getBuffer(), folder.empty() ? "." : folder, named, context);
}
