// SPDX-License-Identifier: Apache-2.0
// GPU kernels on a processor: loops over blocks and threads, split where threads wait for each other.
// Matcher: the ops of the gpu dialect at which threads meet, or that number threads and blocks.
#include "mpt/Lowering/Emulation/Emulation.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/Emission/FloatOps.h"
#include "mpt/Lowering/GPU/Kernel.h"

#include "MatrixEmulation.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace mpt;

namespace {

/// One launch: the code of a thread as stretches between the points where threads meet.
class Launch {
public:
  Launch(func::FuncOp kernel, ImplicitLocOpBuilder &b) : kernel(kernel), b(b) {
    threads = cast<DenseI64ArrayAttr>(getAttr<MPTDialect::BlockAttrHelper>(kernel))[0];
  }

  LogicalResult split() { return split(kernel.getBody().front(), steps); }
  /// Emits the loops; `arguments` stand for the kernel's.
  void emit(ValueRange arguments);

private:
  /// A stretch that all threads run before the next begins, or a loop in which they meet.
  struct Step {
    unsigned number = 0; ///< unlike any other stretch's
    SmallVector<Operation *> ops;
    scf::ForOp loop;
    std::vector<Step> body;
  };
  static bool isMeeting(Operation &op) { return isa<gpu::BarrierOp, gpu::ShuffleOp>(op); }
  static bool meetsInside(Operation &op) {
    return op
        .walk([&](Operation *nested) {
          return nested != &op && isMeeting(*nested) ? WalkResult::interrupt() : WalkResult::advance();
        })
        .wasInterrupted();
  }
  /// Made once for a block: addresses, constants, shared memory, and values of the block's number alone.
  bool isUniform(Operation &op) const { return uniform.contains(&op); }
  bool isKnown(Value value, Operation &op);
  bool readsConstants(Operation &op);
  void findUniform(Block &body);
  LogicalResult split(Block &body, std::vector<Step> &into);
  /// The value that a loop in which threads meet carries as `argument`, and its result, lie in one place.
  void keep(Value value, Value sameAs = {});
  void keepWhatOutlives(const std::vector<Step> &steps);
  Value number(int64_t n) { return arith::ConstantIndexOp::create(b, n); }
  Value allocate(ArrayRef<int64_t> shape, Type element);
  void emitUniform(Block &body, IRMapping &mapping);
  void emitSteps(ArrayRef<Step> steps, IRMapping &mapping);
  void emitStretch(const Step &step, const Step *next, const IRMapping &uniform);
  Value fetch(Value value, unsigned stretch, Value thread, IRMapping &local, const IRMapping &uniform);

  func::FuncOp kernel;
  ImplicitLocOpBuilder &b;
  int64_t threads;
  unsigned stretches = 0;
  llvm::DenseSet<Operation *> uniform;
  llvm::DenseSet<Value> carried; ///< counters and carried values of loops in which threads meet
  std::vector<Step> steps;
  llvm::DenseMap<Value, unsigned> definedIn; ///< stretch of a thread's value
  llvm::DenseMap<Value, Value> kept;         ///< memory of values that later stretches read, one element a thread
  SmallVector<Value> allocated;
  Value blocks[3];
  scf::ForOp around; ///< the loop in which threads meet that is being emitted
};

} // namespace

bool Launch::isKnown(Value value, Operation &op) {
  if (Operation *source = value.getDefiningOp())
    return uniform.contains(source) || op.isAncestor(source);
  auto argument = cast<BlockArgument>(value);
  Operation *owner = argument.getOwner()->getParentOp();
  return owner == kernel.getOperation() || op.isAncestor(owner) ||
         (argument.getArgNumber() == 0 && carried.contains(value));
}

/// Reads of arguments that the kernel says it does not write.
bool Launch::readsConstants(Operation &op) {
  auto load = dyn_cast<memref::LoadOp>(op);
  auto argument = load ? dyn_cast<BlockArgument>(load.getMemRef()) : BlockArgument();
  return argument && argument.getOwner() == &kernel.getBody().front() &&
         kernel.getArgAttr(argument.getArgNumber(), "llvm.readonly");
}

