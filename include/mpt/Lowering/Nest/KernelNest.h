// SPDX-License-Identifier: Apache-2.0
// The points that a kernel visits, and its work at each: shared by the targets' mappings of them to hardware.
#ifndef MPT_LOWERING_NEST_KERNELNEST_H
#define MPT_LOWERING_NEST_KERNELNEST_H

#include "mpt/Lowering/Emission/ElementEmitter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

class KernelNest {
public:
  KernelNest(FusionOp fusion, llvm::ArrayRef<mlir::MemRefType> inputs, llvm::ArrayRef<mlir::MemRefType> outputs);

  mlir::Block &body() { return fusion.getBody().front(); }
  mlir::ValueRange yielded() { return body().getTerminator()->getOperands(); }
  /// Emits the nest once, without vectors, and chooses `lane` from how each access moves with each axis. Fails after
  /// reporting an op that has no loop form.
  bool chooseLane(const KernelTarget &target);
  /// A private function of the inputs, the outputs and arguments of types `more`.
  mlir::func::FuncOp makeFunction(mlir::OpBuilder &builder, llvm::StringRef name, llvm::ArrayRef<mlir::Type> more);
  /// An emitter's arguments and outputs are the first arguments of `function`.
  void bind(ElementEmitter &e, mlir::func::FuncOp function);
  mlir::ValueRange outputBuffers(mlir::func::FuncOp function) {
    return function.getArguments().slice(inputs.size(), outputs.size());
  }

  /// An element of an output, computed and waiting to be written.
  struct Result {
    mlir::Value value;
    llvm::SmallVector<IndexExpr> at;
    unsigned output;
  };
  /// The outputs' elements at a point, or of a row when only `kept` indices are known.
  llvm::SmallVector<Result> outputsAt(ElementEmitter &e, llvm::ArrayRef<IndexExpr> at, bool rowLevel);
  /// Writes elements; where `condition` is given, only if it holds.
  void store(ElementEmitter &e, mlir::ValueRange buffers, llvm::ArrayRef<Result> results, mlir::Value condition = {});
  void storeOutputs(ElementEmitter &e, mlir::ValueRange buffers, llvm::ArrayRef<IndexExpr> at, bool rowLevel,
                    mlir::Value condition = {}) {
    store(e, buffers, outputsAt(e, at, rowLevel), condition);
  }
  /// Loops over a row; `laneGiven`: the lane's indices are in `at`.
  void emitRow(ElementEmitter &e, mlir::ValueRange buffers, llvm::SmallVector<IndexExpr> at, bool laneGiven);
  bool isRowLevel(mlir::Value output);
  bool hasRowOutputs() {
    return llvm::any_of(yielded(), [&](mlir::Value output) { return isRowLevel(output); });
  }
  int64_t extentOf(llvm::ArrayRef<int64_t> axes) const;
  /// Kept axes but the lane's, from the largest stride to the smallest.
  llvm::SmallVector<int64_t> outerAxes(ElementEmitter &e);
  bool laneKept() const { return !lane.empty() && !laneInRow; }

  FusionOp fusion;
  llvm::ArrayRef<mlir::MemRefType> inputs, outputs;
  llvm::SmallVector<int64_t> shape; ///< the iteration space
  llvm::SmallVector<int64_t> kept;  ///< axes outside the rows
  llvm::SmallVector<int64_t> row;   ///< axes inside the rows: a row's reductions run before its elements
  llvm::SmallVector<int64_t> lane;  ///< group of axes walked by vectors, the fastest last; empty for scalar loops
  bool laneInRow = false;
  unsigned width = 1;              ///< of the vectors along `lane`
  llvm::SmallVector<bool> written; ///< outputs that are stored elsewhere; may be shorter than the outputs
  bool innerLoops = false;         ///< an element has loops of its own, over elements in memory
  bool readsWindows = false;       ///< an element reads where limits of a plane, or numbers in memory, place it
  /// Pairs of arguments, an input and an output, that may be one buffer where a row is one thread's (see KernelInfo).
  llvm::SmallVector<std::pair<unsigned, unsigned>> inPlace;
  std::vector<MemoryAccess> accesses;    ///< of one point, in the probe's variables
  llvm::SmallVector<unsigned> variables; ///< of the probe, one an axis

private:
  void chooseSpace();
  void chooseLane(const IndexSpace &space);
  void findInPlace(const IndexSpace &space);
  llvm::SmallVector<int64_t> joined(int64_t lane, llvm::ArrayRef<int64_t> pool, const IndexSpace &space);
};

} // namespace mpt

#endif // MPT_LOWERING_NEST_KERNELNEST_H
