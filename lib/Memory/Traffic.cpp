// SPDX-License-Identifier: Apache-2.0
// Matcher: kernels by their attributes.
#include "Traffic.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

int64_t mpt::memory::bytesOf(Value buffer) {
  auto type = cast<MemRefType>(buffer.getType());
  return elementCount(type.getShape()) * elementBytes(type.getElementType());
}

Moved mpt::memory::movedByPart(rt::LaunchOp launch, func::FuncOp part) {
  auto countOf = [](Value buffer) { return cast<MemRefType>(buffer.getType()).getNumElements(); };
  int64_t most = 0;
  for (Value buffer : launch.getBuffers().take_front(launch.getNumInputs()))
    most = std::max(most, countOf(buffer));
  auto passes = getAttr<MPTDialect::PassesAttrHelper>(part);
  auto guarded = getAttr<MPTDialect::GuardedAttrHelper>(part);
  auto some = getAttr<MPTDialect::MovedAttrHelper>(part);
  Moved moved;
  for (auto [i, buffer] : llvm::enumerate(launch.getBuffers())) {
    if (!part.isDeclaration() && part.getArgument(i).use_empty())
      continue;
    bool again = passes && i < launch.getNumInputs() && countOf(buffer) == most;
    bool behind = guarded && llvm::is_contained(guarded.asArrayRef(), static_cast<int64_t>(i));
    int64_t bytes = bytesOf(buffer) * (again ? passes.getInt() : 1);
    if (some && some[i] >= 0)
      bytes = some[i];
    (behind ? moved.guarded : moved.bytes) += bytes;
  }
  return moved;
}
