// GPU kernels on a processor: loops over blocks and threads, split where threads wait for each other.
#include "mpt/Lowering/GpuKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

using namespace mlir;
using namespace mpt;

namespace {

/// One launch: the code of a thread as stretches between the points where threads meet.
class Launch {
public:
  Launch(func::FuncOp kernel, ImplicitLocOpBuilder &b) : kernel(kernel), b(b) {
    threads = cast<DenseI64ArrayAttr>(kernel->getAttr(kBlockAttr))[0];
  }

  LogicalResult split();
  /// Emits the loops; `arguments` stand for the kernel's.
  void emit(ValueRange arguments);

private:
  static bool isMeeting(Operation &op) { return isa<gpu::BarrierOp, gpu::ShuffleOp>(op); }
  /// Made once for a block: addresses, constants, shared memory, and what follows from the block's number alone.
  bool isUniform(Operation &op) const { return uniform.contains(&op); }
  void findUniform();
  Value number(int64_t n) { return arith::ConstantIndexOp::create(b, n); }
  void emitUniform(Operation &op, IRMapping &mapping, ArrayRef<Value> blocks);
  void emitStretch(unsigned index, IRMapping uniform);

  func::FuncOp kernel;
  ImplicitLocOpBuilder &b;
  int64_t threads;
  llvm::DenseSet<Operation *> uniform;
  SmallVector<SmallVector<Operation *>> stretches;
  llvm::DenseMap<Value, unsigned> definedIn; ///< stretch of a thread's value
  llvm::DenseMap<Value, Value> kept;         ///< memory of values that later stretches read, one element a thread
};

} // namespace

void Launch::findUniform() {
  Block &body = kernel.getBody().front();
  auto isKnown = [&](Value value, Operation &op) {
    Operation *source = value.getDefiningOp();
    return source ? uniform.contains(source) || op.isAncestor(source) : value.getParentBlock() == &body;
  };
  for (Operation &op : body.without_terminator()) {
    bool found = isa<arith::ConstantOp, gpu::BlockIdOp>(op) ||
                 (op.getNumResults() == 1 && isa<MemRefType>(op.getResult(0).getType()));
    if (!found && (isa<scf::IfOp>(op) || op.getNumRegions() == 0) && op.getNumResults() != 0 &&
        isMemoryEffectFree(&op) && !isa<gpu::ThreadIdOp, gpu::ShuffleOp>(op)) {
      found = true;
      op.walk([&](Operation *nested) {
        found &= llvm::all_of(nested->getOperands(), [&](Value operand) { return isKnown(operand, op); });
      });
    }
    if (found)
      uniform.insert(&op);
  }
}

