// SPDX-License-Identifier: Apache-2.0
// The packed GEMM: the block loops. Its parts, included here, are written once over a vector type `Vec` that the
// including file defines in an anonymous namespace (with `tileRows`, `depthMax` and `rowsMax`), and over the packing
// and the tile that it includes before. Blocking after Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", ACM TOMS 34(3), 2008; operands are widened while they are packed: to FP32 (GemmPack.h), or to pairs
// of BF16 (GemmPackPairs.h).
//
// A sum over k is always taken in the same order, whatever the rectangle or thread: blocks of equal depth, one fused
// multiply-add after the other inside a block. With MPT_GEMM_ORDERED a block goes on from the sums of the one before,
// and there are no thin GEMMs. With MPT_GEMM_TWO_CHAINS as well, 32 products are two chains of fused multiply-adds from
// 0, of the even terms and the odd ones; their sum is added to the sum so far. Zeros extend k to a multiple of 32, and
// subnormal numbers are zeros. TDPBF16PS is defined so (Intel, Software Developer's Manual, volume 2).

#include "cpu/FlushSubnormals.h"
#include "cpu/GemmGather.h"

#include "cpu/GemmFinish.h"

#include "cpu/GemmThin.h"

#include "cpu/GemmOperands.h"

namespace {

/// A block of rows against a block of columns, over one block of k.
struct Block {
  int64_t rows, cols, depth; // in lanes of packed operands
  bool rowsA;                // A is widened row by row, not in panels
  int64_t pitchA;            // of packed rows
  const float *a;
  const char *b; // packed panels, or B itself
  int64_t ldb, panelBytes;
  TileFn (*tiles)(bool rowsA, int64_t rows);
  bool first, last, twoChains;
  Onto earlier;   // how sums of earlier blocks enter
  float *partial; // sums of earlier blocks of k (see sumAt); null when there is one block
};

/// A tile of a block: its first row and column in the block, its extents, its operands and its place in the result.
struct TileAt {
  bool isWhole() const { return rows == MR && cols == NR; }
  int64_t row, column, rows, cols;
  const float *a;
  const char *b;
  char *to;
};

/// Runs the tiles of a block.
struct BlockRun {
  BlockRun(const Block &block, const Operand &out, int64_t ldd, const Epilogue &e, bool direct)
      : block(block), out(out), ldd(ldd), e(e), direct(direct),
        plain(block.tiles == (block.twoChains ? anyTile<float, true> : anyTile<float>) && block.ldb == NR &&
              block.last && !e.flags && !(block.twoChains && e.alpha != 1)), // whose results may be subnormal
        edge{block.first ? e.flags : MPT_GEMM_ACCUMULATE, 1, nullptr}, flush(block.twoChains) {}

  /// Results that collect in d itself.
  inline void runDirect(const TileAt &at, TileFn kernel) {
    auto *d = reinterpret_cast<float *>(at.to);
    const Onto onto = !block.first ? block.earlier : e.flags & MPT_GEMM_ACCUMULATE ? Onto::behind : Onto::nothing;
    if (at.isWhole())
      return kernel(block.depth, at.a, at.b, block.ldb, d, ldd, onto);
    const bool goesOn = onto == Onto::before;
    if (goesOn)
      memset(local, 0, sizeof local);
    for (int64_t i = 0; i < at.rows && goesOn; ++i)
      memcpy(local + i * NR, d + i * ldd, static_cast<size_t>(at.cols) * sizeof(float));
    kernel(block.depth, at.a, at.b, block.ldb, local, NR, goesOn ? onto : Onto::nothing);
    finishTile<float>(local, NR, d, ldd, at.rows, at.cols, goesOn ? Epilogue{0, 1, nullptr} : edge, at.column);
  }

  /// Sums of several blocks of k collect in `partial`; the last one leaves through the epilogue.
  inline void runPartial(const TileAt &at, TileFn kernel) {
    float *earlier = block.partial ? block.partial + sumAt(at.row, at.column) : nullptr;
    if (plain && at.isWhole()) {
      const float *c = block.first ? nullptr : earlier;
      return out.lastTile[block.twoChains][block.rowsA](block.depth, at.a, reinterpret_cast<const float *>(at.b), c,
                                                        at.to, ldd, e.alpha, c ? block.earlier : Onto::nothing);
    }
    float *c = earlier ? earlier : local;
    int64_t ldc = earlier ? sumPitch : NR;
    kernel(block.depth, at.a, at.b, block.ldb, c, ldc, block.first ? Onto::nothing : block.earlier);
    if (!block.last)
      return;
    const bool computes = e.flags || e.alpha != 1; // where subnormal numbers stay
    if (computes)
      flush.reset();
    out.finish(c, ldc, at.to, ldd, at.rows, at.cols, e, at.column);
    if (computes)
      flush.set();
  }

