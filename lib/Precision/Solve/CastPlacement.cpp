// SPDX-License-Identifier: Apache-2.0
// Cast placement as a minimum cut: a cast is where the cut separates a value's producer from a user.
#include "CastPlacement.h"

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

void CastPlacement::use(Value value, Label user) { values[value].users.push_back(user); }

bool CastPlacement::isCast(const CastValue &value, const Labelling &narrow) {
  if (value.producer == kEither || (narrow[value.producer] && value.cost.hasWideCopy))
    return false;
  return llvm::any_of(value.users, [&](Label user) { return narrow[user] != narrow[value.producer]; });
}

int64_t CastPlacement::priceOf(const CastValue &value, const CutWeights &weights) {
  int64_t bytes = std::min(value.cost.bytes, MinCut::kInfinite / (4 * weights.perByte));
  return bytes * weights.perByte + weights.perCast;
}

int64_t CastPlacement::objectiveOf(const Labelling &narrow, const CutWeights &weights) const {
  int64_t total = 0;
  for (auto [i, label] : llvm::enumerate(free)) {
    bool isNarrow = narrow[kWide + 1 + i];
    if (weights.breaksTies)
      total += label.exact != isNarrow;
    if (weights.weighsValues && !isNarrow)
      total += label.wideBytes * weights.perByte;
  }
  for (const CastValue &entry : llvm::make_second_range(values))
    if (isCast(entry, narrow))
      total += priceOf(entry, weights);
  return total;
}

int64_t CastPlacement::bytesOf(const Labelling &narrow) const {
  int64_t bytes = 0;
  for (const CastValue &entry : llvm::make_second_range(values))
    if (isCast(entry, narrow))
      bytes += entry.cost.bytes;
  return bytes;
}

Labelling CastPlacement::cut(const CutWeights &weights) const {
  MinCut cut;
  for (const FreeLabel &label : free) {
    int node = cut.addNode();
    if (weights.breaksTies)
      cut.addEdge(label.exact ? kNarrow : node, label.exact ? node : kWide, 1);
    if (weights.weighsValues)
      cut.addEdge(kNarrow, node, label.wideBytes * weights.perByte);
  }
  for (const CastValue &entry : llvm::make_second_range(values)) {
    if (entry.producer == kEither || entry.users.empty())
      continue;
    int64_t price = priceOf(entry, weights);
    cut.addSharedEdge(entry.producer, {entry.users.begin(), entry.users.end()}, entry.cost.hasWideCopy ? 0 : price,
                      price);
  }
  cut.solve();
  Labelling narrow(free.size() + 2, false);
  narrow[kNarrow] = true;
  for (Label label = kWide + 1; label < static_cast<Label>(narrow.size()); ++label)
    narrow[label] = cut.onSourceSide(label);
  return narrow;
}
