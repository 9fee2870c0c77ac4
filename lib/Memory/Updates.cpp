// SPDX-License-Identifier: Apache-2.0
// The ops that updates of states wait for, and states that lend their memory until the function ends.
#include "mpt/Memory/Updates.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Memory/Destinations.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// A side result takes at most one of so many bytes that the update writes.
constexpr int64_t sideResultShare = 8;

/// Ops that read `value`, through views, while the function runs. Ops without results take effect at its end.
void collectReaders(Value value, SmallVectorImpl<Operation *> &readers) {
  for (Operation *user : value.getUsers()) {
    if (isOperandView(user) || onlyBroadcast(user))
      collectReaders(user->getResult(0), readers);
    else if (user->getNumResults() != 0)
      readers.push_back(user);
  }
}

/// Adds the states that `value` is written to, through views. False where something else reads it.
bool collectStates(Value value, SmallVectorImpl<Attribute> &states) {
  return llvm::all_of(value.getUsers(), [&](Operation *user) {
    if (auto write = dyn_cast<train::WriteOp>(user))
      states.push_back(write.getStateAttr());
    return isa<train::WriteOp>(user) || (isOperandView(user) && collectStates(user->getResult(0), states));
  });
}

/// Arguments of the fusion's body that the result `number` is computed from.
llvm::SmallDenseSet<Value> sourcesOf(FusionOp fusion, unsigned number) {
  Block &body = fusion.getBody().front();
  llvm::SmallDenseSet<Value> seen;
  SmallVector<Value> work{body.getTerminator()->getOperand(number)};
  while (!work.empty())
    if (Value value = work.pop_back_val(); seen.insert(value).second && value.getDefiningOp())
      llvm::append_range(work, value.getDefiningOp()->getOperands());
  return seen;
}

} // namespace

EmptiedStates::EmptiedStates(func::FuncOp function) {
  for (auto write : function.getOps<train::WriteOp>())
    if (!write.getCondition() && write.getValue().getDefiningOp<ConstantOp>())
      states.insert(write.getStateAttr());
}

FlatSymbolRefAttr EmptiedStates::lenderOf(OpResult result) const {
  auto fusion = dyn_cast<FusionOp>(result.getOwner());
  if (!fusion || states.empty() || llvm::any_of(result.getUsers(), llvm::IsaPred<train::WriteOp>))
    return {};
  llvm::SmallDenseSet<Value> sources = sourcesOf(fusion, result.getResultNumber());
  for (auto [operand, argument] : llvm::zip_equal(fusion.getInputs(), fusion.getBody().getArguments()))
    if (auto read = operand.getDefiningOp<train::ReadOp>(); read && operand.getType() == result.getType() &&
                                                            states.contains(read.getStateAttr()) &&
                                                            sources.contains(argument))
      return read.getStateAttr();
  return {};
}

Updates::Updates(func::FuncOp function) : emptied(function) {
  for (auto read : function.getOps<train::ReadOp>())
    collectReaders(read.getValue(), readers[read.getStateAttr()]);
}

SmallVector<Attribute> Updates::statesOf(FusionOp fusion) const {
  SmallVector<Attribute> states;
  int64_t written = 0, others = 0;
  for (OpResult result : fusion->getResults()) {
    SmallVector<Attribute> own;
    if (FlatSymbolRefAttr lender = emptied.lenderOf(result); lender && !llvm::is_contained(states, lender))
      own.push_back(lender);
    else if (!collectStates(result, own))
      own.clear();
    (own.empty() ? others : written) += bytesOf(result);
    states.append(own);
  }
  if (others * sideResultShare > written)
    states.clear();
  return states;
}

Operation *Updates::latestBefore(FusionOp update, ArrayRef<Attribute> states) const {
  Operation *latest = nullptr;
  auto after = [&](Operation *op) {
    if (op && op != update && (!latest || latest->isBeforeInBlock(op)))
      latest = op;
  };
  for (Value input : update.getInputs()) {
    Operation *source = input.getDefiningOp();
    while (source && isOperandView(source))
      source = source->getOperand(0).getDefiningOp();
    after(source);
  }
  for (Attribute state : states)
    if (auto found = readers.find(state); found != readers.end())
      for (Operation *reader : found->second)
        after(reader);
  return latest;
}
