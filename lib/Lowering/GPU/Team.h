// SPDX-License-Identifier: Apache-2.0
// Threads of a block that share a row: who visits which elements, and sums across threads in a fixed order.
#ifndef MPT_LIB_LOWERING_GPU_TEAM_H
#define MPT_LIB_LOWERING_GPU_TEAM_H

#include "mpt/Lowering/Emission/Reductions.h"

#include "llvm/ADT/DenseSet.h"
#include <functional>
#include <map>

namespace mpt {

/// Element positions of a range of a row: `inside` is null where all threads hold one.
using TeamBody = llvm::function_ref<void(const IndexExpr &position, mlir::Value inside)>;
/// The element of `op`'s operand at reduced position `position`.
using TeamSource = llvm::function_ref<mlir::Value(ReduceOp op, const IndexExpr &position)>;

class Team : public ReductionStrategy {
public:
  /// `member` counts the team's threads, which are a power of two: parts of a warp, or whole blocks. Positions are
  /// visited in vectors of `width`; rows of up to `unroll` vectors a thread without loops, so that their values stay in
  /// registers. Of rows of `ragged` elements, which begin where vectors may, the last few are visited one by one.
  Team(ElementEmitter &e, mlir::Value member, int64_t threads, unsigned width, int64_t unroll, int64_t ragged = 0)
      : e(e), member(member), threads(threads), warp(e.target.warpThreads), width(width), unroll(unroll),
        ragged(ragged) {}

  std::optional<llvm::SmallVector<mlir::Value>> reduce(ElementEmitter &emitter, llvm::MutableArrayRef<ReduceOp> group,
                                                       llvm::ArrayRef<IndexExpr> at) override;
  /// Visits [0, extent), without a loop if isUnrolled.
  void forEach(int64_t extent, TeamBody body);
  /// Sums over the elements [begin, begin + length) of `extent` that `source` gives, of which each thread visits its
  /// own; every thread gets the results.
  llvm::SmallVector<mlir::Value> reduceRange(llvm::ArrayRef<ReduceOp> group, llvm::ArrayRef<Accumulator> accumulators,
                                             const IndexExpr &begin, int64_t length, int64_t extent, TeamSource source);
  llvm::SmallVector<mlir::Value> reduceAll(llvm::ArrayRef<ReduceOp> group, llvm::ArrayRef<Accumulator> accumulators,
                                           int64_t extent, TeamSource source);
  bool isUnrolled(int64_t extent) const;
  /// All threads' partial values, combined: in vectors, between lanes of warps, between warps. Every thread gets them.
  /// `more` are further partial values, of elements behind the last vector.
  llvm::SmallVector<mlir::Value> across(llvm::ArrayRef<Accumulator> accumulators, llvm::ArrayRef<mlir::Value> partial,
                                        llvm::ArrayRef<mlir::Value> more = {});
  /// True when `at` is the same for all threads of the team.
  bool isUniform(llvm::ArrayRef<IndexExpr> at) const;
  /// This thread's number in the team, which compilers do not recognize as such (each lane sends it to itself): values
  /// computed from it are not kept from the same computation before. For all threads, outside of loops.
  mlir::Value opaqueMember();
  /// This thread's number in the team.
  mlir::Value number() const { return member; }
  /// i1: whether this is the team's first thread.
  mlir::Value isFirst();
  /// Emits the preparation of a visit of a position, before the visit itself; may be empty.
  std::function<void(const IndexExpr &)> beforeVisit;
  bool scalarTotals = false; ///< running values of sums are one number, not a vector: where registers are scarce
  /// Bytes of shared memory declared so far.
  int64_t sharedBytes = 0;

private:
  unsigned widthFor(int64_t extent) const;
  void visit(const IndexExpr &position, mlir::Value inside, TeamBody body) const;
  void forVectors(int64_t extent, TeamBody body);
  void forRest(int64_t extent, TeamBody body);
  IndexExpr own(unsigned width);
  std::pair<IndexExpr, mlir::Value> tail(unsigned width, int64_t rest);
  void step(llvm::ArrayRef<ReduceOp> group, llvm::ArrayRef<Accumulator> accumulators,
            llvm::MutableArrayRef<mlir::Value> totals, const IndexExpr &position, unsigned lanes, mlir::Value inside,
            TeamSource source);
  bool dependsOnThread(const IndexExpr &expr) const;

  ElementEmitter &e;
  mlir::Value member;
  int64_t threads, warp;
  unsigned width;
  int64_t unroll, ragged;
  std::map<unsigned, IndexExpr> owned;
  std::map<std::pair<unsigned, int64_t>, std::pair<IndexExpr, mlir::Value>> tails;
  llvm::DenseSet<unsigned> threadVariables;
};

/// Axes among `axes` in the order in which a row of them is walked: the fastest last.
llvm::SmallVector<int64_t> walkOrder(ElementEmitter &e, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> axes);
/// A buffer of shared memory, declared in the module that is being filled.
mlir::Value sharedBuffer(ElementEmitter &e, llvm::ArrayRef<int64_t> shape, mlir::Type element, int64_t &bytes);

} // namespace mpt

#endif // MPT_LIB_LOWERING_GPU_TEAM_H
