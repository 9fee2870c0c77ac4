// SPDX-License-Identifier: Apache-2.0
// Destination passing: results are written where they are wanted, if nothing forbids it.
#include "mpt/Memory/Destinations.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Memory/Layout.h"
#include "mpt/Support/Refusal.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// Uses of `value`, and of views of it.
void collectUses(Value value, SmallVectorImpl<OpOperand *> &uses) {
  for (OpOperand &use : value.getUses()) {
    uses.push_back(&use);
    if (showsOperand(use.getOwner()))
      collectUses(use.getOwner()->getResult(0), uses);
  }
}

WritesTo writesTo(Value result) {
  auto op = dyn_cast_or_null<Bufferizable>(result.getDefiningOp());
  return op ? op.writesTo() : WritesTo::Own;
}

} // namespace

BroadcastOp mpt::memory::onlyBroadcast(Operation *op) {
  auto fusion = dyn_cast_or_null<FusionOp>(op);
  bool isOne = fusion && fusion.getNumResults() == 1 && fusion.getBody().front().getOperations().size() == 2;
  return isOne ? dyn_cast<BroadcastOp>(fusion.getBody().front().front()) : BroadcastOp();
}

bool mpt::memory::showsOperand(Operation *op) { return isa_and_nonnull<StridedView>(op) || onlyBroadcast(op); }

Value mpt::memory::makerOf(OpOperand &use, SmallVectorImpl<Operation *> &views) {
  Value value = use.get();
  while (auto view = value.getDefiningOp<StridedView>()) {
    if (!view.showsAll() || !view->getOperand(0).hasOneUse())
      break;
    views.insert(views.begin(), view);
    value = view->getOperand(0);
  }
  return value;
}

Order mpt::memory::layoutOf(Value result) {
  ArrayAttr layouts = getAttr<library::LibraryDialect::LayoutsAttrHelper>(result.getDefiningOp());
  if (!layouts)
    return rowMajor(tensorType(result).getRank());
  return Order(cast<library::LayoutAttr>(layouts[cast<OpResult>(result).getResultNumber()]).getOrder());
}

Destinations::Destinations(func::FuncOp function) : emptied(function) {
  for (PlaceKind kind : {PlaceKind::State, PlaceKind::Output, PlaceKind::Part})
    for (Operation &op : function.front())
      if (auto owner = dyn_cast<PlacesOperands>(op); owner && owner.getPlaceKind() == kind)
        for (OpOperand &use : op.getOpOperands())
          if (kind != PlaceKind::Part || use.get().hasOneUse())
            addCandidate(use);
  for (auto read : function.getOps<train::ReadOp>())
    collectUses(read.getValue(), readers[read.getStateAttr()]);
}

void Destinations::addCandidate(OpOperand &use) {
  Destination candidate{&use, {}};
  Value maker = makerOf(use, candidate.views);
  if (writesTo(maker) != WritesTo::Own)
    candidates[maker].push_back(std::move(candidate));
}

OpOperand *Destinations::chosenFor(Value result) { return choose(result).use; }

Destinations::Choice Destinations::choose(Value result) {
  if (auto known = choices.find(result); known != choices.end())
    return known->second;
  Choice choice;
  auto wanted = candidates.find(result);
  if (wanted != candidates.end())
    for (const Destination &candidate : wanted->second) {
      auto write = dyn_cast<train::WriteOp>(candidate.use->getOwner());
      StringRef why = write ? whyNotState(result, write.getStateAttr()) : "";
      std::optional<Strided> place = why.empty() ? placeOf(candidate) : std::nullopt;
      if (place) {
        choice = {candidate.use, *place};
        break;
      }
      (void)(refuse("memory-assign-destinations", result.getDefiningOp())
             << "not written in place for " << candidate.use->getOwner()->getName() << ": "
             << (why.empty() ? "expected a layout that strides can show, got another one" : why));
    }
  choices[result] = choice;
  return choice;
}

FlatSymbolRefAttr Destinations::lenderFor(OpResult result) {
  FlatSymbolRefAttr state = emptied.lenderOf(result);
  if (!state || chosenFor(result))
    return {};
  StringRef why =
      lent.contains(state) ? "expected one result that borrows the state, got another one" : whyNotState(result, state);
  if (!why.empty()) {
    (void)(refuse("memory-assign-destinations", result.getOwner()) << "not written in " << state << ": " << why);
    return {};
  }
  lent.insert(state);
  return state;
}

StringRef Destinations::whyNotState(Value result, Attribute state) const {
  Operation *op = result.getDefiningOp();
  if (writesTo(result) < WritesTo::States)
    return "expected an op that writes when it runs, got one whose parts are written before";
  auto found = readers.find(state);
  if (found == readers.end())
    return "";
  for (OpOperand *use : found->second) {
    Operation *user = use->getOwner();
    if (user == op && writesTo(result) < WritesTo::StatesInPlace)
      return "expected a kernel where the op itself reads the old value, got a library call";
    if (user == op || isa<StridedView>(user))
      continue; // views count through their uses
    // Ops without results, writes and the return, take effect at the end.
    if (user->getNumResults() == 0 || !user->isBeforeInBlock(op))
      return "expected the old value to be read before, got a later reader";
  }
  return "";
}

std::optional<Strided> Destinations::placeOf(const Destination &candidate) {
  auto owner = cast<PlacesOperands>(candidate.use->getOwner());
  Strided whole;
  if (owner.getPlaceKind() == PlaceKind::Part)
    whole = wholeOf(owner->getResult(0));
  Strided place = owner.placeOf(candidate.use->getOperandNumber(), whole);
  for (Operation *view : llvm::reverse(candidate.views)) {
    std::optional<Strided> source = cast<StridedView>(view).sourceOf(place);
    if (!source)
      return std::nullopt;
    place = *source;
  }
  return place;
}

Strided Destinations::wholeOf(Value result) {
  if (Choice choice = choose(result); choice.use)
    return choice.place;
  MemRefType type = denseType(tensorType(result), layoutOf(result));
  return {Sizes(type.getShape()), stridesOf(type), 0};
}
