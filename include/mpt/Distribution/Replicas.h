// SPDX-License-Identifier: Apache-2.0
// Replicas of a training step: the grid that they form, their inputs, and which values may differ among them.
#ifndef MPT_DISTRIBUTION_REPLICAS_H
#define MPT_DISTRIBUTION_REPLICAS_H

#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseSet.h"

#include <optional>

namespace mpt::dist {

/// Symbol of the grid whose devices are the replicas.
inline constexpr llvm::StringLiteral kReplicas = "replicas";
/// Instead of a number of replicas: one a process, however many processes there are.
inline constexpr int64_t kOneAProcess = mlir::ShapedType::kDynamic;

/// Numbers of replicas have 15 bits in keys of random numbers.
inline constexpr int64_t kMostReplicas = 32767;

/// The number of replicas that `text` names: 1 to kMostReplicas, or kOneAProcess for "any". Nothing for another text.
std::optional<int64_t> parseReplicas(llvm::StringRef text);

/// How many replicas the steps of `module` have, or kOneAProcess; nothing where a step has no replicas.
std::optional<int64_t> replicasOf(mlir::ModuleOp module);

/// Gives `module` the grid of `replicas` replicas, or kOneAProcess; one that it has already stays.
void makeGrid(mlir::ModuleOp module, int64_t replicas);

/// True where `function` has collectives: every replica runs it, and they meet there.
bool hasCollectives(mlir::func::FuncOp function);

/// Reduces `value` over all replicas, in FP32 or wider. Its location is the value's.
mlir::Value allReduce(mlir::OpBuilder &builder, mlir::Value value, mlir::shard::ReductionKind kind);

/// Rows of the batch: the first extent of the first argument that is no scalar. Nothing where every argument is one.
std::optional<int64_t> batchOf(mlir::func::FuncOp function);

/// Elements that a replica keeps of a state that is divided over replicas; nothing for other states.
std::optional<int64_t> shardOf(train::StateOp state);
/// The same for the state that a read or a write names.
std::optional<int64_t> shardOf(mlir::Operation *access, mlir::FlatSymbolRefAttr state);

/// True for ops at which replicas exchange values: collectives, but for shard.all_slice, which looks at one's own.
bool isCollective(mlir::Operation *op);

/// How often replicas have met before a value is known: 0 where no collective is part of it.
class Meetings {
public:
  explicit Meetings(mlir::func::FuncOp step);
  int64_t before(mlir::Value value) const { return counts.lookup(value); }
  /// Before the operands of `op` are known.
  int64_t before(mlir::Operation *op) const;

private:
  llvm::DenseMap<mlir::Value, int64_t> counts;
};

/// Which values of a step may differ from replica to replica. Values that depend on split arguments, on the number of
/// the replica or on shards do, unless a collective lies between that makes it the same. One walk, in the order of the
/// block.
class Variance {
public:
  Variance() = default;
  explicit Variance(mlir::func::FuncOp step);

  /// Notes the arguments of `step`.
  void enter(mlir::func::FuncOp step);
  /// Notes the results of `op`, whose operands have been noted.
  void visit(mlir::Operation &op);
  void add(mlir::Value value) { addOwn(value); }
  bool varies(mlir::Value value) const { return varying.contains(value); }
  /// Varies, but as the replicas' parts of one tensor do, which all of them agree on.
  bool isShard(mlir::Value value) const { return varying.contains(value) && !own.contains(value); }
  bool anyVaries(mlir::ValueRange values) const {
    return llvm::any_of(values, [&](mlir::Value value) { return varies(value); });
  }

private:
  void addOwn(mlir::Value value) {
    varying.insert(value);
    own.insert(value);
  }
  llvm::DenseSet<mlir::Value> varying, own; ///< own: beyond being a shard
};

/// Where `value` comes from, for messages: the first split argument that it depends on.
llvm::StringRef originOf(mlir::Value value, const Variance &variance);

} // namespace mpt::dist

#endif // MPT_DISTRIBUTION_REPLICAS_H
