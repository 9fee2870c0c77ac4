// SPDX-License-Identifier: Apache-2.0
// Kernels over many tensors: updates of all parameters alike, norms and finite checks of all gradients.
#include "mpt/Fusion/Grouping.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "llvm/ADT/MapVector.h"

#include <map>

using namespace mlir;
using namespace mpt;

namespace {
constexpr size_t maxBundle = 200; ///< operands and results of a bundle: more pointers than these spill
} // namespace

/// Arithmetic on the elements of one shape.
bool Grouping::isPlain(Operation *op, ArrayRef<int64_t> shape) {
  auto lowering = dyn_cast<LoopLowering>(op);
  if (!lowering || !isFusible(op) || isSplat(op) || isa<ReduceOp>(op) || lowering.standsAlone() ||
      op->getNumResults() != 1 || countOf(op->getResult(0)) <= fewElements || shapeOf(op->getResult(0)) != shape)
    return false;
  return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    // Keys of random streams and broadcast numbers are read by every element.
    return lowering.readsOwnIndex(operand.getOperandNumber()) ? shapeOf(operand.get()) == shape
                                                              : countOf(operand.get()) <= fewElements;
  });
}

/// Arithmetic whose results only state takes; the same ops serve for parameters of all shapes.
void Grouping::findUpdates() {
  for (Operation &op : llvm::reverse(block))
    if (op.getNumResults() == 1 && !op.use_empty() && isa<RankedTensorType>(op.getResult(0).getType()) &&
        isPlain(&op, shapeOf(op.getResult(0))) && llvm::all_of(op.getUsers(), [&](Operation *user) {
          return isa<train::WriteOp>(user) || updates.contains(user);
        }))
      updates.insert(&op);
}

/// Norms and finite checks of what updates read: one pass over a gradient for all of its own, one kernel for all
/// gradients.
void Grouping::bundleSums() {
  llvm::MapVector<Value, SmallVector<Operation *>> byGradient;
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
  std::map<std::string, SmallVector<SmallVector<Operation *>>> kinds;
  for (auto &[gradient, ops] : byGradient) {
    llvm::sort(ops, [&](Operation *x, Operation *y) { return position[x] < position[y]; });
    Group group;
    group.ops = ops;
    SetVector<Value> operands;
    if (std::string signature = signatureOf(group, operands); !signature.empty())
      kinds[signature].push_back(ops);
  }
  for (auto &[signature, members] : kinds) {
    if (members.size() < 3)
      continue;
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
      // First one group for the member, then that into the bundle: either would wait for itself where a sum scales what
      // another adds up.
      unsigned own = groupOf[ops.front()], into = groupOf[first];
      SmallVector<std::pair<Operation *, unsigned>> joined;
      auto join = [&](Operation *op, unsigned group) {
        joined.emplace_back(op, groupOf[op]);
        groups[groupOf[op]].ops.clear();
        groups[group].ops.push_back(op);
        groupOf[op] = group;
      };
      bool whole = llvm::all_of(ops.drop_front(), [&](Operation *op) {
        if (!order(own, groupOf[op]))
          return false;
        join(op, own);
        return true;
      });
      if (!whole || (own != into && !order(into, own))) {
        groups[own].ops.assign(1, ops.front());
        for (auto [op, group] : joined) {
          groups[group].ops.assign(1, op);
          groupOf[op] = group;
        }
        if (own == into)
          first = nullptr;
        continue;
      }
      if (own != into)
        for (Operation *op : ops)
          join(op, into);
      sums.insert(ops.begin(), ops.end());
    }
  }
}

/// Equal for groups that differ in shape alone; empty for a group that has results of several shapes.
std::string Grouping::signatureOf(const Group &group, SetVector<Value> &operands) {
  std::string text;
  llvm::raw_string_ostream out(text);
  DenseMap<Value, unsigned> inside;
  auto spaceOf = [](Operation *op) {
    auto reduce = dyn_cast<ReduceOp>(op);
    return shapeOf(reduce ? Value(reduce.getX()) : Value(op->getResult(0)));
  };
  ArrayRef<int64_t> shape = spaceOf(group.ops.front());
  for (Operation *op : group.ops) {
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
    bool written = llvm::any_of(result.getUsers(), [](Operation *user) { return isa<train::WriteOp>(user); });
    out << "->" << elementOf(result).getAsOpaquePointer() << written << ';';
    inside.try_emplace(result, inside.size());
  }
  return text;
}

/// One kernel for all parameters that are updated alike.
void Grouping::bundleUpdates() {
  struct Bundle {
    unsigned group;
    SetVector<Value> operands;
    size_t results = 0;
  };
  std::map<std::string, Bundle> open;
  for (unsigned i : sequence) {
    if (groups[i].ops.empty() || !updates.contains(groups[i].ops.front()))
      continue;
    SetVector<Value> operands;
    std::string signature = signatureOf(groups[i], operands);
    if (signature.empty())
      continue;
    size_t results = llvm::count_if(groups[i].ops, [](Operation *op) {
      return llvm::any_of(op->getUsers(), [](Operation *user) { return isa<train::WriteOp>(user); });
    });
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
    llvm::append_range(groups[bundle.group].ops, groups[i].ops);
    groups[i].ops.clear();
  }
}
