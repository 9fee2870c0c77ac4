// SPDX-License-Identifier: Apache-2.0
// The state of one conversion from onnx.node to core ops.
#ifndef MPT_LIB_IMPORT_CONVERTER_H
#define MPT_LIB_IMPORT_CONVERTER_H

#include "Binder.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace mpt {

class Converter {
public:
  explicit Converter(mlir::ModuleOp module) : module(module), builder(module.getContext()) {}
  ~Converter() { clearFolded(); }

  llvm::LogicalResult run();

  /// The core value of a value of @main; null for absent operands and sequences.
  mlir::Value lookup(mlir::Value onnx) { return values.lookup(onnx); }
  /// A value without elements is a constant: no operation reads it, and its users fold.
  void map(mlir::Value onnx, mlir::Value core);
  /// Converts the ops of a block in place of a node (the taken branch of an If); maps its yielded values to `results`.
  llvm::LogicalResult inlineBlock(mlir::Block &block, mlir::ValueRange results);
  /// The elements of a sequence value.
  llvm::DenseMap<mlir::Value, llvm::SmallVector<mlir::Value>> sequences;
  /// For results of QuantizeLinear, the same whole numbers as floats: their decoding needs no integers.
  llvm::DenseMap<mlir::Value, mlir::Value> quantized;
  /// The state that `value` is read from, with nothing but the read between; null otherwise.
  mlir::Operation *stateOf(mlir::Value core);
  /// `core` before the first step, for the node at `loc`; null unless tensors of the file alone determine it.
  mlir::ElementsAttr initialValue(mlir::Value core, mlir::Location loc);
  std::pair<mlir::Value, int64_t> generator(mlir::Location loc);

  mlir::ModuleOp module;
  int inferenceNorms = 0; ///< with parameters that are trained
  /// Nodes of subgraphs that were converted so far, each copy counted.
  int64_t unrolledNodes = 0;

private:
  llvm::LogicalResult convertOps(mlir::Block &block);
  llvm::LogicalResult convertNode(onnx::NodeOp node);
  void foldNew(mlir::Block *block, mlir::Operation *before);
  llvm::LogicalResult convertFunction(mlir::func::FuncOp main, llvm::StringRef name, mlir::DictionaryAttr updates);
  llvm::LogicalResult convertResults(mlir::func::FuncOp main, mlir::func::FuncOp forward, mlir::DictionaryAttr updates);
  void finish(mlir::func::FuncOp forward);
  void dropStates();
  void clearFolded() {
    for (mlir::Operation *op : llvm::reverse(graveyard))
      op->destroy();
    graveyard.clear();
  }

  mlir::OpBuilder builder;
  mlir::Block *body = nullptr;
  llvm::DenseMap<mlir::Value, mlir::Value> values;
  std::optional<mlir::SymbolTable> table;
  mlir::Value key;
  int64_t streams = 0;
  llvm::DenseSet<mlir::Operation *> readEarly; ///< states that train and are read for their values before that
  /// Results of the node that was converted last, and folded ops that are erased at the end.
  llvm::SmallVector<mlir::Value> touched;
  llvm::SmallVector<mlir::Operation *> graveyard;
};

} // namespace mpt

#endif // MPT_LIB_IMPORT_CONVERTER_H
