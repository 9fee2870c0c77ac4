// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: the block loops. Its parts, included here, are written once over a vector type `Vec` that the
// including file defines in an anonymous namespace (with `tileRows`, `depthMax` and `rowsMax`), and over the packing
// that it includes before. Blocking after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication",
// ACM TOMS 34(3), 2008; operands are widened while they are packed: to FP32 (GemmPack.h), or to pairs of BF16
// (GemmPackPairs.h).
//
// A sum over k is always taken in the same order, whatever the rectangle or thread: blocks of equal depth, one fused
// multiply-add after the other inside a block. With MPT_GEMM_ORDERED a block goes on from the sums of the one before,
// and there are no thin GEMMs.

#include "cpu/GemmGather.h"

#include "cpu/GemmTile.h"

#include "cpu/GemmFinish.h"

#include "cpu/GemmThin.h"

#include "cpu/GemmOperands.h"

namespace {

/// A block of rows against a block of columns, over one block of k.
struct Block {
  int64_t rows, cols, depth; // in lanes of packed operands
  bool rowsA;                // A is widened row by row, not in panels
  const float *a;
  const char *b; // packed panels, or B itself
  int64_t ldb, panelBytes;
  TileFn (*tiles)(bool rowsA, int64_t rows);
  bool first, last;
  Onto earlier;   // how sums of earlier blocks enter
  float *partial; // sums of earlier blocks of k, partialPitch apart; null when there is one block
};

void runBlock(const Block &block, const Operand &out, char *d, int64_t ldd, const Epilogue &e, bool direct) {
  alignas(64) float local[MR * NR];
  TileFn whole = block.tiles(block.rowsA, MR);
  TileFn tail = block.rows % MR ? block.tiles(block.rowsA, block.rows % MR) : nullptr;
  bool packed = block.tiles == anyTile<float> && block.ldb == NR, plain = packed && block.last && !e.flags;
  const Epilogue edge{block.first ? e.flags : MPT_GEMM_ACCUMULATE, 1, nullptr};
  for (int64_t j = 0; j < block.cols; j += NR) {
    int64_t cols = block.cols - j < NR ? block.cols - j : NR;
    const char *b = block.b + j / NR * block.panelBytes;
    for (int64_t i = 0; i < block.rows; i += MR) {
      int64_t rows = block.rows - i < MR ? block.rows - i : MR;
      const float *a = block.a + (block.rowsA ? i * lead : i / MR * panelStride);
      TileFn kernel = rows == MR ? whole : tail;
      char *to = d + (i * ldd + j) * out.size;
      if (direct && rows == MR && cols == NR) {
        kernel(block.depth, a, b, block.ldb, reinterpret_cast<float *>(to), ldd,
               block.first && !(e.flags & MPT_GEMM_ACCUMULATE) ? Onto::nothing : Onto::behind);
      } else if (plain && rows == MR && cols == NR) {
        const float *c = block.partial && !block.first ? block.partial + i * partialPitch + j : nullptr;
        out.lastTile[block.rowsA](block.depth, a, reinterpret_cast<const float *>(b), c, to, ldd, e.alpha,
                                  c ? block.earlier : Onto::nothing);
      } else if (direct) {
        kernel(block.depth, a, b, block.ldb, local, NR, Onto::nothing);
        finishTile<float>(local, NR, to, ldd, rows, cols, edge, j);
      } else {
        // Sums of several blocks of k collect in `partial`; the last one leaves through the epilogue.
        float *c = block.partial ? block.partial + i * partialPitch + j : local;
        int64_t ldc = block.partial ? partialPitch : NR;
        kernel(block.depth, a, b, block.ldb, c, ldc, block.first ? Onto::nothing : block.earlier);
        if (block.last)
          out.finish(c, ldc, to, ldd, rows, cols, e, j);
      }
    }
  }
}

/// A GEMM of few columns.
void runFew(const GemmTask &task, float *columns, float *sums, float *bias) {
  const mpt_gemm_desc &g = *task.desc;
  Epilogue e{g.flags & ~inputFlags, static_cast<float>(g.alpha), nullptr};
  if (g.flags & MPT_GEMM_BIAS) {
    widenBias(task, 0, g.n, bias);
    e.bias = bias;
  }
  runThin(task, columns, sums, e);
}

void runGemm(const GemmTask &task, float *scratch) {
  const mpt_gemm_desc &g = *task.desc;
  const Operand &opA = input(g, g.a_type), &opB = input(g, g.b_type), &opD = operand(g.d_type);
  float *packedA = scratch, *packedB = packedA + (floatsA + 15) / 16 * 16, *partial = packedB + floatsB;
  float *bias = partial + floatsC;
  const char *a = static_cast<const char *>(task.a), *b = static_cast<const char *>(task.b);
  char *d = static_cast<char *>(task.d);
  int64_t lanes = (g.k + perLane - 1) / perLane;
  int64_t blocks = lanes > 0 ? (lanes + depthMax - 1) / depthMax : 1;
  int64_t depth = (lanes + blocks - 1) / blocks * perLane;
  const bool ordered = g.flags & MPT_GEMM_ORDERED;
  const int64_t flags = g.flags & ~inputFlags;
  if (!ordered && isThin(g, task.gather))
    return runFew(task, packedB, partial, bias);
  // FP32 results with nothing to do afterwards collect in d itself.
  bool direct = g.d_type == MPT_FLOAT32 && g.alpha == 1 && !(flags & ~MPT_GEMM_ACCUMULATE) && !(ordered && blocks > 1);
  bool rowsA = g.a_col == 1;
  int64_t rowStep = direct || blocks == 1 ? task.m1 - task.m0 : partialRows;
  // Few rows do not repay packing B, where its rows are contiguous.
  bool unpackedB = g.b_col == 1 && opB.unpackedTile && !task.gather && task.m1 - task.m0 <= 2 * MR;
  for (int64_t j0 = task.n0; j0 < task.n1; j0 += colsMax) {
    int64_t cols = task.n1 - j0 < colsMax ? task.n1 - j0 : colsMax;
    int64_t inPlace = unpackedB ? cols / NR * NR : 0; // columns read without packing
    Epilogue e{flags, static_cast<float>(g.alpha), nullptr};
    if (flags & MPT_GEMM_BIAS) {
      widenBias(task, j0, cols, bias);
      e.bias = bias;
    }
    for (int64_t s0 = task.m0; s0 < task.m1; s0 += rowStep) {
      int64_t s1 = s0 + rowStep < task.m1 ? s0 + rowStep : task.m1;
      for (int64_t q = 0; q < blocks; ++q) {
        int64_t k0 = q * depth, k = g.k - k0 < depth ? g.k - k0 : depth;
        const char *blockB = b + (k0 * g.b_row + j0 * g.b_col) * opB.size;
        if (task.gather)
          opB.packGather(*task.gather, task.b, k0, k, j0, cols, packedB);
        else if (g.b_col == 1)
          opB.packRowsB(blockB + inPlace * opB.size, g.b_row, k, cols - inPlace, packedB);
        else
          opB.packColumnsB(blockB, g.b_col, k, cols, packedB);
        for (int64_t i0 = s0; i0 < s1; i0 += rowsMax) {
          int64_t rows = s1 - i0 < rowsMax ? s1 - i0 : rowsMax;
          const char *blockA = a + (i0 * g.a_row + k0 * g.a_col) * opA.size;
          if (rowsA)
            opA.packRowsA(blockA, g.a_row, rows, rows, k, packedA);
          else
            opA.packPanelsA(blockA, g.a_col, rows, g.m - i0, k, packedA);
          char *to = d + (i0 * g.d_row + j0) * opD.size;
          Block block{rows,
                      inPlace,
                      (k + perLane - 1) / perLane,
                      rowsA,
                      packedA,
                      blockB,
                      g.b_row,
                      NR * opB.size,
                      opB.unpackedTile,
                      q == 0,
                      q + 1 == blocks,
                      ordered ? Onto::before : Onto::behind,
                      blocks > 1 && !direct ? partial + (i0 - s0) * partialPitch : nullptr};
          if (inPlace)
            runBlock(block, opD, to, g.d_row, e, direct);
          if (inPlace == cols)
            continue;
          block.cols = cols - inPlace;
          block.b = reinterpret_cast<const char *>(packedB);
          block.ldb = NR;
          block.panelBytes = block.depth * NR * static_cast<int64_t>(sizeof(float));
          block.tiles = anyTile<float>;
          if (block.partial)
            block.partial += inPlace;
          Epilogue rest{e.flags, e.alpha, e.bias ? e.bias + inPlace : nullptr};
          runBlock(block, opD, to + inPlace * opD.size, g.d_row, rest, direct);
        }
      }
    }
  }
}

constexpr int64_t gemmScratchBytes =
    static_cast<int64_t>(sizeof(float)) * ((floatsA + 15) / 16 * 16 + floatsB + floatsC + colsMax + NR);

} // namespace
