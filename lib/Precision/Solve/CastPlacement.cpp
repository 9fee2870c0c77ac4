// SPDX-License-Identifier: Apache-2.0
// Cast placement as a minimum cut: a cast is where the cut separates a value's producer from a user.
#include "CastPlacement.h"

#include "Painting.h"

#include "mpt/Interfaces/Interfaces.h"

using namespace mlir;
using namespace mpt;

Label CastPlacement::addFree(const FreeLabel &label) {
  free.push_back(label);
  return kWide + static_cast<Label>(free.size());
}

void CastPlacement::produce(Value value, Label producer, const ValueCost &cost) {
  CastValue &entry = values[value];
  entry.producer = producer;
  entry.cost = cost;
}

void CastPlacement::use(Value value, Label user, bool inBackward) {
  CastValue &entry = values[value];
  entry.users.push_back(user);
  entry.usersInBackward += inBackward;
}

static Labelling allWide(size_t freeLabels) {
  Labelling narrow(freeLabels + 2, false);
  narrow[kNarrow] = true;
  return narrow;
}

int64_t CastPlacement::priceOf(const CastValue &value, const CutWeights &weights) {
  int64_t bytes = std::min(value.cost.bytes, MinCut::kInfinite / (4 * weights.perByte));
  return bytes * weights.perByte + weights.perCast;
}

int64_t CastPlacement::objectiveOf(const Labelling &narrow, const CutWeights &weights) const {
  if (weights.asReported)
    return costOf(narrow, 0).inEachStep;
  int64_t total = 0;
  for (auto [i, label] : llvm::enumerate(free)) {
    bool isNarrow = narrow[kWide + 1 + i];
    if (weights.breaksTies)
      total += label.exact != isNarrow;
    if (weights.weighsValues && !isNarrow)
      total += label.wideBytes * weights.perByte;
  }
  for (const auto &[value, entry] : values) {
    if (entry.producer == kEither || (narrow[entry.producer] && entry.cost.hasWideCopy))
      continue;
    bool isNarrow = narrow[entry.producer];
    if (llvm::any_of(entry.users, [&](Label user) { return narrow[user] != isNarrow; }))
      total += priceOf(entry, weights);
  }
  return total;
}

void CastPlacement::addWeighted(MinCut &cut, const CastValue &value, const CutWeights &weights) {
  int64_t price = priceOf(value, weights);
  cut.addSharedEdge(value.producer, {value.users.begin(), value.users.end()}, value.cost.hasWideCopy ? 0 : price,
                    price);
}

/// As costOf() counts: a narrow value is widened once for the forward and once for the backward pass.
void CastPlacement::addReported(MinCut &cut, const CastValue &value) {
  if (!value.cost.inEachStep)
    return;
  int64_t bytes = std::min(value.cost.bytes, MinCut::kInfinite / 4);
  ArrayRef<Label> users = value.users;
  for (ArrayRef<Label> pass : {users.drop_back(value.usersInBackward), users.take_back(value.usersInBackward)})
    if (!pass.empty() && !value.cost.hasWideCopy)
      cut.addSharedEdge(value.producer, {pass.begin(), pass.end()}, bytes, 0);
  cut.addSharedEdge(value.producer, {users.begin(), users.end()}, 0, bytes);
}

Labelling CastPlacement::cut(const CutWeights &weights) const {
  MinCut cut;
  for (const FreeLabel &label : free) {
    int node = cut.addNode();
    if (weights.breaksTies)
      cut.addEdge(label.exact ? kNarrow : node, label.exact ? node : kWide, 1);
    if (weights.weighsValues)
      cut.addEdge(kNarrow, node, label.wideBytes * weights.perByte);
    if (weights.asReported)
      cut.addEdge(node, kWide, label.narrowBytes);
  }
  for (const auto &[value, entry] : values) {
    if (entry.producer == kEither || entry.users.empty())
      continue;
    if (weights.asReported)
      addReported(cut, entry);
    else
      addWeighted(cut, entry, weights);
  }
  cut.solve();
  Labelling narrow = allWide(free.size());
  for (Label label = kWide + 1; label < static_cast<Label>(narrow.size()); ++label)
    narrow[label] = cut.onSourceSide(label);
  return narrow;
}

CastCost CastPlacement::costOf(const Labelling &narrow, int64_t launchBytes) const {
  CastCost total;
  for (const auto &[value, entry] : values) {
    if (entry.producer == kEither)
      continue;
    bool isNarrow = narrow[entry.producer];
    auto differs = [&](Label user) { return narrow[user] != isNarrow; };
    auto all = llvm::count_if(entry.users, differs);
    if (all == 0 || (isNarrow && entry.cost.hasWideCopy))
      continue;
    total.withLaunches += entry.cost.bytes + launchBytes;
    auto late = llvm::count_if(ArrayRef(entry.users).take_back(entry.usersInBackward), differs);
    bool twice = isNarrow && late > 0 && late < all; // rematerialized for the backward pass
    if (entry.cost.inEachStep)
      total.inEachStep += (twice ? 2 : 1) * entry.cost.bytes;
  }
  for (auto [i, label] : llvm::enumerate(free))
    if (narrow[kWide + 1 + i])
      total.inEachStep += label.narrowBytes;
  return total;
}

Labelling CastPlacement::paint(ArrayRef<OpLabels> ops) const {
  SmallVector<PaintVertex> vertices(ops.size());
  DenseMap<Operation *, unsigned> numbers;
  for (auto [i, labels] : llvm::enumerate(ops))
    numbers[labels.op] = i;
  for (auto [vertex, labels] : llvm::zip_equal(vertices, ops)) {
    auto semantics = dyn_cast<PrecisionSemantics>(labels.op);
    if (!semantics || labels.op->hasTrait<OpTrait::ConstantLike>())
      continue;
    vertex.allow = llvm::is_contained(labels.operands, kNarrow);
    vertex.isFree = !vertex.allow && (llvm::any_of(labels.operands, isFree) || llvm::any_of(labels.results, isFree));
    vertex.clear = semantics.getNumericClass() == NumericClass::Movement;
    for (Operation *user : labels.op->getUsers())
      if (auto number = numbers.find(user); number != numbers.end())
        vertex.users.push_back(number->second);
  }
  std::vector<bool> painted = mpt::paint(vertices);
  Labelling narrow = allWide(free.size());
  // An op that is painted takes its free labels along.
  for (auto [i, labels] : llvm::enumerate(ops))
    for (Label label : llvm::concat<const Label>(labels.operands, labels.results))
      if (isFree(label) && painted[i])
        narrow[label] = true;
  for (const auto &[value, entry] : values)
    if (isStorage(entry.producer) && llvm::any_of(entry.users, [&](Label user) { return narrow[user]; }))
      narrow[entry.producer] = true;
  return narrow;
}
