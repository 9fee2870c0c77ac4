// SPDX-License-Identifier: Apache-2.0
/* The part of abi.h for recurrent layers: all steps of one direction in a call, on CPUs,
 * and loops over calls. */
#ifndef MPT_C_ABI_RECURRENCE_H
#define MPT_C_ABI_RECURRENCE_H

#include "mpt-c/abi.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum mpt_recurrent_cell {
  MPT_CELL_LSTM = 0, /* gates i, o, f, c */
  MPT_CELL_GRU = 1,  /* gates z, r, h; the reset gate multiplies behind the GEMM */
  MPT_CELL_TANH = 2,
  MPT_CELL_RELU = 3,
  MPT_CELL_GRU_RESET_FIRST = 4 /* gates z, r, h; the reset gate multiplies the state before its GEMM */
} mpt_recurrent_cell;

/* The steps of a recurrent layer in one direction, or their gradients. All buffers are dense and row-major. Extents:
 * T = steps, N = batch, H = hidden, G = 4 (LSTM), 3 (both GRUs) or 1. All fields are 64 bits wide. */
typedef struct mpt_recurrence_desc {
  int64_t cell; /* mpt_recurrent_cell */
  int64_t backward, reverse;
  int64_t steps, batch, hidden;
  int64_t num_inputs, num_outputs;
  int64_t input_types[8], output_types[4]; /* mpt_dtype of each buffer: FP32, FP16 or BF16 */
  int64_t workspace_bytes;                 /* as mpt_recurrence_workspace says */
} mpt_recurrence_desc;

/* `buffers`: the inputs, then the outputs.
 * Forward: x [T, N, G H], r [G H, H], h0 [N, H], then c0 [N, H] (LSTM) or bias [H] (GRU);
 *          y [T, N, H], then the gates behind their activations [T, N, 4 H] (LSTM; GRU: z, r, h and s, h's recurrent
 *          sum, which r multiplies; with reset first [T, N, 3 H]: z, r, h), then [T, N, H] the cell states (LSTM) or
 *          r * state (reset first).
 * Backward: dy [T, N, H], r, h0, y, then the gates (LSTM, GRUs), the cell states, c0 and, if num_inputs is 8, their
 *          gradient [T, N, H] (LSTM); dx [T, N, G H], dh0 [N, H], then dc0 [N, H] (LSTM) or the gradient of s
 *          [T, N, H] (GRU).
 * Gates and sums are FP32; GEMMs read the state (backward: gradients of gates) rounded to r's type. */
int32_t mpt_rt_recurrence(mpt_exec *exec, int64_t site, const mpt_recurrence_desc *desc, void *const *buffers,
                          void *workspace);

/* The calls that follow have numbers from `call` on in the function's table, in another pass of a loop. */
void mpt_rt_repeat(mpt_exec *exec, int64_t call);

/* G of a cell. */
static inline int64_t mpt_recurrence_gates(int64_t cell) {
  return cell == MPT_CELL_LSTM ? 4 : cell == MPT_CELL_GRU || cell == MPT_CELL_GRU_RESET_FIRST ? 3 : 1;
}

/* Bytes of scratch of a recurrence: the weights, packed; operands that two steps leave for the GEMMs of the next ones;
 * a state that runs along, and the cell state; all in FP32. */
static inline int64_t mpt_recurrence_workspace(const mpt_recurrence_desc *d) {
  const int64_t gates = mpt_recurrence_gates(d->cell);
  const int64_t hidden = (d->hidden + 31) / 32 * 32, rows = (d->batch + 15) / 16 * 16;
  return 4 * (gates * hidden * hidden + (2 * gates + 2) * rows * hidden) + 4096;
}

#ifdef __cplusplus
}
#endif

#endif
