// SPDX-License-Identifier: Apache-2.0
// fusion-key-streams: the streams of random ops as a table, so that equal ops share a kernel.
#include "mpt/Dialect/MPT/Draws.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Support/Refusal.h"
#include "passes/fusion/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

namespace mpt {
#define GEN_PASS_DEF_KEYSTREAMS
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

#define DEBUG_TYPE "fusion-key-streams"

using namespace mlir;
using namespace mpt;

namespace {

class KeyStreams : public mpt::impl::KeyStreamsBase<KeyStreams> {
public:
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      llvm::MapVector<Value, SmallVector<OpOperand *>> users;
      function.walk([&](Operation *op) {
        if (OpOperand *key = keyOf(op))
          users[key->get()].push_back(key);
      });
      for (auto &[key, operands] : users)
        tabulate(key, operands);
    }
  }

private:
  static int64_t streamOf(OpOperand *key) {
    return key->getOwner()->getAttrOfType<IntegerAttr>(kStreamOfDraws).getInt();
  }

  void tabulate(Value key, ArrayRef<OpOperand *> operands) {
    llvm::MapVector<int64_t, Value> rows;
    for (OpOperand *operand : operands)
      rows[streamOf(operand)];
    if (rows.size() < 2) {
      (void)(refuse(DEBUG_TYPE, key.getLoc()) << "not a table: expected ops of two streams or more, got one");
      return;
    }
    auto count = static_cast<int64_t>(rows.size());
    numStreams += count;
    OpBuilder builder(key.getContext());
    builder.setInsertionPointAfterValue(key);
    GraphBuilder b(builder, key.getLoc());
    SmallVector<int64_t> table;
    for (auto &[stream, row] : rows)
      table.append({0, static_cast<int64_t>(static_cast<uint64_t>(stream) << 32)});
    auto type = RankedTensorType::get({count, 2}, builder.getI64Type());
    Value streams = b.constant(DenseElementsAttr::get(type, ArrayRef<int64_t>(table)));
    Value all = b.add(b.broadcast(key, {count, 2}, {1}), streams);
    int64_t index = 0;
    for (auto &[stream, row] : rows)
      row = b.reshape(b.slice(all, {index++, 0}, {1, 2}), {2});
    for (OpOperand *operand : operands) {
      Value row = rows[streamOf(operand)];
      operand->getOwner()->setAttr(kStreamOfDraws, builder.getI64IntegerAttr(0));
      operand->set(row);
    }
  }
};

} // namespace
