// SPDX-License-Identifier: Apache-2.0
// --distribution-shard-optimizer: each replica updates its part of every parameter, and keeps that part of its state.
// Matcher: means of gradients, ops that look at several gradients, operands of updates.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/MPT/Draws.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Interfaces/OptimizerUpdate.h"
#include "mpt/Precision/Settings.h"
#include "passes/distribution/Passes.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

namespace mpt {
#define GEN_PASS_DEF_SHARDOPTIMIZER
#include "passes/distribution/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;
using namespace mpt::dist;
using shard::ReductionKind;

namespace {

/// Shards are multiples of this many elements, so that FP32 ones start at 64 bytes wherever they lie.
constexpr int64_t kGrain = 16;

/// The elements of which `value` holds scales: its blocks stay whole. 1 for other values.
int64_t blockOf(Value value) {
  if (auto encode = value.getDefiningOp<EncodeBlocksOp>(); encode && value == encode.getScales())
    return encode.getBlock();
  for (Operation *user : value.getUsers())
    if (auto decode = dyn_cast<DecodeBlocksOp>(user); decode && value == decode.getScales())
      return decode.getBlock();
  return 1;
}

/// The sum over replicas that gradient is the mean of, as --distribution-replicate makes it.
shard::AllReduceOp sumOf(train::GradientOp gradient) {
  Value value = gradient.getGradient();
  if (auto cast = value.getDefiningOp<CastOp>())
    value = cast.getX();
  auto mean = value.getDefiningOp<DivOp>();
  return mean ? mean->getOperand(0).getDefiningOp<shard::AllReduceOp>() : shard::AllReduceOp();
}

/// Whether an element of the results depends on elements at its position alone.
bool isElementwise(Operation *op) {
  if (auto update = dyn_cast<OptimizerUpdate>(op))
    return update.isElementwise();
  return op->hasTrait<OpTrait::Elementwise>() || isa<CastOp, EncodeBlocksOp, DecodeBlocksOp, train::GradientOp>(op);
}

/// Whether an op computes the same on a shard: it draws no random numbers by the position of an element.
bool divides(Operation *op) { return isElementwise(op) && !keyOf(op); }

/// The step, whose updates are divided one op after the other, in the order of the block.
class Division {
public:
  Division(func::FuncOp step, int64_t replicas) : step(step), builder(step.getContext()), replicas(replicas) {
    // Whole blocks, whose scales are as many as well.
    for (auto encode : step.getOps<EncodeBlocksOp>())
      grain = std::max(grain, kGrain * encode.getBlock());
  }

  /// Returns how many states were divided.
  FailureOr<int64_t> run() {
    for (auto gradient : step.getOps<train::GradientOp>())
      if (failed(begin(gradient)))
        return failure();
    chooseStates();
    for (Operation *op : llvm::to_vector(llvm::make_pointer_range(step.getBody().front()))) {
      builder.setInsertionPoint(op);
      if (failed(divide(op)))
        return failure();
    }
    eraseDeadOps(step);
    return static_cast<int64_t>(divided.size());
  }

private:
  /// The elements of `value` that a replica has: of scales, the ones of its elements' blocks.
  int64_t shardSize(Value value) const {
    int64_t block = blockOf(value), elements = tensorType(value).getNumElements() * block;
    return static_cast<int64_t>(llvm::alignTo(llvm::divideCeil(elements, replicas), grain)) / block;
  }

  /// Notes the sum of a gradient, and the values computed from it element by element.
  LogicalResult begin(train::GradientOp gradient) {
    if (shardSize(gradient.getGradient()) >= tensorType(gradient.getGradient()).getNumElements())
      return success(); // a shard would be no smaller
    shard::AllReduceOp sum = sumOf(gradient);
    if (!sum)
      return gradient.emitError() << "expected the mean over replicas as the gradient of '" << gradient.getParameter()
                                  << "', got another value";
    sums.insert(sum);
    SmallVector<Value> front{sum.getResult()};
    while (!front.empty()) {
      Value value = front.pop_back_val();
      if (!whole.insert(value).second)
        continue;
      for (Operation *user : value.getUsers()) {
        if (auto update = dyn_cast<OptimizerUpdate>(user); update && !update.isElementwise())
          return user->emitError() << "expected an update that is computed element by element for --shard-optimizer, "
                                      "got "
                                   << user->getName() << ", which takes a norm or a mean of '"
                                   << gradient.getParameter() << "': choose another optimizer, or do not divide it";
        if (!divides(user))
          continue;
        for (Value result : user->getResults())
          front.push_back(result);
      }
    }
    return success();
  }

