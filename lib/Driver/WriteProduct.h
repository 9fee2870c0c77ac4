// SPDX-License-Identifier: Apache-2.0
// A compilation's product: a library with its manifest and the template of the model's file, an `.onnx` file, or text;
// and the reports that were asked for.
#ifndef MPT_DRIVER_WRITEPRODUCT_H
#define MPT_DRIVER_WRITEPRODUCT_H

#include "MemoryBudget.h"
#include "ReadModel.h"

#include "mpt/Memory/KernelCode.h"

#include "llvm/Support/JSON.h"

namespace mpt {

class ProductWriter {
public:
  ProductWriter(Messages &messages, ModelReader &reader, mlir::OwningOpRef<mlir::ModuleOp> &module,
                const std::optional<BudgetSearch> &searched, mlir::MLIRContext &context, llvm::raw_ostream &out)
      : messages(messages), options(messages.options), reader(reader), module(module), searched(searched),
        context(context), out(out) {}

  llvm::LogicalResult write();
  /// Reports asked for that phase `phase` has made possible.
  llvm::LogicalResult report(llvm::StringRef phase);
  /// Writes the reports of kernels that were asked for, with the figures of their code.
  llvm::LogicalResult reportKernels();

private:
  /// Entries of the emitted manifest beside the tables: where the library comes from and how it trains.
  void describe();
  /// The times that decided about 8-bit operands, and the device that they were measured on; null where none did.
  mlir::DictionaryAttr describeTimes();
  /// How many replicas a global step has (0: one a process), and which inputs hold rows for all of them.
  mlir::DictionaryAttr describeReplicas();
  /// The step (or, without training, the forward graph) as standard operators.
  llvm::LogicalResult writeOnnx();
  /// Writes the template of the model's file beside the library, as `path`.
  llvm::LogicalResult writeForm(std::string &path);
  /// Gives the template its name, or removes one that an earlier library had.
  llvm::LogicalResult placeForm(const std::string &path);
  std::string formName() const;
  llvm::LogicalResult writeText(llvm::function_ref<void(llvm::raw_ostream &)> print);
  llvm::LogicalResult reportMemory(llvm::StringRef file);

  Messages &messages;
  const CompileOptions &options;
  ModelReader &reader;
  mlir::OwningOpRef<mlir::ModuleOp> &module;
  const std::optional<BudgetSearch> &searched; ///< under --memory-budget
  mlir::MLIRContext &context;
  llvm::raw_ostream &out;
  // Of --report=kernels: the files, the counts, and the assembler's figures.
  llvm::SmallVector<llvm::StringRef> kernelFiles;
  llvm::json::Object kernels;
  memory::KernelCode kernelCode{{}, "no library was written, so that nothing was assembled"};
};

} // namespace mpt

#endif // MPT_DRIVER_WRITEPRODUCT_H
