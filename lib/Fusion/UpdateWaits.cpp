// SPDX-License-Identifier: Apache-2.0
// When values are ready, and when updates of large states want them.
#include "UpdateWaits.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/FusionRole.h"

using namespace mlir;
using namespace mpt;

UpdateWaits::UpdateWaits(Block &block) {
  int64_t position = 0;
  for (Operation &op : block) {
    int64_t ready = isFusible(&op) || isViewOp(&op) || op.getNumOperands() == 0 ? 0 : ++position;
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp())
        ready = std::max(ready, times[source].ready);
    times[&op].ready = ready;
  }
  for (Operation &op : llvm::reverse(block)) {
    Time time = times.lookup(&op);
    for (Operation *user : op.getUsers()) {
      auto write = dyn_cast<train::WriteOp>(user);
      if (write && countOf(write.getValue()) > smallSpace)
        time.due = std::min(time.due, time.ready);
      else
        time.due = std::min(time.due, times.lookup(user).due);
    }
    times[&op] = time;
  }
}

bool UpdateWaits::delays(ArrayRef<Operation *> ops, const DenseSet<Operation *> &members) const {
  int64_t ready = 0, due = INT64_MAX;
  for (Operation *op : ops) {
    for (Value result : op->getResults())
      if (countOf(result) > smallSpace && llvm::any_of(result.getUsers(), [&](Operation *user) {
            return !members.contains(user) && !isa<train::WriteOp>(user);
          }))
        return false;
    Time time = times.lookup(op);
    ready = std::max(ready, time.ready);
    due = std::min(due, time.due);
  }
  return ready > due;
}
