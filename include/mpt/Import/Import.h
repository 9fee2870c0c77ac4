// SPDX-License-Identifier: Apache-2.0
// ONNX files to modules: the graph as onnx.node ops, then the core graph.
#ifndef MPT_IMPORT_IMPORT_H
#define MPT_IMPORT_IMPORT_H

#include "mpt/Support/Described.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/StringMap.h"

namespace mpt {

/// No tensor has more elements: beyond any memory, and products of two such counts' extents still tell overflow.
constexpr int64_t mostElements = int64_t(1) << 40;

/// Options of the user beside the file.
struct ImportOptions {
  /// The module's name (`mpt.name`); empty: the file's stem, or "model" for buffers.
  std::string name;
  /// Extents of symbolic dimensions of the graph's inputs, by symbol.
  llvm::StringMap<int64_t> bindings;
  /// Initializers whose whole name matches one of `train` are the parameters, and no others; without expressions the
  /// use of an initializer decides. Initializers that match one of `freeze` are parameters that no optimizer changes.
  std::vector<std::string> train, freeze;
  /// Of biases and scales that layers share, since an exporter has merged equal ones: the names that stay one tensor.
  std::string tie;
  /// Batch normalizations in inference form: "train" makes them ones in training form; else they stay.
  std::string batchNorm;
  /// Of a graph with gradients or new values as outputs: "file" takes its backward pass, "own" only its loss; empty
  /// takes the file's where there is one.
  std::string backward;
  /// Outputs that are gradients of initializers, and new values of initializers, by initializer; outputs named P_grad
  /// and P_next need no entry.
  llvm::StringMap<std::string> gradients, next;
  /// The value that the backward pass of the file starts from; empty looks for it.
  std::string seed;
  /// The most steps of loops whose number of steps is computed at run time, by name of the node.
  llvm::StringMap<int64_t> maxSteps;
  /// Files beside a training model of ONNX Runtime: the values of its parameters, its optimizer, and its evaluation.
  std::string checkpoint, optimizerModel, evalModel;
  /// `evalModel` was found in a folder and not named by the user.
  bool evalModelIsFound = false;
  /// A training step is made of it: parameters that an exporter has folded away are told.
  bool trains = false;
  /// Leave algorithms in training information aside.
  bool ignoresAlgorithms = false;
};

/// Reads a binary or textual ONNX model: `onnx.node` ops one to one in `func @main`, one `train.state` an initializer
/// with float elements, `mpt.constant` for the others. Local functions are inlined; types come from ONNX shape
/// inference. Errors are reported to the context's diagnostics at the node's name. Large tensors stay mapped files.
/// External data is looked up in `folder`, and refused when that is empty.
llvm::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> importOnnxBuffer(llvm::StringRef bytes, llvm::StringRef folder,
                                                                    const ImportOptions &options,
                                                                    mlir::MLIRContext *context);

/// Where `path` is a folder of ONNX Runtime's training artifacts: its training_model.onnx, with `options` naming the
/// other files that it holds. Other paths as they are.
std::string trainingModelIn(llvm::StringRef path, ImportOptions &options);

/// Reads a model that goes back into a file (exportNodes): `func @main` of onnx.node and onnx.initializer ops with the
/// names of all values, types with symbolic extents, subgraphs as regions, everything else as text in attributes. Local
/// functions are inlined and CastLike becomes Cast; the rest is one to one.
llvm::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> importNodes(llvm::StringRef path, llvm::StringRef name,
                                                               mlir::MLIRContext *context);
/// The same from memory; external data is looked up in `folder`.
llvm::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>> importNodesBuffer(llvm::StringRef bytes, llvm::StringRef folder,
                                                                     llvm::StringRef name, mlir::MLIRContext *context);

/// Rewrites `func @main` of onnx.node ops to `func @forward` of core ops with static shapes; evaluates shape
/// arithmetic.
llvm::LogicalResult convertOnnxToCore(mlir::ModuleOp module);

/// Gives nodes of the ONNX dialect the numeric classes that the entries of import rules state.
void registerOperatorClasses(mlir::DialectRegistry &registry);

/// True for a file whose training information updates something. Looks at that part of the file alone.
bool holdsSteps(llvm::StringRef path);

/// Operators with an entry, in order: "Gemm", or "com.microsoft:Gelu" for one of another domain.
std::vector<llvm::StringRef> knownOperators();

/// Operators with an entry, each with the oldest opset that is read, its class, and operands that may be parameters.
std::vector<Described> describeOperators();

/// True when an import rule exists for the op in some version.
bool hasImportRule(llvm::StringRef domain, llvm::StringRef opType);

/// True where operand `operand` of the operator may be trained: a weight, a bias or a scale.
bool mayTrain(llvm::StringRef domain, llvm::StringRef opType, unsigned operand);
/// True where it is nothing else.
bool isWeightOperand(llvm::StringRef domain, llvm::StringRef opType, unsigned operand);
/// True where the result is a function of the operand's elements, each by itself, that is not linear: exp, tanh,
/// clamps.
bool isFunction(llvm::StringRef domain, llvm::StringRef opType, unsigned operand);
/// True for sums of products, which have weights of their own.
bool contracts(llvm::StringRef domain, llvm::StringRef opType);
/// True where the result has the elements of the first operand, in another place or type.
bool moves(llvm::StringRef domain, llvm::StringRef opType);

/// True for an operator that ONNX Runtime writes into `version` of ai.onnx, which has no such operator.
bool isRuntimeOperator(llvm::StringRef opType, int64_t version);

/// The message for an operator without an import rule, with advice.
std::string unsupportedOperator(llvm::StringRef domain, llvm::StringRef opType, int64_t version);

} // namespace mpt

#endif // MPT_IMPORT_IMPORT_H
