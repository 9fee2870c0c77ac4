// SPDX-License-Identifier: Apache-2.0
// A user's options of the compiler, and their command-line words.
#ifndef MPT_DRIVER_COMPILEOPTIONS_H
#define MPT_DRIVER_COMPILEOPTIONS_H

#include "mpt/Support/Described.h"
#include "passes/Pipelines.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <optional>
#include <string>
#include <vector>

namespace mpt {

/// The product of a compilation.
enum class EmitKind { Library, Static, Object, LLVM, MLIR, ONNX, Products };

/// Symbolic dimensions of one extent, and its possible values.
struct Binding {
  std::vector<std::string> symbols;
  std::vector<int64_t> extents;
};

/// One choice of extents for the symbolic dimensions.
struct Size {
  std::string name; ///< the extents that other sizes do not share, as in batch=8,length=64
  llvm::StringMap<int64_t> bindings;
};

/// Types of optimizer states that a memory budget may choose, those of the least error first.
inline constexpr llvm::StringLiteral kBudgetSlots[] = {"bf16", "i8", "f8"};

/// One compilation. Member defaults are the command line's defaults; empty means not given.
struct CompileOptions : PipelineOptions {
  bool budgetCodes = false;             ///< to meet the memory budget, activations may wait in 8 bits
  bool budgetChecks = false;            ///< and parameters have finite checks of their own
  std::vector<std::string> budgetSlots; ///< types that optimizer states may have to meet it
  std::string input;                    ///< .onnx, .onnxtxt or .mlir file
  std::string output;                   ///< folder for libraries; file, or "-" for standard output, otherwise
  std::string name;                     ///< names the library; the input's stem when empty
  std::string from;                     ///< first phase; "import" when empty
  std::string to;                       ///< last phase
  std::string freeze, train;            ///< regular expressions over parameter names
  std::string tie, batchNorm;           ///< merged tensors that stay one; train or frozen
  std::string backward;                 ///< of a joint graph: file or own
  llvm::StringMap<int64_t> maxSteps;    ///< of loops whose number of steps is computed at run time, by node
  std::string seed;                     ///< of a joint graph: the value that its backward pass starts from
  std::string checkpoint, optimizerModel, evalModel; ///< beside a training model of ONNX Runtime
  llvm::StringMap<std::string> gradients, next;      ///< outputs of a joint graph, by initializer
  std::string onnxState = "initializers";            ///< of a step as ONNX: where states are given
  std::string onnxOps = "all";                       ///< of a step as ONNX: all or portable
  std::string inferenceModel;                        ///< file that trained values are saved in; the input when empty
  std::string data;                                  ///< folder of inputs that ranges are measured on before
  std::string state;                          ///< with emit ONNX: a saved state, whose values the input's file gets
  bool averaged = false;                      ///< the averages in it
  std::string onnxForm = "joint";             ///< of a training step as ONNX: joint or training-info
  std::string onnxArithmetic = "native";      ///< of a training step as ONNX: native, or wide without bf16 arithmetic
  bool hasLoss = false, hasOptimizer = false; ///< given, not the default: later flags add to it
  bool dryRun = false;                        ///< phases and reports, no product
  bool trains = false; ///< a flag asks for a training step; without one, --emit=onnx rewrites the graph as it is
  bool timing = false;
  bool quiet = false;
  EmitKind emit = EmitKind::Library;
  std::vector<std::pair<std::string, std::string>> targetFlags; ///< of the target, as given
  std::vector<Binding> bindings;                                ///< several extents make a library of several sizes
  std::vector<std::string> reports;                             ///< precision, memory; "kind" or "kind=file"

  /// Reads command-line words (without the program's name). The error names the wrong word and the expected form.
  static llvm::Expected<CompileOptions> parse(llvm::ArrayRef<llvm::StringRef> words);
  /// All combinations of the extents bound, the first symbol's changing last.
  std::vector<Size> sizes() const;
  /// The first flag about the file that a step is written to, as given; empty where there is none.
  std::string flagOfStepFile() const;
  /// One line a flag, by group; of the group named alone. The error lists the groups.
  static llvm::Expected<std::string> help(llvm::StringRef group = "");
  /// Whether `name` is a flag with a value, which may be the next word.
  static bool takesValue(llvm::StringRef name);
  /// All flags, each with the placeholder for its value in the help; empty for switches.
  static std::vector<Described> flags();
};

} // namespace mpt

#endif // MPT_DRIVER_COMPILEOPTIONS_H
