// What an emitted library contains besides code: tables of tensors, offsets, constants.
#ifndef MPT_TARGET_CPU_PROGRAM_H
#define MPT_TARGET_CPU_PROGRAM_H

#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/JSON.h"

namespace mpt::cpu {

struct TensorInfo {
  std::string name, of;
  llvm::SmallVector<int64_t, 4> shape;
  mlir::Type element;
  int64_t dtype = 0, role = 0, bytes = 0, offset = 0;
  train::StateOp state; ///< null for inputs and outputs
};

/// What mpt_call_desc says.
struct CallInfo {
  std::string what, node;
  int64_t bytes = 0, flops = 0;
};

struct FunctionInfo {
  std::string name;
  mlir::func::FuncOp op;
  int64_t arenaBytes = 0, callSites = 0;
  std::vector<TensorInfo> inputs, outputs;
  std::vector<CallInfo> calls;
};

/// The program's tables, read off the module.
struct Program {
  std::string name, fingerprint;
  llvm::MapVector<llvm::StringRef, TensorInfo> state;
  int64_t stateBytes = 0;
  std::vector<FunctionInfo> functions;
  llvm::SmallVector<mlir::func::FuncOp> kernels;

  static llvm::FailureOr<Program> read(mlir::ModuleOp module, llvm::StringRef name);
};

/// JSON text for users and the runtime: the module's mpt.manifest, the model's name, target and functions.
std::string manifestOf(mlir::ModuleOp module, const Program &program, llvm::StringRef cpu, llvm::StringRef features);
/// A C header with the module's symbol and a description of inputs, outputs and parameters.
std::string headerOf(const Program &program);

/// Bytes of a constant in memory order; `sink` gets them in pieces.
llvm::LogicalResult streamBytes(mlir::ElementsAttr value, llvm::function_ref<void(llvm::ArrayRef<char>)> sink);

/// What the runtime call `op` does, or nothing for ops that make no call.
std::optional<CallInfo> callOf(mlir::Operation *op);

/// Adds the entry points of `program` and the table mpt_module to `out`; kernels are declared. Counts call sites.
llvm::LogicalResult buildEntries(Program &program, llvm::Module &out);
void buildTables(const Program &program, llvm::StringRef manifest, llvm::StringRef cpu, llvm::StringRef features,
                 llvm::Module &out);

} // namespace mpt::cpu

#endif // MPT_TARGET_CPU_PROGRAM_H