void Launch::findUniform(Block &body) {
  for (Operation &op : body.without_terminator()) {
    bool found = isa<arith::ConstantOp, gpu::BlockIdOp>(op) ||
                 (op.getNumResults() == 1 && isa<MemRefType>(op.getResult(0).getType()));
    if (!found && (isa<scf::IfOp>(op) || op.getNumRegions() == 0) && op.getNumResults() != 0 &&
        (isMemoryEffectFree(&op) || readsConstants(op)) && !isa<gpu::ThreadIdOp, gpu::ShuffleOp>(op) &&
        !isa<gpu::MMAMatrixType>(op.getResult(0).getType())) {
      found = true;
      op.walk([&](Operation *nested) {
        found &= llvm::all_of(nested->getOperands(), [&](Value operand) { return isKnown(operand, op); });
      });
    }
    if (found)
      uniform.insert(&op);
  }
}

LogicalResult Launch::split(Block &body, std::vector<Step> &into) {
  findUniform(body);
  auto begin = [&] {
    into.emplace_back();
    into.back().number = ++stretches;
  };
  begin();
  for (Operation &op : body.without_terminator()) {
    if (isUniform(op))
      continue;
    if (meetsInside(op)) {
      auto loop = dyn_cast<scf::ForOp>(op);
      if (!loop || !llvm::all_of(ValueRange{loop.getLowerBound(), loop.getUpperBound(), loop.getStep()},
                                 [&](Value bound) { return isKnown(bound, op); }))
        return op.emitOpError() << "expected threads to meet outside branches, and in loops that all of them run alike";
      carried.insert(loop.getBody()->args_begin(), loop.getBody()->args_end());
      into.emplace_back();
      into.back().loop = loop;
      std::vector<Step> inside;
      if (failed(split(*loop.getBody(), inside)))
        return failure();
      into.back().body = std::move(inside);
      begin();
      continue;
    }
    if (isMeeting(op))
      begin();
    if (isa<gpu::BarrierOp>(op))
      continue;
    into.back().ops.push_back(&op);
    for (Value result : op.getResults())
      definedIn[result] = into.back().number;
  }
  return success();
}

Value Launch::allocate(ArrayRef<int64_t> shape, Type element) {
  allocated.push_back(memref::AllocOp::create(b, MemRefType::get(shape, element), b.getI64IntegerAttr(64)));
  return allocated.back();
}

void Launch::keep(Value value, Value sameAs) {
  Value &memory = kept[value];
  if (sameAs)
    memory = kept.lookup(sameAs);
  else if (auto matrix = dyn_cast<gpu::MMAMatrixType>(value.getType()))
    // One a warp, as FP32.
    memory = allocate(
        {static_cast<int64_t>(llvm::divideCeil(threads, warpLanes)), matrix.getShape()[0], matrix.getShape()[1]},
        b.getF32Type());
  else
    memory = allocate({threads}, value.getType());
}

void Launch::keepWhatOutlives(const std::vector<Step> &steps) {
  for (const Step &step : steps) {
    if (scf::ForOp loop = step.loop) {
      for (auto [argument, result] : llvm::zip_equal(loop.getRegionIterArgs(), loop.getResults())) {
        keep(argument);
        keep(result, argument);
        definedIn[argument] = definedIn[result] = 0;
      }
      keepWhatOutlives(step.body);
      continue;
    }
    for (Operation *op : step.ops)
      for (Value value : op->getResults()) {
        if (isa<gpu::ThreadIdOp>(op))
          continue;
        auto shuffle = dyn_cast<gpu::ShuffleOp>(op);
        bool outlives = (shuffle && value == shuffle.getShuffleResult()) || isa<gpu::MMAMatrixType>(value.getType());
        for (Operation *user : value.getUsers()) {
          // An exchange reads its operand at the end of the stretch before it.
          while (user && !llvm::is_contained(step.ops, user))
            user = user->getParentOp();
          outlives |= !user;
        }
        if (outlives)
          keep(value);
      }
  }
}

