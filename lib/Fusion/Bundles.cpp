// SPDX-License-Identifier: Apache-2.0
// Groups that differ in shape alone, found by a signature.
#include "Bundles.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/FusionRole.h"

#include <map>

using namespace mlir;
using namespace mpt;

namespace {

constexpr size_t maxBundle = 200; ///< operands and results of a bundle: more pointers than these spill

/// Whether `op` is arithmetic on the elements of `shape`, beside scalars and keys.
bool isPlain(Operation *op, ArrayRef<int64_t> shape) {
  auto lowering = dyn_cast<LoopLowering>(op);
  return lowering && isFusible(op) && isFlat(op, shape) && !isSplat(op) && !isReduction(op) &&
         !lowering.standsAlone() && op->getNumResults() == 1 && countOf(op->getResult(0)) > fewElements &&
         shapeOf(op->getResult(0)) == shape;
}

/// Whether state takes a result of `op`.
bool isWritten(Operation *op) {
  return llvm::any_of(op->getUsers(), [](Operation *user) { return isa<train::WriteOp>(user); });
}

/// The shape of the elements that `op` makes or adds up.
ArrayRef<int64_t> spaceOf(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  return shapeOf(reduce ? Value(reduce.getX()) : Value(op->getResult(0)));
}

/// Equal for groups that differ in shape alone; empty for a group that has results of several shapes.
std::string signatureOf(ArrayRef<Operation *> ops, SetVector<Value> &operands) {
  std::string text;
  llvm::raw_string_ostream out(text);
  DenseMap<Value, unsigned> inside;
  ArrayRef<int64_t> shape = spaceOf(ops.front());
  for (Operation *op : ops) {
    if (spaceOf(op) != shape)
      return "";
    out << op->getName() << ' ';
    if (auto reduce = dyn_cast<ReduceOp>(op))
      out << static_cast<unsigned>(reduce.getKind()) << ' ' << reduce.getNumericsAttr().getAsOpaquePointer() << ' ';
    else
      out << op->getPropertiesAsAttribute().getAsOpaquePointer() << ' ';
    for (Value operand : op->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (auto known = inside.find(operand); known != inside.end()) {
        out << '%' << known->second;
      } else if (isSplat(source)) {
        auto splat = cast<SplatElementsAttr>(cast<ConstantOp>(source).getValue());
        out << splat.getSplatValue<Attribute>().getAsOpaquePointer();
      } else {
        operands.insert(operand);
        out << '#' << llvm::find(operands, operand) - operands.begin() << ':' << elementOf(operand).getAsOpaquePointer()
            << (shapeOf(operand) == shape);
        if (shapeOf(operand) != shape)
          out << tensorType(operand).getAsOpaquePointer();
      }
      out << ',';
    }
    Value result = op->getResult(0);
    out << "->" << elementOf(result).getAsOpaquePointer() << isWritten(op) << ';';
    inside.try_emplace(result, inside.size());
  }
  return text;
}

} // namespace

//===----------------------------------------------------------------------===//
// Sums of gradients
//===----------------------------------------------------------------------===//

/// Arithmetic on elements that depends on their row, as of codes with a scale a row: it is part of the row's kernel.
static Bundles::OpSet dependOnRows(Block &block) {
  Bundles::OpSet found;
  for (Operation &op : block) {
    if (op.getNumResults() != 1 || !isa<RankedTensorType>(op.getResult(0).getType()) ||
        !isPlain(&op, shapeOf(op.getResult(0))))
      continue;
    if (llvm::any_of(op.getOperands(), [&](Value operand) {
          auto broadcast = operand.getDefiningOp<BroadcastOp>();
          return found.contains(operand.getDefiningOp()) || (broadcast && countOf(broadcast.getX()) > fewElements);
        }))
      found.insert(&op);
  }
  return found;
}

void Bundles::findUpdates() {
  const OpSet ofRows = dependOnRows(block);
  for (Operation &op : llvm::reverse(block))
    if (!ofRows.contains(&op) && op.getNumResults() == 1 && !op.use_empty() &&
        isa<RankedTensorType>(op.getResult(0).getType()) && isPlain(&op, shapeOf(op.getResult(0))) &&
        llvm::all_of(op.getUsers(),
                     [&](Operation *user) { return isa<train::WriteOp>(user) || updates.contains(user); }))
      updates.insert(&op);
}

