// SPDX-License-Identifier: Apache-2.0
// The ops that updates of states wait for, and states that lend their memory until the function ends.
// Matcher: ops that take no memory and no time.
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

/// Of results of a fusion that updates only wait for: they hold nothing in memory that counts.
constexpr int64_t fewBytes = 1 << 12;

/// The op that makes what `value` is a view of; null for an argument.
Operation *sourceOf(Value value) {
  Operation *source = value.getDefiningOp();
  while (source && isOperandView(source))
    source = source->getOperand(0).getDefiningOp();
  return source;
}

void collectGates(FusionOp fusion, llvm::SetVector<FusionOp> &gates) {
  for (Value input : fusion.getInputs())
    if (auto gate = dyn_cast_or_null<FusionOp>(sourceOf(input));
        gate && !gates.contains(gate) &&
        llvm::all_of(gate->getResults(), [](Value result) { return bytesOf(result) <= fewBytes; })) {
      collectGates(gate, gates);
      gates.insert(gate);
    }
}

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

llvm::SetVector<FusionOp> Updates::gatesOf(FusionOp update) {
  llvm::SetVector<FusionOp> gates;
  collectGates(update, gates);
  return gates;
}

SmallVector<Updates::Blocker> Updates::blockers(func::FuncOp function) const {
  llvm::DenseSet<Operation *> light; // updates, and gates of one update behind the same op as another's
  for (auto fusion : function.getOps<FusionOp>())
    if (!statesOf(fusion).empty()) {
      light.insert(fusion);
      for (FusionOp gate : gatesOf(fusion))
        light.insert(gate);
    }
  SmallVector<Blocker> found;
  for (auto fusion : function.getOps<FusionOp>()) {
    SmallVector<Attribute> states = statesOf(fusion);
    Operation *latest = states.empty() ? nullptr : latestBefore(fusion, states);
    if (!latest || !latest->isBeforeInBlock(fusion))
      continue;
    for (Operation *op = latest->getNextNode(); op != fusion; op = op->getNextNode())
      if (!isViewOp(op) && !isa<ConstantOp, train::ReadOp, train::WriteOp>(op) && !light.contains(op)) {
        found.push_back({fusion, latest, op});
        break;
      }
  }
  return found;
}

Operation *Updates::latestBefore(FusionOp update, ArrayRef<Attribute> states) const {
  Operation *latest = nullptr;
  auto after = [&](Operation *op) {
    if (op && op != update && (!latest || latest->isBeforeInBlock(op)))
      latest = op;
  };
  llvm::SetVector<FusionOp> gates = gatesOf(update);
  gates.insert(update);
  for (FusionOp fusion : gates)
    for (Value input : fusion.getInputs())
      if (Operation *source = sourceOf(input);
          source && source->getNumOperands() != 0 && !gates.contains(dyn_cast<FusionOp>(source))) // reads move along
        after(source);
  auto afterReaders = [&](ArrayRef<Attribute> replaced) {
    for (Attribute state : replaced)
      if (auto found = readers.find(state); found != readers.end())
        for (Operation *reader : found->second)
          if (!gates.contains(dyn_cast<FusionOp>(reader)))
            after(reader);
  };
  afterReaders(states);
  for (FusionOp gate : ArrayRef(gates.getArrayRef()).drop_back())
    afterReaders(statesOf(gate));
  return latest;
}