void Launch::emitUniform(Block &body, IRMapping &mapping) {
  for (Operation &op : body.without_terminator()) {
    if (!isUniform(op) || mapping.contains(op.getResult(0)))
      continue;
    if (auto id = dyn_cast<gpu::BlockIdOp>(op))
      mapping.map(id.getResult(), blocks[static_cast<unsigned>(id.getDimension())]);
    else
      b.clone(op, mapping);
  }
}

/// `value` for `thread`, from memory where another stretch makes it; a matrix stays in memory.
Value Launch::fetch(Value value, unsigned stretch, Value thread, IRMapping &local, const IRMapping &uniform) {
  if (isa<gpu::MMAMatrixType>(value.getType()))
    return kept.lookup(value);
  auto found = definedIn.find(value);
  auto shuffle = value.getDefiningOp<gpu::ShuffleOp>();
  bool isThread = value.getDefiningOp<gpu::ThreadIdOp>() != nullptr;
  if (found == definedIn.end() || local.contains(value) || (found->second == stretch && !shuffle && !isThread))
    return local.lookupOrDefault(value);
  if (isThread) {
    local.map(value, thread);
    return thread;
  }
  Value from = thread;
  if (shuffle) {
    Value distance = arith::IndexCastOp::create(b, b.getIndexType(), uniform.lookup(shuffle.getOffset()));
    from = arith::XOrIOp::create(b, thread, distance);
  }
  local.map(value, memref::LoadOp::create(b, kept.lookup(value), from));
  return local.lookup(value);
}

/// `next`, null at the end of a loop's body: the step behind.
void Launch::emitStretch(const Step &step, const Step *next, const IRMapping &uniform) {
  // Values that a loop begins or goes on with, and where they lie.
  SmallVector<std::pair<Value, Value>> moved;
  if (scf::ForOp loop = next ? next->loop : scf::ForOp())
    for (auto [from, to] : llvm::zip_equal(loop.getInitArgs(), loop.getRegionIterArgs()))
      moved.emplace_back(from, kept.lookup(to));
  if (!next && around)
    for (auto [from, to] : llvm::zip_equal(around.getYieldedValues(), around.getRegionIterArgs()))
      moved.emplace_back(from, kept.lookup(to));
  if (step.ops.empty() && moved.empty() && !(next && !next->ops.empty() && isa<gpu::ShuffleOp>(next->ops.front())))
    return;
  auto loop = scf::ForOp::create(b, number(0), number(threads), number(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value thread = loop.getInductionVar();
  IRMapping local(uniform);
  for (Operation *op : step.ops) {
    if (isa<gpu::ThreadIdOp, gpu::ShuffleOp>(op))
      continue;
    op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        fetch(operand, step.number, thread, local, uniform);
    });
    if (isMatrixOp(*op)) {
      emulateMatrixOp(b, *op, thread, local, [&](Value matrix) { return kept.lookup(matrix); });
      continue;
    }
    b.clone(*op, local);
    for (Value result : op->getResults())
      if (Value memory = kept.lookup(result))
        memref::StoreOp::create(b, local.lookup(result), memory, thread);
  }
  SmallVector<Value> values;
  for (auto [from, to] : moved)
    values.push_back(fetch(from, step.number, thread, local, uniform));
  for (auto [value, to] : llvm::zip_equal(values, llvm::make_second_range(moved)))
    if (isa<MemRefType>(value.getType()))
      emulateMatrixCopy(b, value, to, thread);
    else
      memref::StoreOp::create(b, value, to, thread);
  // The value that this stretch gives to an exchange at its end lies where the partners look for it.
  if (next && !next->ops.empty())
    if (auto shuffle = dyn_cast<gpu::ShuffleOp>(next->ops.front()))
      memref::StoreOp::create(b, fetch(shuffle.getValue(), step.number, thread, local, uniform),
                              kept.lookup(shuffle.getShuffleResult()), thread);
}

