// SPDX-License-Identifier: Apache-2.0
// Factors of layer-wise scales that hold for several steps: their state, its reads and writes.
#include "mpt/Precision/KeptFactors.h"

#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Dialect/Train/TrainDialect.h"

using namespace mlir;
using namespace mpt;

static constexpr StringLiteral kFactors = train::LayerScaleOp::state, kSteps = train::TrainDialect::kScaleSteps;

bool KeptFactors::updates(func::FuncOp function) {
  return llvm::any_of(function.getOps<train::WriteOp>(), [&](train::WriteOp write) {
    auto state = SymbolTable::lookupNearestSymbolFrom<train::StateOp>(write, write.getStateAttr());
    return state && (state.getRole() == train::Role::parameter || state.getRole() == train::Role::master);
  });
}

void KeptFactors::begin(func::FuncOp function) {
  sites.clear();
  seen.clear();
  auto start = OpBuilder::atBlockBegin(&function.getBody().front());
  GraphBuilder b(start, NameLoc::get(start.getStringAttr(kFactors)));
  Value steps = train::ReadOp::create(start, b.loc, RankedTensorType::get({}, start.getI32Type()), kSteps);
  due = b.compare(Predicate::eq, steps, 0);
}

Value KeptFactors::keep(GraphBuilder &b, Operation *site, Value fresh) {
  std::string name = (nodeName(site->getLoc()) + "/" + site->getName().getStringRef()).str();
  name += "/" + std::to_string(seen[name]++);
  Value stored = b.splatLike(fresh, 1), chosen = b.select(due, fresh, stored);
  sites.push_back({name, fresh, stored, chosen});
  return chosen;
}

void KeptFactors::end(func::FuncOp function) {
  bool writes = updates(function);
  if (writes)
    for (const Kept &site : sites)
      numbers.try_emplace(site.name, static_cast<int64_t>(numbers.size()));
  if (numbers.empty())
    return;
  Block &body = function.getBody().front();
  auto start = OpBuilder::atBlockBegin(&body);
  GraphBuilder b(start, NameLoc::get(start.getStringAttr(kFactors)));
  auto count = static_cast<int64_t>(numbers.size());
  Value all = train::ReadOp::create(start, b.loc, RankedTensorType::get({count}, start.getF32Type()), kFactors);
  SmallVector<Value> next(count);
  for (Kept &site : sites) {
    auto number = numbers.find(site.name);
    if (number == numbers.end()) { // no step keeps it
      site.chosen.replaceAllUsesWith(site.fresh);
      continue;
    }
    Operation *placeholder = site.stored.getDefiningOp();
    site.stored.replaceAllUsesWith(b.reshape(b.slice(all, {number->second}, {1}), {}));
    placeholder->erase();
    next[number->second] = site.chosen;
  }
  if (!writes)
    return;
  OpBuilder end(body.getTerminator());
  GraphBuilder e(end, b.loc);
  SmallVector<Value> parts;
  for (auto [i, value] : llvm::enumerate(next))
    parts.push_back(value ? e.reshape(value, {1}) : e.slice(all, {static_cast<int64_t>(i)}, {1}));
  train::WriteOp::create(end, e.loc, kFactors, count == 1 ? parts.front() : e.concat(parts, 0), Value());
}

void KeptFactors::addStates() {
  auto builder = OpBuilder::atBlockBegin(module.getBody());
  for (auto state : module.getOps<train::StateOp>())
    builder.setInsertionPointAfter(state);
  auto add = [&](StringRef name, RankedTensorType type, Attribute fill) {
    train::StateOp::create(builder, NameLoc::get(builder.getStringAttr(name)), name, type, train::Role::scale,
                           StringAttr(), DenseElementsAttr::get(type, fill), /*frozen=*/false, StringAttr());
  };
  add(kSteps, RankedTensorType::get({}, builder.getI32Type()), builder.getI32IntegerAttr(0));
  if (!numbers.empty())
    add(kFactors, RankedTensorType::get({static_cast<int64_t>(numbers.size())}, builder.getF32Type()),
        builder.getF32FloatAttr(1));
}
