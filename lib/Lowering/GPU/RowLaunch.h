// SPDX-License-Identifier: Apache-2.0
// One launch of teams of threads, each of which sums up a row and makes the outputs that depend on the sums.
#ifndef MPT_LIB_LOWERING_GPU_ROWLAUNCH_H
#define MPT_LIB_LOWERING_GPU_ROWLAUNCH_H

#include "Team.h"
#include "mpt/Lowering/GPU/KernelBuilder.h"

#include <memory>
#include <vector>

namespace mpt {

/// Scratch for sums that an earlier launch leaves in pieces: a buffer [point][slice] for each reduction.
struct PartialBuffers {
  llvm::ArrayRef<ReduceOp> reductions;
  int64_t slices;

  int64_t bytes() const { return offsetOf(reductions.size()); }
  /// The buffer of reduction `number` in a launch.
  mlir::Value buffer(GpuKernelBuilder::Frame &frame, unsigned number) const;
  llvm::SmallVector<mlir::Value> all(GpuKernelBuilder::Frame &frame) const;

private:
  int64_t offsetOf(unsigned number) const;
};

class RowLaunch {
public:
  /// Rows of `extent` elements; with `partial` of so many pieces, which lie in scratch.
  RowLaunch(GpuKernelBuilder &kernel, int64_t extent, const PartialBuffers *partial = nullptr)
      : kernel(kernel), extent(extent), partial(partial) {}
  void emit(llvm::StringRef schedule);

private:
  using Frame = GpuKernelBuilder::Frame;
  /// The row of a thread.
  struct Place {
    mlir::Value member; ///< the thread's number in its team
    mlir::Value number; ///< of the row
    mlir::Value used;   ///< whether the team has a row of its own; null where all have
  };
  void chooseVectors();
  void chooseKept();
  void chooseTeams();
  int64_t heldBy(int64_t threads) const { return ceilDiv(pieces, threads) * vector; }
  Place placeOf(Frame &frame) const;
  mlir::Value packedStream() const;
  void holdAgain(ElementEmitter &e, Team &before, Team &after, llvm::MutableArrayRef<IndexExpr> at);
  void emitPackedSums(Frame &frame, const Place &place, llvm::ArrayRef<IndexExpr> at);
  /// `team` keeps a row as long as keepsLongRow says.
  bool holdsRow(const Team &team) const;
  void emitTeam(Frame &frame);
  void emitElements(Frame &frame, Team &team, llvm::SmallVector<IndexExpr> at, const Place &place);
  void storeKeptRow(Frame &frame, Team &team, llvm::ArrayRef<int64_t> order, llvm::SmallVector<IndexExpr> at,
                    mlir::Value used, Team writer);

  GpuKernelBuilder &kernel;
  const int64_t extent;
  const PartialBuffers *partial;
  unsigned vector = 1;
  int64_t ragged = 0; ///< elements of a row that no vector divides, but whose rows begin where vectors may
  bool many = false;  ///< sums beside each other
  int64_t streams = 1, shared = 0, pieces = 1, points = 1; ///< `shared`: streams that are the same for all rows
  int64_t unroll = 0;                                      ///< values of each stream that a thread keeps
  int64_t mostThreads = 0, threads = 1;
  int64_t together = 1; ///< teams of a block
  bool keepsLongRow = false;
  mlir::Value packed; ///< the operand of 16 bits whose row threads keep as it lies in memory, two values a register
  std::vector<std::unique_ptr<Team>> teams; ///< one for each pass over a packed row
  int64_t passes = 1;                       ///< over the row's memory
};

} // namespace mpt

#endif // MPT_LIB_LOWERING_GPU_ROWLAUNCH_H
