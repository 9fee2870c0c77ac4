// What a user asks of the compiler, and how command-line words say it.
#ifndef MPT_CAPI_COMPILEOPTIONS_H
#define MPT_CAPI_COMPILEOPTIONS_H

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace mpt {

/// The product of a compilation.
enum class EmitKind { Library, Static, Object, LLVM, MLIR, ONNX };

/// One compilation. Member defaults are the command line's defaults; empty means not given.
struct CompileOptions {
  std::string input;         ///< .onnx, .onnxtxt or .mlir file
  std::string output;        ///< folder for libraries; file, or "-" for standard output, otherwise
  std::string name;          ///< names the library; the input's stem when empty
  std::string loss = "none"; ///< softmax-cross-entropy, mse, l1, bce-with-logits or none (the graph has one)
  std::string optimizer = "sgd,lr=0.01";
  std::string policy = "fp32"; ///< built-in policy or a path to a policy file
  std::string target = "cpu";
  std::string mcpu = "native";
  std::string from;                ///< first phase; "import" when empty
  std::string to;                  ///< last phase
  std::string freeze, train;       ///< regular expressions over parameter names
  std::string keepF32, keepNarrow; ///< regular expressions over node names
  std::string lossScale;           ///< overrides the policy's: dynamic, none, or a number
  double clipNorm = 0.0;           ///< largest global gradient norm; 0 does not clip
  int64_t accumulate = 1;          ///< micro-steps whose gradients are summed before an update
  bool noDropout = false;
  bool forwardOnly = false; ///< inference: no loss, backward or optimizer
  bool timing = false;
  bool quiet = false;
  EmitKind emit = EmitKind::Library;
  llvm::StringMap<int64_t> bindings; ///< symbolic dimension -> extent
  std::vector<std::string> reports;  ///< precision, memory, kernels; "kind" or "kind=file"

  /// Reads command-line words (without the program's name). The error says which word is wrong and what was expected.
  static llvm::Expected<CompileOptions> parse(llvm::ArrayRef<llvm::StringRef> words);
  /// One line a flag.
  static std::string help();
};

/// True when the words ask for a compilation (an ONNX input, or a phase or product by flag) rather than for single
/// passes.
bool isCompilation(llvm::ArrayRef<llvm::StringRef> words);

} // namespace mpt

#endif // MPT_CAPI_COMPILEOPTIONS_H
