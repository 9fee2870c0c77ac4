// SPDX-License-Identifier: Apache-2.0
// Contents of an emitted library besides code: tables of tensors, offsets, constants.
#ifndef MPT_TARGET_PROGRAM_H
#define MPT_TARGET_PROGRAM_H

#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Target/Target.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/JSON.h"
#include <array>

namespace mpt::target {

struct TensorInfo {
  std::string name, of;
  llvm::SmallVector<int64_t, 4> shape;
  mlir::Type element;
  int64_t dtype = 0, role = 0, bytes = 0, offset = 0;
  llvm::SmallVector<int64_t, 4> wholeShape; ///< of a divided state; `shape`, `bytes` and `offset` describe a shard
  bool divided = false;
  train::StateOp state; ///< null for inputs and outputs
};

/// The contents of an mpt_call_desc.
struct CallInfo {
  std::string what, node;
  int64_t bytes = 0, flops = 0;
};

/// The contents of an mpt_buffer_desc.
struct BufferInfo {
  std::string what, node;
  int64_t bytes;
};

/// The contents of an mpt_index_desc.
struct IndexInfo {
  int64_t input;
  std::string node;
  int64_t offset;
  llvm::SmallVector<int64_t, 4> shape, strides, ranges;
};

struct FunctionInfo {
  std::string name;
  mlir::func::FuncOp op;
  int64_t arenaBytes = 0, callSites = 0, phase = 0;
  std::vector<TensorInfo> inputs, outputs;
  std::vector<CallInfo> calls;
  std::vector<BufferInfo> buffers; ///< the largest of the arena, largest first
  std::vector<IndexInfo> indices;
};

/// One launch of a generated kernel, where kernels run on a GPU.
struct KernelEntry {
  std::string name;
  std::array<int64_t, 3> grid, block;
  int64_t numArgs;
};

/// The contents of an mpt_image_desc; an image for the host names functions instead of bytes.
struct Image {
  int64_t kind, arch;
  std::string bytes;
  std::vector<std::string> functions; ///< empty text: a kernel that another one does too
};

/// The program's tables, read off the module.
struct Program {
  std::string name, fingerprint;
  llvm::MapVector<llvm::StringRef, TensorInfo> state;
  int64_t stateBytes = 0, shardBytes = 0; ///< of all state for one replica, and of its divided part
  std::vector<FunctionInfo> functions;
  llvm::SmallVector<mlir::func::FuncOp> kernels;
  std::string target, runtime, cpu, cpuFeatures; ///< names of the target and of its runtime library
  /// Of the functions that entry points call, and whether generated kernels are launched by their number among
  /// `entries` rather than called.
  std::string callPrefix;
  bool numbersKernels = false;
  std::vector<KernelEntry> entries; ///< GPU: by number; one kernel function each
  llvm::StringMap<int64_t> entryNumbers;
  std::vector<Image> images; ///< GPU

  static llvm::FailureOr<Program> read(mlir::ModuleOp module, llvm::StringRef name, const Target &target);
};

/// JSON text for users and the runtime: the module's mpt.manifest, the model's name, target and functions.
std::string manifestOf(mlir::ModuleOp module, const Program &program);
/// A C header with the module's symbol and a description of inputs, outputs and parameters.
std::string headerOf(const Program &program);

/// Bytes of a constant in memory order; `sink` gets them in pieces.
llvm::LogicalResult streamBytes(mlir::ElementsAttr value, llvm::function_ref<void(llvm::ArrayRef<char>)> sink);

/// The table entry of the runtime call `op`, or nothing for ops that make no call.
std::optional<CallInfo> callOf(mlir::Operation *op);

/// The largest buffers of a function's arena, largest first.
std::vector<BufferInfo> largestBuffers(mlir::func::FuncOp function);

/// Adds the entry points of `program` to `out`; kernels are declared. Counts call sites. With `checks`, the
/// runtime looks at the results of each call.
llvm::LogicalResult buildEntries(Program &program, llvm::Module &out, bool checks = false);
/// Adds the table mpt_module; the entry points are there.
void buildTables(const Program &program, llvm::StringRef manifest, llvm::Module &out);

} // namespace mpt::target

#endif // MPT_TARGET_PROGRAM_H