void Launch::emitSteps(ArrayRef<Step> steps, IRMapping &mapping) {
  for (auto [i, step] : llvm::enumerate(steps)) {
    if (!step.loop) {
      emitStretch(step, i + 1 < steps.size() ? &steps[i + 1] : nullptr, mapping);
      continue;
    }
    scf::ForOp of = step.loop;
    auto loop = scf::ForOp::create(b, mapping.lookupOrDefault(of.getLowerBound()),
                                   mapping.lookupOrDefault(of.getUpperBound()), mapping.lookupOrDefault(of.getStep()));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    IRMapping inside(mapping);
    inside.map(of.getInductionVar(), loop.getInductionVar());
    emitUniform(*of.getBody(), inside);
    llvm::SaveAndRestore within(around, of);
    emitSteps(step.body, inside);
  }
}

void Launch::emit(ValueRange arguments) {
  IRMapping mapping;
  mapping.map(kernel.getArguments(), arguments);
  // Memory of the block and of values that outlive their stretch, made once.
  kernel.walk([&](memref::GetGlobalOp global) {
    if (global.getType().getMemorySpace())
      mapping.map(global.getResult(), allocate(global.getType().getShape(), global.getType().getElementType()));
  });
  keepWhatOutlives(steps);
  auto grid = cast<DenseI64ArrayAttr>(getAttr<MPTDialect::GridAttrHelper>(kernel)).asArrayRef();
  OpBuilder::InsertionGuard guard(b);
  for (int dimension : {2, 1, 0}) {
    auto loop = scf::ForOp::create(b, number(0), number(grid[dimension]), number(1));
    blocks[dimension] = loop.getInductionVar();
    b.setInsertionPointToStart(loop.getBody());
  }
  emitUniform(kernel.getBody().front(), mapping);
  emitSteps(steps, mapping);
  // Out of the loops over blocks.
  Operation *outermost = blocks[2].getParentBlock()->getParentOp();
  b.setInsertionPointAfter(outermost);
  for (Value memory : allocated)
    memref::DeallocOp::create(b, memory);
}

FailureOr<func::FuncOp> mpt::emulateGpuKernel(OpBuilder &builder, ArrayRef<func::FuncOp> launches, StringRef name) {
  func::FuncOp first = launches.front();
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointAfter(launches.back());
  SmallVector<Type> types(first.getArgumentTypes());
  types.append(2, builder.getIndexType());
  auto function =
      func::FuncOp::create(builder, first.getLoc(), "mpt_emulated", builder.getFunctionType(types, TypeRange()));
  function.setPrivate();
  ImplicitLocOpBuilder b(first.getLoc(), builder);
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToEnd(entry);
  auto unit = scf::ForOp::create(b, entry->getArguments().drop_back().back(), entry->getArguments().back(),
                                 arith::ConstantIndexOp::create(b, 1));
  func::ReturnOp::create(b);
  for (func::FuncOp kernel : launches) {
    b.setInsertionPoint(unit.getBody()->getTerminator());
    Launch launch(kernel, b);
    if (failed(launch.split()))
      return failure();
    launch.emit(entry->getArguments().drop_back(2));
  }
  if (DenseI64ArrayAttr pairs = getAttr<MPTDialect::InPlaceAttrHelper>(first))
    setAttr<MPTDialect::InPlaceAttrHelper>(function, pairs);
  for (func::FuncOp kernel : launches) {
    auto module = kernel->getParentOfType<ModuleOp>();
    kernel.walk([&](memref::GetGlobalOp use) {
      if (use.getType().getMemorySpace())
        if (Operation *global = module.lookupSymbol(use.getName()))
          global->erase();
    });
    kernel->erase();
  }
  function.setName(name);
  widenExactOps(function, KernelTarget::host());
  expandFloatOps(function, KernelTarget::host());
  return function;
}