LogicalResult Launch::split() {
  findUniform();
  stretches.emplace_back();
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    if (isUniform(op))
      continue;
    WalkResult inner = op.walk([&](Operation *nested) {
      return nested != &op && isMeeting(*nested) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (inner.wasInterrupted())
      return op.emitOpError() << "expected threads to meet outside loops and branches";
    if (isMeeting(op))
      stretches.emplace_back();
    if (isa<gpu::BarrierOp>(op))
      continue;
    stretches.back().push_back(&op);
    for (Value result : op.getResults())
      definedIn[result] = stretches.size() - 1;
  }
  return success();
}

void Launch::emitUniform(Operation &op, IRMapping &mapping, ArrayRef<Value> blocks) {
  if (auto id = dyn_cast<gpu::BlockIdOp>(op)) {
    mapping.map(id.getResult(), blocks[static_cast<unsigned>(id.getDimension())]);
    return;
  }
  b.clone(op, mapping);
}

void Launch::emitStretch(unsigned index, IRMapping uniform) {
  auto loop = scf::ForOp::create(b, number(0), number(threads), number(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value thread = loop.getInductionVar();
  IRMapping local(uniform);
  auto fetch = [&](Value value) {
    auto found = definedIn.find(value);
    if (found == definedIn.end() || local.contains(value))
      return;
    if (value.getDefiningOp<gpu::ThreadIdOp>())
      return local.map(value, thread);
    Value from = thread;
    if (auto shuffle = value.getDefiningOp<gpu::ShuffleOp>()) {
      Value distance = arith::IndexCastOp::create(b, b.getIndexType(), uniform.lookup(shuffle.getOffset()));
      from = arith::XOrIOp::create(b, thread, distance);
    }
    local.map(value, memref::LoadOp::create(b, kept.lookup(value), from));
  };
  for (Operation *op : stretches[index]) {
    if (isa<gpu::ThreadIdOp, gpu::ShuffleOp>(op))
      continue;
    op->walk([&](Operation *nested) {
      for (Value operand : nested->getOperands())
        if (definedIn.lookup(operand) != index || operand.getDefiningOp<gpu::ThreadIdOp>() ||
            operand.getDefiningOp<gpu::ShuffleOp>())
          fetch(operand);
    });
    b.clone(*op, local);
    for (Value result : op->getResults())
      if (Value memory = kept.lookup(result))
        memref::StoreOp::create(b, local.lookup(result), memory, thread);
  }
  // What this stretch gives to an exchange at its end lies where the partners look for it.
  if (index + 1 < stretches.size() && !stretches[index + 1].empty())
    if (auto shuffle = dyn_cast<gpu::ShuffleOp>(stretches[index + 1].front())) {
      fetch(shuffle.getValue());
      memref::StoreOp::create(b, local.lookupOrDefault(shuffle.getValue()), kept.lookup(shuffle.getShuffleResult()),
                              thread);
    }
}

void Launch::emit(ValueRange arguments) {
  IRMapping mapping;
  mapping.map(kernel.getArguments(), arguments);
  // Memory of the block and of values that outlive their stretch, made once.
  SmallVector<Value> allocated;
  auto allocate = [&](ArrayRef<int64_t> shape, Type element) {
    allocated.push_back(memref::AllocOp::create(b, MemRefType::get(shape, element), b.getI64IntegerAttr(64)));
    return allocated.back();
  };
  for (auto global : kernel.getBody().front().getOps<memref::GetGlobalOp>())
    if (global.getType().getMemorySpace())
      mapping.map(global.getResult(), allocate(global.getType().getShape(), global.getType().getElementType()));
  SmallVector<Value> values;
  for (Operation &op : kernel.getBody().front())
    if (!isa<gpu::ThreadIdOp>(op))
      llvm::append_range(values, op.getResults());
  for (Value value : values) {
    auto found = definedIn.find(value);
    if (found == definedIn.end())
      continue;
    unsigned stretch = found->second;
    auto shuffle = value.getDefiningOp<gpu::ShuffleOp>();
    bool outlives = shuffle && value == shuffle.getShuffleResult();
    for (Operation *user : value.getUsers()) {
      while (user->getParentOp() != kernel.getOperation())
        user = user->getParentOp();
      // An exchange reads its operand at the end of the stretch before it.
      bool later = true;
      for (Operation *op : stretches[stretch])
        later &= op != user;
      outlives |= later;
    }
    if (outlives)
      kept[value] = allocate({threads}, value.getType());
  }
  auto grid = cast<DenseI64ArrayAttr>(kernel->getAttr(kGridAttr)).asArrayRef();
  SmallVector<Value> blocks(3);
  OpBuilder::InsertionGuard guard(b);
  for (int dimension : {2, 1, 0}) {
    auto loop = scf::ForOp::create(b, number(0), number(grid[dimension]), number(1));
    blocks[dimension] = loop.getInductionVar();
    b.setInsertionPointToStart(loop.getBody());
  }
  for (Operation &op : kernel.getBody().front().without_terminator())
    if (isUniform(op) && !mapping.contains(op.getResult(0)))
      emitUniform(op, mapping, blocks);
  for (unsigned i = 0; i < stretches.size(); ++i)
    emitStretch(i, mapping);
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
  if (Attribute pairs = first->getAttr(kInPlaceAttr))
    function->setAttr(kInPlaceAttr, pairs);
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
  return function;
}
