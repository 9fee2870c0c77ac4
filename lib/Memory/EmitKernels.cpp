// SPDX-License-Identifier: Apache-2.0
// Kernels as loops in the place of their fusions, and what launches learn from them: how far they run, scratch, and
// whether they may write over a state that they read.
#include "Kernels.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Memory/Bufferization.h"
#include "mpt/Memory/Layout.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

class KernelEmission {
public:
  KernelEmission(ModuleOp module, const KernelEmitter &emitter) : module(module), emitter(emitter) {}

  LogicalResult run() {
    if (failed(emitDeclared()))
      return failure();
    SmallVector<rt::LaunchOp> launches;
    module.walk([&](rt::LaunchOp launch) { launches.push_back(launch); });
    for (rt::LaunchOp launch : launches)
      if (failed(settle(launch)))
        return failure();
    return success();
  }

private:
  ModuleOp module;
  const KernelEmitter &emitter;
  struct Emitted {
    LaunchShape shape;
    func::FuncOp function; // of the first launch
  };
  llvm::StringMap<Emitted> kernels; // by name

  LogicalResult emitDeclared() {
    for (auto kernel : llvm::to_vector(module.getOps<func::FuncOp>()))
      if (FusionOp fusion = declaredFusion(kernel); fusion && failed(emit(kernel, fusion)))
        return failure();
    return success();
  }

  /// Puts the loops in the place of the declared kernel, which holds `fusion`.
  LogicalResult emit(func::FuncOp declared, FusionOp fusion) {
    KernelTypes types = typesOf(declared, fusion);
    std::string name = declared.getSymName().str();
    auto ops = getAttr<MPTDialect::OpsAttrHelper>(declared);
    declared->remove();
    OwningOpRef<func::FuncOp> owned(declared);
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    FailureOr<LaunchShape> shape = emitter(builder, fusion, types.inputs, types.outputs, name, types.alignments);
    if (failed(shape))
      return failure();
    auto function = module.lookupSymbol<func::FuncOp>(name);
    assert(function && "the emitter builds a function of the name it was given");
    bool several = module.lookupSymbol(name + "_1");
    for (size_t i = 0; i < types.outputs.size(); ++i)
      if (!several && function.getArgument(types.inputs.size() + i).use_empty())
        return fusion.emitOpError() << "expected a kernel that writes result " << i << ", got one that does not";
    function.setPrivate();
    setAttr<MPTDialect::OpsAttrHelper>(function, ops);
    // Further launches of the kernel are functions named after it.
    func::FuncOp launch = function;
    for (unsigned i = 1; launch; ++i) {
      setAttr<MPTDialect::KernelAttrHelper>(launch);
      launch = module.lookupSymbol<func::FuncOp>(name + "_" + std::to_string(i));
    }
    kernels[name] = {*shape, function};
    return success();
  }

  struct KernelTypes {
    SmallVector<MemRefType> inputs, outputs;
    SmallVector<int64_t> alignments;
  };
  static KernelTypes typesOf(func::FuncOp declared, FusionOp fusion) {
    KernelTypes types;
    for (BlockArgument argument : declared.getArguments()) {
      bool isInput = argument.getArgNumber() < fusion.getNumOperands();
      (isInput ? types.inputs : types.outputs).push_back(cast<MemRefType>(argument.getType()));
      auto aligned = dyn_cast<memref::AssumeAlignmentOp>(*argument.getUsers().begin());
      types.alignments.push_back(aligned ? aligned.getAlignment() : 1);
    }
    return types;
  }

  LogicalResult settle(rt::LaunchOp launch) {
    auto found = kernels.find(launch.getCallee());
    if (found == kernels.end()) // its kernel had code before
      return success();
    const auto [shape, kernel] = found->second;
    OpBuilder builder(launch);
    launch.setExtent(shape.extent);
    launch.setGrain(shape.grain);
    for (size_t o = launch.getNumInputs(), e = launch.getBuffers().size(); o < e; ++o)
      if (failed(settleOutput(launch, kernel, o)))
        return failure();
    if (shape.scratchBytes == 0)
      return success();
    if (!isa<func::FuncOp>(launch->getParentOp()))
      return launch.emitError() << "expected a kernel without scratch in a loop, got one with " << shape.scratchBytes
                                << " bytes";
    auto scratch = MemRefType::get({shape.scratchBytes}, builder.getI8Type());
    launch.getBuffersMutable().append(
        rt::AllocOp::create(builder, launch.getLoc(), scratch, IntegerAttr()).getResult());
    return success();
  }

  /// Takes output `o` to a buffer of its own where it is a state that the kernel reads elsewhere than at the index that
  /// it writes; a copy follows. All reads of the old value lie before: --memory-assign-destinations sees to it.
  LogicalResult settleOutput(rt::LaunchOp launch, func::FuncOp kernel, size_t o) {
    Value output = launch.getBuffers()[o], root = rootOf(output).first;
    bool isState = isInState(output), readsElsewhere = false;
    for (size_t i = 0, e = launch.getNumInputs(); i < e; ++i) {
      Value input = launch.getBuffers()[i];
      bool isSame = sameMemory(input, output);
      if ((isState ? rootOf(input).first != root : !isSame) || (isSame && mayRunInPlace(kernel, i, o)))
        continue;
      if (!isState)
        return launch.emitError() << "expected a kernel that may write over its operand " << i
                                  << ", got one that may not";
      readsElsewhere = true;
    }
    if (!readsElsewhere)
      return success();
    OpBuilder builder(launch);
    MemRefType type = bufferTypeOf(output);
    Value own = rt::AllocOp::create(builder, launch.getLoc(), type, IntegerAttr());
    launch.getBuffersMutable()[o].set(own);
    builder.setInsertionPointAfter(launch);
    return copy(builder, launch.getLoc(), own, output);
  }

  LogicalResult copy(OpBuilder &builder, Location loc, Value from, Value to) {
    MemRefType type = bufferTypeOf(from);
    if (spanBytes(type) == elementCount(type.getShape()) * elementBytes(type.getElementType())) {
      rt::CopyOp::create(builder, loc, from, to);
      return success();
    }
    func::FuncOp kernel = KernelTable(module).getCopy(loc, type, type, {1, 1});
    std::string name = kernel.getSymName().str();
    if (failed(emit(kernel, declaredFusion(kernel))))
      return failure();
    const LaunchShape &shape = kernels[name].shape;
    rt::LaunchOp::create(builder, loc, name, ValueRange{from, to}, 1, shape.extent, shape.grain);
    return success();
  }
};

} // namespace

LogicalResult mpt::memory::emitKernels(ModuleOp module, const KernelEmitter &emitter) {
  return KernelEmission(module, emitter).run();
}