  void run(char *d) {
    TileFn whole = block.tiles(block.rowsA, MR);
    TileFn tail = block.rows % MR ? block.tiles(block.rowsA, block.rows % MR) : nullptr;
    for (int64_t j = 0; j < block.cols; j += NR) {
      int64_t cols = block.cols - j < NR ? block.cols - j : NR;
      const char *b = block.b + j / NR * block.panelBytes;
      for (int64_t i = 0; i < block.rows; i += MR) {
        int64_t rows = block.rows - i < MR ? block.rows - i : MR;
        const float *a = block.a + (block.rowsA ? i * block.pitchA : i / MR * panelStride);
        const TileAt at{i, j, rows, cols, a, b, d + (i * ldd + j) * out.size};
        TileFn kernel = rows == MR ? whole : tail;
        if (direct)
          runDirect(at, kernel);
        else
          runPartial(at, kernel);
      }
    }
  }

  const Block &block;
  const Operand &out;
  const int64_t ldd;
  const Epilogue &e;
  const bool direct, plain; // plain: all that is left of a whole tile is to scale and store it
  const Epilogue edge;
  const FlushSubnormals flush;
  alignas(64) float local[MR * NR];
};

/// The loops over blocks of one GEMM, with scratch for packed operands, sums between blocks of k and a bias.
struct BlockLoops {
  BlockLoops(const GemmTask &task, float *scratch)
      : task(task), g(*task.desc), opA(input(g, g.a_type)), opB(input(g, g.b_type)), opD(operand(g.d_type)),
        packedA(scratch), packedB(packedA + (floatsA + 15) / 16 * 16), partial(packedB + floatsB),
        bias(partial + floatsC), ordered(g.flags & MPT_GEMM_ORDERED),
        twoChains(g.flags & MPT_GEMM_TWO_CHAINS && !sumsInTwoChains), gathersB(task.gather && !task.gather->isA),
        flags(g.flags & ~inputFlags) {
    int64_t lanes = lanesOf(g.k);
    blocks = lanes > 0 ? (lanes + deepest - 1) / deepest : 1;
    lanes = lanesOf((lanes + blocks - 1) / blocks * perLane);
    if (twoChains && blocks > 1) {
      static_assert(sumsInTwoChains || perLane > 1 || deepest % chainTerms == 0);
      lanes = (lanes + chainTerms - 1) / chainTerms * chainTerms;
      blocks = (g.k + lanes - 1) / lanes;
    }
    depth = lanes * perLane;
    divided = lanes > partDepth;
    rowStep = blockRows(lanes);
    colStep = blockCols(lanes);
    // FP32 results with nothing to do afterwards collect in d itself.
    direct = g.d_type == MPT_FLOAT32 && g.alpha == 1 && !(flags & ~MPT_GEMM_ACCUMULATE) &&
             !(ordered && (blocks > 1 || twoChains) && flags) && !divided;
    // Few rows do not repay packing B, where its rows are contiguous.
    unpackedTile = twoChains ? opB.unpackedInTwoChains : opB.unpackedTile;
    unpackedB = g.b_col == 1 && unpackedTile && !task.gather && task.m1 - task.m0 <= 2 * MR;
  }

  Epilogue epilogueOf(int64_t j0, int64_t cols) const {
    Epilogue e{flags, static_cast<float>(g.alpha), nullptr};
    if (flags & MPT_GEMM_BIAS) {
      widenBias(task, j0, cols, bias);
      e.bias = bias;
    }
    return e;
  }

  /// Packs a block of B but for its first `inPlace` columns.
  void packB(const char *from, int64_t k0, int64_t k, int64_t j0, int64_t cols, int64_t inPlace) const {
    if (gathersB)
      opB.packGatherB(*task.gather, task.b, k0, k, j0, cols, packedB);
    else if (g.b_col == 1)
      opB.packRowsB(from + inPlace * opB.size, g.b_row, k, cols - inPlace, packedB);
    else
      opB.packColumnsB(from, g.b_col, k, cols, packedB);
  }

  void packA(int64_t i0, int64_t rows, int64_t k0, int64_t k) const {
    if (task.gather && !gathersB)
      return opA.packGatherA(*task.gather, task.a, i0, rows, k0, k, packedA);
    const char *from = static_cast<const char *>(task.a) + (i0 * g.a_row + k0 * g.a_col) * opA.size;
    if (g.a_col == 1)
      opA.packRowsA(from, g.a_row, rows, rows, k, packedA);
    else
      opA.packPanelsA(from, g.a_col, rows, g.m - i0, k, packedA);
  }