  bool isDivided(Operation *op) const {
    return divides(op) && llvm::any_of(op->getOperands(), [&](Value operand) { return whole.contains(operand); });
  }

  /// Whether all that `op` computes is part of a divided update; codes are decoded for one alone.
  bool readsShards(Operation *op) const {
    return isDivided(op) ||
           (isa<DecodeBlocksOp>(op) && llvm::all_of(op->getUsers(), [&](Operation *user) { return isDivided(user); }));
  }

  /// A master or optimizer state is divided where nobody but the divided update looks at it.
  void chooseStates() {
    auto module = step->getParentOfType<ModuleOp>();
    llvm::StringSet<> elsewhere;
    module.walk([&](train::ReadOp read) {
      if (read->getParentOp() != step ||
          !llvm::all_of(read->getUsers(), [&](Operation *op) { return readsShards(op); }))
        elsewhere.insert(read.getState());
    });
    llvm::StringSet<> written;
    module.walk(
        [&](train::WriteOp write) { (write->getParentOp() == step ? written : elsewhere).insert(write.getState()); });
    for (auto state : module.getOps<train::StateOp>()) {
      bool belongs = state.getRole() == train::Role::master || state.getRole() == train::Role::slot;
      if (belongs && written.contains(state.getSymName()) && !elsewhere.contains(state.getSymName()) &&
          isUpdatedWhole(state))
        divided[state.getSymName()] = state;
    }
    for (auto write : step.getOps<train::WriteOp>())
      if (train::StateOp state = divided.lookup(write.getState()))
        setAttr<DistDialect::ShardAttrHelper>(state, builder.getI64IntegerAttr(shardSize(write.getValue())));
  }

  /// Whether the new value of `state`, of the shape of its parameter, comes from a divided update.
  bool isUpdatedWhole(train::StateOp state) {
    for (auto write : step.getOps<train::WriteOp>())
      if (write.getState() == state.getSymName()) {
        Operation *made = write.getValue().getDefiningOp();
        return whole.contains(write.getValue()) ||
               (made && llvm::any_of(made->getOperands(), [&](Value operand) { return whole.contains(operand); }));
      }
    return false;
  }

  LogicalResult divide(Operation *op) {
    if (auto sum = dyn_cast<shard::AllReduceOp>(op); sum && sums.contains(sum)) {
      scatter(sum);
      return success();
    }
    if (auto write = dyn_cast<train::WriteOp>(op))
      return divideWrite(write);
    SmallVector<Value> parts;
    for (Value operand : op->getOperands())
      if (shards.contains(operand))
        parts.push_back(operand);
    if (parts.empty())
      return success();
    if (auto finite = dyn_cast<train::AllFiniteOp>(op))
      return agreeOnFinite(finite);
    if (auto norm = dyn_cast<train::GlobalNormOp>(op))
      return agreeOnNorm(norm);
    if (divides(op))
      return divideElementwise(op);
    if (!isElementwise(op))
      return op->emitError() << "expected what is computed from a divided gradient element by element, got "
                             << op->getName() << ": it cannot be used with --shard-optimizer";
    // Random numbers belong to the element of the whole tensor.
    for (OpOperand &operand : op->getOpOperands())
      if (shards.contains(operand.get()))
        operand.set(gathered(operand.get()));
    return success();
  }

  /// Replicas add, and each keeps the sums of its own shard.
  void scatter(shard::AllReduceOp sum) {
    GraphBuilder b(builder, sum.getLoc());
    RankedTensorType type = tensorType(sum.getResult());
    Value rows = rowsOf(sum.getInput());
    Value row = shard::ReduceScatterOp::create(
        builder, sum.getLoc(), type.clone({1, shardSize(sum.getResult())}),
        FlatSymbolRefAttr::get(builder.getContext(), kReplicas), builder.getDenseI16ArrayAttr({0}), rows,
        shard::ReductionKindAttr::get(builder.getContext(), ReductionKind::Sum), builder.getIndexAttr(0));
    shards[sum.getResult()] = b.reshape(row, {shardSize(sum.getResult())});
  }

