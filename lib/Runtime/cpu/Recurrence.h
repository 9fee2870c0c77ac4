// SPDX-License-Identifier: Apache-2.0
// Inside the recurrence: the data that steps share, and the kernels that each instruction set provides.
#ifndef MPT_RUNTIME_CPU_RECURRENCE_H
#define MPT_RUNTIME_CPU_RECURRENCE_H

#include "mpt-c/abi.h"

namespace mpt::rt {

struct RecurrenceKernels;

/// A call while it runs. Threads share out blocks of the hidden dimension, and keep theirs: its weights stay in their
/// caches. Each step reads results of all threads in the one before.
struct Recurrence {
  const mpt_recurrence_desc *desc;
  const RecurrenceKernels *kernels;
  void *const *in, *const *out;
  int64_t gates;
  void *weights; ///< panels of as many columns as a block has: forward one a gate, over the hidden dimension; backward
                 ///< one, over all gates
  void *operand[2]; ///< of products, left by even and odd steps for the next: states, or gradients of gates;
                    ///< rounded to the weights' type, as `operandAt` lays them out
  void *kept;       ///< gru_reset_first, forward: r * state, as `operand`
  float *carry;     ///< [batch, hidden]: GRU's state; backward, dh without the products
  float *carryCell; ///< [batch, hidden]: the cell state where it is stored narrow; backward, its gradient

  /// A step goes over all blocks as often as this: each time reads results of all blocks of the time before.
  int passes() const { return desc->cell == MPT_CELL_GRU_RESET_FIRST ? 2 : 1; }
  /// The gates whose products a pass makes: with reset first, the last gate's are the second pass.
  int64_t firstGate(int pass) const { return pass ? 2 : 0; }
  int64_t endGate(int pass) const { return passes() > 1 && !pass ? 2 : gates; }
  /// Gates that lie side by side where they are saved.
  int64_t savedGates() const { return desc->cell == MPT_CELL_GRU_RESET_FIRST ? 3 : 4; }
  /// The index of the i-th step, in the order in which they run.
  int64_t index(int64_t i) const { return desc->reverse ? desc->steps - 1 - i : i; }
};

struct RecurrenceKernels {
  const char *name;
  int columns;       ///< of a block
  bool native;       ///< multiplies the weights' type as it is, and keeps operands in it; else FP32
  int64_t depthUnit; ///< the hidden size is a multiple of it
  /// Packs the weights of blocks [begin, end), and forward leaves the first state for the products.
  void (*pack)(const Recurrence &call, int64_t begin, int64_t end);
  /// One pass of step i over the blocks [begin, end); backward, i counts down, and -1, of one pass, leaves the
  /// gradients of the first state.
  void (*forward)(const Recurrence &call, int64_t i, int pass, int64_t begin, int64_t end);
  void (*backward)(const Recurrence &call, int64_t i, int pass, int64_t begin, int64_t end);
};

extern const RecurrenceKernels recurrencePortable;
/// Only in builds for x86-64.
extern const RecurrenceKernels recurrenceAvx2, recurrenceAvx512, recurrenceBf16, recurrenceAmx;

/// The best kernels that this processor has for a call.
const RecurrenceKernels &recurrenceKernels(const mpt_recurrence_desc &desc);
/// `kernels` can compute it: their operands' type and multiple of the hidden size.
bool takesRecurrence(const RecurrenceKernels &kernels, const mpt_recurrence_desc &desc);
/// Runs all steps with `kernels`, over the threads of `exec`.
void runRecurrence(mpt_exec *exec, const mpt_recurrence_desc &desc, const RecurrenceKernels &kernels,
                   void *const *buffers, void *workspace);

} // namespace mpt::rt

#endif