  /// Runs `block`, given with the B that is read in place, on its first `inPlace` columns, and on the rest with packed
  /// B.
  void runColumns(Block block, int64_t cols, int64_t inPlace, char *to, const Epilogue &e) const {
    if (inPlace)
      BlockRun(block, opD, g.d_row, e, direct).run(to);
    if (inPlace == cols)
      return;
    block.cols = cols - inPlace;
    block.b = reinterpret_cast<const char *>(packedB);
    block.ldb = NR;
    block.panelBytes = block.depth * NR * static_cast<int64_t>(sizeof(float));
    block.tiles = twoChains ? anyTile<float, true> : anyTile<float>;
    if (block.partial)
      block.partial += inPlace;
    runParts(block, Epilogue{e.flags, e.alpha, e.bias ? e.bias + inPlace : nullptr}, to + inPlace * opD.size);
  }

  /// Runs a block with packed B, divided along k.
  void runParts(Block block, const Epilogue &e, char *to) const {
    const Block whole = block;
    int64_t p = 0;
    do {
      block.depth = whole.depth - p < partDepth ? whole.depth - p : partDepth;
      block.a = whole.a + placeOf(0, p, whole.depth);
      block.b = whole.b + p * NR * static_cast<int64_t>(sizeof(float));
      block.first = whole.first && p == 0;
      p += block.depth;
      block.last = whole.last && p == whole.depth;
      BlockRun(block, opD, g.d_row, e, direct).run(to);
    } while (p < whole.depth);
  }

  /// Block `q` of k, for rows [s0, s1) and columns from j0.
  void runDepth(int64_t q, int64_t s0, int64_t s1, int64_t j0, int64_t cols, const Epilogue &e) const {
    const int64_t k0 = q * depth, k = g.k - k0 < depth ? g.k - k0 : depth;
    const int64_t inPlace = unpackedB ? cols / NR * NR : 0; // columns read without packing
    const char *blockB = static_cast<const char *>(task.b) + (k0 * g.b_row + j0 * g.b_col) * opB.size;
    packB(blockB, k0, k, j0, cols, inPlace);
    for (int64_t i0 = s0; i0 < s1; i0 += rowStep) {
      const int64_t rows = s1 - i0 < rowStep ? s1 - i0 : rowStep;
      packA(i0, rows, k0, k);
      const Block block{rows,
                        inPlace,
                        lanesOf(k),
                        !inPanels || g.a_col == 1,
                        rowPitch(lanesOf(k)),
                        packedA,
                        blockB,
                        g.b_row,
                        NR * opB.size,
                        unpackedTile,
                        q == 0,
                        q + 1 == blocks,
                        twoChains,
                        ordered ? Onto::before : betweenBlocks,
                        direct       ? nullptr
                        : blocks > 1 ? partial + sumAt(i0 - s0, 0)
                        : divided    ? partial
                                     : nullptr};
      runColumns(block, cols, inPlace, static_cast<char *>(task.d) + (i0 * g.d_row + j0) * opD.size, e);
    }
  }

  void run() const {
    if (!ordered && isThin(g, task.gather))
      return runThin(task, packedB, partial, epilogueOf(0, g.n));
    const int64_t lot = direct || blocks == 1 ? task.m1 - task.m0 : partialRows;
    for (int64_t j0 = task.n0; j0 < task.n1; j0 += colStep) {
      const int64_t cols = task.n1 - j0 < colStep ? task.n1 - j0 : colStep;
      const Epilogue e = epilogueOf(j0, cols);
      for (int64_t s0 = task.m0; s0 < task.m1; s0 += lot)
        for (int64_t q = 0; q < blocks; ++q)
          runDepth(q, s0, s0 + lot < task.m1 ? s0 + lot : task.m1, j0, cols, e);
    }
  }

  const GemmTask &task;
  const mpt_gemm_desc &g;
  const Operand &opA, &opB, &opD;
  float *const packedA, *const packedB, *const partial, *const bias;
  const bool ordered, twoChains, gathersB;
  const int64_t flags;
  TileFn (*unpackedTile)(bool rowsA, int64_t rows);
  int64_t blocks, depth;    // of k
  int64_t rowStep, colStep; // rows and columns of a block
  bool divided, direct, unpackedB;
};

void runGemm(const GemmTask &task, float *scratch) { BlockLoops(task, scratch).run(); }

constexpr int64_t gemmScratchBytes =
    static_cast<int64_t>(sizeof(float)) * ((floatsA + 15) / 16 * 16 + floatsB + floatsC + colsMax + NR);

} // namespace