  /// `value` as a row a replica, zeros behind its last element.
  Value rowsOf(Value value) {
    GraphBuilder b(builder, value.getLoc());
    RankedTensorType type = tensorType(value);
    int64_t elements = type.getNumElements(), padded = shardSize(value) * replicas;
    Value flat = b.reshape(value, {elements});
    if (padded != elements)
      flat = b.make<PadOp>(flat, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{padded - elements}, ArrayRef<int64_t>{0},
                           llvm::APFloat(0.0));
    return b.reshape(flat, {replicas, shardSize(value)});
  }

  /// The replica's shard of another operand of an elementwise op with divided operands.
  Value shardOfOperand(Value operand) {
    if (Value known = shards.lookup(operand))
      return known;
    if (tensorType(operand).getRank() == 0)
      return operand;
    Value &part = beside[operand];
    if (!part)
      part = makeShard(operand);
    return part;
  }

  Value makeShard(Value operand) {
    GraphBuilder b(builder, operand.getLoc());
    RankedTensorType type = tensorType(operand);
    int64_t size = shardSize(operand);
    Operation *made = operand.getDefiningOp();
    if (auto read = dyn_cast_or_null<train::ReadOp>(made); read && divided.contains(read.getState()))
      return train::ReadOp::create(builder, read.getLoc(), type.clone({size}), read.getStateAttr());
    if (made && isa<DecodeBlocksOp>(made)) {
      IRMapping mapping;
      for (Value source : made->getOperands())
        mapping.map(source, shardOfOperand(source));
      Value part = builder.clone(*made, mapping)->getResult(0);
      part.setType(type.clone({size}));
      return part;
    }
    if (auto constant = dyn_cast_or_null<ConstantOp>(made))
      if (auto splat = dyn_cast<SplatElementsAttr>(constant.getValue()))
        return b.constant(splat.resizeSplat(type.clone({size})));
    if (auto broadcast = dyn_cast_or_null<BroadcastOp>(made); broadcast && tensorType(broadcast.getX()).getRank() == 0)
      return b.broadcast(broadcast.getX(), {size}, {});
    Value row = shard::AllSliceOp::create(builder, operand.getLoc(), type.clone({1, size}), rowsOf(operand), kReplicas,
                                          ArrayRef<shard::GridAxis>{0}, 0);
    return b.reshape(row, {size});
  }

  LogicalResult divideElementwise(Operation *op) {
    if (isa<train::GradientOp>(op)) {
      shards[op->getResult(0)] = shards.lookup(op->getOperand(0)); // a marker of whole gradients
      return success();
    }
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, shardOfOperand(operand));
    Operation *clone = builder.clone(*op, mapping);
    for (auto [result, part] : llvm::zip_equal(op->getResults(), clone->getResults())) {
      part.setType(tensorType(result).clone({shardSize(result)}));
      shards[result] = part;
    }
    return success();
  }

  /// A value of all shards, on every replica.
  Value gathered(Value value) {
    Value &all = wholes[value];
    if (all)
      return all;
    GraphBuilder b(builder, value.getLoc());
    RankedTensorType type = tensorType(value);
    int64_t size = shardSize(value), elements = type.getNumElements();
    Value row = b.reshape(shards.lookup(value), {1, size});
    Value rows = shard::AllGatherOp::create(builder, value.getLoc(), type.clone({replicas, size}),
                                            FlatSymbolRefAttr::get(builder.getContext(), kReplicas),
                                            builder.getDenseI16ArrayAttr({0}), row, builder.getIndexAttr(0));
    Value flat = b.reshape(rows, {replicas * size});
    if (elements != replicas * size)
      flat = b.slice(flat, {0}, {elements});
    return all = b.reshape(flat, type.getShape());
  }

