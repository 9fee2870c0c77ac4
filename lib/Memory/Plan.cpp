// SPDX-License-Identifier: Apache-2.0
// In-place reuse, best-fit offsets, and the check of both.
#include "mpt/Memory/Plan.h"

#include "Lifetimes.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Layout.h"

#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

Value mpt::memory::ownerOf(Value memref) {
  while (auto view = memref.getDefiningOp<rt::ViewOp>())
    memref = view.getSource();
  return memref;
}

SmallVector<Lifetime> mpt::memory::lifetimesOf(func::FuncOp function) {
  SmallVector<Lifetime> result;
  llvm::DenseMap<Value, size_t> numbers;
  for (auto [position, op] : llvm::enumerate(function.front())) {
    if (!isa<RuntimeCall>(op))
      continue; // names memory and touches none
    for (Value operand : op.getOperands()) {
      Value owner = ownerOf(operand);
      auto alloc = owner.getDefiningOp<rt::AllocOp>();
      if (!alloc)
        continue;
      auto [it, fresh] = numbers.try_emplace(owner, result.size());
      if (fresh)
        result.push_back(
            {alloc, int64_t(position), int64_t(position), spanBytes(cast<MemRefType>(alloc.getBuffer().getType()))});
      result[it->second].last = position;
    }
  }
  return result;
}

namespace {

bool overlap(const Lifetime &a, const Lifetime &b) { return a.first <= b.last && b.first <= a.last; }

/// Replaces the buffer of an output by the buffer of an input which dies in the launch, where the kernel allows it.
void reuseInPlace(func::FuncOp function) {
  SymbolTableCollection symbols;
  llvm::DenseMap<Value, std::pair<int64_t, int64_t>> alive; // owner to first and last position
  llvm::DenseMap<Operation *, int64_t> positions;
  for (auto [position, op] : llvm::enumerate(function.front()))
    positions[&op] = position;
  for (Lifetime &lifetime : lifetimesOf(function))
    alive[lifetime.alloc.getBuffer()] = {lifetime.first, lifetime.last};
  for (auto launch : function.getOps<rt::LaunchOp>()) {
    auto kernel = symbols.lookupNearestSymbolFrom<func::FuncOp>(launch, launch.getCalleeAttr());
    int64_t here = positions.lookup(launch), inputs = launch.getNumInputs(), count = launch.getBuffers().size();
    for (int64_t o = inputs; o < count; ++o) {
      Value output = launch.getBuffers()[o];
      // A buffer that begins here, as a whole.
      if (!output.getDefiningOp<rt::AllocOp>() || alive.lookup(output).first != here)
        continue;
      for (int64_t i = 0; i < inputs; ++i) {
        Value input = launch.getBuffers()[i];
        auto alloc = input.getDefiningOp<rt::AllocOp>();
        if (!alloc || input.getType() != output.getType() || alive.lookup(input).second != here)
          continue;
        // Another operand that shows the same memory would see the writes.
        int64_t uses = llvm::count_if(launch.getBuffers(), [&](Value other) { return ownerOf(other) == input; });
        if (uses != 1 || !kernel || !mayRunInPlace(kernel, i, o))
          continue;
        alive[input].second = alive.lookup(output).second;
        alive.erase(output);
        Operation *old = output.getDefiningOp();
        output.replaceAllUsesWith(input);
        old->erase();
        break;
      }
    }
  }
}

} // namespace

void mpt::memory::plan(func::FuncOp function, bool inPlace) {
  if (inPlace)
    reuseInPlace(function);
  SmallVector<Lifetime> lifetimes = lifetimesOf(function);
  // Largest first; each goes to the tightest gap among the placed buffers that live at the same time.
  SmallVector<size_t> sequence = llvm::to_vector(llvm::seq<size_t>(lifetimes.size()));
  llvm::stable_sort(sequence, [&](size_t a, size_t b) { return lifetimes[a].bytes > lifetimes[b].bytes; });
  struct Placed {
    int64_t begin, end;
    const Lifetime *lifetime;
  };
  std::vector<Placed> placed; // by begin
  int64_t arena = 0;
  Builder builder(function.getContext());
  for (size_t number : sequence) {
    const Lifetime &lifetime = lifetimes[number];
    int64_t size = llvm::alignTo(std::max<int64_t>(lifetime.bytes, 1), kArenaAlignment);
    int64_t best = -1, bestGap = 0, free = 0;
    for (const Placed &other : placed) {
      if (!overlap(*other.lifetime, lifetime))
        continue;
      int64_t gap = other.begin - free;
      if (gap >= size && (best < 0 || gap < bestGap)) {
        best = free;
        bestGap = gap;
      }
      free = std::max(free, other.end);
    }
    int64_t begin = best < 0 ? free : best;
    Placed entry{begin, begin + size, &lifetime};
    placed.insert(llvm::upper_bound(placed, entry, [](auto &a, auto &b) { return a.begin < b.begin; }), entry);
    arena = std::max(arena, begin + size);
    rt::AllocOp alloc = lifetime.alloc;
    alloc.setOffset(begin);
  }
  for (auto alloc : llvm::make_early_inc_range(function.getOps<rt::AllocOp>()))
    if (alloc->use_empty())
      alloc->erase();
    else if (!alloc.getOffset()) // shown but never read or written
      alloc.setOffset(0);
  setAttr<MPTDialect::ArenaBytesAttrHelper>(function, builder.getI64IntegerAttr(arena));
}

LogicalResult mpt::memory::verifyPlan(func::FuncOp function) {
  auto arena = getAttr<MPTDialect::ArenaBytesAttrHelper>(function);
  if (!arena)
    return function.emitOpError() << "expected the attribute " << MPTDialect::ArenaBytesAttrHelper::getNameStr()
                                  << "; run --memory-plan first";
  SmallVector<Lifetime> lifetimes = lifetimesOf(function);
  for (Lifetime &lifetime : lifetimes) {
    auto offset = lifetime.alloc.getOffset();
    if (!offset)
      return lifetime.alloc.emitOpError() << "expected an offset; run --memory-plan first";
    int64_t begin = *offset;
    if (begin < 0 || begin % kArenaAlignment || begin + lifetime.bytes > arena.getInt())
      return lifetime.alloc.emitOpError()
             << "expected an offset that is a multiple of " << kArenaAlignment << " with room for " << lifetime.bytes
             << " bytes in an arena of " << arena.getInt() << ", got " << begin;
  }
  // Sweep over time: only buffers that are alive together are compared.
  SmallVector<Lifetime *> alive;
  for (Lifetime &lifetime : lifetimes) {
    llvm::erase_if(alive, [&](Lifetime *other) { return other->last < lifetime.first; });
    int64_t begin = *lifetime.alloc.getOffset();
    for (Lifetime *other : alive) {
      int64_t otherBegin = *other->alloc.getOffset();
      if (begin < otherBegin + other->bytes && otherBegin < begin + lifetime.bytes) {
        InFlightDiagnostic diagnostic = lifetime.alloc.emitOpError()
                                        << "expected memory of its own, got bytes " << begin << " to "
                                        << begin + lifetime.bytes << ", which another live buffer uses";
        diagnostic.attachNote(other->alloc.getLoc())
            << "at bytes " << otherBegin << " to " << otherBegin + other->bytes;
        return failure();
      }
    }
    alive.push_back(&lifetime);
  }
  return success();
}