/// The sums over all elements of a tensor that updates read, with the arithmetic that only they read, by that tensor.
llvm::MapVector<Value, Bundles::OpList> Bundles::sumsByGradient() const {
  llvm::MapVector<Value, OpList> byGradient;
  for (auto reduce : block.getOps<ReduceOp>()) {
    if (countOf(reduce.getY()) != 1 || countOf(reduce.getX()) <= fewElements || reduce.getKind() == ReduceKind::mean)
      continue;
    ArrayRef<int64_t> shape = shapeOf(reduce.getX());
    SetVector<Operation *> region;
    region.insert(reduce);
    SetVector<Value> full;
    for (size_t i = 0; i < region.size(); ++i)
      for (Value operand : region[i]->getOperands()) {
        Operation *source = operand.getDefiningOp();
        if (source && isPlain(source, shape) &&
            llvm::all_of(source->getUsers(), [&](Operation *user) { return region.contains(user); }))
          region.insert(source);
        else if (countOf(operand) > fewElements && !isSplat(source))
          full.insert(operand);
      }
    if (full.size() == 1 && shapeOf(full[0]) == shape &&
        llvm::any_of(full[0].getUsers(), [&](Operation *user) { return updates.contains(user); }))
      llvm::append_range(byGradient[full[0]], region);
  }
  return byGradient;
}

/// First one group for the member `ops`, then that into the bundle `into`: either would wait for itself where a sum
/// scales the terms of another. Returns whether the member is part of the bundle then.
bool Bundles::joinMember(ArrayRef<Operation *> ops, unsigned into) {
  unsigned own = graph.groupOf(ops.front());
  SmallVector<std::pair<Operation *, unsigned>> joined;
  bool whole = llvm::all_of(ops.drop_front(), [&](Operation *op) {
    unsigned group = graph.groupOf(op);
    if (!graph.bringTogether(own, group))
      return false;
    joined.emplace_back(op, group);
    graph.append(op, own);
    return true;
  });
  if (!whole || (own != into && !graph.bringTogether(into, own))) {
    graph.isolate(ops.front(), own);
    for (auto [op, group] : joined)
      graph.isolate(op, group);
    return false;
  }
  if (own != into)
    for (Operation *op : ops)
      graph.append(op, into);
  return true;
}

/// One pass over a gradient for all of its own sums, one kernel for as many of `members` as it may have pointers.
void Bundles::bundleAlike(ArrayRef<OpList> members) {
  Operation *first = nullptr;
  size_t pointers = 0;
  for (ArrayRef<Operation *> ops : members) {
    // At most all of its operands anew, and a result each.
    size_t more = ops.size() + 2;
    if (!first || pointers + more > maxBundle) {
      first = ops.front();
      pointers = 0;
    }
    pointers += more;
    if (joinMember(ops, graph.groupOf(first)))
      sums.insert(ops.begin(), ops.end());
    else if (first == ops.front())
      first = nullptr;
  }
}

void Bundles::bundleSums() {
  findUpdates();
  std::map<std::string, SmallVector<OpList>> kinds;
  for (auto &[gradient, ops] : sumsByGradient()) {
    graph.sortByPosition(ops);
    SetVector<Value> operands;
    if (std::string signature = signatureOf(ops, operands); !signature.empty())
      kinds[signature].push_back(ops);
  }
  for (auto &[signature, members] : kinds)
    if (members.size() >= 3)
      bundleAlike(members);
}

//===----------------------------------------------------------------------===//
// Updates of parameters
//===----------------------------------------------------------------------===//

void Bundles::bundleUpdates() {
  struct Bundle {
    unsigned group;
    SetVector<Value> operands;
    size_t results = 0;
  };
  std::map<std::string, Bundle> open;
  for (unsigned i : graph.sequence()) {
    ArrayRef<Operation *> ops = graph.ops(i);
    if (ops.empty() || !updates.contains(ops.front()))
      continue;
    SetVector<Value> operands;
    std::string signature = signatureOf(ops, operands);
    if (signature.empty())
      continue;
    size_t results = llvm::count_if(ops, isWritten);
    auto [slot, isNew] = open.try_emplace(signature, Bundle{i, operands, results});
    if (isNew)
      continue;
    Bundle &bundle = slot->second;
    SetVector<Value> both = bundle.operands;
    both.insert(operands.begin(), operands.end());
    if (both.size() + bundle.results + results > maxBundle) {
      bundle = {i, operands, results};
      continue;
    }
    bundle.operands = std::move(both);
    bundle.results += results;
    graph.appendAll(bundle.group, i);
  }
}
