// Whether a kernel may write over a buffer that it reads, decided on its generated code.
#include "mpt/Memory/Bufferize.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt;

namespace {

struct Access {
  Operation *op;
  SmallVector<Value> indices;
  Type type, memref; // of the value and of what it is loaded from or stored to
};

/// Loads of (or stores to) `memref`, also through flat casts of it; false when something else uses it.
bool accesses(Value memref, bool stores, SmallVectorImpl<Access> &found) {
  for (Operation *user : memref.getUsers()) {
    bool known =
        TypeSwitch<Operation *, bool>(user)
            .Case<memref::LoadOp>([&](memref::LoadOp op) {
              found.push_back({op, llvm::to_vector(op.getIndices()), op.getType(), memref.getType()});
              return !stores;
            })
            .Case<vector::LoadOp>([&](vector::LoadOp op) {
              found.push_back({op, llvm::to_vector(op.getIndices()), op.getType(), memref.getType()});
              return !stores;
            })
            .Case<memref::StoreOp>([&](memref::StoreOp op) {
              found.push_back({op, llvm::to_vector(op.getIndices()), op.getValueToStore().getType(), memref.getType()});
              return stores && op.getMemRef() == memref;
            })
            .Case<vector::StoreOp>([&](vector::StoreOp op) {
              found.push_back({op, llvm::to_vector(op.getIndices()), op.getValueToStore().getType(), memref.getType()});
              return stores && op.getBase() == memref;
            })
            .Case<memref::ReinterpretCastOp>(
                [&](memref::ReinterpretCastOp op) { return accesses(op.getResult(), stores, found); })
            .Default([](Operation *) { return false; });
    if (!known)
      return false;
  }
  return true;
}

} // namespace

bool mpt::memory::mayRunInPlace(func::FuncOp kernel, unsigned input, unsigned output) {
  if (kernel.getArgumentTypes()[input] != kernel.getArgumentTypes()[output])
    return false;
  SmallVector<Access> loads, stores;
  if (!accesses(kernel.getArgument(input), false, loads) || !accesses(kernel.getArgument(output), true, stores))
    return false;
  // Every load must have a store of the same index and type in its block, and no store may come before a load there.
  for (Access &load : loads) {
    bool matched = false;
    for (Access &store : stores) {
      if (store.op->getBlock() != load.op->getBlock())
        continue;
      if (store.op->isBeforeInBlock(load.op))
        return false;
      matched |= store.indices == load.indices && store.type == load.type && store.memref == load.memref;
    }
    if (!matched)
      return false;
  }
  return true;
}