  LogicalResult divideWrite(train::WriteOp write) {
    Value value = write.getValue();
    if (divided.contains(write.getState())) {
      train::WriteOp::create(builder, write.getLoc(), write.getStateAttr(), shardOfOperand(value),
                             write.getCondition());
      write->erase();
    } else if (shards.contains(value)) {
      write.getValueMutable().assign(gathered(value));
    }
    return success();
  }

  /// Of an op on values some of which are divided: the shards, and the others.
  std::pair<SmallVector<Value>, SmallVector<Value>> partition(ValueRange values) {
    SmallVector<Value> parts, others;
    for (Value value : values)
      if (Value part = shards.lookup(value))
        parts.push_back(part);
      else
        others.push_back(value);
    return {parts, others};
  }

  /// Gradients are finite where every shard is.
  LogicalResult agreeOnFinite(train::AllFiniteOp finite) {
    auto [parts, others] = partition(finite.getValues());
    GraphBuilder b(builder, finite.getLoc());
    Value own = train::AllFiniteOp::create(builder, finite.getLoc(), finite.getType(), parts);
    Value bad = b.select(own, b.scalar(builder.getF32Type(), 0.0), b.scalar(builder.getF32Type(), 1.0));
    Value all = b.compare(Predicate::eq, allReduce(builder, bad, ReductionKind::Max), 0.0);
    if (!others.empty())
      all = b.make<AndOp>(all, train::AllFiniteOp::create(builder, finite.getLoc(), finite.getType(), others));
    finite.getFinite().replaceAllUsesWith(all);
    return success();
  }

  /// The squares of shards are added along the tree of replicas, then the squares of undivided values.
  LogicalResult agreeOnNorm(train::GlobalNormOp norm) {
    auto [parts, others] = partition(norm.getValues());
    GraphBuilder b(builder, norm.getLoc());
    Type type = builder.getF32Type();
    if (tensorType(norm.getNorm()).getElementType() != type)
      return norm.emitError() << "expected a norm in f32 with --shard-optimizer, got " << norm.getNorm().getType();
    auto squares = [&](ArrayRef<Value> values) {
      Value sum;
      for (Value value : values) {
        Value wide = b.cast(value, type);
        SmallVector<int64_t> axes = llvm::to_vector(llvm::seq<int64_t>(0, tensorType(wide).getRank()));
        Value part = b.sum(b.mul(wide, wide), axes);
        sum = sum ? b.add(sum, part) : part;
      }
      return sum;
    };
    Value total = allReduce(builder, squares(parts), ReductionKind::Sum);
    if (Value rest = squares(others))
      total = b.add(total, rest);
    norm.getNorm().replaceAllUsesWith(b.make<SqrtOp>(total));
    return success();
  }

  func::FuncOp step;
  OpBuilder builder;
  const int64_t replicas;
  int64_t grain = kGrain;
  llvm::DenseSet<Operation *> sums; ///< of gradients that are divided
  llvm::DenseSet<Value> whole;      ///< values computed from them element by element
  llvm::MapVector<StringRef, train::StateOp> divided;
  DenseMap<Value, Value> shards; ///< a value of `whole` to the replica's part
  DenseMap<Value, Value> beside; ///< another operand of a divided op to the replica's part
  DenseMap<Value, Value> wholes; ///< a divided value to all of it
};

struct ShardOptimizer : mpt::impl::ShardOptimizerBase<ShardOptimizer> {
  using ShardOptimizerBase::ShardOptimizerBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::optional<int64_t> replicas = replicasOf(module);
    if (!replicas)
      return;
    func::FuncOp step = findFunction(module, "step");
    if (!step)
      return signalPassFailure();
    if (*replicas == kOneAProcess) {
      step.emitError()
          << "expected a number of replicas for --shard-optimizer, got any: the size of a shard is part of "
             "the library";
      return signalPassFailure();
    }
    if (PrecisionSettings::of(module).scaling.checksByParameter()) {
      step.emitError()
          << "expected a finite check of the step as a whole for --shard-optimizer, got one by parameter: a "
             "process has parts of gradients alone; take --loss-scale=check=step";
      return signalPassFailure();
    }
    FailureOr<int64_t> states = Division(step, *replicas).run();
    if (failed(states))
      return signalPassFailure();
    numStates += *states;
  }
};

} // namespace
