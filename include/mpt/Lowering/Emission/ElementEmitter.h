// SPDX-License-Identifier: Apache-2.0
// Builds the elements of a fusion's values inside generated loops, each once per point of the loops it depends on.
#ifndef MPT_LOWERING_EMISSION_ELEMENTEMITTER_H
#define MPT_LOWERING_EMISSION_ELEMENTEMITTER_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/Emission/IndexExpr.h"
#include "mpt/Lowering/Emission/KernelTarget.h"
#include "mpt/Lowering/Emission/ValueBuilder.h"

#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Support/Alignment.h"

namespace mpt {

class ElementEmitter;

/// Another way to compute reductions than loops of one thread.
class ReductionStrategy {
public:
  virtual ~ReductionStrategy();
  /// Values of `group`, reductions over the same elements, at the kept indices `at`; nothing where loops serve.
  virtual std::optional<llvm::SmallVector<mlir::Value>>
  reduce(ElementEmitter &emitter, llvm::MutableArrayRef<ReduceOp> group, llvm::ArrayRef<IndexExpr> at) = 0;
};

class ElementEmitter : public ValueBuilder {
public:
  using Indices = llvm::ArrayRef<IndexExpr>;
  using Access = MemoryAccess;
  ElementEmitter(mlir::ImplicitLocOpBuilder &builder, const KernelTarget &target, bool probe);

  void bind(mlir::Value argument, mlir::Value buffer);        ///< names the memory of a fusion argument
  void hint(mlir::Value buffer) { buffers[buffer] = buffer; } ///< its strides say how to walk its shape
  /// Element `at` of `tensor`: a scalar, or a vector where `at` differs between lanes. Emitted where its indices are
  /// known and remembered there.
  mlir::Value element(mlir::Value tensor, Indices at);
  /// The element of a buffer, in compute type.
  mlir::Value load(mlir::Value buffer, Indices at);
  /// Writes an element that was computed for `type`.
  void store(mlir::Value value, mlir::Value buffer, Indices at);
  /// Another name for an element in a row buffer or elsewhere.
  void define(mlir::Value tensor, Indices at, mlir::Value value);
  /// True once element(tensor, at) was built.
  bool knows(mlir::Value tensor, Indices at) const { return memo.count(key(tensor, at)); }

  // ---- loops
  /// A loop from `low` to `high`; its variable counts `extent` values. `width` > 1 makes a lane loop of that step.
  /// `carried` values flow through `body`, which gets the variable's expression and the values and returns the next
  /// ones.
  using Body = llvm::function_ref<llvm::SmallVector<mlir::Value>(IndexExpr, mlir::ValueRange)>;
  llvm::SmallVector<mlir::Value> loop(mlir::Value low, mlir::Value high, int64_t extent, unsigned width,
                                      mlir::ValueRange carried, Body body);
  /// The whole range of `extent`, in vectors of `width` with a scalar rest.
  void vectorLoop(mlir::Value low, mlir::Value high, int64_t extent, unsigned width,
                  llvm::function_ref<void(IndexExpr)> body);
  /// Strides of a buffer of `shape` among those bound, row-major ones without: the order in which to walk the shape.
  llvm::SmallVector<int64_t> stridesFor(llvm::ArrayRef<int64_t> shape);
  /// Axes of `shape` from the largest stride to the smallest; neighbours that one index can walk are one group.
  llvm::SmallVector<llvm::SmallVector<int64_t>> walk(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> axes);
  /// Sets at[axis] for the axes of a group from one index over their product.
  void spread(const IndexExpr &index, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> group,
              llvm::MutableArrayRef<IndexExpr> at);

  /// Runs `body` in a scope of its own that is entered only where `condition` holds.
  void guarded(mlir::Value condition, llvm::function_ref<void()> body);
  /// A variable of the scope that is being filled: `value` counts [0, extent); `width` > 1 makes it the first of that
  /// many lanes.
  IndexExpr variable(mlir::Value value, int64_t extent, unsigned width = 1);

  /// Runs `body` where indices of `depth` are known.
  template <typename F> auto at(unsigned depth, F body) {
    AtScope scope(*this, depth);
    return body();
  }

  // ---- values
  mlir::Value index(const IndexExpr &expr);
  /// As index, as an integer or float of `type`; a vector where lanes differ.
  mlir::Value indexAs(const IndexExpr &expr, mlir::Type type);
  /// A new variable holding `value` (integer scalar or vector, in [0, extent)).
  IndexExpr opaque(mlir::Value value, int64_t extent, unsigned depth);
  std::optional<IndexExpr> knownPosition(mlir::Value indices, Indices at) const;
  void rememberPosition(mlir::Value indices, Indices at, const IndexExpr &expr);
  /// `expr` limited to [0, extent), and whether it was inside already (i1; null when always).
  IndexExpr clamp(const IndexExpr &expr, int64_t extent, mlir::Value &inside);
  /// Lanes of the vectors that indices `at` make; 1 where they are the same in all lanes.
  unsigned laneWidth(Indices at) const;

  /// Reports that `op` cannot be emitted; returns a placeholder so that emission can go on to the end.
  mlir::Value fail(mlir::Operation *op, const llvm::Twine &message, mlir::Type type);
  bool failed() const { return hasFailed; }

  IndexSpace space;
  const bool probe;
  bool laneInReductions = true;          ///< reductions may be vectorised along their own axes
  ReductionStrategy *strategy = nullptr; ///< how reductions are computed where not by loops
  /// Bytes that a buffer's address is a multiple of. Where given, vector accesses state their alignment.
  llvm::DenseMap<mlir::Value, int64_t> alignments;
  std::vector<Access> accesses;
  llvm::MapVector<mlir::Value, mlir::Value> buffers;
  llvm::SmallPtrSet<mlir::Operation *, 8> open; ///< reductions whose loops are being built
  unsigned reduced = 0;                         ///< reductions whose loops were built, each time that they were
  const struct Alongside *alongside = nullptr;  ///< a visitor that some of these loops call (Models.h)

private:
  struct Scope {
    mlir::Block *block;
    mlir::Operation *before; ///< null: at the end
  };
  /// Emission at the scope of `depth`, whatever loop is being filled.
  class AtScope {
  public:
    AtScope(ElementEmitter &emitter, unsigned depth);
    ~AtScope();

  private:
    ElementEmitter &emitter;
    unsigned depth;
    std::vector<Scope> inner;
    mlir::Operation *before;
    mlir::OpBuilder::InsertionGuard guard;
  };
  struct Address {
    mlir::Value base;
    int64_t stride = 0;
    mlir::Value lanes;
    unsigned width = 1;
  };
  Address address(const IndexExpr &linear);
  IndexExpr linearAddress(mlir::Value buffer, Indices at);
  llvm::MaybeAlign alignmentOf(mlir::Value buffer, const IndexExpr &linear) const;
  mlir::Value emit(mlir::Value tensor, Indices at);
  mlir::Value variableValue(unsigned id);
  mlir::Value variableLanes(unsigned id, unsigned width);
  mlir::Value flat(mlir::Value buffer);

  using Key = std::pair<void *, llvm::SmallVector<IndexExpr, 4>>;
  static Key key(mlir::Value tensor, Indices at);
  std::map<Key, mlir::Value> memo;
  std::map<Key, IndexExpr> positions;
  llvm::DenseMap<mlir::Value, mlir::Value> flats;
  std::vector<Scope> scopes;
  bool hasFailed = false;
};
} // namespace mpt

#endif // MPT_LOWERING_EMISSION_ELEMENTEMITTER_H
