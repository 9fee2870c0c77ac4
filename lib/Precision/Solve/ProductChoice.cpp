// SPDX-License-Identifier: Apache-2.0
// Project selection over products and conversions of operands.
#include "ProductChoice.h"

#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Support/MinCut.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {

/// Times as capacities: picoseconds, of which a table's longest ones stay far below MinCut::kInfinite.
int64_t capacityOf(double microseconds) { return std::llround(microseconds * 1e6); }

/// The ops that are decided together: one op of the model, in every function and size that counts.
struct Group {
  SmallVector<std::pair<Operation *, Product>, 1> counted;
  double wide = 0.0, narrow = 0.0, conversions = 0.0; ///< microseconds of all of them
  bool named = false;                                 ///< a rule on names gave it 8 bits
  int node = -1;
};

class Choice {
public:
  Choice(ModuleOp module, const Policy &policy, const Decisions &decisions)
      : module(module), policy(policy), table(*policy.times()), decisions(decisions), keys(module) {}

  FailureOr<std::vector<MeasuredProduct>> run(KeptOps &kept) {
    collect();
    if (failed(weigh()))
      return failure();
    cut.solve();
    std::vector<MeasuredProduct> rows;
    llvm::StringMap<size_t> rowOf;
    for (auto &[key, group] : groups) {
      bool narrow = group.named || cut.onSourceSide(group.node);
      for (auto &[op, product] : group.counted) {
        auto [row, isNew] = rowOf.try_emplace(product.key, rows.size());
        if (isNew) {
          auto times = table.products.lookup(product.key);
          rows.push_back({product.key, times.wide, times.narrow, 0, 0});
        }
        ++rows[row->second].ops;
        rows[row->second].narrowOps += narrow;
      }
    }
    for (Operation *op : found)
      if (const Group &group = groups.find(nameInModel(op, keys))->second; !group.named)
        kept[op] = verdict(group, cut.onSourceSide(group.node));
    return rows;
  }

private:
  /// A rule on the op's or node's name, or on one of its operands, has decided: no measurement does.
  bool isNamed(Operation *op) const {
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      if (policy.decideOperand(op, i))
        return true;
    return policy.decide(op, NumericClass::Contraction).named;
  }

  void collect() {
    SmallVector<func::FuncOp> training, others;
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal())
        (function.getOps<train::WriteOp>().empty() ? others : training).push_back(function);
    for (func::FuncOp function : training)
      collect(function, /*counts=*/[](StringAttr) { return true; });
    // Products that no training function has are decided by the others alone.
    DenseSet<StringAttr> trained;
    for (const auto &[key, group] : groups)
      trained.insert(key);
    for (func::FuncOp function : others)
      collect(function, [&](StringAttr key) { return !trained.contains(key); });
  }

  void collect(func::FuncOp function, llvm::function_ref<bool(StringAttr)> counts) {
    TrainingParts parts(function);
    for (Operation &op : function.getBody().front()) {
      auto decision = decisions.find(&op);
      if (decision == decisions.end() || !decision->second.quantized)
        continue;
      found.push_back(&op);
      StringAttr key = nameInModel(&op, keys);
      Group &group = groups[key];
      group.named |= isNamed(&op);
      if (counts(key))
        group.counted.emplace_back(&op, Product(&op, decision->second, policy, parts));
    }
  }

  /// One conversion of a value to a type, whoever reads it.
  FailureOr<int> conversionNode(Operation *op, const ProductOperand &operand, double &time) {
    std::string key = conversionKey(operand);
    auto measured = table.conversions.find(key);
    if (measured == table.conversions.end())
      return missing(op, "conversion", key);
    time = measured->second;
    auto [entry, isNew] = conversions.try_emplace({op->getOperand(operand.number), operand.narrow}, -1);
    if (isNew) {
      entry->second = cut.addNode();
      cut.addEdge(entry->second, MinCut::kSink, capacityOf(time));
    }
    return entry->second;
  }

  LogicalResult weigh() {
    for (auto &[key, group] : groups) {
      group.node = cut.addNode();
      for (auto &[op, product] : group.counted) {
        auto times = table.products.find(product.key);
        if (times == table.products.end() && !group.named)
          return missing(op, "product", product.key);
        if (times != table.products.end()) {
          group.wide += times->second.wide;
          group.narrow += times->second.narrow;
        }
        DenseSet<std::pair<Value, Type>> own;
        for (const ProductOperand &operand : product.operands) {
          if (!operand.narrow || !own.insert({op->getOperand(operand.number), operand.narrow}).second)
            continue;
          double time = 0.0;
          FailureOr<int> node = conversionNode(op, operand, time);
          if (failed(node))
            return failure();
          group.conversions += time;
          cut.addEdge(group.node, *node, MinCut::kInfinite);
        }
      }
      connect(group);
    }
    return success();
  }

  /// Costs of both sides, less the part that both have in common: none is negative.
  void connect(const Group &group) {
    if (group.named)
      return cut.addEdge(MinCut::kSource, group.node, MinCut::kInfinite);
    int64_t wide = capacityOf(group.wide), alone = capacityOf(group.narrow) - capacityOf(group.conversions);
    int64_t common = std::min(wide, alone);
    cut.addEdge(MinCut::kSource, group.node, wide - common);
    cut.addEdge(group.node, MinCut::kSink, alone - common);
  }

  LogicalResult missing(Operation *op, StringRef what, StringRef key) const {
    return emitError(op->getLoc()) << "expected a " << what << " '" << key << "' in '" << table.path
                                   << "', found none: it was measured of another model or of other shapes; measure "
                                      "this one's products (--emit=products, then python -m mpt.measure)";
  }

  Kept verdict(const Group &group, bool narrow) const {
    bool faster = group.narrow < group.wide;
    double factor = faster ? group.wide / group.narrow : group.narrow / group.wide;
    Kept kept;
    kept.quantized = narrow;
    kept.rule =
        llvm::formatv("{0} bits: 8 bits measured {1:f2} times {2} ({3:f1} us with conversions, {4:f1} us in {5}), {6}",
                      narrow ? 8 : 16, factor, faster ? "faster" : "slower", group.narrow, group.wide,
                      typeText(policy.storage), group.counted.empty() ? "" : group.counted.front().second.shapes);
    if (narrow && !faster)
      kept.rule += "; other products need its conversions, too";
    return kept;
  }

  static std::string typeText(Type type) {
    std::string text;
    llvm::raw_string_ostream(text) << type;
    return text;
  }

  ModuleOp module;
  const Policy &policy;
  const ProductTable &table;
  const Decisions &decisions;
  ValueKeys keys;
  MinCut cut;
  llvm::MapVector<StringAttr, Group> groups;
  DenseMap<std::pair<Value, Type>, int> conversions; ///< nodes
  SmallVector<Operation *> found;                    ///< in the order of the module
};

} // namespace

FailureOr<std::vector<MeasuredProduct>> mpt::chooseProducts(ModuleOp module, const Policy &policy,
                                                            const Decisions &decisions, KeptOps &kept) {
  return Choice(module, policy, decisions).run(kept);
}
