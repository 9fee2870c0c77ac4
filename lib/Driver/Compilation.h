// SPDX-License-Identifier: Apache-2.0
// The parts of one compilation: it reads a model (ReadModel.cpp), runs phases (Compile.cpp), and writes the product and
// the reports (WriteProduct.cpp).
#ifndef MPT_DRIVER_COMPILATION_H
#define MPT_DRIVER_COMPILATION_H

#include "MemoryBudget.h"

#include "mpt/Driver/CompileOptions.h"
#include "mpt/Import/Import.h"
#include "mpt/Import/Template.h"
#include "mpt/Import/TrainingForm.h"
#include "mpt/Memory/KernelCode.h"
#include "mpt/Precision/Policy.h"
#include "passes/Pipelines.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

namespace mpt {

/// The graph that comes in leaves node by node: none of the dialects that code is generated through is needed.
bool rewritesNodes(const CompileOptions &options);

class Compilation {
public:
  Compilation(const CompileOptions &options, mlir::MLIRContext &context, llvm::raw_ostream &out, llvm::raw_ostream &log)
      : options(options), pipeline(options), out(out), log(log), context(context) {
    if (options.products) // the output is a table
      pipeline.policy = PolicyName::of(options.policy).name;
  }

  /// The whole compilation, up to the product.
  llvm::LogicalResult run();
  /// Writes the reports of kernels that were asked for, with the figures of their code.
  llvm::LogicalResult reportKernels();
  /// Reads the model and runs the phases that the options ask for; reports are written on the way.
  llvm::LogicalResult runPhases();
  mlir::OwningOpRef<mlir::ModuleOp> takeModule() { return std::move(module); }

private:
  // ---- read a model

  /// The model as a module, with the extents of `size`.
  llvm::LogicalResult read(const Size &size);
  /// Says which parts of training the file holds, and which of them are used.
  void sayForm();
  /// Says which parameters train and which are held. A step that trains nothing is a mistake.
  llvm::LogicalResult sayTrained();
  /// Where the compilation has a training step, made here or brought by the file.
  bool makesStep();
  /// Says `text` once: sizes are found in the same file.
  void say(const std::string &text);
  /// The parts of the file's training that the step has, and the sources of the rest.
  std::string usedOf(const TrainingForm &form);
  /// Arithmetic that stays as the file wrote it has other precision classes than the operation would have.
  void sayRecognized();
  /// A joint graph has its loss, and an optimizer where the user names none.
  llvm::LogicalResult takeForm();
  /// The training phase makes steps of the file's algorithms where it brings some.
  llvm::LogicalResult countAlgorithms();
  /// A backward pass among the nodes is rewritten like all others, and nothing scales its gradients.
  void sayNodesForm();
  /// A flag given that is about training steps; empty where none is.
  std::string flagOfSteps() const;

  // ---- run phases

  /// Runs the first phases size by size and joins their results in one module.
  llvm::LogicalResult joinSizes(llvm::ArrayRef<Size> sizes, llvm::ArrayRef<Phase> each);
  llvm::LogicalResult runPhases(llvm::ArrayRef<Phase> phases);
  /// False before the phase of --from.
  bool started(llvm::StringRef phase);
  llvm::LogicalResult runPhase(const Phase &phase, const PipelineOptions &wishes);
  static llvm::ArrayRef<Phase> phasesFrom(llvm::StringRef first);
  /// Phases whose options a budget decides; they run as often as it takes.
  bool fitsBudget(const Phase &phase) const;
  /// Decides the options of the phases from `first` on so that the plan is within the budget, and keeps their results.
  llvm::LogicalResult planWithin(llvm::StringRef first);
  /// The phases from `first` to the plan. The error has the diagnostics.
  llvm::Expected<MemoryPlan> planFrom(llvm::StringRef first, mlir::ModuleOp source, const PipelineOptions &wishes);
  /// Takes @gradients, of every size, out of the result of phase fusion: no call of the library then needs more than
  /// the budget.
  void leaveOutGradients(mlir::ModuleOp fused, int64_t bytes);
  /// Times of one target say nothing of another, and not every target orders its sums.
  llvm::LogicalResult checkTarget();
  /// The model's own graph with the policy's types, node by node.
  llvm::LogicalResult rewriteNodes();

  // ---- write the product and reports

  /// Reports asked for that phase `phase` has made possible.
  llvm::LogicalResult report(llvm::StringRef phase);
  llvm::LogicalResult reportMemory(llvm::StringRef file);
  /// Entries of the emitted manifest beside the tables: where the library comes from and how it trains.
  void describe();
  /// The times that decided about 8-bit operands, and the device that they were measured on; null where none did.
  mlir::DictionaryAttr describeTimes();
  /// How many replicas a global step has (0: one a process), and which inputs hold rows for all of them.
  mlir::DictionaryAttr describeReplicas();
  /// The step (or, without training, the forward graph) as standard operators.
  llvm::LogicalResult writeOnnx();
  llvm::LogicalResult write();
  /// Writes the template of the model's file beside the library, as `path`.
  llvm::LogicalResult writeForm(std::string &path);
  /// Gives the template its name, or removes one that an earlier library had.
  llvm::LogicalResult placeForm(const std::string &path);
  std::string formName() const;
  llvm::LogicalResult writeText(llvm::function_ref<void(llvm::raw_ostream &)> print);

  // ---- messages

  llvm::LogicalResult fail(const llvm::Twine &message);
  void progress(const llvm::Twine &message);

  const CompileOptions &options;
  PipelineOptions pipeline; ///< with the module's own settings
  llvm::raw_ostream &out, &log;
  mlir::MLIRContext &context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::optional<BudgetSearch> searched;                       ///< under --memory-budget
  llvm::StringMap<mlir::OwningOpRef<mlir::ModuleOp>> planned; ///< results of phases that the search has run
  bool reached = false;
  llvm::StringSet<> said; ///< of the file's form
  TensorSites sites;      ///< of states in the file
  // Of --report=kernels: the files, the counts, and the assembler's figures.
  llvm::SmallVector<llvm::StringRef> kernelFiles;
  llvm::json::Object kernels;
  memory::KernelCode kernelCode{{}, "no library was written, so that nothing was assembled"};
};

} // namespace mpt

#endif // MPT_DRIVER_COMPILATION_H
